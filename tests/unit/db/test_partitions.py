"""The batch system's partitions, alloc modes and reservations."""

import pytest

from db.allocation import finish, partitions, waiting_requests
from db.allocation.free import Machine
from db.allocation.partitions import Created, PartitionDemand, PartitionInUse
from db.allocation.types import Allocation
from db.errors import Denied, Expired, Invalid, NotEnough, TakenBesides
from db.machine.nodes import node_down
from db.machine.reservations import reserve, set_mode
from db.store.store import Store
from tests.support.stores import LOGIN, first, give_back, key, take


def create(store: Store, machine: Machine, size: int, **more: object) -> Created:
    given = {"request_key": key(), "batch_job": "42.pbs", "user": "ada", "uid": 1000, "size": size}
    return partitions.create(store, machine, PartitionDemand(**{**given, **more}), first)  # type: ignore[arg-type]


def inside(store: Store, machine: Machine, made: Created, size: int, **more: object) -> Allocation:
    return take(store, machine, size, partition=made.partition, **{"cookie": made.allocation_cookie, **more})


def of(store: Store, made: Created, *columns: str) -> tuple[object, ...]:
    return tuple(store.read(f"SELECT {', '.join(columns)} FROM `partition` WHERE id = ?", (made.partition,))[0])


def test_a_write_without_the_lock_is_caught_and_seen_the_next_time(store: Store, machine: Machine) -> None:
    machine.refresh(store)
    store.execute("UPDATE processor SET launcher = 99 WHERE id = 1")
    with pytest.raises(TakenBesides):
        create(store, machine, 4)
    assert store.read("SELECT COUNT(*) FROM `partition`")[0][0] == 0, "rolled back"
    assert create(store, machine, 4).processors == [0, 2, 3, 4]


def test_a_job_has_its_partition_and_no_more(store: Store, machine: Machine) -> None:
    made = create(store, machine, 8)
    assert made.processors == list(range(8)) and [node.name for node in made.nodes] == ["n0", "n1"]
    one = inside(store, machine, made, 5)
    two = inside(store, machine, made, 3)
    assert sorted(one.processors + two.processors) == list(range(8))
    with pytest.raises(NotEnough) as caught:
        inside(store, machine, made, 1)
    assert not caught.value.never and f"partition {made.partition}" in caught.value.message
    with pytest.raises(NotEnough) as caught:
        inside(store, machine, made, 9)
    assert caught.value.never
    assert of(store, made, "max_in_use", "batch_job_error") == (8, 0)
    give_back(store, one, machine=machine)
    give_back(store, two, machine=machine)
    assert inside(store, machine, made, 2).processors == [0, 1], "free for this partition again"
    assert of(store, made, "max_in_use", "ended_at") == (8, None)
    assert take(store, machine, 8).processors == list(range(8, 16)), "and for nobody else"


def test_the_allocation_cookie_is_needed(store: Store, machine: Machine) -> None:
    made = create(store, machine, 8)
    for cookie in (None, "", made.admin_cookie, "0" * 16):
        with pytest.raises(Denied):
            inside(store, machine, made, 1, cookie=cookie)
    with pytest.raises(Expired):
        take(store, machine, 1, partition=999, cookie=made.allocation_cookie)


@pytest.mark.parametrize(
    ("status", "processor_error", "error"),
    [(0, False, 0), (1, False, 0), (123, False, 0), (125, False, 1), (139, False, 1), (0, True, 1)],
)
def test_abnormal_ends_set_the_jobs_error(
    store: Store, machine: Machine, status: int, processor_error: bool, error: int
) -> None:
    made = create(store, machine, 8)
    finish.finish(store, (one := inside(store, machine, made, 2)).launcher, one.cookie, status, processor_error)
    assert of(store, made, "batch_job_error", "ended_at") == (error, None)


def test_a_lost_launcher_or_node_sets_the_jobs_error(store: Store, machine: Machine) -> None:
    lost, struck, spared = (create(store, machine, 4) for _ in range(3))
    finish.lose(store, inside(store, machine, lost, 1).launcher, "gone")
    node_down(store, "n1", "b1", 1, "gone")
    assert [of(store, made, "batch_job_error")[0] for made in (lost, struck, spared)] == [1, 1, 0]


def test_a_partition_is_destroyed_with_its_cookie_when_unused_or_by_force(store: Store, machine: Machine) -> None:
    made = create(store, machine, 8)
    running = inside(store, machine, made, 3)
    for cookie in ("", made.allocation_cookie):
        with pytest.raises(Denied):
            partitions.destroy(store, made.partition, cookie, force=True)
    with pytest.raises(PartitionInUse) as caught:
        partitions.destroy(store, made.partition, made.admin_cookie)
    assert str(running.launcher) in caught.value.message
    assert [live.launcher for live in finish.launchers_in(store, made.partition)] == [running.launcher]
    assert partitions.destroy(store, made.partition, made.admin_cookie, force=True) == [running.launcher]
    assert partitions.destroy(store, made.partition, made.admin_cookie) == []
    assert not give_back(store, running).news
    machine.refresh(store)
    assert machine.free("ada") == list(range(16))
    with pytest.raises(Expired):
        inside(store, machine, made, 1)
    with pytest.raises(Expired):
        partitions.destroy(store, 999, None)


def test_a_repeated_creation_gets_new_cookies(store: Store, machine: Machine) -> None:
    shared = key()
    made = create(store, machine, 8, request_key=shared)
    again = create(store, Machine(), 8, request_key=shared)
    assert again.again and (again.partition, again.processors) == (made.partition, made.processors)
    with pytest.raises(Denied):
        inside(store, machine, made, 1)
    inside(store, machine, again, 1)
    with pytest.raises(Denied):
        create(store, machine, 8, request_key=shared, batch_job="43.pbs")
    partitions.destroy(store, made.partition, None, force=True)
    with pytest.raises(Expired):
        create(store, machine, 8, request_key=shared)


def test_modes_decide_who_is_served(store: Store, machine: Machine) -> None:
    set_mode(store, range(4), "batch", "root")
    set_mode(store, range(4, 8), "reserved", "root")
    machine.refresh(store)
    assert machine.free("ada") == list(range(8, 16))
    assert machine.free("ada", batch=True) == [*range(4), *range(8, 16)]
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 9)
    assert caught.value.never
    assert take(store, machine, 8).processors == list(range(8, 16))
    assert create(store, machine, 4).processors == [0, 1, 2, 3]
    with pytest.raises(NotEnough):
        create(store, machine, 1)
    set_mode(store, range(4, 8), "interactive", "root")
    assert take(store, machine, 4, wanted=[7, 6, 5, 4]).processors == [7, 6, 5, 4]
    with pytest.raises(Invalid):
        set_mode(store, [1], "sideways")
    with pytest.raises(Invalid):
        set_mode(store, [99], "batch")


def test_a_mode_changed_under_a_running_launcher_lets_it_run(store: Store, machine: Machine) -> None:
    running = take(store, machine, 16)
    set_mode(store, range(16), "reserved", "root")
    give_back(store, running, machine=machine)
    with pytest.raises(NotEnough):
        take(store, machine, 1)


def test_reserved_for_one_user(store: Store, machine: Machine) -> None:
    reserve(store, range(8), "bob", "root")
    machine.refresh(store)
    assert machine.free("ada") == list(range(8, 16)) and machine.free("bob") == list(range(16))
    assert machine.free("BOB") == list(range(8, 16))
    with pytest.raises(NotEnough):
        take(store, machine, 1, wanted=[0])
    assert take(store, machine, 1, wanted=[0], user="bob", uid=1001).processors == [0]
    assert create(store, machine, 15, user="bob", uid=1001).processors == list(range(1, 16))
    reserve(store, range(8), None, "root")
    machine.refresh(store)
    assert len(machine.reachable("ada")) == 16


def test_the_batch_system_does_not_overtake_the_waiting(store: Store, machine: Machine) -> None:
    """It gets what no interactive request may have, and nothing that one waits for."""
    set_mode(store, range(4), "batch", "root")
    waiting_requests.enqueue(store, waiting_requests.Wait(key(), None, 1000, "ada", LOGIN, 1, 1, 12, {}, 60))
    with pytest.raises(NotEnough) as caught:
        create(store, machine, 5)
    assert caught.value.free == 4 and caught.value.waiting == 1
    assert create(store, machine, 4).processors == [0, 1, 2, 3]


def test_each_partition_has_a_queue_of_its_own(store: Store, machine: Machine) -> None:
    made = create(store, machine, 4)
    waiting_requests.enqueue(store, waiting_requests.Wait(key(), None, 1000, "ada", LOGIN, 1, 1, 16, {}, 60))
    assert inside(store, machine, made, 2), "the pool's queue is not in its way"
    waiting_requests.enqueue(store, waiting_requests.Wait(key(), made.partition, 1000, "ada", LOGIN, 1, 1, 4, {}, 60))
    with pytest.raises(NotEnough) as caught:
        inside(store, machine, made, 1)
    assert caught.value.waiting == 1
    assert [place for _, place, _ in waiting_requests.line(store)] == [None, made.partition]


def test_a_partition_of_nothing(store: Store, machine: Machine) -> None:
    for wrong in ({"size": 0}, {"size": 1, "batch_job": ""}):
        with pytest.raises(Invalid):
            create(store, machine, **wrong)  # type: ignore[arg-type]
