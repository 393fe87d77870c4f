"""Standard input shared by many nodes: every transition, and no byte lost or out of order whoever reads when."""

import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.link.loop import Loop
from agents.pct.stdio.shared_stdin import TRANSITIONS, CountedPipe, Event, InputDistributor, State, reads
from tests.support.chance import examples
from tests.support.waiting import wait_until


class Below:
    """The link to one child, which has one node: keeps what was sent down."""

    over = False

    def __init__(self, place: int) -> None:
        self.place = place
        self.sent: list[dict[str, Any]] = []

    def has(self, place: int) -> bool:
        return place == self.place

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


def dealer(below: list[Below]) -> tuple[Loop, InputDistributor]:
    loop = Loop()
    return loop, InputDistributor(loop, below, lambda: None)  # type: ignore[arg-type]


def state_of(one: InputDistributor) -> State:
    return one.state  # mypy believes that what it has seen once stays


def turn(loop: Loop, until: Callable[[], object], what: str) -> None:
    def probe() -> object:
        loop.run_once(0.01)
        return until()

    wait_until(probe, what)


def test_shared_stdin_takes_every_transition() -> None:
    one = Below(1)
    walked = set()
    loop, root = dealer([one])
    handle = root._handle

    def noting(event: Event) -> None:
        if (root.state, event) in TRANSITIONS:
            walked.add((root.state, event))
        handle(event)

    root._handle = noting  # type: ignore[method-assign]
    root.give(b"abcdef")
    turn(loop, lambda: one.sent, "nobody reads: who waits is asked")
    assert one.sent.pop() == {"op": "seek_reader"}
    root.waits(1)
    assert one.sent.pop() == {"op": "input_piece", "node": 1, "data": "abcdef"}
    root.give(b"gh")
    root.dealt(1, b"")
    assert one.sent.pop() == {"op": "input_piece", "node": 1, "data": "gh"}
    root.dealt(1, b"h")
    assert state_of(root) is State.HERE and os.read(root.pipe.reader, 10) == b"h"
    turn(loop, lambda: root.taken == 8, "what is read here counts too")
    root.give(b"ij")
    turn(loop, lambda: one.sent, "asked again")
    root.waits(1)
    root.lost([1])
    assert state_of(root) is State.HERE
    root.give(b"kl")
    root.waits(1)
    root.dealt(1, b"")
    root.end()
    assert state_of(root) is State.OVER and one.sent[-1] == {"op": "eof"}
    loop, other = dealer([])
    other._handle, handle, root = noting, other._handle, other  # type: ignore[method-assign]
    other.end()
    assert state_of(other) is State.OVER and walked == set(TRANSITIONS)


def test_the_end_waits_for_the_last_byte() -> None:
    loop, root = dealer([one := Below(1)])
    root.give(b"x")
    root.end()
    turn(loop, lambda: one.sent, "unread: who waits is asked")
    assert state_of(root) is State.HERE and one.sent[-1] == {"op": "seek_reader"}
    root.waits(1)
    root.dealt(1, b"")
    assert one.sent[-1] == {"op": "eof"}


def test_who_did_not_take_is_passed_over_until_all_have_been_tried() -> None:
    places = range(1, 9)
    loop, root = dealer(below := [Below(place) for place in places])
    root.give(b"x")
    tried = []
    for _ in places:
        for place in places:  # all of them always seem to wait
            root.waits(place)
        assert state_of(root) is State.AWAY
        tried.append(root._holder)
        root.dealt(root._holder, b"x")
    assert tried == list(places)
    for place in places:
        root.waits(place)
        assert state_of(root) is State.HERE, "it had its chance"
    asked = len(below[0].sent)
    turn(loop, lambda: len(below[0].sent) > asked, "asked again")
    root.waits(1)
    assert state_of(root) is State.AWAY, "it may be the one after all"
    root.drop()


def test_what_nobody_takes_is_offered_ever_more_rarely() -> None:
    loop, root = dealer([one := Below(1)])
    root.give(b"x")
    looks: list[float] = []
    while len(looks) < 9:
        turn(loop, lambda: one.sent and one.sent[-1]["op"] == "seek_reader", "asked")
        looks.append(time.monotonic())
        one.sent.clear()
        root.waits(1)
        if state_of(root) is State.AWAY:
            root.dealt(1, b"x")
            one.sent.clear()
    assert looks[-1] - looks[-3] > 0.3, "with pauses of 0.2 s and more"
    assert os.read(root.pipe.reader, 1) == b"x"
    turn(loop, lambda: root.taken == 1, "read here")
    assert root._pause_s == root._not_before == 0, "whoever reads makes it offered at once again"
    root.drop()


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 3), st.integers(0, 200_000)), max_size=8))
def test_no_byte_is_lost(rounds: list[tuple[int, int, int]]) -> None:
    """Pieces of any size come; the node here (0), or another, reads some of them: in all the stream, in order."""
    loop, root = dealer(below := [Below(place) for place in (1, 2, 3)])
    os.set_blocking(root.pipe.reader, False)
    came = got = b""
    for size, place, want in rounds:
        data = os.urandom(size)
        came += data
        root.give(data)
        if place == 0:
            while want > 0 and state_of(root) is State.HERE:
                try:
                    part = os.read(root.pipe.reader, want)
                except BlockingIOError:
                    break
                got, want = got + part, want - len(part)
                loop.run_once(0)
            continue
        root.waits(place)
        while root._piece:
            at = root._holder
            piece = below[at - 1].sent[-1]["data"].encode("latin-1")
            got += piece[:want]
            piece, want = piece[want:], max(0, want - len(piece))
            root.dealt(at, piece)
    while root._piece:
        got += below[root._holder - 1].sent[-1]["data"].encode("latin-1")
        root.dealt(root._holder, b"")
    while not root.pipe.empty:
        try:
            got += os.read(root.pipe.reader, 1 << 20)
        except BlockingIOError:
            loop.run_once(0.01)
    assert got == came
    root.drop()


def test_a_mouth_gives_back_what_nobody_read() -> None:
    loop = Loop()
    stalls: list[int] = []
    taken: list[int] = []
    mouth = CountedPipe(loop, taken.append, lambda: stalls.append(1))
    mouth.give(b"x" * 100_000)
    turn(loop, lambda: stalls, "nobody reads")
    assert os.read(mouth.reader, 5000) == b"x" * 5000
    assert len(mouth.take_back()) == 95_000 and mouth.empty
    mouth.give(b"end")
    assert os.read(mouth.reader, 10) == b"end"
    turn(loop, lambda: mouth.empty, "what is read is noticed")
    mouth.end()
    assert os.read(mouth.reader, 10) == b""


def test_who_reads_is_seen() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(reader, 1)
        finally:
            os._exit(0)
    try:
        wait_until(lambda: reads([pid]) == 2, "it waits for the pipe")
        assert reads([]) == 0
    finally:
        os.write(writer, b"x")
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
