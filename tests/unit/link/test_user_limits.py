"""What a user may have at a daemon: connections, bytes, patience and turns. The sockets are real."""

import errno
import gc
import json
import os
import resource
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.link import user_limits
from agents.link.acceptor import Acceptor
from agents.link.client import Client
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.link.sockets import connect, listen
from agents.link.user_limits import LIST_BYTES, USER_BYTES, Users
from agents.wire.address import Peer
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, HEADER_SIZE, Decoder, frame
from agents.wire.messages import CPA, hello
from tests.support.attack import nested
from tests.support.waiting import PATIENCE_S

HELLO = control(hello("admin"))


class Daemon:
    """A server whose every caller is a user with limits; ``asked`` has what it served."""

    def __init__(self, directory: Path) -> None:
        self.loop = Loop()
        self.log = directory / "log"
        self.users = Users(self.loop, Journal(str(self.log), "test"), exempt=frozenset())
        self.asked: list[Message] = []
        self.ends: list[tuple[str, bool]] = []
        self.path = str(directory / "cpa.sock")
        self.server = Server(self.loop, self.path, "cpa", CPA, self._serve, users=self.users)
        self.server.on_session_end = self._ended
        self.clients: list[socket.socket] = []

    def _serve(self, session: Session, _op: str, message: Message) -> None:
        self.asked.append(message)
        session.reply(message, {})

    def _ended(self, session: Session, reason: str) -> None:
        self.ends.append((reason, session.dropped))

    def client(self, *said: bytes) -> socket.socket:
        sock = connect(self.path)
        sock.setblocking(False)
        self.clients.append(sock)
        for text in said:
            while text:
                try:
                    text = text[sock.send(text) :]
                except BlockingIOError:
                    self.loop.run_once(0)
                except OSError:
                    return sock
        return sock

    def until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, "never"
            self.loop.run_once(0.01)

    def heard(self, sock: socket.socket) -> list[Message]:
        """What a client has been told, until it is told no more."""
        decoder, said = Decoder(), []
        while True:
            self.loop.run_once(0)
            try:
                data = sock.recv(1 << 16)
            except BlockingIOError:
                return said
            except ConnectionResetError:
                return said
            said += [decode(payload) for _, payload in decoder.feed(data)]
            if not data:
                return said

    def logged(self, event: str) -> list[Message]:
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if line["event"] == event]

    def close(self) -> None:
        for sock in self.clients:
            sock.close()
        self.server.close()
        self.loop.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    try:
        yield made
    finally:
        made.close()


def _user(daemon: Daemon) -> user_limits.User:
    return daemon.users.of(os.getuid())


def test_one_connection_too_many_is_told_so_and_finds_room_later(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_limits, "USER_CONNECTIONS", 3)
    first = [daemon.client(HELLO) for _ in range(3)]
    daemon.until(lambda: _user(daemon).connections == 3)
    turned_away = daemon.client(HELLO)
    daemon.until(lambda: daemon.logged("refused"))
    greeting, refusal = daemon.heard(turned_away)
    assert greeting["op"] == "hello" and refusal["re"] == 0
    assert refusal["error"]["code"] == "busy" and "has 3 connections" in refusal["error"]["message"]
    assert daemon.users.refused_lately(os.getuid(), 5.0)
    first[0].close()
    daemon.until(lambda: _user(daemon).connections == 2)
    last = daemon.client(HELLO, control({"op": "idle", "id": 1}))
    daemon.until(lambda: daemon.asked)
    assert [said.get("re") for said in daemon.heard(last)] == [None, 1]


def test_a_blocking_client_gets_the_refusal_as_its_error(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_limits, "USER_CONNECTIONS", 0)
    with Client(daemon.path, "admin") as client:
        daemon.until(lambda: daemon.logged("refused"))
        with pytest.raises(AgentError, match="0 connections") as refused:
            client.call({"op": "idle"})
    assert refused.value.code == "busy"


def test_a_user_leaves_room_for_others(daemon: Daemon) -> None:
    """However many descriptors there are: half of them for one user, a third for each of two, …"""
    daemon.users._room = 12
    first = [daemon.users.connect(1) for _ in range(6)]
    with pytest.raises(AgentError):
        daemon.users.connect(1)
    for _ in range(3):
        daemon.users.connect(2)
    with pytest.raises(AgentError):
        daemon.users.connect(2)
    daemon.users.connect(3)
    daemon.users.disconnect(first[0])


def test_connections_without_end_are_refused(daemon: Daemon) -> None:
    for _ in range(int(user_limits._BURST)):
        daemon.users.disconnect(daemon.users.connect(1))
    with pytest.raises(AgentError, match="256 times a second"):
        for _ in range(1000):
            daemon.users.disconnect(daemon.users.connect(1))
    daemon.users.connect(2)


def test_whoever_says_no_hello_or_half_a_frame_is_let_go(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_limits.PATIENCE_S == 10
    monkeypatch.setattr(user_limits, "PATIENCE_S", 1)
    daemon.client()
    daemon.client(HELLO, control({"op": "idle"})[:-1])
    stays = daemon.client(HELLO, control({"op": "idle", "id": 1}))
    daemon.until(lambda: len(daemon.ends) == 2)
    assert sorted(daemon.ends) == [
        ("a hello did not arrive within 1 s", True), ("the rest of a frame did not arrive within 1 s", True),
    ]  # fmt: skip
    assert len(daemon.heard(stays)) == 2 and daemon.server.sessions


@pytest.mark.parametrize(("op", "length", "fits"), [
    ("allocate", LIST_BYTES, True), ("allocate", LIST_BYTES + 1, False),
    ("idle", 64 << 10, True), ("idle", (64 << 10) + 1, False), ("nonsense", 100_000, False),
])  # fmt: skip
def test_a_frame_is_as_long_as_its_operation_needs(daemon: Daemon, op: str, length: int, fits: bool) -> None:
    keys = '"key":"","login":"","pid":1,"pid_started":1,' if op == "allocate" else ""
    begin = f'{{"op":"{op}",{keys}"command":"'.encode()
    text = frame(CONTROL, begin + b"x" * (length - len(begin) - 2) + b'"}')
    assert len(text) == length + HEADER_SIZE
    daemon.client(HELLO, text)
    daemon.until(lambda: daemon.asked or daemon.ends)
    assert bool(daemon.asked) is fits, daemon.ends


def test_a_long_frame_says_its_operation_first(daemon: Daemon) -> None:
    daemon.client(HELLO, frame(CONTROL, b'{"x":"' + b"x" * 70_000 + b'","op":"allocate"}'))
    daemon.until(lambda: daemon.ends)
    assert "over the limit" in daemon.ends[0][0]


def test_a_long_hello_and_lists_without_end_are_refused(daemon: Daemon) -> None:
    daemon.client(control({**hello("admin"), "build": "x" * 5000}))
    daemon.client(HELLO, nested(LIST_BYTES))
    daemon.until(lambda: len(daemon.ends) == 2)
    reasons = sorted(reason for reason, _ in daemon.ends)
    assert reasons[0].startswith("a hello of") and "lists and members is over the limit of 32768" in reasons[1]
    told = daemon.client(HELLO, frame(CONTROL, b'{"op":"allocate","x":[' + b"1.5," * 200_000 + b"1]}"))
    daemon.until(lambda: len(daemon.ends) == 3)
    assert daemon.ends[2][0] == "a request with 200002 values is over the limit of 131072"
    assert [said["error"]["message"] for said in daemon.heard(told)[1:]] == [daemon.ends[2][0]]


def test_unfinished_frames_of_a_user_stay_below_a_bound(daemon: Daemon) -> None:
    half = frame(CONTROL, b'{"op":"allocate","x":"' + b"x" * 500_000)[:-1]
    for _ in range(40):
        daemon.client(HELLO, half)
    assert _user(daemon).buffered <= USER_BYTES
    daemon.until(lambda: len(daemon.ends) >= 40 - USER_BYTES // len(half) - 1)
    assert {reason for reason, _ in daemon.ends} == {"its user has too many unfinished frames here"}
    for sock in daemon.clients:
        sock.close()
    daemon.until(lambda: not _user(daemon).connections)
    assert (_user(daemon).buffered, _user(daemon).unread) == (0, 0)


def test_answers_that_nobody_reads_stop_the_service_of_that_connection(daemon: Daemon) -> None:
    asks = control({"op": "idle", "id": 1, "x": "x" * 50}) * 20_000
    sock = connect(daemon.path)
    sock.setblocking(False)
    daemon.clients.append(sock)
    sock.send(HELLO)
    sent = 0
    for _ in range(20_000):
        try:
            sent += sock.send(asks[sent : sent + 4096])
        except BlockingIOError:
            pass
        daemon.loop.run_once(0)
    assert _user(daemon).unread < 128 << 10 and _user(daemon).buffered < 64 << 10
    served = len(daemon.asked)
    assert sent < len(asks)
    daemon.heard(sock)
    daemon.until(lambda: len(daemon.asked) > served)


@pytest.mark.parametrize(
    "leave", [lambda sock: sock.close(), lambda sock: sock.shutdown(socket.SHUT_RDWR)], ids=["exits", "hangs up"]
)
def test_a_client_that_leaves_its_answers_unread_leaves_no_connection(
    daemon: Daemon, leave: Callable[[socket.socket], None]
) -> None:
    """Its connection was not read any more, because of the answers; no frame of it is unfinished.

    After a hang-up without a close, the kernel keeps the answers, and never says that there is room for more.
    """
    asks = control({"op": "idle", "id": 1, "x": "x" * 96})
    assert len(asks) == 128, "what is read at once is a multiple of it"
    asks *= 20_000
    sock = daemon.client(HELLO)
    daemon.until(lambda: daemon.heard(sock))
    sent, served = 0, -1
    while served < len(daemon.asked):
        served = len(daemon.asked)
        for _ in range(1000):
            try:
                sent += sock.send(asks[sent : sent + 4096])
            except BlockingIOError:
                pass
            daemon.loop.run_once(0)
    assert _user(daemon).unread and daemon.server.sessions
    leave(sock)
    daemon.until(lambda: not daemon.server.sessions)
    assert (_user(daemon).connections, _user(daemon).buffered, _user(daemon).unread) == (0, 0, 0)


def test_a_connection_that_has_ended_is_freed_at_once(daemon: Daemon) -> None:
    """A CPA runs the garbage collector rarely, so connections in reference cycles would stay by the thousand."""
    sock = daemon.client(HELLO + control({"op": "idle", "id": 1}))
    daemon.until(lambda: daemon.asked)
    kept = weakref.WeakSet[object](daemon.server.sessions.values())
    kept.update([session.link for session in daemon.server.sessions.values()])
    assert len(kept) == 2
    gc.disable()
    try:
        sock.close()
        daemon.until(lambda: not kept)
    finally:
        gc.enable()


def test_a_thousand_programs_of_one_user_that_start_at_once_are_all_served(daemon: Daemon) -> None:
    request = control({"op": "idle", "id": 1, "x": "x" * 1000})
    clients = [daemon.client(HELLO + request) for _ in range(1000)]
    daemon.until(lambda: len(daemon.asked) == 1000)
    assert not daemon.ends
    assert [len(daemon.heard(sock)) for sock in clients] == [2] * 1000


def test_users_are_served_in_turn(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand requests of one user cost another, who asks after them, as many turns as requests of his own."""
    order: list[int] = []
    users = iter([1, 2])
    monkeypatch.setattr("agents.link.server.peer", lambda _sock: Peer(os.getpid(), next(users), 1))
    daemon.server.on_request = lambda session, _op, _message: order.append(session.state)
    asks = control({"op": "idle"})
    daemon.client(HELLO, asks * 500)
    daemon.until(lambda: daemon.server.sessions)
    (first,) = daemon.server.sessions.values()
    first.state = 1
    daemon.until(lambda: len(order) > 10)
    before = len(order)
    users = iter([2, 2])
    daemon.client(HELLO, asks * 3)
    daemon.until(lambda: len(daemon.server.sessions) == 2)
    for session in daemon.server.sessions.values():
        session.state = session.state or 2
    daemon.until(lambda: order.count(2) == 3)
    assert len(order) - before < 20, order
    assert order.count(1) < 500


def test_accepting_pauses_without_descriptors_and_goes_on(tmp_path: Path) -> None:
    loop = Loop()
    accepted: list[socket.socket] = []
    told: list[str] = []
    sock = listen(str(tmp_path / "s"))
    acceptor = Acceptor(loop, sock, lambda one, _address: accepted.append(one), told.append)
    clients = [connect(str(tmp_path / "s")) for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(sock.fileno())
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, limits[1]))
    try:
        rounds, until = 0, time.monotonic() + 0.5
        while time.monotonic() < until:
            loop.run_once(0.05)
            rounds += 1
        assert len(accepted) == 1 and told == [os.strerror(errno.EMFILE)]
        assert rounds < 50, "it spins"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    until = time.monotonic() + PATIENCE_S
    while len(accepted) < 3 and time.monotonic() < until:
        loop.run_once(0.05)
    assert len(accepted) == 3
    acceptor.close()
    for one in (*accepted, *clients, sock):
        one.close()


def test_lines_about_one_user_are_limited_and_counted(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "log"), "test")
    for number in range(3000):
        journal.write("asks", uid=21001, number=number)
    journal.write("asks", uid=21002)
    for _ in range(2000):
        journal.write("asks", uid=0)
    journal._quota._told_at = float("-inf")
    journal.write("asks", peer="10.0.0.1")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    of = [line for line in lines if line.get("uid") == 21001]
    assert 1000 <= sum(line["event"] == "asks" for line in of) < 1500
    assert sum(line["uid"] == 21002 for line in lines if "uid" in line) == 1
    assert sum(line["uid"] == 0 for line in lines if "uid" in line) == 2000
    omitted = [line for line in of if line["event"] == "omitted"]
    assert omitted and sum(line["lines"] for line in omitted) + sum(line["event"] == "asks" for line in of) == 3000


def test_connecting_waits_for_a_place_in_the_queue(tmp_path: Path) -> None:
    """With a time-out of Python's own it was refused at once where the queue was full (EAGAIN)."""
    sock = listen(str(tmp_path / "s"), backlog=0)
    first = connect(str(tmp_path / "s"))
    began = time.monotonic()
    with pytest.raises(BlockingIOError):
        connect(str(tmp_path / "s"), timeout_s=0.3)
    assert time.monotonic() - began > 0.25
    first.close()
    sock.close()
