"""Placement against its definition: brute force over small lines, and the cases people draw on boards."""

import signal
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cpa.placement import registry as placement
from agents.cpa.placement.first_and_best_fit import best_fit, first_fit, intervals
from agents.wire.errors import AgentError
from db.errors import NotEnough

lines = st.sets(st.integers(0, 60), min_size=1, max_size=40).map(sorted)


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], int]:
    free = draw(lines)
    return free, draw(st.integers(1, len(free)))


def runs(free: list[int]) -> list[list[int]]:
    """Intervals by their definition: cut wherever the next id is not the neighbour."""
    found: list[list[int]] = []
    for processor in free:
        if found and processor == found[-1][-1] + 1:
            found[-1].append(processor)
        else:
            found.append([processor])
    return found


@given(lines)
def test_intervals_are_the_runs_of_neighbours(free: list[int]) -> None:
    assert [free[start : start + length] for start, length in intervals(free)] == runs(free)


@given(requests())
def test_first_fit_takes_the_first_interval_that_suffices(request: tuple[list[int], int]) -> None:
    free, count = request
    sufficient = [run for run in runs(free) if len(run) >= count]
    chosen = first_fit(free, count)
    if sufficient:
        assert chosen == sufficient[0][:count]
    else:
        assert_minimum_span(free, count, chosen)


@given(requests())
def test_best_fit_takes_the_smallest_interval_that_suffices(request: tuple[list[int], int]) -> None:
    free, count = request
    sufficient = [run for run in runs(free) if len(run) >= count]
    chosen = best_fit(free, count)
    if sufficient:
        assert chosen == min(sufficient, key=len)[:count]
    else:
        assert_minimum_span(free, count, chosen)


def assert_minimum_span(free: list[int], count: int, chosen: list[int]) -> None:
    spans = [free[i + count - 1] - free[i] for i in range(len(free) - count + 1)]
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(free) and len(chosen) == count
    assert chosen[-1] - chosen[0] == min(spans)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("first_fit", [0, 1]), ("best_fit", [10, 11]), ("default", [10, 11])],
)
def test_the_two_differ_where_an_exact_hole_exists(name: str, expected: list[int]) -> None:
    free = [0, 1, 2, 3, 10, 11, 20, 21, 22]
    assert placement.find(name)(free, 2, None) == expected


def test_a_whole_machine_is_placed_quickly_enough_to_sit_before_a_transaction() -> None:
    free = list(range(10_368))
    assert best_fit(free, 10_368) == free


def test_an_unknown_placement_names_those_there_are() -> None:
    with pytest.raises(placement.UnknownPlacement) as caught:
        placement.find("hilbrt")
    assert caught.value.code == "invalid" and "best_fit" in caught.value.hint


@pytest.mark.parametrize("wrong", [[1], [1, 1], [1, 9], [], [1, -1], None, ["1", "2"], [1.0, 2.0], 7])
def test_a_placement_that_lies_is_found_out(wrong: Any) -> None:
    liar = placement.Installed("liar", lambda free, count, geometry: wrong)
    with pytest.raises(AgentError, match="liar"):
        liar([1, 2, 3], 2, None)


@pytest.mark.parametrize("fault", [ValueError, SystemExit, RecursionError, MemoryError])
def test_a_placement_that_fails_says_so_and_ends_nobody(fault: type[BaseException]) -> None:
    def fails(free: Any, count: int, geometry: Any) -> list[int]:
        raise fault("of its own")

    with pytest.raises(AgentError, match=r"'fails' failed: .*of its own"):
        placement.Installed("fails", fails)([1, 2, 3], 2, None)


def test_a_placement_may_choose_by_other_whole_numbers_and_spoil_its_list() -> None:
    class Whole:
        def __init__(self, value: int) -> None:
            self.value = value

        def __index__(self) -> int:
            return self.value

    def spoils(free: Any, count: int, geometry: Any) -> Any:
        chosen = [Whole(one) for one in free[-count:]]
        free.clear()
        return chosen

    assert placement.Installed("spoils", spoils)([1, 2, 3], 2, None) == [2, 3]


def test_what_a_placement_refuses_in_its_own_words_stays_so() -> None:
    def refuses(free: Any, count: int, geometry: Any) -> list[int]:
        raise NotEnough("not on a Sunday")

    with pytest.raises(NotEnough, match="not on a Sunday"):
        placement.Installed("refuses", refuses)([1, 2, 3], 2, None)


def test_a_placement_that_is_too_slow_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(free: Sequence[int], count: int, geometry: placement.Geometry) -> list[int]:
        while True:
            try:
                time.sleep(10)
            except Exception:  # its author's, which must not hold it up
                pass

    monkeypatch.setattr(placement, "PLACE_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(AgentError, match=r"'slow' took longer than 0\.05 s for 2 of 3 processors"):
        placement.Installed("slow", slow)([1, 2, 3], 2, None)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0
