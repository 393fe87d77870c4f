"""TLS under links: certificates that strict readers take, under every Python that a node may have; and the stream."""

from __future__ import annotations

import glob
import itertools
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.link import tcp, tls
from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.trust import Trust
from agents.pct.remote import spare_handshake
from agents.wire.address import parse
from agents.wire.errors import AgentError
from agents.wire.frames import STDOUT, frame
from console.deploy.trust.authority import Stage, TrustError, authority, identity
from tests.support.waiting import PATIENCE_S

MESH = "0a0b0c0d"
ROOT = Path(__file__).resolve().parents[3]

#: Another Python as both ends of a connection: what it prints is what went through.
_BOTH_ENDS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from agents.link import tcp, tls
from agents.link.trust import Trust
trust = Trust("0a0b0c0d", sys.argv[2] + "/ca.pem", sys.argv[2] + "/node.pem")
listener = tcp.listen("127.0.0.1", 0)
listener.setblocking(True)
def serve():
    sock, _ = listener.accept()
    sock.settimeout(10)
    secured = tls.Secured(sock, trust, server=True)
    secured.shake()
    secured.sendall(secured.recv(100) + " ".join(sorted(secured.peer.names)).encode())
    secured.close()
threading.Thread(target=serve).start()
client = tls.connect("tls://127.0.0.1:%d/n1" % listener.getsockname()[1], trust, 10)
client.sendall(b"hello ")
said = b""
while True:
    data = client.recv(100)
    if not data:
        break
    said += data
print(said.decode())
"""


def _pythons() -> list[str]:
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))
    newer = [path for path in found if tuple(map(int, path.split("/")[-3].split(".")[:2])) >= (3, 9)]
    return sorted({sys.executable, *newer, *filter(None, [shutil.which("python3")])})


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    for name, content in authority(str(tmp_path / "state"), MESH).node_files("n1", ["127.0.0.1", "::1", "h1"]).items():
        (tmp_path / name).write_bytes(content)
    return Trust(MESH, str(tmp_path / "ca.pem"), str(tmp_path / "node.pem"))


@pytest.mark.parametrize("python", _pythons())
def test_every_python_takes_our_certificates(python: str, trust: Trust, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-I", "-B", "-c", _BOTH_ENDS, str(ROOT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == f"hello redmesh://{MESH}/pct/n1\n", done.stderr


def test_the_standard_library_takes_them_in_its_strictest_way(trust: Trust) -> None:
    import ssl

    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(trust.ca_path)
        context.load_cert_chain(trust.own_path)
    server.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=lambda: server.wrap_socket(theirs, server_side=True).sendall(b"x"))
    thread.start()
    with client.wrap_socket(ours, server_hostname="127.0.0.1") as sock:  # the host's name is in it too
        assert sock.recv(1) == b"x"
    thread.join()
    theirs.close()


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("tls://10.0.0.1:7117/n1", ("10.0.0.1", 7117, "pct", "n1")),
        ("tls://[fd00::1]:7117/n1", ("fd00::1", 7117, "pct", "n1")),
        ("tls://login:1/rca/login1", ("login", 1, "rca", "login1")),
    ],
)
def test_tls_addresses_are_parsed(address: str, parts: tuple[object, ...]) -> None:
    found = parse(address)
    assert (found.host, found.port, found.role, found.name) == parts


@pytest.mark.parametrize(
    "address", ["tls://", "tls://h/n1", "tls://h:x/n1", "tls://h:1", "tls://h:1/", "tls://:1/n", "http://h:1/n"]
)
def test_malformed_tls_addresses_are_refused(address: str) -> None:
    with pytest.raises(AgentError):
        parse(address)


@pytest.fixture
def ends(trust: Trust) -> Iterator[tuple[Loop, list[Link], list[list[tuple[int, bytes]]], list[str]]]:
    """Two links over one connection, its handshake not begun."""
    loop, frames, reasons = Loop(), ([], []), []  # type: ignore[var-annotated]
    listener = tcp.listen("127.0.0.1", 0)
    client = tls.connect_now(f"tls://127.0.0.1:{listener.getsockname()[1]}/n1", trust)
    listener.setblocking(True)
    sock, _ = listener.accept()
    server = tls.Secured(sock, trust, server=True)
    links = [
        Link(
            loop,
            end,
            lambda _l, kind, data, at=at: frames[at].append((kind, data)),
            lambda _l, why: reasons.append(why),
        )  # type: ignore[misc,arg-type]
        for at, end in enumerate((client, server))
    ]
    yield loop, links, list(frames), reasons
    for link in links:
        link.close()
    listener.close()


def _turn(loop: Loop, until: object) -> None:
    for _ in range(5000):
        if until():  # type: ignore[operator]
            return
        loop.run_once(0.01)
    raise AssertionError("never")


def test_what_is_sent_before_the_handshake_arrives_behind_it(
    ends: tuple[Loop, list[Link], list[list[tuple[int, bytes]]], list[str]],
) -> None:
    loop, links, frames, _ = ends
    links[0].send_raw(frame(STDOUT, b"early"))
    links[1].send_raw(frame(STDOUT, b"early too"))
    _turn(loop, lambda: frames[0] and frames[1])
    assert (frames[1], frames[0]) == ([(STDOUT, b"early")], [(STDOUT, b"early too")])


def test_megabytes_in_both_directions_arrive_whole_and_in_order(
    ends: tuple[Loop, list[Link], list[list[tuple[int, bytes]]], list[str]],
) -> None:
    loop, links, frames, _ = ends
    sent = [[os.urandom(size) for size in (1, 70_000, 1_000_000, 5, 900_000)] for _ in links]
    for link, parts in zip(links, sent, strict=True):
        for part in parts:
            link.send_parts(frame(STDOUT, part)[:5], part)
    _turn(loop, lambda: len(frames[0]) == len(frames[1]) == 5)
    assert [data for _, data in frames[1]] == sent[0]
    assert [data for _, data in frames[0]] == sent[1]


def test_a_paused_link_has_the_rest_when_it_goes_on(
    ends: tuple[Loop, list[Link], list[list[tuple[int, bytes]]], list[str]],
) -> None:
    loop, links, frames, reasons = ends
    links[0].send_raw(frame(STDOUT, b"first"))
    _turn(loop, lambda: frames[1])
    links[1].pause()
    links[0].send_raw(frame(STDOUT, b"second"))
    links[0].close(flush=True)
    for _ in range(20):
        loop.run_once(0.01)
    assert len(frames[1]) == 1
    links[1].resume()
    _turn(loop, lambda: reasons)
    assert frames[1] == [(STDOUT, b"first"), (STDOUT, b"second")]


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit of 1 s instead of 9 for unacknowledged data; returns the milliseconds."""
    for name, value in (("_UNHEARD_MS", 1000), ("_LOOK_S", 0.3), ("_AGAIN_S", 0.1)):
        monkeypatch.setattr(tcp, name, value, raising=False)
    return 1000


def test_a_peer_that_does_not_read_is_not_lost_while_its_kernel_answers(
    short_limit: int, ends: tuple[Loop, list[Link], list[list[tuple[int, bytes]]], list[str]]
) -> None:
    loop, links, frames, reasons = ends
    sock = links[0].sock._sock  # type: ignore[union-attr]

    def limit() -> int:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    links[0].send_raw(frame(STDOUT, b"first"))
    _turn(loop, lambda: frames[1])
    assert limit() == short_limit
    links[1].pause()
    sent = [os.urandom(1 << 20) for _ in range(16)]
    for part in sent:
        links[0].send_parts(frame(STDOUT, part)[:5], part)
    # the kernel alone ends the connection after the limit; this one is a time since the window is full
    _turn(loop, lambda: reasons or limit() > 4 * short_limit)
    assert not reasons
    links[1].resume()
    _turn(loop, lambda: len(frames[1]) == 17)
    assert [data for _, data in frames[1][1:]] == sent
    _turn(loop, lambda: limit() == short_limit)  # a host that is cut off later is noticed as soon as ever


def test_a_peer_that_reads_less_than_a_segment_at_a_time_is_not_lost(short_limit: int) -> None:
    """The kernel's clock of a full window runs on when some data is acknowledged: TimeoutError soon after the read."""
    loop, lost = Loop(), []  # type: ignore[var-annotated]
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as here:
        here.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1448)  # as over Ethernet
        here.connect(listener.getsockname())
        here.setblocking(False)
        there, _ = listener.accept()
        with there:
            tcp.tune(here)
            window = tcp.FullWindow(loop, here, lost.append)

            def limit() -> int:
                with suppress(BlockingIOError):
                    while here.send(bytes(1 << 16)):
                        window.sent()
                return here.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

            _turn(loop, lambda: lost or limit() > 3 * short_limit)
            there.recv(20_000)
            _turn(loop, lambda: lost or limit() > 5 * short_limit)
            assert not lost
            window.close()


class TestAuthority:
    """The mesh's CA, and how it changes."""

    def test_it_is_made_once(self, tmp_path: Path) -> None:
        assert authority(str(tmp_path), MESH).ca_pem == authority(str(tmp_path), MESH).ca_pem

    def test_its_files_are_its_owners_alone(self, tmp_path: Path) -> None:
        made = authority(str(tmp_path), MESH)
        (tmp_path / "run").mkdir(mode=0o700)
        made.equip_login("login", [], str(tmp_path / "run"))
        for path in Path(made.directory).iterdir():
            assert path.stat().st_mode & 0o777 == 0o600, path
        assert Path(made.directory).stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("name", ["", "../x", "a/b", "a\nb", "a\0", "-oProxyCommand=x", ".", "x" * 80])
    def test_names_that_no_node_has(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(TrustError):
            authority(str(tmp_path), MESH).node_files(name, [])

    def test_each_node_has_keys_of_its_own(self, tmp_path: Path) -> None:
        made = authority(str(tmp_path), MESH)
        one, two = made.node_files("n1", []), made.node_files("n2", [])
        assert one["launch.key"] != two["launch.key"] != two["beat.key"] != one["beat.key"]
        assert made.node_files("n1", [])["launch.key"] == one["launch.key"]

    def test_keys_change_in_three_steps_that_can_be_taken_up_again(self, tmp_path: Path) -> None:
        made = authority(str(tmp_path), MESH)
        first = made.fingerprints
        told: list[tuple[Stage, int]] = []

        def tell(one: object) -> None:
            told.append((made.stage, len(made.fingerprints)))
            if len(told) == 2:
                raise TrustError("n7 does not answer")

        with pytest.raises(TrustError):
            made.rotate(tell)
        made = authority(str(tmp_path), MESH)  # another command, another day
        assert made.stage is Stage.TURNED
        assert first[0] == made.fingerprints[1]
        made.rotate(tell)
        assert told == [(Stage.INTRODUCED, 2), (Stage.TURNED, 2), (Stage.TURNED, 2), (Stage.SETTLED, 1)]
        assert made.fingerprints != first

    def test_whoever_is_one_step_behind_is_understood(self, tmp_path: Path) -> None:
        made = authority(str(tmp_path), MESH)
        steps = [made.node_files("n1", [])]
        made.rotate(lambda one: steps.append(one.node_files("n1", [])))
        for number, (old, new) in enumerate(itertools.pairwise(steps)):
            for ours, theirs in ((old, new), (new, old)):
                directory = tmp_path / f"{number}-{ours is old}"
                directory.mkdir()
                for name, content in (("ca.pem", ours["ca.pem"]), ("node.pem", theirs["node.pem"])):
                    (directory / name).write_bytes(content)
                accepted = _handshake(Trust(MESH, str(directory / "ca.pem"), str(directory / "node.pem")))
                assert accepted == frozenset({identity(MESH, "pct", "n1")})


def _handshake(trust: Trust) -> frozenset[str]:
    listener = tcp.listen("127.0.0.1", 0)
    client = tls.connect_now(f"tls://127.0.0.1:{listener.getsockname()[1]}/n1", trust)
    listener.setblocking(True)
    sock, _ = listener.accept()
    listener.close()
    sock.setblocking(False)
    server = tls.Secured(sock, trust, server=True)
    with client, server:
        for _ in range(1000):
            for end in (client, server):
                if end.shaking:
                    try:
                        end.shake()
                    except BlockingIOError:
                        pass
            if not (client.shaking or server.shaking):
                return server.peer.names
    raise AssertionError("no handshake")


@pytest.fixture
def secured(trust: Trust) -> Iterator[list[tls.Secured]]:
    """Both ends of one connection, shaken, then not blocking."""
    listener = tcp.listen("127.0.0.1", 0)
    listener.setblocking(True)
    client = tls.connect_now(f"tls://127.0.0.1:{listener.getsockname()[1]}/n1", trust)
    sock, _ = listener.accept()
    pair = [client, tls.Secured(sock, trust, server=True)]
    for end in pair:
        end.setblocking(True)
    shaking = threading.Thread(target=client.shake)
    shaking.start()
    pair[1].shake()
    shaking.join()
    for end in pair:
        end.setblocking(False)
    yield pair
    for end in pair:
        end.close()
    listener.close()


def _sent(end: tls.Secured, *parts: bytes) -> None:
    end.setblocking(True)
    for part in parts:
        end.sendall(part)
    end.setblocking(False)


def test_one_read_takes_what_was_put_back_and_all_that_is_behind_it(secured: list[tls.Secured]) -> None:
    # no event of the descriptor would tell of what stayed: a launch waited for its load until the next message
    here, there = secured
    parts = [os.urandom(size) for size in (300, 40, 70_000)]
    _sent(there, *parts)
    whole = b"".join(parts)
    start = _read(here, lambda: here.recv(100))
    assert start == whole[:100] and here.pending
    here.unread(start[60:])
    got = b""
    while len(got) < len(whole) - 60:
        got += _read(here, lambda: here.recv(256 << 10))
        assert not here.pending
    assert got == whole[60:]


def test_what_is_read_into_a_buffer_goes_on_in_the_next(secured: list[tls.Secured]) -> None:
    here, there = secured
    whole = os.urandom(200_000)
    _sent(there, whole[:120_000], whole[120_000:])
    got, sizes = b"", itertools.cycle((17, 50_000, 3))
    while len(got) < len(whole):
        buffer = bytearray(next(sizes))
        count = _read(here, lambda buffer=buffer: here.recv_into(memoryview(buffer)))  # type: ignore[misc]
        got += buffer[:count]
    assert got == whole and not here.pending
    with pytest.raises(BlockingIOError):
        here.recv_into(memoryview(bytearray(10)))


def test_a_long_stream_wakes_nobody_for_a_few_bytes(secured: list[tls.Secured]) -> None:
    here, there = secured
    events = select.poll()
    events.register(here.fileno(), select.POLLIN)
    here.expect(20_000)
    _sent(there, b"x" * 10_000)
    assert not events.poll(50)
    assert here.recv(100) == b"x" * 100  # whoever asks is told all the same
    _sent(there, b"x" * 30_000)
    assert events.poll(1000)
    while here.pending:
        here.recv(100_000)
    there.close()
    assert events.poll(1000)  # the end wakes whatever was expected
    while here.recv(100_000):
        pass


def _read(end: tls.Secured, step: Callable[[], Any]) -> Any:
    while True:
        try:
            return step()
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(end.fileno(), select.POLLIN)
            assert waiting.poll(5000)


def test_who_never_pauses_has_no_more_time_than_others(secured: list[tls.Secured]) -> None:
    with pytest.raises(OSError, match="too slow"):
        spare_handshake.wait(secured[0], lambda: b"more", time.monotonic() - 0.1)
