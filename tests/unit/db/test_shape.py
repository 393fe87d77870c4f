"""Shapes of requests against their definition: whole tasks, so many nodes, devices, lines of a load file."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.allocation import load_file
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Segment, Shape, check, decide
from db.errors import Invalid, NotEnough
from tests.support.chance import long


class Picture(Machine):
    """A machine of ``sizes`` processors a node (ids in runs) and so many GPUs left on each."""

    def __init__(self, sizes: list[int], gpus: list[int]) -> None:
        super().__init__()
        self._where = [node for node, size in enumerate(sizes) for _ in range(size)]
        self._left = {node: {"gpu": count} for node, count in enumerate(gpus)}
        self._totals = self._left

    def node_of(self, one: int) -> int:
        return self._where[one]

    def is_service(self, one: int) -> bool:
        return False

    def __len__(self) -> int:
        return len(self._where)


def first(free: Any, count: int) -> Any:
    return list(free)[:count]


def last(free: Any, count: int) -> Any:
    return list(free)[-count:]


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)
places = st.sampled_from([first, last])


def nodes_of(picture: Picture, ids: list[int], each: int) -> list[int]:
    """The node of each task; a task is on one."""
    tasks = [ids[at : at + each] for at in range(0, len(ids), each)]
    for task in tasks:
        assert len(task) == each and len({picture.node_of(one) for one in task}) == 1
    return [picture.node_of(task[0]) for task in tasks]


@given(sizes, st.integers(1, 4), st.integers(1, 8), places, st.data())
def test_tasks_are_whole_and_refused_only_without_room(
    sizes: list[int], each: int, tasks: int, place: Any, data: st.DataObject
) -> None:
    picture = Picture(sizes, data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes))))
    gpus = data.draw(st.integers(0, 2))
    if gpus and not picture.total_of("gpu"):
        gpus = 0
    shape = Shape(each=each, per_task={"gpu": gpus} if gpus else {})
    free = sorted(data.draw(st.sets(st.sampled_from(range(sum(sizes))))))
    counts = Counter(picture.node_of(one) for one in free)
    room = sum(
        min([count // each] + ([picture.left_on(node, "gpu") // gpus] if gpus else []))
        for node, count in counts.items()
    )
    if room < tasks:
        with pytest.raises(NotEnough):
            decide(picture, shape, free, tasks, place, listed=False)
        return
    ids = decide(picture, shape, free, tasks, place, listed=False)
    assert len(set(ids)) == len(ids) == tasks * each and set(ids) <= set(free)
    used = Counter(nodes_of(picture, ids, each))
    assert all(count * gpus <= picture.left_on(node, "gpu") for node, count in used.items())


@given(sizes, st.integers(1, 4), st.integers(1, 12), places, st.data())
def test_exactly_so_many_nodes_and_evenly(
    sizes: list[int], nodes: int, tasks: int, place: Any, data: st.DataObject
) -> None:
    if tasks < nodes:
        tasks = nodes
    picture = Picture(sizes, [])
    free = sorted(data.draw(st.sets(st.sampled_from(range(sum(sizes))))))
    counts = Counter(picture.node_of(one) for one in free)
    share, more = divmod(tasks, nodes)
    enough = sum(count >= share for count in counts.values() if share) >= nodes
    enough = enough and sum(count > share for count in counts.values()) >= more
    if not enough:
        with pytest.raises(NotEnough):
            decide(picture, Shape(nodes=nodes), free, tasks, place, listed=False)
        return
    ids = decide(picture, Shape(nodes=nodes), free, tasks, place, listed=False)
    assert set(ids) <= set(free) and len(set(ids)) == tasks
    used = Counter(map(picture.node_of, ids))
    assert sorted(used.values()) == [share] * (nodes - more) + [share + 1] * more


@pytest.mark.storm
@settings(max_examples=long(25, 6000))
@given(st.lists(st.integers(1, 3), min_size=2, max_size=3), st.lists(st.integers(1, 2), min_size=2), places, st.data())
def test_lines_get_what_they_list_if_there_is_any_way(
    sizes: list[int], tasks: list[int], place: Any, data: st.DataObject
) -> None:
    gpus = [data.draw(st.integers(0, 3)) for _ in sizes] if data.draw(st.booleans()) else []
    picture = Picture(sizes, gpus)
    every = list(range(sum(sizes)))
    tasks = [count for at, count in enumerate(tasks) if sum(tasks[: at + 1]) <= len(every)] or [1]
    lists = [
        data.draw(st.lists(st.sampled_from(every[:5]), min_size=count, max_size=4, unique=True) | st.none())
        for count in tasks
    ]
    shape = Shape(segments=list(map(Segment, tasks, lists)), per_task={"gpu": 1} if gpus else {})
    of_each = [
        every if wanted is None else wanted for wanted, count in zip(lists, tasks, strict=True) for _ in range(count)
    ]
    try:
        ids = load_file.decide(picture, shape, every, place)
    except NotEnough:
        assert not any(_has_gpus(picture, way, gpus) for way in _ways(of_each))
        return
    assert len(set(ids)) == len(ids) == sum(tasks) and all(one in may for one, may in zip(ids, of_each, strict=True))
    assert _has_gpus(picture, ids, gpus)


def _ways(of_each: list[list[int]]) -> set[frozenset[int]]:
    """Every set of processors that can be one of each list's."""
    sets = {frozenset[int]()}
    for may in of_each:
        sets = {taken | {one} for taken in sets for one in may if one not in taken}
    return sets


def _has_gpus(picture: Picture, ids: Iterable[int], gpus: list[int]) -> bool:
    return not gpus or all(count <= gpus[node] for node, count in Counter(map(picture.node_of, ids)).items())


def test_a_line_makes_way_for_another_that_has_no_choice() -> None:
    picture = Picture([2, 2], [1, 1])
    asked = [Segment(1, [0, 1]), Segment(1, [0])]
    assert load_file.decide(picture, Shape(segments=asked), range(4), first) == [1, 0]
    # n0 has one GPU: who could be on either node leaves it to who could not
    asked = [Segment(1, [0, 2]), Segment(1, [1])]
    assert load_file.decide(picture, Shape(segments=asked, per_task={"gpu": 1}), range(4), first) == [2, 1]
    pairs = [Segment(1, [0, 1, 2, 3]), Segment(1, [0, 1])]
    assert load_file.decide(picture, Shape(each=2, segments=pairs), range(4), first) == [2, 3, 0, 1]


def test_overcommitted_nodes_get_at_least_one_each() -> None:
    picture = Picture([2, 1, 4], [])
    ids = decide(picture, Shape(nodes=3), range(7), 30, first, listed=False, at_least=1)
    assert sorted(ids) == list(range(7))
    with pytest.raises(NotEnough):
        decide(picture, Shape(nodes=4), range(7), 30, first, listed=False, at_least=1)


def test_a_device_that_no_node_has_is_said_so() -> None:
    with pytest.raises(Invalid, match="fpga"):
        check(Picture([2, 2], [1, 0]), Shape(per_task={"fpga": 1}))


def test_a_placement_that_makes_things_up_is_refused() -> None:
    with pytest.raises(Exception, match="not free"):
        decide(Picture([4], []), Shape(each=2), range(4), 1, lambda free, count: [99], listed=False)


def test_most_on_a_node() -> None:
    picture = Picture([4, 4], [])
    ids = decide(picture, Shape(most={0: 1}), range(8), 4, first, listed=False)
    assert Counter(map(picture.node_of, ids)) == {0: 1, 1: 3}


def test_lines_whose_placement_says_no_are_not_served_in_part() -> None:
    shape = Shape(segments=[Segment(1, [0]), Segment(2, None)])
    with pytest.raises(NotEnough, match="2 ranks with a processor each asked for"):
        load_file.decide(Picture([2, 2], [0, 0]), shape, range(4), lambda _free, _count: None)
