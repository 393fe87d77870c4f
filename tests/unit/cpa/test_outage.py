"""A database that is away costs one time-out a second, not one a request."""

import pytest

from db.errors import DatabaseUnavailable, NotEnough
from db.store.outage import Outage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_outage_is_remembered_for_a_second_and_then_looked_at_again() -> None:
    clock, calls = Clock(), []

    def away() -> None:
        calls.append(clock.now)
        clock.now += 0.06  # no more than that: it is remembered twenty times as long, but for a second at most
        raise DatabaseUnavailable("refused", "start it")

    outage = Outage(clock)
    for step in range(24):
        clock.now = 100.0 + step / 10
        with pytest.raises(DatabaseUnavailable, match="refused") as caught:
            outage.guard(away)
        assert caught.value.hint == "start it"
    assert calls == pytest.approx([100.0, 101.1, 102.2])
    clock.now = 103.5
    assert outage.guard(lambda: "here") == "here" and not outage.known


def test_one_that_says_at_once_that_it_cannot_is_asked_at_once_again() -> None:
    clock = Clock()
    outage = Outage(clock)

    def full() -> None:
        clock.now += 0.002
        raise DatabaseUnavailable("database or disk is full")

    with pytest.raises(DatabaseUnavailable):
        outage.guard(full)
    with pytest.raises(DatabaseUnavailable):
        outage.guard(lambda: "not yet")
    clock.now += 0.05
    assert outage.guard(lambda: "here") == "here"


def test_a_refusal_is_an_answer() -> None:
    clock = Clock()
    outage = Outage(clock)

    def refuse() -> None:
        raise NotEnough("none free")

    for _ in range(2):
        with pytest.raises(NotEnough):
            outage.guard(refuse)
    assert not outage.known
