"""Launchers of low priority make room for those who wait: enough of them, the youngest first, or none."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.allocation import allocate, partitions
from db.allocation import finish as ending
from db.allocation.free import Machine
from db.allocation.partitions import PartitionDemand
from db.allocation.scheduling import preemption
from db.allocation.scheduling.preemption import Nice, pick
from db.allocation.tasks_and_nodes import Segment, Shape
from db.errors import NotEnough
from db.machine.nodes import NodeSpec, define_machine, node_up
from db.store.store import Store
from tests.support.stores import LOGIN, demand, first, give_back, key, take


def going(store: Store, machine: Machine, size: int, **more: object) -> list[int]:
    return [one.launcher for one in preemption.make_room(store, machine, demand(size, **more), 300.0, first)]


def test_the_youngest_that_are_enough_are_told_once(store: Store, machine: Machine) -> None:
    nice = [take(store, machine, 4, nice=True) for _ in range(3)]
    regular = take(store, machine, 4)
    assert going(store, machine, 6) == [nice[2].launcher, nice[1].launcher]
    before = store.read("SELECT counter FROM mesh")
    assert going(store, machine, 6) == [nice[2].launcher, nice[1].launcher], "they are on their way: no more than they"
    assert store.read("SELECT counter FROM mesh") == before, "and nothing is written for that"
    rows = dict(store.read("SELECT id, end_by FROM launcher WHERE end_by IS NOT NULL"))
    assert set(rows) == {nice[1].launcher, nice[2].launcher}
    (created,) = store.read("SELECT created_at FROM launcher WHERE id = ?", (nice[2].launcher,))[0]
    assert 299 < rows[nice[2].launcher] - created < 330
    kinds = [row[0] for row in store.read("SELECT kind FROM event WHERE launcher IS NOT NULL")]
    assert kinds.count("preempted") == 2
    for one in nice[1:]:
        give_back(store, one)
    got = take(store, machine, 6)
    assert len(got.processors) == 6 and not set(got.processors) & set(regular.processors + nice[0].processors)


def test_nobody_ends_in_vain(store: Store, machine: Machine) -> None:
    take(store, machine, 4, nice=True)
    take(store, machine, 12)
    assert going(store, machine, 5) == []
    assert preemption.could(store, machine, demand(5), first) == 0
    assert preemption.could(store, machine, demand(4), first) == 4
    assert going(store, machine, 4) != []


def test_nobody_ends_for_who_could_not_use_what_it_leaves(store: Store, machine: Machine) -> None:
    regular = take(store, machine, 4)
    nice = [take(store, machine, 4, nice=True) for _ in range(3)]
    in_vain = Shape(segments=[Segment(4, regular.processors), Segment(2, None)])
    assert preemption.could(store, machine, demand(6, shape=in_vain), first) == 0
    assert going(store, machine, 6, shape=in_vain) == [], "a line's list is somebody else's"
    assert going(store, machine, 4, shape=Shape(nodes=4)) == [], "one on each node"
    listed = Shape(segments=[Segment(1, nice[0].processors), Segment(1, None)])
    assert going(store, machine, 2, shape=listed) == [nice[0].launcher], "the one that has what is listed, not the last"


def test_the_one_that_has_the_device_ends(store: Store) -> None:
    define_machine(store, "test", "b1", LOGIN, [NodeSpec(1, "n0", [0, 1, 2], resources={"gpu": 1})])
    node_up(store, "n0", "b1", 1, "/run/x", "1")
    machine, task = Machine(), Shape(per_task={"gpu": 1})
    nice = take(store, machine, 1, nice=True, shape=task)
    take(store, machine, 1, nice=True)
    assert going(store, machine, 1, shape=task) == [nice.launcher]
    give_back(store, nice)
    assert take(store, machine, 1, shape=task).processors


def test_who_has_nobody_end(store: Store, machine: Machine) -> None:
    nice = take(store, machine, 8, nice=True)
    batch = partitions.create(store, machine, PartitionDemand(key(), "7", "ada", 1000, 8), first)
    assert going(store, machine, 4, nice=True) == [], "one of low priority itself"
    inside = {"partition": batch.partition, "cookie": batch.allocation_cookie}
    assert going(store, machine, 4, **inside) == [], "a launch inside a batch job: its processors are its own"
    assert going(store, machine, 4, exclude=nice.processors) == [], "one that could not take what came free"
    assert going(store, machine, 2, wanted=batch.nodes[0].processors[:2]) == []
    assert going(store, machine, 1, wanted=nice.processors[:1]) == [nice.launcher]
    in_batch = allocate.allocate(store, machine, demand(2, nice=True, **inside), first)
    assert in_batch.launcher not in going(store, machine, 2), "nice inside a batch job has no effect on others"


def test_one_that_has_ended_gives_nothing(store: Store, machine: Machine) -> None:
    nice = take(store, machine, 16, nice=True)
    with pytest.raises(NotEnough):
        take(store, machine, 1)
    ending.finish(store, nice.launcher, nice.cookie, 0)
    assert going(store, machine, 1) == [] and preemption.could(store, machine, demand(1), first) == 0


@given(st.integers(1, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=8))
def test_enough_and_no_more(short: int, launchers: list[tuple[bool, int]]) -> None:
    nice, at = [], 0
    for number, (ends, count) in enumerate(launchers):
        nice.append(Nice(number, 1.0 if ends else None, list(range(at, at + count))))
        at += count

    def enough(ending: Sequence[Nice]) -> bool:
        return sum(len(one.processors) for one in ending) >= short

    chosen = pick(enough, nice)
    coming = [one for one in nice if one.end_by is not None]
    assert all(one.end_by is None and one.processors for one in chosen)
    if not enough(nice):
        assert not chosen
    else:
        assert enough(coming + chosen)
        assert not any(enough(coming + [other for other in chosen if other is not one]) for one in chosen)


def test_of_many_only_the_one_that_matters_ends() -> None:
    nice = [Nice(number, None, [number]) for number in range(400, 0, -1)]
    asked = []

    def enough(ending: Sequence[Nice]) -> bool:
        asked.append(len(ending))
        return {3, 200} <= {one.launcher for one in ending}

    assert [one.launcher for one in pick(enough, nice)] == [200, 3]
    assert len(asked) < 50
