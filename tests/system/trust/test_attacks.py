"""Whoever knocks at a PCT's port without right: refused, each for its own logged reason, and others are served."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Iterator

import pytest

from agents.link import tls
from agents.link.trust import Trust
from agents.wire.address import LAUNCH
from agents.wire.control import control
from agents.wire.credential import Credential, read
from agents.wire.frames import COMMON, CONTROL, frame
from agents.wire.messages import hello
from agents.wire.roles import LAUNCHER
from agents.wire.roles import PCT as MAY
from console.deploy.trust.authority import authority, identity
from tests.support.far_pcts import MESH, UID, FarMachine, Talk
from tests.support.waiting import wait_until

#: Requests of every operation of a PCT's table that is asked on a session.
REQUESTS = {
    "status": {"op": "status"},
    "kill_launch": {"op": "kill_launch", "launcher": 9},
    "failed": {"op": "failed", "launcher": 9},
    "death": {"op": "death", "launcher": 9},
    "wipe": {"op": "wipe"},
    "trust": {"op": "trust", "files": {}},
}
LIMIT = 64 << 20


@pytest.fixture(scope="module")
def machine() -> Iterator[FarMachine]:
    with FarMachine(2) as machine:
        yield machine


_next = iter(range(100, 10_000))


@contextlib.contextmanager
def refused(machine: FarMachine, reason: str, node: str = "n0") -> Iterator[None]:
    """What happens inside is logged by ``node`` as refused for ``reason``, and for nothing else."""
    before = len(machine.refusals(node))
    yield
    wait_until(lambda: len(machine.refusals(node)) > before, f"{reason} is logged")
    assert machine.refusals(node)[before:] == [reason]


def _ask(machine: FarMachine, trust: Trust, request: dict[str, object], **shown: str) -> dict[str, object]:
    talk = Talk(machine.visit(trust))
    talk.sock.sendall(control({**hello("admin"), **shown}) + control({"id": 1, **request}))
    try:
        while True:
            for message in talk.messages:
                if "re" in message:
                    return message
            assert talk.read(), f"no reply, only {talk.messages}"
    finally:
        talk.close()


def _launches(machine: FarMachine, nodes: list[str] | None = None) -> bool:
    load, common = machine.load(next(_next), nodes)
    statuses = machine.launch(load, common, machine.credential(load, common)).run()
    return statuses == [0] * len(load["nodes"])


def test_a_launch_with_its_credential_runs_on_both_nodes(machine: FarMachine) -> None:
    assert _launches(machine, ["n0", "n1"])


@pytest.mark.parametrize("op", sorted(REQUESTS))
class TestOperations:
    """Every operation, by everybody who may not ask for it."""

    def test_without_a_certificate(self, machine: FarMachine, op: str) -> None:
        with refused(machine, "no_credential"):
            assert "error" in _ask(machine, machine.trust(), REQUESTS[op])

    @pytest.mark.parametrize("role", ["pct", "cpa", "rca", "admin"])
    def test_a_certificate_of_another_role_is_denied(self, machine: FarMachine, op: str, role: str) -> None:
        trust = machine.trust(role)
        if role in MAY[op]:
            if op not in ("wipe", "trust"):  # they are not attacks, and change the node
                assert "error" not in _ask(machine, trust, REQUESTS[op])
            return
        with refused(machine, "wrong_role"):
            assert _ask(machine, trust, REQUESTS[op])["error"]["code"] == "denied"  # type: ignore[index]

    def test_with_an_expired_certificate(self, machine: FarMachine, op: str) -> None:
        with refused(machine, "handshake"), pytest.raises(OSError, match="expired"):
            _ask(machine, machine.trust("cpa", lasts_days=-1), REQUESTS[op])

    def test_with_a_certificate_of_another_mesh(self, machine: FarMachine, op: str) -> None:
        foreign = authority(f"{machine.directory}/other", MESH)
        own = machine.own("foreign", foreign.issue([identity(MESH, "cpa", "login")], []))
        with refused(machine, "handshake"), pytest.raises(OSError, match="another mesh"):
            _ask(machine, Trust(MESH, machine.trust().ca_path, own), REQUESTS[op])

    def test_as_the_launcher_of_another_launch(self, machine: FarMachine, op: str) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        reason = "other_launcher" if LAUNCHER in MAY[op] else "wrong_role"
        with refused(machine, reason):
            reply = _ask(
                machine, machine.trust(), REQUESTS[op], credential=shown["credential"], mac=shown["macs"]["n0"]
            )
            assert "error" in reply


@pytest.mark.parametrize("wrong", ["../ca.pem", "node.pem", "launch.key", "ca.pem"])
def test_files_that_a_node_cannot_use_change_nothing(machine: FarMachine, wrong: str) -> None:
    files = {name: text.decode() for name, text in machine.authority.node_files("n0", []).items()}
    reply = _ask(machine, machine.trust("cpa"), {"op": "trust", "files": {**files, wrong: "nonsense"}})
    assert reply["error"]["code"] == "invalid"  # type: ignore[index]
    assert sorted(os.listdir(f"{machine.directory}/n0/trust")) == ["beat.key", "ca.pem", "launch.key", "node.pem"]
    assert _launches(machine)


def test_a_launcher_may_end_its_own_launch(machine: FarMachine) -> None:
    load, common = machine.load(next(_next), argv=("/bin/sleep", "60"))
    shown = machine.credential(load, common)
    talk = machine.launch(load, common, shown)
    talk.until("ready")
    request = {"op": "kill_launch", "launcher": load["launcher"]}
    reply = _ask(machine, machine.trust(), request, credential=shown["credential"], mac=shown["macs"]["n0"])
    assert reply["clean"] is True
    talk.close()


def test_a_client_that_expects_another_node_leaves(machine: FarMachine) -> None:
    address = machine.addresses["n0"].replace("/n0", "/n1")
    with pytest.raises(OSError, match=f"says redmesh://{MESH}/pct/n0, not redmesh://{MESH}/pct/n1"):
        tls.connect(address, machine.trust(), 5.0)


def test_a_client_of_another_mesh_leaves(machine: FarMachine) -> None:
    foreign = authority(f"{machine.directory}/third", MESH)
    with open(f"{machine.directory}/third.pem", "wb") as file:
        file.write(foreign.ca_pem)
    with refused(machine, "handshake"), pytest.raises(OSError, match="its certificate is refused"):
        tls.connect(machine.addresses["n0"], Trust(MESH, f"{machine.directory}/third.pem"), 5.0)


@pytest.fixture(params=["pct", "launch child"])
def door(machine: FarMachine, request: pytest.FixtureRequest) -> Iterator[None]:
    """Who hears the launch: the PCT, or a launch child that waits for another launch."""
    if request.param == "launch child":
        machine.hint = LAUNCH
        assert _launches(machine, ["n0", "n1"])
        wait_until(lambda: machine.has_spare("n0") and machine.has_spare("n1"), "launch children wait")
    yield
    machine.hint = b""


@pytest.mark.usefixtures("door")
class TestCredentials:
    """A credential that is not for this launch, node, user, program or time."""

    def test_a_load_without_a_credential_is_refused(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "no_credential"):
            machine.launch(load, common, {"credential": "", "macs": {}, "members": []}).until("error")

    @pytest.mark.parametrize("at", [0, 13, 40, 90, 160, 250, -1])
    def test_a_flipped_bit(self, machine: FarMachine, at: int) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        text = shown["credential"]
        shown["credential"] = text[:at] + chr(ord(text[at]) ^ 1) + (text[at + 1 :] if at >= 0 else "")
        with refused(machine, "forged"):
            machine.launch(load, common, shown).until("error")

    def test_a_flipped_bit_of_its_mac(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        mac = shown["macs"]["n0"]
        with refused(machine, "forged"):
            machine.launch(load, common, shown, mac=("1" if mac[0] == "0" else "0") + mac[1:]).until("error")

    def test_under_another_master_key(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "forged"):
            machine.launch(load, common, machine.credential(load, common, master=os.urandom(32))).until("error")

    def test_of_another_node(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        with refused(machine, "forged"):
            machine.launch(load, common, shown, mac=shown["macs"]["n1"]).until("error")

    def test_of_another_mesh(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "other_mesh"):
            machine.launch(load, common, machine.credential(load, common, mesh="00000000")).until("error")

    def test_of_another_user(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "other_uid"):
            machine.launch(load, common, machine.credential(load, common, uid=UID + 1)).until("error")

    def test_of_another_launcher(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common, launcher=load["launcher"] + 5000)
        with refused(machine, "other_launcher"):
            assert machine.launch(load, common, shown).until("failed")["fault"] == "launch"

    def test_of_another_program(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        with refused(machine, "other_program"):
            machine.launch(load, common.replace(b"/bin/true", b"/bin/date"), shown).until("failed")

    def test_of_other_nodes(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        shown["members"] = [["n0", "0-1"], ["n1", "2-3"]]
        with refused(machine, "other_nodes"):
            machine.launch(load, common, shown).until("failed")

    def test_of_other_processors(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        load["nodes"][0]["processors"] = [0, 1, 2]
        with refused(machine, "other_processors"):
            machine.launch(load, common, shown).until("failed")

    def test_of_another_load(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        sock = machine.visit(machine.trust(), hint=machine.hint)
        sock.sendall(control({**hello("launcher"), "credential": shown["credential"], "mac": shown["macs"]["n0"]}))
        other = machine.credential(load, common)
        with refused(machine, "other_credential"):
            sock.sendall(control({**load, **other}) + frame(COMMON, common))
            Talk(sock).until("failed")

    def test_expired_by_a_second(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "expired"):
            machine.launch(load, common, machine.credential(load, common, expires_in_s=-1.0)).until("error")

    def test_a_credential_is_used_once(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        assert machine.launch(load, common, shown).run() == [0]
        with refused(machine, "replayed"):
            machine.launch(load, common, shown).until("error")

    def test_replayed_after_the_pct_was_started_again(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next), ["n1"])
        shown = machine.credential(load, common)
        assert machine.launch(load, common, shown, node="n1").run() == [0]
        machine.again("n1")
        with refused(machine, "former_life", "n1"):
            machine.launch(load, common, shown, node="n1").until("error")
        again = machine.credential(load, common)
        assert machine.launch(load, common, again, node="n1").run() == [0]

    def test_of_a_launch_that_was_killed(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        assert _ask(machine, machine.trust("cpa"), {"op": "kill_launch", "launcher": load["launcher"]})["clean"]
        with refused(machine, "killed"):
            machine.launch(load, common, shown).until("error")

    def test_a_text_that_is_none(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        shown["credential"] = "x" * 2000
        with refused(machine, "malformed"):
            machine.launch(load, common, shown).until("error")


@pytest.mark.usefixtures("door")
class TestTheTree:
    """Who says to be a node of a launch."""

    def test_a_parent_without_a_certificate(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "no_certificate"):
            machine.launch(load, common, machine.credential(load, common), role="parent").until("error")

    def test_a_parent_of_the_wrong_role(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "wrong_role"):
            shown = machine.credential(load, common)
            machine.launch(load, common, shown, role="parent", trust=machine.trust("cpa")).until("error")

    def test_a_parent_that_is_no_node_of_the_launch(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        with refused(machine, "stranger"):
            shown = machine.credential(load, common)
            machine.launch(load, common, shown, role="parent", trust=machine.trust("pct", "n1")).until("failed")

    def test_a_fetch_by_a_node_that_is_not_of_the_launch(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next), argv=("/bin/sleep", "60"))
        talk = machine.launch(load, common, machine.credential(load, common))
        talk.until("ready")
        fetch = {"op": "fetch", "id": 1, "number": 0, "digest": "", "offset": 0, "launcher": load["launcher"]}
        fetcher = Talk(machine.visit(machine.trust("pct", "n1")))
        fetcher.sock.sendall(control(hello("child")) + control(fetch))
        assert "n1 is not a node of this launch" in fetcher.until("error")["error"]["message"]
        fetcher.close()
        talk.close()

    @pytest.mark.parametrize("role", ["", "cpa", "rca"])
    def test_a_fetch_by_another_role(self, machine: FarMachine, role: str) -> None:
        fetcher = Talk(machine.visit(machine.trust(role)))
        with refused(machine, "wrong_role" if role else "no_certificate"):
            fetcher.send(hello("child"))
            fetcher.until("error")
        fetcher.close()


#: What somebody might say instead of a hello, and a hello that is none.
NO_HELLO = {
    "2^31 bytes": bytes([CONTROL]) + (1 << 31).to_bytes(4, "big") + b"x" * 100,
    "an unknown kind": b"\xff\0\0\0\1x",
    "NaN": frame(CONTROL, b'{"op":"hello","protocol":NaN,"role":"launcher"}'),
    "infinite": frame(CONTROL, b'{"op":"hello","protocol":1e999,"role":"launcher"}'),
    "twice a key": frame(CONTROL, b'{"op":"hello","op":"hello","protocol":1,"role":"launcher"}'),
    "nested": frame(CONTROL, b'{"op":' + b"[" * 2000 + b"]" * 2000 + b"}"),
    "no JSON": frame(CONTROL, b"{"),
    "no UTF-8": frame(CONTROL, b'{"op":"hello\xff"}'),
    "a name with ../": control({**hello("../../etc/passwd")}),
    "a name with NUL": control({**hello("launcher\0")}),
    "a name with a newline": control({**hello("launcher\n")}),
    "another protocol": control({**hello("launcher"), "protocol": 99}),
    "no hello": control({"op": "status", "id": 1}),
}


@pytest.mark.parametrize("what", sorted(NO_HELLO))
def test_a_connection_that_does_not_say_hello_is_refused(machine: FarMachine, what: str) -> None:
    with refused(machine, "protocol"):
        talk = Talk(machine.visit(machine.trust()))
        talk.sock.sendall(NO_HELLO[what])
        talk.until("error")
        talk.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", b"404 Not Found"), ("/job/63fd9951-3a0f-4f3b-9a39-5f1a0b8d3c11?token=x", b"403 Forbidden")],
)
def test_http_without_a_token_gets_a_refusal(machine: FarMachine, path: str, status: bytes) -> None:
    sock = machine.visit(machine.trust())
    sock.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = sock.recv(1 << 16).partition(b"\r\n\r\n")
    sock.close()
    assert head.startswith(b"HTTP/1.1 " + status) and set(json.loads(body)) == {"error", "hint"}


def test_http_byte_by_byte_ends_in_time(machine: FarMachine) -> None:
    sock = machine.visit(machine.trust())
    sock.sendall(b"GET /")

    def ended() -> bool:
        try:
            sock.settimeout(0.2)
            sock.sendall(b"x")
            return not sock.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    wait_until(ended, "the node has closed the connection")
    sock.close()


@pytest.mark.parametrize("depth", [100_000])
def test_nested_deeply_by_a_daemon(machine: FarMachine, depth: int) -> None:
    talk = Talk(machine.visit(machine.trust("cpa")))
    talk.send(hello("cpa"))
    talk.sock.sendall(frame(CONTROL, b'{"op":' + b"[" * depth + b"]" * depth + b"}"))
    while talk.read():
        pass
    talk.close()
    assert _launches(machine)


@pytest.mark.parametrize("launcher", [-1, 1 << 70, "../../x", "9\n", True, None])
def test_launchers_that_are_no_numbers(machine: FarMachine, launcher: object) -> None:
    reply = _ask(machine, machine.trust("cpa"), {"op": "kill_launch", "launcher": launcher})
    assert "error" in reply or launcher == -1  # a number is a number: there is just none of it


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 500, control(hello("launcher"))]
)
def test_a_connection_without_tls_is_refused(machine: FarMachine, words: bytes) -> None:
    host, port = machine.addresses["n0"][6:].partition("/")[0].rsplit(":", 1)
    with refused(machine, "handshake"), socket.create_connection((host, int(port))) as sock:
        sock.sendall(words)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1000):
                pass


class TestManyVisitors:
    """Nobody holds others up, and memory has an end."""

    def test_refusals_by_the_thousand(self, machine: FarMachine) -> None:
        before = len(machine.refusals())
        held = []
        for _ in range(300):
            talk = Talk(machine.visit(machine.trust()))
            with contextlib.suppress(OSError):
                talk.sock.sendall(NO_HELLO["2^31 bytes"])
            held.append(talk)
        wait_until(lambda: len(machine.refusals()) >= before + 300, "all are refused")
        assert _launches(machine)
        for talk in held:
            talk.close()
        assert machine.memory() < LIMIT

    def test_half_open_connections_make_room(self, machine: FarMachine) -> None:
        host, port = machine.addresses["n0"][6:].partition("/")[0].rsplit(":", 1)

        def launches_beside_them() -> bool:
            with contextlib.ExitStack() as stack:
                held = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(300)]
                assert _launches(machine)
                return len(select.select(held, [], [], 0)[0]) < len(held)

        wait_until(launches_beside_them, "it is served before their time is over")
        assert machine.memory() < LIMIT

    def test_silent_ones_make_room_before_one_that_speaks(self, machine: FarMachine) -> None:
        """A user's idle connections come from the same address as another user's launch."""
        host, port = machine.addresses["n0"][6:].partition("/")[0].rsplit(":", 1)
        talk = Talk(machine.visit(machine.trust()))  # it has shaken hands, and has not said hello yet
        held = [socket.create_connection((host, int(port))) for _ in range(300)]
        talk.sock.sendall(control(hello("admin")) + control({"id": 1, "op": "status"}))
        assert talk.read(), "it was let go for the sake of one that is silent"
        for sock in (*held, talk):
            sock.close()

    def test_slow_ones_are_let_go(self, machine: FarMachine) -> None:
        talk = Talk(machine.visit(machine.trust()))
        began = time.monotonic()
        with refused(machine, "too_slow"):
            for byte in control(hello("launcher")):
                talk.sock.sendall(bytes([byte]))
                talk.sock.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    if not talk.read():
                        break
        assert time.monotonic() - began > 4.0
        talk.close()

    def test_big_frames_of_strangers_cost_nothing(self, machine: FarMachine) -> None:
        held = []
        for _ in range(40):
            talk = Talk(machine.visit(machine.trust()))
            talk.sock.setblocking(False)
            with contextlib.suppress(OSError):
                talk.sock.sendmsg([bytes([CONTROL]) + (4000).to_bytes(4, "big") + b" " * 200_000])
            held.append(talk)
        assert _launches(machine)
        for talk in held:
            talk.close()
        assert machine.memory() < LIMIT

    def test_one_credential_opens_few_sessions(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        greeting = {**hello("yod"), "credential": shown["credential"], "mac": shown["macs"]["n0"]}
        before = machine.descriptors()
        held = []
        for _ in range(200):
            talk = Talk(machine.visit(machine.trust()))
            talk.send(greeting)
            talk.sock.setblocking(False)
            with contextlib.suppress(OSError):
                talk.sock.sendmsg([bytes([CONTROL]) + (60 << 10).to_bytes(4, "big") + b" " * (60 << 10)])
            held.append(talk)
        wait_until(lambda: machine.descriptors() - before <= 40, "the first ones have been let go")
        assert _launches(machine)
        for talk in held:
            talk.close()
        assert machine.memory() < LIMIT

    def test_a_launcher_with_a_big_load_does_not_cost_the_pct(self, machine: FarMachine) -> None:
        load, common = machine.load(next(_next))
        shown = machine.credential(load, common)
        sock = machine.visit(machine.trust(), hint=machine.hint)
        sock.sendall(control({**hello("launcher"), "credential": shown["credential"], "mac": shown["macs"]["n0"]}))
        with contextlib.suppress(OSError):
            sock.sendall(bytes([CONTROL]) + (8 << 20).to_bytes(4, "big") + b" " * (6 << 20))  # truncated
        sock.close()
        assert _launches(machine)
        assert machine.memory() < LIMIT


def test_credential_text_is_read_strictly() -> None:
    made = Credential(MESH, 7, 1000, "a" * 64, "b" * 64, "c" * 32, 1.5)
    assert read(made.text).text == made.text
