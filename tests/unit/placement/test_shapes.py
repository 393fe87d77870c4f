"""Blocks and packing, against searches through every place."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cpa.placement import registry as placement
from agents.cpa.placement.block import BadShape, NoBlock
from agents.cpa.placement.registry import Layout
from db.topology import Mesh, parse
from tests.support.chance import examples
from tests.support.half_full import box, cabinets
from tests.unit.placement.test_mesh import Request, requests


def blocks(mesh: Mesh, sides: tuple[int, int, int], turned: bool = True) -> list[set[int]]:
    """Every block of these sides, turned or not, by its definition."""
    found = []
    for a, b, c in set(itertools.permutations(sides)) if turned else {sides}:
        if c > mesh.depth:
            continue
        for x, y, z in itertools.product(range(mesh.columns), range(mesh.height), range(mesh.depth)):
            cells = itertools.product(range(x, x + a), range(y, y + b), range(z, z + c))
            there = {mesh.at(u, v, w % mesh.depth) for u, v, w in cells}
            if None not in there and len({mesh.side_of(one) for one in there if one is not None}) == 1:
                found.append({one for one in there if one is not None})
    return found


@settings(max_examples=examples(25), deadline=None)
@given(requests(["box", "odd", "line", "cabinets"]), st.tuples(*[st.integers(1, 3)] * 3))
def test_a_block_is_found_exactly_when_one_is_free(request: Request, sides: tuple[int, int, int]) -> None:
    layout, free, _ = request
    mesh = layout.need_mesh("test")
    count = sides[0] * sides[1] * sides[2]
    possible = [one for one in blocks(mesh, sides) if one <= set(free)]
    place = placement.find("block:{}x{}x{}".format(*sides))
    if possible:
        chosen = place(free, count, layout)
        assert len(chosen) == count and set(chosen) in possible and chosen == layout.curve().sort(chosen)
    else:
        with pytest.raises(NoBlock) as caught:
            place(free, count, layout)
        somewhere = any(set(range(mesh.compute)) >= one for one in blocks(mesh, sides))
        assert caught.value.code == "unavailable" and caught.value.never is not somewhere


@settings(max_examples=examples(25), deadline=None)
@given(requests(["box", "odd", "line", "cabinets"]), st.tuples(*[st.integers(1, 3)] * 3))
def test_of_all_free_blocks_it_has_the_fewest_free_around_it(request: Request, sides: tuple[int, int, int]) -> None:
    layout, free, _ = request
    mesh = layout.need_mesh("test")
    there = {mesh.place(one) for one in free}

    def around(block: set[tuple[int, int, int]]) -> int:
        xs, ys, zs = ({place[axis] for place in block} for axis in range(3))
        near = {(z + step) % mesh.depth for z in zs for step in (-1, 0, 1)}
        return sum(
            min(xs) - 1 <= x <= max(xs) + 1 and min(ys) - 1 <= y <= max(ys) + 1 and z in near for x, y, z in there
        )

    # as written: the first way round that is free at all is taken
    possible = [set(map(mesh.place, one)) for one in blocks(mesh, sides, turned=False) if one <= set(free)]
    if possible:
        chosen = placement.find("block:{}x{}x{}".format(*sides))(free, sides[0] * sides[1] * sides[2], layout)
        assert around(set(map(mesh.place, chosen))) == min(map(around, possible))


def test_a_block_fits_snugly_into_a_corner() -> None:
    layout = box(6, 6, 8)
    mesh = layout.need_mesh("test")
    free = [one for one in range(layout.size) if mesh.place(one)[2] < 4]
    corners = {mesh.at(x, y, z) for x in (0, 5) for y in (0, 5) for z in (0, 3)}
    assert set(placement.find("block:2x2x2")(free, 8, layout)) & corners


def test_as_written_before_turned() -> None:
    layout = box(6, 6, 8)
    mesh = layout.need_mesh("test")
    places = [mesh.place(one) for one in placement.find("block:1x4x2")(list(range(layout.size)), 8, layout)]
    assert [len(set(axis)) for axis in zip(*places, strict=True)] == [1, 4, 2]


def test_around_the_ring_but_not_over_an_open_switch() -> None:
    mesh = cabinets(1, 4, 1, 4, switches=[{"name": "middle", "after": 1}])
    ring = [mesh.at(0, 0, z) for z in (3, 0)]
    free = sorted(one for one in ring if one is not None)
    assert sorted(placement.find("block:1x1x2")(free, 2, Layout(mesh))) == free
    across = sorted(one for one in (mesh.at(1, 0, 0), mesh.at(2, 0, 0)) if one is not None)
    place = placement.find("block:2x1x1")
    assert sorted(place(across, 2, Layout(mesh))) == across
    with pytest.raises(NoBlock):
        place(across, 2, Layout(mesh.with_open(["middle"])))


def test_a_shape_holds_what_is_asked_for() -> None:
    with pytest.raises(BadShape, match="32 processors, and 30"):
        placement.find("block:4x4x2")(list(range(100)), 30, box(5, 5, 5))


# --- packing -----------------------------------------------------------------------------------------------------

TREE = Layout(
    parse(
        {
            "kind": "tree",
            "switches": {
                "top": {"switches": ["pod[0-1]"]},
                "pod0": {"switches": ["leaf[0-1]"]},
                "pod1": {"switches": ["leaf[2-3]"]},
                **{f"leaf{one}": {"nodes": [f"n[{3 * one}-{3 * one + 2}]"]} for one in range(4)},
            },
        }
    ),
    [(f"n{one}", range(4 * one, 4 * one + 4)) for one in range(12)],
)


def above(chosen: list[int]) -> int:
    """The level of the lowest switch above all the chosen: 0 one host, 1 a leaf, 2 a pod, 3 the top."""
    for level, width in enumerate((4, 12, 24)):
        if len({one // width for one in chosen}) == 1:
            return level
    return 3


@settings(deadline=None)
@given(st.sets(st.integers(0, 47), min_size=1).map(sorted), st.data())
def test_packed_under_the_lowest_switch_that_has_room_and_the_fullest_of_those(
    free: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(free)))
    chosen = placement.find("rack_packed")(free, count, TREE)
    for level, width in enumerate((4, 12, 24, 48)):
        groups = [len(list(group)) for _, group in itertools.groupby(free, key=lambda one: one // width)]
        room = [one for one in groups if one >= count]
        if room:
            assert above(chosen) <= level
            if level < 3:
                assert sum(one // width == chosen[0] // width for one in free) == min(room)
            break


@settings(deadline=None)
@given(st.sets(st.integers(0, 47), min_size=1).map(sorted), st.data())
def test_as_few_hosts_as_possible(free: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(free)))
    there = sorted((len(list(group)) for _, group in itertools.groupby(free, key=lambda one: one // 4)), reverse=True)
    fewest = next(n for n in range(1, len(there) + 1) if sum(there[:n]) >= count)
    assert len({one // 4 for one in placement.find("host_packed")(free, count, TREE)}) == fewest


def test_whole_members_first_and_the_rest_where_it_just_fits() -> None:
    free = [*range(4), *range(4, 8), 8, 9, 10]  # hosts with 4, 4 and 3 free
    assert placement.find("rack_packed")(free, 7, TREE) == [0, 1, 2, 3, 8, 9, 10]


def test_the_default_packs_a_cluster_and_its_ranks_stay_together() -> None:
    free = [0, 1, 12, 13, 14, 15, 24, 25]
    assert placement.find("default")(free, 4, TREE) == [12, 13, 14, 15]
    chosen = placement.find("default")(list(range(48)), 30, TREE)
    assert chosen == sorted(chosen)


def test_on_a_mesh_boards_are_hosts() -> None:
    layout = box(3, 4, 6)
    chosen = placement.find("host_packed")([0, 1, 4, 5, 6, 7, 9, 10, 11], 4, layout)
    assert sorted(chosen) == [4, 5, 6, 7]
