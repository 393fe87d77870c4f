"""Post-backs to Unix sockets, to a node's PCT over TLS, and to URLs: real CPAs, a real PCT, a real HTTPS server."""

import json
import os
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import REQUESTER
from console.deploy.trust.authority import write_private
from tests.support.allocations import allocation, finish
from tests.support.daemons import Daemons, Make, on_both_databases
from tests.support.far_pcts import MESH, FarMachine
from tests.support.waiting import PATIENCE_S, wait_until
from tests.system.cpa.test_requests import count, free, request, waiting


class Receiver:
    """A process's socket where post-backs arrive; ``refuse`` makes it answer with an error, ``mute`` not at all."""

    def __init__(self, path: str) -> None:
        self.path, self.arrived, self.refuse, self.mute = path, [], False, False
        self._loop = Loop()
        self._server = Server(self._loop, path, "launcher", REQUESTER, self._on_request)
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()

    arrived: list[Message]

    def _on_request(self, session: Session, _op: str, message: Message) -> None:
        self.arrived.append(message["post_back"])
        if not self.mute:
            session.reply(message, {"error": AgentError("not now").as_message()} if self.refuse else {})


class Site:
    """An HTTPS server. ``status`` is what it answers with, it waits until ``answers`` is set."""

    def __init__(self, machine: FarMachine) -> None:
        self.arrived: list[tuple[str, dict[str, str], Any]] = []
        self.status, self.location, self.answers = 204, "", threading.Event()
        self.answers.set()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                site.arrived.append((self.path, dict(self.headers.items()), body))
                site.answers.wait(PATIENCE_S)
                self.send_response(site.status)
                if site.location:
                    self.send_header("Location", site.location)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{machine.directory}/n0/trust/node.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def machine() -> Iterator[FarMachine]:
    made = FarMachine(1)
    yield made
    made.close()


@pytest.fixture
def site(machine: FarMachine) -> Iterator[Site]:
    made = Site(machine)
    yield made
    made.close()


@pytest.fixture
def two(daemons: Make, machine: FarMachine, site: Site) -> Daemons:
    """Two CPAs, 8 processors on 2 nodes; the first is a real PCT of another machine."""
    made = daemons(8, 2)
    made.configure(mesh=MESH, post_back_urls=[site.url], post_back_ca=f"{machine.directory}/n0/trust/ca.pem")
    (made.state / "trust").mkdir(mode=0o700)
    for name, content in machine.authority.login_files("login1", ["127.0.0.1"]).items():
        write_private(str(made.state / "trust" / name), content)
    made.nodes[0] = made.nodes[0]._replace(address=machine.addresses["n0"])
    made.start("cpa-0")
    made.start("cpa-1")
    made.nodes_up()
    return made


@pytest.fixture
def client(two: Daemons) -> Iterator[Client]:
    with two.client("cpa-1") as made:
        yield made


def pending(daemons: Daemons) -> int:
    return int(daemons.rows("SELECT COUNT(*) FROM post_back")[0][0])


def events(daemons: Daemons, kind: str) -> list[str]:
    return [text for (text,) in daemons.rows(f"SELECT text FROM event WHERE kind = '{kind}'")]


@on_both_databases
def test_to_a_socket_a_node_and_a_url(two: Daemons, client: Client, site: Site, tmp_path: Path) -> None:
    holder = client.call(allocation(8))
    socket = Receiver(str(tmp_path / "here.sock"))
    on_node = Receiver(str(tmp_path / "on-node.sock"))
    places = [f"unix:{socket.path}", f"node:n0:{on_node.path}", f"{site.url}/grants?of=me"]
    asked = [request(2, post_back=place) for place in places]
    with two.client("cpa-0") as other:
        for each in asked:
            assert other.call(each)["acknowledged"]
    client.call(finish(holder))  # at another CPA than the requests are held by; their connection is closed
    wait_until(lambda: len(socket.arrived) == len(on_node.arrived) == len(site.arrived) == 1, "all three arrive")
    for receiver, each in ((socket, asked[0]), (on_node, asked[1])):
        (posted,) = receiver.arrived
        assert (posted["post_back"], posted["sequence"], posted["missing"], count(posted)) == (each["uuid"], 1, 0, 2)
        free(client, posted)
    path, headers, body = site.arrived[0]
    assert path == "/grants?of=me" and headers["Idempotency-Key"] == f"{asked[2]['uuid']}.1"
    assert not {"Authorization", "Cookie"} & set(headers) and "cookie" not in json.dumps(body)
    assert (body["post_back"], body["missing"], count(body)) == (asked[2]["uuid"], 0, 2)
    wait_until(lambda: pending(two) == 1, "the grant of the URL alone is not collected")
    got = client.call({"op": "collect", "uuid": asked[2]["uuid"], "sequence": 1})
    assert count(got) == 2 and got["placed"][0]["launcher"] == body["placed"][0]["launcher"]
    free(client, got)
    assert two.owners() == {} and pending(two) == 0
    with pytest.raises(AgentError, match="no grant 1 that waits"):
        client.call({"op": "collect", "uuid": asked[2]["uuid"], "sequence": 1})


def test_after_three_failures_the_processors_return(two: Daemons, client: Client, site: Site, tmp_path: Path) -> None:
    other = Receiver(str(tmp_path / "there.sock"))
    other.refuse = True
    site.status, site.location = 302, f"{site.url}/elsewhere"
    places = [f"node:n0:{other.path}", f"unix:{tmp_path}/nobody.sock", f"{site.url}/"]
    asked = [request(2, post_back=place) for place in places]
    client.call(allocation(2))
    for each in asked:
        client.call(each)
    wait_until(lambda: len(events(two, "post_back_failed")) == len(asked), "an event for each")
    assert waiting(two) == 0 and pending(two) == 0 and len(two.owners()) == 2
    for each, place in zip(asked, places, strict=True):
        (told,) = [text for text in events(two, "post_back_failed") if each["uuid"] in text]
        assert place in told and "3 post-backs" in told
    assert len(other.arrived) == 3
    assert [path for path, _, _ in site.arrived] == ["/"] * 3, "no redirection is followed"
    assert len({headers["Idempotency-Key"] for _, headers, _ in site.arrived}) == 1


@on_both_databases
def test_after_three_failures_a_partial_request_does_not_come_again(two: Daemons, client: Client) -> None:
    asked = request(4, partial=True, post_back="node:n77:/no/such/node.sock")
    client.call(allocation(6))
    client.call(asked)
    wait_until(lambda: bool(events(two, "post_back_failed")), "the event")
    assert waiting(two) == 0 and pending(two) == 0, "the rest of it does not come again and fail again"
    assert len(two.owners()) == 6
    (told,) = events(two, "post_back_failed")
    assert asked["uuid"] in told and "node:n77:" in told and "3 post-backs" in told


@on_both_databases
def test_a_slow_url_holds_up_nobody_and_no_killed_cpa_loses_a_grant(
    two: Daemons, client: Client, site: Site, tmp_path: Path
) -> None:
    site.answers.clear()
    client.call(request(1, post_back=f"{site.url}/slow"))
    wait_until(lambda: bool(site.arrived), "it has begun")
    client.call(allocation(1))  # the CPA does not wait for the URL
    site.answers.set()
    receiver = Receiver(str(tmp_path / "here.sock"))
    receiver.mute = True
    asked = request(1, post_back=f"unix:{receiver.path}")
    client.call(asked)
    wait_until(lambda: len(receiver.arrived) == 1, "it arrives, and is not acknowledged")
    two.kill("cpa-1")
    receiver.mute = False
    two.start("cpa-1")  # by the keeper
    wait_until(lambda: len(receiver.arrived) == 2, "it arrives again")
    first, again = receiver.arrived
    assert (first["post_back"], first["sequence"]) == (again["post_back"], again["sequence"])
    wait_until(lambda: pending(two) == 1, "the URL's alone is left")
    with two.client("cpa-0") as cpa:
        free(cpa, again)


def test_a_killed_deliverer_is_started_again(two: Daemons, client: Client, tmp_path: Path) -> None:
    receiver = Receiver(str(tmp_path / "here.sock"))
    receiver.mute = True
    client.call(request(1, post_back=f"unix:{receiver.path}"))
    wait_until(lambda: len(receiver.arrived) == 1, "it arrives, and is not acknowledged")
    pid = two.processes["cpa-1"].pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    receiver.mute = False
    os.kill(int(child), 9)
    wait_until(lambda: pending(two) == 0, "it is delivered by another")


#: Where nothing is posted back to, and the code of the refusal.
REFUSED = {
    "https://127.0.0.1/": "denied",  # another port than the allowed one
    "https://169.254.169.254/latest/meta-data": "denied",
    "http://127.0.0.1:1/": "invalid",
    "https://user:secret@127.0.0.1/": "invalid",
    "https://127.0.0.1:80@evil.example/": "invalid",
    "https://127.0.0.1\\@evil.example/": "invalid",
    "https://[::1]/": "invalid",
    "https://a/\r\nHost: b": "invalid",
    "https://" + "a" * 300: "invalid",
    "unix:relative": "invalid",
    "unix:/a/../b": "invalid",
    "node::/a": "invalid",
    "node:n0:a": "invalid",
    "file:/etc/passwd": "invalid",
    "": "invalid",
}


def test_where_nothing_is_posted_back_to(daemons: Make) -> None:
    made = daemons(2, 1, post_back_urls=["https://127.0.0.1:8443"]).begin()
    with made.client() as client:
        for place, code in REFUSED.items():
            with pytest.raises(AgentError) as refused:
                client.call(request(1, post_back=place))
            assert refused.value.code == code, place
