"""What travels with a launch: the machine of an image, the data tree, who is passed over, what runs in place."""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.link.loop import Loop
from agents.link.sockets import listen
from agents.pct.images.chunks import PIECE, Reader, piece, read_piece
from agents.pct.images.fetch import Pull, Receiver
from agents.pct.images.states import TRANSITIONS, Action, Event, ImageMachine, Sources, State, ancestors, width
from agents.pct.launch.load import Program, Segment, identity, plain
from agents.wire.control import control, decode
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, HEADER_SIZE, Decoder

END = {State.HERE, State.FAILED}


def never(_fd: int, _offset: int, _count: int) -> int:
    """For connections that hand no file over."""
    raise AssertionError("no file was handed over")


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_every_transition_leads_where_the_table_says(state: State, event: Event) -> None:
    machine = ImageMachine()
    machine.state = state
    actions = machine.handle(event)
    assert (machine.state, actions) == TRANSITIONS[state, event]
    # whoever has it runs it, whoever cannot says so, and nobody goes on fetching then
    assert (Action.USE in actions) == (machine.state is State.HERE)
    assert (Action.FAIL in actions) == (machine.state is State.FAILED)
    if state is State.FETCHING and event is not Event.WHOLE:
        assert actions[0] is Action.DROP


@given(st.lists(st.sampled_from(list(Event)), max_size=30))
def test_an_image_ends_once(events: list[Event]) -> None:
    machine, uses, fails = ImageMachine(), 0, 0
    for event in events:
        before = machine.state
        actions = machine.handle(event)
        uses, fails = uses + actions.count(Action.USE), fails + actions.count(Action.FAIL)
        if before in END:
            assert machine.state is before and not actions
    assert uses + fails == (machine.state in END)


@given(st.integers(0, 20000), st.integers(1, 8))
def test_the_data_tree_reaches_everybody_from_the_root(place: int, width: int) -> None:
    above = ancestors(place, width)
    assert not above if place == 0 else above[-1] == 0
    assert above == sorted(above, reverse=True) and all(other < place for other in above)
    for child, parent in zip([place, *above], above, strict=False):
        assert width * parent < child <= width * parent + width  # so nobody has more than ``width`` children


@given(st.lists(st.integers(0, 50), unique=True), st.integers(1, 4))
def test_sources_come_in_order_and_again_and_end(places: list[int], rounds: int) -> None:
    sources = Sources(places, rounds)
    assert [sources.next() for _ in range(len(places) * rounds)] == places * rounds
    assert sources.next() == -1


@given(st.lists(st.integers(0, 50), unique=True, min_size=1), st.integers(1, 4), st.integers(0, 20))
def test_sources_that_bring_something_never_end(places: list[int], rounds: int, before: int) -> None:
    sources = Sources(places, rounds)
    taken = [sources.next() for _ in range(min(before, len(places) * rounds))]
    sources.renew()
    more = [sources.next() for _ in range(len(places) * rounds)]
    assert taken + more == (places * 2 * rounds)[: len(taken + more)], "who stood still is not asked first again"
    assert sources.next() == -1


@given(st.integers(0, 1 << 31), st.integers(0, 1 << 50), st.binary(max_size=100))
def test_a_piece_is_read_as_it_was_written(number: int, offset: int, data: bytes) -> None:
    frame = b"".join(piece(number, offset, data))
    assert read_piece(frame[HEADER_SIZE:]) == (number, offset, data)
    with pytest.raises(WireError):
        read_piece(frame[HEADER_SIZE : HEADER_SIZE + 11])


class Source:
    """A node that has an image: gives ``data`` from the offset asked for, ``most`` bytes of it, and then nothing."""

    def __init__(self, path: Path, data: bytes, most: int) -> None:
        self.offsets: list[int] = []
        self._data, self._most = data, most
        self._sock = listen(str(path))
        self._sock.setblocking(True)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while True:
                sock, _ = self._sock.accept()
                self._answer(sock)
        except OSError:
            pass

    def _answer(self, sock: socket.socket) -> None:
        from agents.wire.control import control
        from agents.wire.messages import hello

        decoder, asked = Decoder(), 0
        while asked < 2:  # the hello, the request
            for kind, payload in decoder.feed(sock.recv(4096)):
                assert kind == CONTROL
                asked += 1
                request = decode(payload)
        self.offsets.append(request["offset"])
        sock.sendall(control(hello("child")) + control({"re": request["id"], "size": len(self._data)}))
        offset, last = request["offset"], min(len(self._data), request["offset"] + self._most)
        while offset < last:
            part = self._data[offset : min(last, offset + PIECE)]
            sock.sendall(b"".join(piece(0, offset, part)))
            offset += len(part)
        self._kept = sock  # held open, silent

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def pulled(tmp_path: Path) -> Iterator[object]:
    made: list[Source] = []

    def pull(data: bytes, *most: "int | None") -> tuple[bytes, str, list[list[int]]]:
        """Fetch ``data`` from sources that stop after so many bytes (None: nobody listens). What came, why it ended."""
        sources = [
            None if limit is None else Source(tmp_path / f"{at}.sock", data, limit) for at, limit in enumerate(most)
        ]
        made.extend(source for source in sources if source)
        loop, got, ended = Loop(), bytearray(), []

        def take(offset: int, part: memoryview) -> None:
            assert offset == len(got)
            got.extend(part)
            if len(got) == len(data):
                loop.stop()

        def end(reason: str, answered: bool) -> None:
            assert not answered, "none of these sources says that it has it not"
            ended.append(reason)
            loop.stop()

        pulling = Pull(
            loop, Sources(list(range(len(most))), 1), lambda place: str(tmp_path / f"{place}.sock"),
            {"number": 0, "digest": "d"}, Receiver(lambda: len(got), take, never, end),
        )  # fmt: skip
        timer = loop.after(20, loop.stop)
        loop.run()
        timer.cancel()
        pulling.close()
        return bytes(got), "".join(ended), [source.offsets if source else [] for source in sources]

    yield pull
    for source in made:
        source.close()


def test_a_source_that_stands_still_is_passed_over_and_the_next_goes_on_where_it_stopped(pulled) -> None:  # type: ignore[no-untyped-def]
    data = os.urandom(3 * PIECE + 17)
    got, reason, offsets = pulled(data, PIECE, None, len(data))
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest() and not reason
    assert offsets == [[0], [], [PIECE]]


def test_when_nobody_gives_more_it_says_why(pulled) -> None:  # type: ignore[no-untyped-def]
    got, reason, _ = pulled(b"x" * 1000, 0, None)
    assert got == b"" and reason


def test_who_always_gives_a_little_is_asked_again(pulled) -> None:  # type: ignore[no-untyped-def]
    got, reason, offsets = pulled(b"x" * 30, 10)
    assert got == b"x" * 30 and not reason and offsets == [[0, 10, 20]]


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(min_size=1, max_size=3000)), max_size=8), st.data())
def test_pieces_are_read_however_the_stream_is_cut(pieces: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = control({"re": 1, "size": 5}) + b"".join(b"".join(piece(0, *one)) for one in pieces)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        messages: list[bytes] = []
        got: list[tuple[int, bytes]] = []
        reader = Reader(ours, messages.append, lambda offset, part: got.append((offset, bytes(part))), never)
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            theirs.sendall(stream[:cut])
            stream = stream[cut:]
            with contextlib.suppress(BlockingIOError):
                while reader.read():
                    pass
        theirs.close()
        assert not reader.read()
    assert [decode(one) for one in messages] == [{"re": 1, "size": 5}]
    placed = [[(offset + at, byte) for offset, part in some for at, byte in enumerate(part)] for some in (got, pieces)]
    assert placed[0] == placed[1]  # gathered or cut, every byte comes in order, at its place


@pytest.mark.parametrize(
    "head", [b"\x00\xff\xff\xff\xff", b"\x05\x00\x00\x00\x05", b"\x05\x7f\x00\x00\x00", b"\x02\0\0\0\x09"]
)
def test_what_is_no_image_is_refused(head: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(head + b"x" * 100)
        reader = Reader(ours, lambda _message: None, lambda _offset, _part: None, never)
        with pytest.raises(WireError):
            for _ in range(50):
                reader.read()


def program(path: Path, file: object, cargo: dict[str, object]) -> Program:
    made = Program([Segment(0, 2, os.fsencode(path), [b"job"], file)], {}, b"/", 0o22, "exec")
    made.payload = cargo
    return made


def test_the_same_file_runs_in_place_and_a_changed_one_does_not(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_bytes(b"#!/bin/sh\n")
    told = identity(os.fsencode(job))
    assert plain(program(job, told, {"bcast": "ask"}), [0, 1])
    assert plain(program(job, told, {}), [0])
    assert not plain(program(job, told, {"bcast": "told"}), [0])
    assert not plain(program(job, told, {"bcast": "ask", "files": True}), [0])
    assert plain(program(tmp_path / "none", [], {"bcast": "ask"}), [0])  # exec will say that it is nowhere
    os.utime(job, ns=(0, 0))
    assert not plain(program(job, told, {"bcast": "ask"}), [0])
    job.rename(tmp_path / "away")
    job.write_bytes(b"#!/bin/sh\n")
    assert not plain(program(job, told, {"bcast": "ask"}), [0])


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(b"x")
    (tmp_path / "link").symlink_to("job")
    assert identity(os.fsencode(tmp_path / "link")) == identity(os.fsencode(tmp_path / "job")) != []


@pytest.mark.parametrize(
    ("size", "nodes", "children"), [(16 << 20, 16, 1), (16 << 20, 64, 1), (16 << 20, 65, 2), (1 << 20, 8, 2)]
)
def test_a_chain_where_its_length_costs_less_than_a_second_transfer(size: int, nodes: int, children: int) -> None:
    assert width(size, nodes) == children
