"""Links over a socket pair: order, back-pressure, last words, ends."""

import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.link.link import CLOSING_BYTES, CLOSING_LINKS, Caller, Link
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.link.sockets import UnsafeDirectory, connect, connect_now, listen, own_directory, peer
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, STDOUT, output
from agents.wire.messages import PCT, hello
from tests.support.waiting import PATIENCE_S


class Ear:
    """One end with a link: frames and the reason of the end."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.ends: list[str] = []
        self.link = Link(loop, sock, lambda _l, k, p: self.frames.append((k, p)), lambda _l, r: self.ends.append(r))


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def _turn(loop: Loop, until: Callable[[], object]) -> None:
    for _ in range(2000):
        if until():
            return
        loop.run_once(0.01)
    raise AssertionError("never")


def test_more_than_the_socket_takes_arrives_in_order(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, ear = Ear(loop, pair[0]), Ear(loop, pair[1])
    drained = []
    sender.link.on_drained = lambda: drained.append(1)
    ear.link.pause()
    data = [os.urandom(100_000) for _ in range(20)]
    for i, part in enumerate(data):
        sender.link.send_parts(output(STDOUT, i, b"")[:5].replace(b"\0\0\0\4", (4 + len(part)).to_bytes(4, "big")),
                               i.to_bytes(4, "big"), part)  # fmt: skip
    sender.link.send({"op": "done"})
    assert sender.link.out_bytes > 1_000_000
    loop.run_once(0)
    assert not ear.frames, "paused"
    ear.link.resume()
    _turn(loop, lambda: len(ear.frames) == 21)
    assert [payload for _, payload in ear.frames[:20]] == [i.to_bytes(4, "big") + part for i, part in enumerate(data)]
    assert decode(ear.frames[20][1]) == {"op": "done"}
    assert sender.link.out_bytes == 0 and drained


def test_last_words_are_heard_though_the_peer_is_gone(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(control({"op": "exits", "ranks": []}) + control({"op": "finished"}))
    pair[1].close()
    ear = Ear(loop, pair[0])
    ear.link.send({"op": "done"})  # the peer takes it no more
    _turn(loop, lambda: ear.ends)
    assert [decode(payload)["op"] for _, payload in ear.frames] == ["exits", "finished"]
    assert len(ear.ends) == 1


def test_rubbish_ends_a_link_once(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    ear = Ear(loop, pair[0])
    pair[1].sendall(b"GET / HTTP/1.0\r\n\r\n")
    _turn(loop, lambda: ear.ends)
    loop.run_once(0)
    assert len(ear.ends) == 1 and "does not speak this protocol" in ear.ends[0]


def test_flush_sends_what_waits_before_it_closes(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    sender = Ear(loop, pair[0])
    sender.link.send_raw(output(STDOUT, 1, b"x" * 900_000))
    sender.link.close(flush=True)
    ear = Ear(loop, pair[1])
    _turn(loop, lambda: ear.ends)
    assert len(ear.frames[0][1]) == 900_004 and sender.link.sock is None


def test_a_stopped_peer_has_all_the_time_to_take_the_last_data(
    loop: Loop, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, closed = Ear(loop, pair[0]), []
    sender.link.send_raw(output(STDOUT, 1, b"x" * 900_000))
    sender.link.close(flush=True, then=lambda: closed.append(True))
    sender.link.close(flush=True)  # closed again
    later = time.monotonic() + 86400
    monkeypatch.setattr(time, "monotonic", lambda: later)
    loop.run_once(0)
    assert sender.link.sock is not None and not closed, "the kernel knows that the peer is there"
    ear = Ear(loop, pair[1])
    _turn(loop, lambda: ear.ends)
    assert len(ear.frames[0][1]) == 900_004 and sender.link.sock is None
    assert closed == [True] and not loop.closing


def test_the_oldest_closed_links_go_if_their_peers_leave_too_much_unread(loop: Loop) -> None:
    closed: list[int] = []
    peers = []
    for number in range(CLOSING_LINKS + 3):
        ours, theirs = socket.socketpair()
        peers.append(theirs)
        link = Ear(loop, ours).link
        size = CLOSING_BYTES - (1 << 20) if number == CLOSING_LINKS + 2 else 400_000
        link.send_raw(output(STDOUT, 1, b"x" * size)) if size < 1 << 20 else link.send_parts(bytes(size))
        link.close(flush=True, then=lambda number=number: closed.append(number))
    assert closed == sorted(closed) and CLOSING_LINKS + 2 not in closed
    assert sum(link.out_bytes for link in loop.closing) <= CLOSING_BYTES and len(loop.closing) <= CLOSING_LINKS
    for theirs in peers:
        theirs.close()
    _turn(loop, lambda: not loop.closing)
    assert sorted(closed) == list(range(CLOSING_LINKS + 3))


def test_a_user_who_leaves_much_unread_closes_no_link_of_another(loop: Loop) -> None:
    closed: list[int] = []
    peers = []
    for owner, count, size in ((1, 1, 400_000), (2, CLOSING_LINKS + 3, 400_000), (3, 1, CLOSING_BYTES + (1 << 20))):
        for _ in range(count):
            ours, theirs = socket.socketpair()
            peers.append(theirs)
            link = Ear(loop, ours).link
            link.owner = owner
            link.send_parts(bytes(size))
            link.close(flush=True, then=lambda owner=owner: closed.append(owner))
    assert set(closed) == {2, 3} and {link.owner for link in loop.closing} == {1, 2}
    for theirs in peers:
        theirs.close()
    _turn(loop, lambda: not loop.closing)


@pytest.mark.parametrize(
    "leave", [lambda sock: sock.close(), lambda sock: sock.shutdown(socket.SHUT_RDWR)], ids=["exits", "hangs up"]
)
def test_a_peer_that_leaves_without_reading_ends_the_link(
    loop: Loop, pair: tuple[socket.socket, socket.socket], leave: Callable[[socket.socket], None]
) -> None:
    """An owner that paused the link because of the waiting data reads on: earlier data of the peer, then the end."""
    ear = Ear(loop, pair[0])
    ear.link.on_drained = ear.link.resume
    ear.link.send_raw(output(STDOUT, 1, b"x" * 900_000))
    ear.link.pause()
    pair[1].sendall(control({"op": "finished"}))
    leave(pair[1])
    _turn(loop, lambda: ear.ends)
    assert [decode(payload)["op"] for _, payload in ear.frames] == ["finished"]


def test_a_peer_that_leaves_without_reading_ends_a_flush(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    sender = Ear(loop, pair[0])
    sender.link.send_raw(output(STDOUT, 1, b"x" * 900_000))
    sender.link.pause()
    sender.link.close(flush=True)
    assert sender.link.sock is not None
    pair[1].shutdown(socket.SHUT_RDWR)
    _turn(loop, lambda: sender.link.sock is None)
    assert not sender.ends


def test_request_and_reply(loop: Loop, tmp_path: object) -> None:
    path = f"{tmp_path}/s"

    def serve(session: Session, op: str, message: Message) -> None:
        if op == "kill_launch":
            raise AgentError("no such launch", "look again", code="invalid")
        session.reply(message, {"node": "n0"})

    server = Server(loop, path, "pct", PCT, serve)
    got: list[tuple[Message | None, AgentError | None]] = []
    caller = Caller(loop, connect_now(path), "admin", lambda _c, _r: None)
    for message in ({"op": "status"}, {"op": "kill_launch", "launcher": 1}, {"op": "kill_launch"}, {"op": "what"}):
        caller.call(message, lambda reply, error: got.append((reply, error)))
    _turn(loop, lambda: len(got) == 4)
    assert got[0] == ({"re": 1, "node": "n0"}, None)
    assert [error.code for _, error in got[1:] if error] == ["invalid", "invalid", "unknown_op"]
    caller.call({"op": "status"}, lambda reply, error: got.append((reply, error)))
    server.close()
    _turn(loop, lambda: len(got) == 5)
    assert got[4][1] is not None and got[4][1].code == "gone"


def test_a_hello_without_its_keys_ends_the_session_and_not_the_server(loop: Loop, tmp_path: object) -> None:
    server = Server(loop, f"{tmp_path}/s", "pct", PCT, lambda *_: None)
    sock = connect(f"{tmp_path}/s")
    sock.sendall(control({"op": "hello"}))
    _turn(loop, lambda: server.sessions)
    _turn(loop, lambda: not server.sessions)
    assert sock.recv(10) == b""
    sock.close()
    caller = Caller(loop, connect_now(f"{tmp_path}/s"), "admin", lambda *_: None)
    _turn(loop, lambda: server.sessions)
    caller.close()
    server.close()


def test_timers_signals_and_forked_children(loop: Loop) -> None:
    calls: list[str] = []
    loop.on_signal(signal.SIGUSR2, lambda: calls.append("signal"))
    late = loop.after(0.01, lambda: calls.append("never"))
    loop.after(0.005, lambda: calls.append("early"))
    late.cancel()
    os.kill(os.getpid(), signal.SIGUSR2)
    _turn(loop, lambda: {"signal", "early"} <= set(calls))
    assert "never" not in calls
    pid = os.fork()
    if pid == 0:
        try:
            loop.abandon()
            mine: list[int] = []
            child = Loop()
            child.on_signal(signal.SIGUSR2, lambda: mine.append(1))
            os.kill(os.getpid(), signal.SIGUSR2)
            while not mine:
                child.run_once(0.1)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    loop.run_once(0)
    assert calls.count("signal") == 1, "the child's signal woke the child alone"
    loop.abandon()


def test_paths_longer_than_a_socket_address(tmp_path: object) -> None:
    directory = f"{tmp_path}/{'d' * 120}"
    os.mkdir(directory, 0o700)
    path = f"{directory}/{'s' * 60}.sock"
    sock = listen(path)
    with connect(path) as client:
        assert peer(client).pid == os.getpid()
    with pytest.raises(AgentError) as error:
        listen(path)
    assert error.value.code == "in_use"
    sock.close()
    listen(path).close()  # a dead socket is replaced
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_directories_must_be_ones_own(tmp_path: object) -> None:
    path = f"{tmp_path}/run"
    assert own_directory(path) == path
    assert os.stat(path).st_mode & 0o777 == 0o700
    os.chmod(path, 0o750)
    with pytest.raises(UnsafeDirectory):
        own_directory(path)
    os.symlink(str(tmp_path), f"{tmp_path}/link")
    with pytest.raises(UnsafeDirectory):
        own_directory(f"{tmp_path}/link")
    assert hello("pct")["role"] == "pct" and CONTROL == 0


def test_a_socket_that_is_bound_and_does_not_listen_yet_is_not_taken_for_dead(tmp_path: Path) -> None:
    path = str(tmp_path / "cpa.sock")
    slow = socket.socket(socket.AF_UNIX)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)  # as listen() does
    slow.bind(path)
    told: list[BaseException] = []

    def other() -> None:
        try:
            listen(path).close()
        except AgentError as error:
            told.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive() and os.path.exists(path), "it waits until the first one listens"
    slow.listen()
    os.close(directory)
    thread.join(PATIENCE_S)
    assert [getattr(error, "code", "") for error in told] == ["in_use"] and os.path.exists(path)
    slow.close()
    listen(path).close()  # now it is dead
