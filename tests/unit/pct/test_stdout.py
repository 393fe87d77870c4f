"""Lines that ranks write in pieces: passed on as one, never for long, never out of order, never lost."""

import os
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.link.loop import Loop
from agents.pct.stdio.stdout import LINE, LINE_S, Streams
from agents.wire.frames import STDERR, STDOUT
from tests.support.chance import examples

Frame = tuple[int, int, bytes]


class Upward:
    """Stands where the relay does: takes everything at once."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def push(self, kind: int, rank: int, data: bytes, passed: Callable[[int], None]) -> None:
        self.frames.append((kind, rank, bytes(data)))
        passed(len(data))

    def barrier(self, call: Callable[[], None]) -> None:
        call()


class Node:
    """The pipes of two ranks, read by the streams of a node."""

    def __init__(self, *, whole_lines: bool = True) -> None:
        self.loop, self.up, self.closed = Loop(), Upward(), list[int]()
        self.streams = Streams(self.loop, self.up, self.closed.append, whole_lines=whole_lines)  # type: ignore[arg-type]
        self.ends: dict[tuple[int, int], int] = {}
        for rank in (0, 1):
            readers = []
            for kind in (STDOUT, STDERR):
                reader, self.ends[rank, kind] = os.pipe()
                os.set_blocking(reader, False)
                readers.append(reader)
            self.streams.add(rank, *readers)

    def write(self, rank: int, data: bytes, kind: int = STDOUT) -> None:
        os.write(self.ends[rank, kind], data)
        self.loop.run_once(0)

    def end(self) -> None:
        for fd in self.ends.values():
            os.close(fd)
        self.ends.clear()
        while self.streams.open_ranks:
            self.loop.run_once(1)

    def settle(self) -> None:
        until = time.monotonic() + 2 * LINE_S
        while (left := until - time.monotonic()) > 0:
            self.loop.run_once(left)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.end()
    made.streams.close()
    made.loop.close()


def test_the_pieces_of_a_line_go_on_as_one(node: Node) -> None:
    node.write(0, b"mean ")
    node.write(1, b"other\n")
    node.write(0, b"is 3")
    node.write(0, b"\nnext\n")
    assert node.up.frames == [(STDOUT, 1, b"other\n"), (STDOUT, 0, b"mean is 3\nnext\n")]


def test_a_prompt_waits_for_nobody_for_long(node: Node) -> None:
    node.write(0, b"name? ")
    assert not node.up.frames
    began = time.monotonic()
    while not node.up.frames:
        node.loop.run_once(1)
    assert node.up.frames == [(STDOUT, 0, b"name? ")] and time.monotonic() - began > LINE_S / 2


def test_what_is_long_does_not_wait(node: Node) -> None:
    node.write(0, b"x" * LINE)
    node.write(1, b"y" * (LINE - 1))
    node.write(1, b"y")
    assert node.up.frames == [(STDOUT, 0, b"x" * LINE), (STDOUT, 1, b"y" * LINE)]


def test_a_rank_s_streams_keep_their_order(node: Node) -> None:
    node.write(0, b"name? ")
    node.write(0, b"no terminal\n", STDERR)
    assert node.up.frames == [(STDOUT, 0, b"name? "), (STDERR, 0, b"no terminal\n")]


def test_the_end_of_a_pipe_ends_its_line() -> None:
    node = Node()
    node.write(0, b"no newline")
    node.end()
    assert node.up.frames == [(STDOUT, 0, b"no newline")] and sorted(node.closed) == [0, 1]
    node.settle()
    assert len(node.up.frames) == 1
    node.loop.close()


def test_a_rank_that_is_given_up_loses_nothing() -> None:
    node = Node()
    node.write(0, b"half")
    os.write(node.ends[0, STDOUT], b" and half")  # still in the pipe, whose other end somebody holds open
    node.streams.give_up(0)
    while 0 in node.streams.open_ranks:
        node.loop.run_once(1)
    assert b"".join(data for _, _, data in node.up.frames) == b"half and half"
    node.end()
    node.loop.close()


def test_without_it_every_piece_goes_on_at_once() -> None:
    node = Node(whole_lines=False)
    node.write(0, b"mean ")
    node.write(0, b"is 3\n")
    assert node.up.frames == [(STDOUT, 0, b"mean "), (STDOUT, 0, b"is 3\n")]
    node.end()
    node.loop.close()


PIECES = st.tuples(
    st.integers(0, 1), st.sampled_from((STDOUT, STDERR)), st.sampled_from((b"a", b"b\n", b"\n", b"c\nd", b"e" * LINE))
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(PIECES, max_size=30))
def test_every_byte_once_and_in_order(pieces: list[tuple[int, int, bytes]]) -> None:
    node = Node()
    for rank, kind, data in pieces:
        node.write(rank, data, kind)
    node.end()
    for rank in (0, 1):
        for kind in (STDOUT, STDERR):
            sent = b"".join(data for one, what, data in pieces if (one, what) == (rank, kind))
            assert b"".join(data for what, one, data in node.up.frames if (one, what) == (rank, kind)) == sent
    node.loop.close()
