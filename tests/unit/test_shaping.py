"""Shapes of requests against their definition: whole tasks, so many nodes, devices, lines of a load file."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.errors import Invalid, NotEnough
from db.free import Machine
from db.shaping import Segment, Shape, decide


class Picture(Machine):
    """A machine of ``sizes`` processors a node (ids in runs) and so many GPUs left on each."""

    def __init__(self, sizes: list[int], gpus: list[int], service: Sequence[int] = ()) -> None:
        super().__init__()
        self.service_nodes = service
        self._where = [node for node, size in enumerate(sizes) for _ in range(size)]
        self._left = {node: {"gpu": count} for node, count in enumerate(gpus)}
        self._totals = self._left
        self._on_node = {node: [one for one, on in enumerate(self._where) if on == node] for node in range(len(sizes))}

    def node_of(self, one: int) -> int:
        return self._where[one]

    def is_service(self, one: int) -> bool:
        return self.serves(self._where[one])

    def serves(self, node: int) -> bool:
        return node in self.service_nodes

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


@given(sizes, st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(1, 8), st.integers(0, 2), st.data())
def test_what_the_idle_machine_has_no_room_for_is_never_to_be_had(
    sizes: list[int], each: int, nodes: int | None, tasks: int, gpus: int, data: st.DataObject
) -> None:
    most = data.draw(st.dictionaries(st.integers(0, len(sizes) - 1), st.integers(1, 3)))
    picture = Picture(sizes, [2] * len(sizes))
    shape = Shape(each=each, nodes=nodes, most=most, per_task={"gpu": gpus} if gpus else {})
    tasks = max(tasks, nodes or 1)
    try:
        decide(picture, shape, range(sum(sizes)), tasks, first, listed=False)
        possible = True
    except NotEnough:
        possible = False
    with pytest.raises(NotEnough) as caught:
        decide(picture, shape, [], tasks, first, listed=False)
    assert caught.value.never is not possible


@given(sizes, st.lists(st.integers(1, 3), min_size=1, max_size=4), places, st.data())
def test_lines_stand_in_order_and_get_what_they_list(
    sizes: list[int], lines: list[int], place: Any, data: st.DataObject
) -> None:
    picture = Picture(sizes, [])
    every = list(range(sum(sizes)))
    lists = [
        data.draw(st.none() | st.lists(st.sampled_from(every), min_size=1, max_size=5, unique=True)) for _ in lines
    ]
    shape = Shape(segments=[Segment(tasks, wanted) for tasks, wanted in zip(lines, lists, strict=True)])
    try:
        ids = decide(picture, shape, every, sum(lines), place, listed=False)
    except NotEnough:
        # the lists alone, first come first served, or all of it cannot be had
        taken: set[int] = set()
        for tasks, wanted in zip(lines, lists, strict=True):
            if wanted is not None:
                here = [one for one in wanted if one not in taken][:tasks]
                if len(here) < tasks:
                    return
                taken.update(here)
        assert sum(lines) > len(every)
        return
    assert len(set(ids)) == len(ids) == sum(lines)
    for tasks, wanted in zip(lines, lists, strict=True):
        mine, ids = ids[:tasks], ids[tasks:]
        assert wanted is None or set(mine) <= set(wanted)


def test_overcommitted_nodes_get_at_least_one_each() -> None:
    picture = Picture([2, 1, 4], [])
    ids = decide(picture, Shape(nodes=3), range(7), 30, first, listed=False, at_least=1)
    assert sorted(ids) == list(range(7))
    with pytest.raises(NotEnough):
        decide(picture, Shape(nodes=4), range(7), 30, first, listed=False, at_least=1)


def test_what_can_never_be_is_said_so() -> None:
    picture = Picture([2, 2], [1, 0])
    with pytest.raises(NotEnough) as error:
        decide(picture, Shape(per_task={"gpu": 2}), range(4), 1, first, listed=False)
    assert error.value.never
    with pytest.raises(NotEnough) as error:
        decide(picture, Shape(each=2), [0], 1, first, listed=False)
    assert not error.value.never
    with pytest.raises(Invalid, match="fpga"):
        decide(picture, Shape(per_task={"fpga": 1}), range(4), 1, first, listed=False)


@pytest.mark.parametrize(
    ("segments", "never"),
    [
        ([Segment(4, None), Segment(1, [4, 5])], False),
        ([Segment(5, None)], True),  # six processors, two of them on the service node
        ([Segment(1, None), Segment(3, [4, 5])], True),
        ([Segment(3, [0, 1, 4])], False),
    ],
)
def test_a_line_that_its_processors_never_hold_is_said_so(segments: list[Segment], never: bool) -> None:
    picture = Picture([2, 2, 2], [], service=[2])
    with pytest.raises(NotEnough) as error:
        decide(picture, Shape(segments=segments), [], sum(one.tasks for one in segments), first, listed=False)
    assert error.value.never is never


def test_a_placement_that_makes_things_up_is_refused() -> None:
    with pytest.raises(Exception, match="not free"):
        decide(Picture([4], []), Shape(each=2), range(4), 1, lambda free, count: [99], listed=False)


def test_most_on_a_node() -> None:
    picture = Picture([4, 4], [])
    ids = decide(picture, Shape(most={0: 1}), range(8), 4, first, listed=False)
    assert Counter(map(picture.node_of, ids)) == {0: 1, 1: 3}
