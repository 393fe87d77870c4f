"""The curves: every cell once, and from neighbour to neighbour."""

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cpa.placement import curves
from agents.cpa.placement.curves import Cell
from agents.cpa.placement.layout import Curve
from agents.cpa.placement.registry import Layout
from tests.support.chance import examples
from tests.support.half_full import box, cabinets

sides = st.tuples(st.integers(1, 11), st.integers(1, 11), st.integers(1, 11))
orders = st.permutations(range(3)).map(tuple)


def step(one: Cell, other: Cell) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def everywhere(box: Cell) -> set[Cell]:
    return {(x, y, z) for x in range(box[0]) for y in range(box[1]) for z in range(box[2])}


@settings(deadline=None)
@given(sides, orders)
def test_hilbert_visits_every_cell_once(box: Cell, order: Cell) -> None:
    cells = list(curves.hilbert(box, order))
    assert len(cells) == math.prod(box) and set(cells) == everywhere(box)


@settings(deadline=None)
@given(sides, orders)
def test_snake_visits_every_cell_once_and_steps_to_a_neighbour(box: Cell, order: Cell) -> None:
    cells = list(curves.snake(box, order))
    assert len(cells) == math.prod(box) and set(cells) == everywhere(box)
    assert all(step(one, other) == 1 for one, other in pairwise(cells))


@pytest.mark.parametrize("box", [(2, 2, 2), (4, 4, 4), (8, 8, 8), (16, 16, 16)])
@pytest.mark.parametrize("order", permutations(range(3)))
def test_hilbert_steps_to_a_neighbour_on_powers_of_two(box: Cell, order: Cell) -> None:
    assert all(step(one, other) == 1 for one, other in pairwise(curves.hilbert(box, order)))


@settings(max_examples=examples(25), deadline=None)
@given(st.tuples(*[st.integers(1, 6).map(lambda half: 2 * half)] * 3), orders)
def test_hilbert_steps_to_a_neighbour_on_even_boxes(box: Cell, order: Cell) -> None:
    assert all(step(one, other) == 1 for one, other in pairwise(curves.hilbert(box, order)))


@settings(max_examples=examples(25), deadline=None)
@given(sides, orders)
def test_odd_sides_cost_few_steps_and_short_ones(box: Cell, order: Cell) -> None:
    steps = [step(one, other) for one, other in pairwise(curves.hilbert(box, order))]
    assert max(steps, default=1) <= 3
    assert sum(one > 1 for one in steps) <= 1 + len(steps) // 8


@pytest.mark.parametrize("width", [8, 16])
def test_octants_are_filled_one_after_the_other(width: int) -> None:
    """What makes it a Hilbert curve: any aligned eighth of it is a cube of half the side."""
    cells = list(curves.hilbert((width, width, width)))
    part = len(cells) // 8
    for first in range(0, len(cells), part):
        for axis in range(3):
            places = [cell[axis] for cell in cells[first : first + part]]
            assert max(places) - min(places) == width // 2 - 1


def test_a_curve_of_a_machine_seats_every_processor_and_parts_what_does_not_touch() -> None:
    layout_of = cabinets(1, 6, 1, 4, service_columns=[0, 3])
    layout = Layout(layout_of)
    for name in ("hilbert", "snake"):
        curve = layout.curve(name)
        there = [one for one in curve.seats if one < layout.size]
        assert sorted(there) == list(range(layout.size))
        assert [curve.seats[curve.position[one]] for one in range(layout.size)] == list(range(layout.size))
        assert len(curve.seats) - len(there) == 4  # compute 1–2 and 4–5, service 0 and 3
        assert layout.curve(name) is curve
        stretches = bytes(curve.taken_in_order(layout.flags(range(layout.size)))).split(b"\0")
        assert [len(one) for one in stretches if one] == [32, 32, 8, 8]


@given(st.lists(st.sets(st.integers(0, 159)), min_size=1, max_size=6))
def test_flags_in_the_order_of_a_curve_are_the_same_however_they_came_about(days: list[set[int]]) -> None:
    curve = Curve([range(60, 20, -1), range(100, 150)], 160)  # of some processors nobody has told
    for day in days:
        flags = bytes(one in day for one in range(161))
        assert curve.taken_in_order(flags) == curve.in_order(flags)


def test_the_curve_of_red_storms_box_hardly_leaves_the_links() -> None:
    layout = box(27, 16, 24)
    mesh = layout.need_mesh("test")
    there = layout.curve().seats[:-1]
    steps = [mesh.hops(one, other) for one, other in pairwise(there)]
    assert steps.count(1) > 0.99 * len(steps) and all(one is not None and one <= 2 for one in steps)
