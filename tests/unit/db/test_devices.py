"""Devices in the books: which ones a launch gets, that no two launches share one, and a decision without a change."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.allocation import allocate, partitions
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Segment, Shape
from db.errors import Denied, Invalid, NotEnough
from db.machine.nodes import NodeSpec, define_machine, node_up
from db.store.store import Store, open_store
from tests.support.chance import examples
from tests.support.stores import LOGIN, demand, first, give_back, key, migrated, take

GPU = Shape(per_task={"gpu": 1})


def with_gpus(store: Store) -> Machine:
    """Two nodes of four processors and four GPUs."""
    specs = [NodeSpec(n + 1, f"g{n}", range(n * 4, n * 4 + 4), resources={"gpu": 4}) for n in range(2)]
    define_machine(store, "test", "b1", LOGIN, specs)
    for spec in specs:
        node_up(store, spec.name, "b1", 1, "", "")
    return Machine()


def in_use(store: Store) -> list[int]:
    return [row[0] for row in store.read("SELECT in_use FROM node_resource ORDER BY node")]


def test_the_lowest_free_devices_are_given_and_given_back(store: Store) -> None:
    machine = with_gpus(store)
    one = take(store, machine, 2, shape=Shape(per_task={"gpu": 1}))
    assert one.devices == {"g0": {"gpu": [0, 1]}}
    two = take(store, machine, 1, shape=GPU)
    assert two.devices == {"g0": {"gpu": [2]}}
    give_back(store, one)
    assert in_use(store) == [1, 0]
    three = take(store, machine, 3, shape=GPU)
    assert three.devices == {"g0": {"gpu": [0, 1, 3]}}
    with pytest.raises(NotEnough):
        take(store, machine, 5, shape=GPU)
    give_back(store, two)
    give_back(store, three)
    assert in_use(store) == [0, 0]


def test_a_request_repeated_gets_the_same_devices(store: Store) -> None:
    machine = with_gpus(store)
    take(store, machine, 1, shape=GPU)
    again = key()
    two = take(store, machine, 2, shape=GPU, request_key=again)
    other = Machine()  # another CPA's
    same = take(store, other, 2, shape=GPU, request_key=again)
    assert same.again and (same.devices, same.processors) == (two.devices, two.processors) and in_use(store) == [3, 0]


def test_lines_of_a_load_file_in_one_transaction(store: Store) -> None:
    machine = with_gpus(store)
    shape = Shape(segments=[Segment(2, None), Segment(2, [6, 0]), Segment(1, None)], per_task={"gpu": 1})
    taken = take(store, machine, 5, shape=shape)
    assert taken.processors == [1, 2, 6, 0, 3]
    assert [(node.name, node.processors) for node in taken.nodes] == [
        ("g0", [1, 2]),
        ("g1", [6]),
        ("g0", [0, 3]),
    ]
    assert taken.devices == {"g0": {"gpu": [0, 1, 2, 3]}, "g1": {"gpu": [0]}}
    with pytest.raises(NotEnough):
        take(store, machine, 2, shape=Shape(segments=[Segment(1, None), Segment(1, [0])]))
    assert in_use(store) == [4, 1], "nothing of a request that is refused stays"


def test_considering_changes_nothing_and_is_what_an_allocation_then_does(store: Store) -> None:
    machine = with_gpus(store)
    take(store, machine, 1, shape=GPU)
    counter = store.read("SELECT counter FROM mesh")[0][0]
    for asked in (demand(3), demand(2, shape=Shape(nodes=2)), demand(2, shape=Shape(each=2, per_task={"gpu": 2}))):
        nodes, devices = allocate.consider(store, machine, asked, first)
        assert store.read("SELECT counter FROM mesh")[0][0] == counter
        taken = allocate.allocate(store, machine, asked, first)
        assert (taken.nodes, taken.devices) == (nodes, devices)
        give_back(store, taken)
        counter = store.read("SELECT counter FROM mesh")[0][0]
    with pytest.raises(NotEnough):
        allocate.consider(store, machine, demand(8), first)
    with pytest.raises(Invalid):
        allocate.consider(store, machine, demand(1, shape=Shape(per_task={"fpga": 1})), first)


def test_considering_inside_a_partition_needs_its_cookie(store: Store, machine: Machine) -> None:
    made = partitions.create(
        store, machine, partitions.PartitionDemand(key(), "4.pbs", "ada", 1000, 4, None, ()), first
    )
    inside = {"partition": made.partition, "cookie": made.allocation_cookie}
    nodes, _ = allocate.consider(store, machine, demand(4, **inside), first)
    assert sum(len(node.processors) for node in nodes) == 4
    with pytest.raises(NotEnough):
        allocate.consider(store, machine, demand(5, **inside), first)
    with pytest.raises(Denied):
        allocate.consider(store, machine, demand(1, partition=made.partition, cookie="0" * 16), first)


steps = st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(1, 3)), max_size=14)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_no_device_is_ever_given_twice(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    """Whatever is taken and given back: the books, the launchers' devices and the counts agree."""
    with open_store(migrated(tmp_path_factory.mktemp("books"))) as store:
        machine = with_gpus(store)
        live = []
        for takes, tasks, each in steps:
            if not takes and live:
                give_back(store, live.pop(tasks % len(live)))
            else:
                try:
                    live.append(take(store, machine, tasks, shape=Shape(per_task={"gpu": each})))
                except NotEnough:
                    pass
            held = [(name, device) for one in live for name, found in one.devices.items() for device in found["gpu"]]
            assert len(set(held)) == len(held) and all(device < 4 for _, device in held)
            assert in_use(store) == [sum(name == node for name, _ in held) for node in ("g0", "g1")]
