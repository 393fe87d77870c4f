"""A database that is away costs one time-out a second, not one a request."""

import pytest

from agents.cpa.outage import Outage
from db.errors import DatabaseUnavailable, NotEnough


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_outage_is_remembered_for_a_second_and_then_looked_at_again() -> None:
    clock, calls = Clock(), []

    def away() -> None:
        calls.append(clock.now)
        raise DatabaseUnavailable("refused", "start it")

    outage = Outage(clock)
    for step in range(21):
        clock.now = 100.0 + step / 10
        with pytest.raises(DatabaseUnavailable, match="refused") as caught:
            outage.guard(away)
        assert caught.value.hint == "start it"
    assert calls == [100.0, 101.0, 102.0]
    clock.now = 103.5
    assert outage.guard(lambda: "here") == "here" and not outage.known


def test_a_refusal_is_an_answer() -> None:
    clock = Clock()
    outage = Outage(clock)

    def refuse() -> None:
        raise NotEnough("none free")

    for _ in range(2):
        with pytest.raises(NotEnough):
            outage.guard(refuse)
    assert not outage.known
