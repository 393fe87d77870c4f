"""Who is slow is waited for, who stands still is at fault: by a clock that the test moves."""

from collections.abc import Callable

import pytest

from agents.pct.errors import LoadFailed
from agents.pct.launch import liveness
from agents.pct.launch.liveness import READY_S, Readiness


class Clock:
    """Time, and what is due in it: as much of a loop as is needed here."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + delay_s, call))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.due and min(at for at, _ in self.due) <= until:
            at, call = min(self.due, key=lambda one: one[0])
            self.due.remove((at, call))
            self.now = max(self.now, at)
            call()
        self.now = until


class Node:
    """One whose processes are waited for."""

    def __init__(self, clock: Clock, patience_s: float = 0.0) -> None:
        self.waiting = True
        self.failed: list[LoadFailed] = []
        self.readiness = Readiness(clock, "n3", lambda: self.waiting, self.failed.append, patience_s)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(liveness, "time", made)
    return made


def test_one_that_stands_still_is_named_once(clock: Clock) -> None:
    node = Node(clock)
    clock.advance(READY_S - 0.1)
    assert node.failed == []
    clock.advance(10 * READY_S)
    (error,) = node.failed
    assert (error.message, error.fault) == ("n3: its processes do not reach their exec", "stalled")


def test_one_that_moves_is_waited_for_however_slow(clock: Clock) -> None:
    node = Node(clock)
    for _ in range(20):
        clock.advance(READY_S - 0.1)
        node.readiness.moved()
    assert node.failed == []
    clock.advance(2 * READY_S)
    assert len(node.failed) == 1


def test_ranks_that_were_told_to_sleep_first_may(clock: Clock) -> None:
    node = Node(clock, patience_s=60.0)
    clock.advance(60.0 + READY_S - 0.1)
    assert node.failed == []
    clock.advance(1.0)
    assert len(node.failed) == 1


def test_when_all_are_held_nobody_looks_any_more(clock: Clock) -> None:
    node = Node(clock)
    node.waiting = False
    clock.advance(10 * READY_S)
    assert node.failed == [] and clock.due == []
