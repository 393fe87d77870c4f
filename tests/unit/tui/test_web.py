"""An image that one launch child fetches from another on its machine, or through a courier: the file is handed over."""

import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.pct.images.chunks import LONG_STEP, PIECE, STEP, MappedFile, Reader, notice, read_piece, step
from agents.pct.images.fetch import Pull, Receiver
from agents.pct.images.serve import FAR_GRAIN, Serving, Servings
from agents.pct.images.states import Sources
from agents.pct.launch.paths import launch_socket
from agents.pct.remote.image_proxy import ImageProxy, ImageSource, be_image_proxy
from agents.wire.control import control, decode
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, IMAGE, Decoder
from agents.wire.messages import PCT, hello
from tests.support.waiting import PATIENCE_S


class Node:
    """A launch child that has ``here`` bytes of an image, and serves them; a fetcher of it, and what it got."""

    def __init__(self, folder: Path, whole: bytes, here: int, grain: int = FAR_GRAIN) -> None:
        self.loop, self.whole, self.here, self.grain = Loop(), whole, here, grain
        self.file, self.path = folder / "image.part", str(folder / "child.sock")
        self.file.write_bytes(whole)
        self.servings = Servings()
        self.server = Server(self.loop, self.path, "pct", PCT, self._on_request)
        self.got, self.pieces, self.reasons = bytearray(), 0, []  # type: ignore[var-annotated]
        self.pull = Pull(
            self.loop, Sources([0], 1), lambda _place: self.path, {"number": 0, "digest": "d"},
            Receiver(lambda: len(self.got), self._take, self._take_file, lambda *why: self.reasons.append(why)),
        )  # fmt: skip

    def _on_request(self, session: Session, op: str, message: dict[str, Any]) -> None:
        assert op == "fetch"
        session.reply(message, {"size": len(self.whole)})
        fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        self.servings.add(0, Serving(session, 0, len(self.whole), fd, lambda: self.here, self.grain))

    def _take(self, offset: int, data: memoryview) -> None:
        assert offset == len(self.got)
        self.got += data
        self.pieces += 1

    def _take_file(self, file: MappedFile, offset: int, count: int) -> int:
        data = file.piece(offset, count)
        if data:
            self._take(offset, data)
        return len(data)

    def come(self, here: int) -> None:
        """More of it has come."""
        self.here = here
        self.servings.push(0)

    def turn(self, until: Any) -> None:
        """Let the loop turn."""
        for _ in range(2000):
            if until():
                return
            self.loop.run_once(0.01)
        raise AssertionError("never")

    def close(self) -> None:
        self.pull.close()
        self.servings.close()
        self.server.close()
        self.loop.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    before = set(os.listdir("/proc/self/fd"))
    made = Node(tmp_path, os.urandom(3 * PIECE + 11), PIECE)
    yield made
    made.close()
    assert set(os.listdir("/proc/self/fd")) <= before, "no descriptor stays open"


def test_what_has_arrived_is_fetched_and_what_follows_as_it_arrives(node: Node) -> None:
    node.turn(lambda: len(node.got) == PIECE)
    node.come(PIECE + 5)  # not worth waking anybody
    for _ in range(5):
        node.loop.run_once(0.01)
    assert len(node.got) == PIECE
    node.come(PIECE + FAR_GRAIN)
    node.turn(lambda: len(node.got) == PIECE + FAR_GRAIN)
    node.come(len(node.whole))
    node.turn(lambda: len(node.got) == len(node.whole))
    assert node.got == node.whole and not node.reasons
    assert node.pieces == 3  # few, however it came


def test_a_node_of_the_machine_is_told_when_what_is_there_has_doubled_or_a_step_is_full(tmp_path: Path) -> None:
    node = Node(tmp_path, bytes(3 * STEP), 1, STEP)
    try:
        told = []
        for here in range(PIECE // 4, 3 * STEP + 1, PIECE // 4):
            node.come(here)
            node.loop.run_once(0)
            for _ in range(4):
                node.loop.run_once(0.001)
            told += [len(node.got)] if told[-1:] != [len(node.got)] else []
        assert told == [PIECE // 4, PIECE // 2, PIECE, 2 * PIECE, STEP, 2 * STEP, 3 * STEP]
    finally:
        node.close()


def test_steps_are_long_where_every_processor_is_busy_anyway() -> None:
    processors = len(os.sched_getaffinity(0))
    assert step(0) == step(8 * processors) == STEP < step(8 * processors + 1) == LONG_STEP


def test_an_image_that_will_not_come_sends_the_fetcher_elsewhere(node: Node) -> None:
    node.turn(lambda: len(node.got) == PIECE)
    node.servings.stop(0)
    node.turn(lambda: node.reasons)
    assert node.reasons == [("it stands still", False)], "what had brought something was asked once more"


def test_a_file_that_is_cut_short_is_no_source(node: Node) -> None:
    node.turn(lambda: len(node.got) == PIECE)
    os.truncate(node.file, PIECE)
    node.come(2 * PIECE)
    node.turn(lambda: node.reasons)
    assert node.reasons == [("the file of an image is shorter than was told", True)] and len(node.got) == PIECE


def test_a_notice_without_a_file_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(notice(0, 5))
        reader = Reader(ours, lambda _message: None, lambda _offset, _part: None, lambda _fd, _offset, count: count)
        with pytest.raises(WireError):
            for _ in range(3):
                reader.read()


def test_of_files_handed_over_one_stays_open_and_goes_with_its_reader(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"image")
    before = set(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    got: list[bytes] = []

    def take(file: MappedFile, offset: int, count: int) -> int:
        got.append(bytes(file.piece(offset, count)))
        return len(got[-1])

    with ours, theirs, open(tmp_path / "image", "rb") as image:
        for here in (1, 2):
            socket.send_fds(theirs, [notice(0, here)], [image.fileno()])
        reader = Reader(ours, lambda _message: None, lambda _offset, _part: None, take)
        while b"".join(got) != b"im":
            reader.read()
        reader.close()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_whoever_reads_late_takes_all_that_was_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"image!")
    ours, theirs = socket.socketpair()
    taken: list[tuple[int, int]] = []

    def take(_file: MappedFile, offset: int, count: int) -> int:
        taken.append((offset, count))
        return count

    with ours, theirs, open(tmp_path / "image", "rb") as image:
        ours.setblocking(False)
        socket.send_fds(theirs, [notice(0, 1)], [image.fileno()])
        reader = Reader(ours, lambda _message: None, lambda _offset, _part: None, take)
        while not reader.dry:
            reader.read()
        assert taken == [(0, 1)]
        theirs.sendall(b"".join(notice(0, here) for here in (2, 3, 4)) + notice(0, 6)[:7])
        while not (reader.dry and len(taken) > 1):
            reader.read()
        assert taken == [(0, 1), (1, 3)]
        theirs.sendall(notice(0, 6)[7:])
        while not (reader.dry and len(taken) > 2):
            reader.read()
        assert taken == [(0, 1), (1, 3), (4, 2)]
        theirs.sendall(control(hello("child")))  # behind notices comes nothing else
        with pytest.raises(WireError):
            while True:
                reader.read()
        reader.close()


class Stream:
    """The other machine's end of a courier: a stream socket that hands nothing over."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.sendmsg, self.fileno, self.setblocking = sock.sendmsg, sock.fileno, sock.setblocking


def test_a_courier_makes_frames_of_the_file(tmp_path: Path) -> None:
    whole, begin = os.urandom(2 * PIECE + 77), 1000
    (tmp_path / "image").write_bytes(whole)
    child, source = socket.socketpair()
    out, far = socket.socketpair()
    courier = ImageProxy(Stream(out), source, {"number": 3, "offset": begin})  # type: ignore[arg-type]
    carrying = threading.Thread(target=courier.carry)
    with child, source, out, far, open(tmp_path / "image", "rb") as image:
        child.sendall(control(hello("child")) + control({"re": 1, "size": len(whole)}))
        socket.send_fds(child, [notice(3, 5000)], [image.fileno()])
        carrying.start()
        frames = _frames(far, 3)
        child.sendall(notice(3, len(whole)))
        frames += _frames(far, 2)
        far.close()  # whoever fetched has it all
        carrying.join(PATIENCE_S)
        assert not carrying.is_alive()
    assert [kind for kind, _ in frames] == [CONTROL, CONTROL] + [IMAGE] * 3
    at = begin
    for _, payload in frames[2:]:
        number, offset, data = read_piece(payload)
        assert (number, offset) == (3, at) and data == whole[at : at + len(data)]
        at += len(data)
    assert at == len(whole)


def test_a_courier_whose_file_is_empty_before_it_looks_says_so_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"")
    child, source = socket.socketpair()
    out, far = socket.socketpair()
    with child, source, out, far, open(tmp_path / "image", "rb") as image:
        courier = ImageProxy(Stream(out), source, {"number": 3, "offset": 0})  # type: ignore[arg-type]
        child.sendall(control(hello("child")))
        socket.send_fds(child, [notice(3, 5000)], [image.fileno()])
        courier.carry()
        courier.close()
        (_, _), (kind, said) = _frames(far, 2)
    assert kind == CONTROL and "shorter" in decode(said)["error"]["message"], "who fetches sees that the link is well"


class Reading(Stream):
    """As TLS does it: the process itself reads what it sends."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.sendmsg = lambda parts: sock.send(b"".join(parts))  # type: ignore[assignment]

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_courier_whose_file_is_cut_short_leaves_it_and_never_a_core(tmp_path: Path) -> None:
    """The file is a user's, the courier may be root's, with the node's key in its memory."""
    (tmp_path / "image").write_bytes(os.urandom(2 * PIECE))
    path = launch_socket(str(tmp_path), "n0", 1)
    line, pct = socket.socketpair()
    pct.settimeout(PATIENCE_S)
    out, far = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listener, out, far, open(tmp_path / "image", "rb") as image:
        listener.bind(path)
        listener.listen()
        pid = os.fork()
        if pid == 0:
            os.chdir(tmp_path)
            hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
            signal.signal(signal.SIGBUS, signal.SIG_DFL)  # pytest's would print
            request = {"op": "fetch", "id": 1, "launcher": 1, "number": 3, "offset": 0}
            be_image_proxy(
                ImageSource(str(tmp_path), "n0", "mesh", Journal("", "pct", node="n0")), line, Reading(out), request
            )  # type: ignore[arg-type]
        child, _ = listener.accept()
        with child:
            child.sendall(control(hello("child")))
            socket.send_fds(child, [notice(3, 5000)], [image.fileno()])
            _frames(far, 2)
            os.truncate(tmp_path / "image", 0)
            child.sendall(notice(3, 9000))
            assert pct.recv(16), "it is ready for the next"
            os.kill(pid, signal.SIGBUS)  # as a cut between its look and its reading would
            _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS
    assert not os.WCOREDUMP(status) and not list(tmp_path.glob("core*"))


def _frames(sock: socket.socket, count: int) -> list[tuple[int, bytes]]:
    decoder, frames = Decoder(), []  # type: ignore[var-annotated]
    sock.settimeout(PATIENCE_S)
    while len(frames) < count:
        frames += decoder.feed(sock.recv(1 << 16))
    assert len(frames) == count and not decoder.pending
    return frames
