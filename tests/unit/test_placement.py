"""Placement against its definition: brute force over small lines, and the cases people draw on boards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cpa import placement
from agents.cpa.placement.line import best_fit, first_fit, intervals
from agents.wire.errors import AgentError

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


@pytest.mark.parametrize("wrong", [[1], [1, 1], [1, 9], []])
def test_a_placement_that_lies_is_found_out(wrong: list[int]) -> None:
    def liar(free: Any, count: int, geometry: Any) -> list[int]:
        return wrong

    with pytest.raises(AgentError, match="liar"):
        placement.checked(liar, [1, 2, 3], 2, None)
