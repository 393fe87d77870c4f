"""Nodes that will be drained at a given time: what is placed there until then, and what happens at that time."""

import math

import pytest

from db.allocation import finish, waiting_requests
from db.allocation.free import Machine
from db.allocation.partitions import PartitionDemand, create
from db.allocation.scheduling import preemption
from db.allocation.scheduling.line import Line
from db.allocation.types import Demand
from db.errors import Invalid, NotEnough
from db.machine.nodes import node_down
from db.machine.nodes_bulk import drain, drain_due, drain_later, resume, settle_drained
from db.store.store import Store
from tests.support.stores import LOGIN, define, demand, first, give_back, key, take

HOUR = 3600.0


def node(store: Store, name: str) -> tuple[object, ...]:
    return tuple(store.read("SELECT state, reason, drain_at, drain_reason FROM node WHERE name = ?", (name,))[0])


def events(store: Store, kind: str) -> list[str]:
    return [row[0] for row in store.read("SELECT text FROM event WHERE kind = ? ORDER BY id", (kind,))]


def test_a_launch_is_not_placed_where_it_would_run_past_that_time(store: Store, machine: Machine) -> None:
    assert drain_later(store, ["n3", "n2"], HOUR, "maintenance")[0] == ["n3", "n2"]
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 9, time_s=HOUR + 60)
    assert caught.value.free == 8 and not caught.value.never
    assert "2 nodes (n2, n3) will be drained before this launch's time limit" in caught.value.hint
    assert set(take(store, machine, 8, time_s=HOUR + 60).processors) == set(range(8))
    assert take(store, Machine(), 4, time_s=HOUR - 60).processors == [8, 9, 10, 11]
    assert take(store, machine, 4).processors == [12, 13, 14, 15], "a launch that does not say is placed until then"


def test_listed_nodes_and_shares_of_a_batch_job_follow_the_same_rule(store: Store, machine: Machine) -> None:
    job = create(store, machine, PartitionDemand(key(), "7.pbs", "ada", 1000, 8), first)
    drain_later(store, ["n1", "n3"], HOUR, "")
    inside = {"partition": job.partition, "cookie": job.allocation_cookie, "time_s": 2 * HOUR}
    assert take(store, machine, 4, **inside).processors == [0, 1, 2, 3]
    with pytest.raises(NotEnough):
        take(store, machine, 1, **inside)
    with pytest.raises(NotEnough, match="of those listed"):
        take(store, machine, 1, wanted=[12], time_s=2 * HOUR)
    drain_later(store, ["n2", "n3"], 0.0, "")
    with pytest.raises(NotEnough):
        create(store, machine, PartitionDemand(key(), "8.pbs", "ada", 1000, 1), first)


def test_when_the_time_comes_nothing_is_placed_and_nothing_ends(store: Store, machine: Machine) -> None:
    """Without anybody that acts at that time: the timer of a CPA only makes the state say so."""
    there = take(store, machine, 2)
    finish.started(store, there.launcher, there.cookie, there.processors, "n0", machine)
    drain_later(store, ["n0", "n1"], 0.0, "they go (ada)")
    machine.refresh(store)
    assert node(store, "n0")[0] == "up" and machine.next_drain() is not None
    assert take(store, machine, 8).processors == list(range(8, 16))
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 1)
    assert not caught.value.never, "drained nodes may come back"
    drain_due(store)
    drain_due(store)
    assert node(store, "n0") == ("draining", "they go (ada)", None, "")
    assert node(store, "n1") == ("drained", "they go (ada)", None, "")
    assert events(store, "node_draining") == ["n0 is draining: they go (ada)", "n1 is draining: they go (ada)"]
    machine.refresh(store)
    assert machine.next_drain() is None
    give_back(store, there)
    settle_drained(store)
    assert node(store, "n0")[0] == "drained"


def test_a_time_that_passes_between_two_readings_counts(store: Store, machine: Machine) -> None:
    drain_later(store, ["n0", "n1", "n2", "n3"], HOUR, "")
    machine.refresh(store)
    assert len(machine.staying(range(16), HOUR / 2)) == 16
    machine.now += HOUR - 60
    assert machine.staying(range(16), 120.0) == [] and len(machine.staying(range(16))) == 16
    machine.now += 60
    assert machine.staying(range(16)) == [] and not machine.stays(0) and not machine.may_have(0, "ada")


def put(store: Store, machine: Machine, *asked: Demand) -> Line:
    """These requests wait in this order, and are served as by a CPA."""
    by_key = {one.request_key: one for one in asked}
    line = Line(machine, lambda waiter: (by_key[waiter.request_key], first))
    store.serving = line
    for one in asked:
        wait = waiting_requests.Wait(
            one.request_key, None, one.uid, one.user, LOGIN, 1, 1, one.size, {}, 600, time_s=one.time_s
        )
        waiting_requests.enqueue(store, wait)
    return line


def granted(line: Line) -> list[str]:
    return [grant.waiter.request_key for grant in line.taken()[0] if grant.allocation is not None]


def test_it_can_be_taken_back_and_whoever_waits_gets_the_nodes(store: Store, machine: Machine) -> None:
    drain_later(store, ["n0", "n1", "n2", "n3"], HOUR, "")
    asked = demand(16, time_s=2 * HOUR)
    line = put(store, machine, asked)
    assert granted(line) == []
    assert resume(store, ["n0", "n1", "n2", "n3", LOGIN], "ada") == ["n0", "n1", "n2", "n3"]
    assert granted(line) == [asked.request_key] and node(store, "n0")[2] is None
    assert events(store, "drain_at")[-1] == "4 nodes (n0 … n3) will not be drained"
    assert resume(store, ["n0"], "ada") == []


@pytest.mark.parametrize(("after_s", "passes"), [(None, True), (24 * HOUR, True), (HOUR / 2, False)])
def test_nobody_passes_by_numbers_that_change(
    store: Store, machine: Machine, after_s: float | None, passes: bool
) -> None:
    """Twelve processors come free in an hour, unless their nodes are drained before: then nobody can tell when the
    first request starts."""
    there = take(store, machine, 12, time_s=HOUR)
    finish.started(store, there.launcher, there.cookie, there.processors, "n0", machine)
    if after_s is not None:
        drain_later(store, ["n0"], after_s, "")
    head, small = demand(14, time_s=HOUR), demand(2, time_s=HOUR / 4)
    assert granted(put(store, machine, head, small)) == ([small.request_key] if passes else [])


def test_low_priority_is_not_ended_where_it_would_not_help(store: Store, machine: Machine) -> None:
    nice = [take(store, machine, 8, nice=True) for _ in range(2)]
    drain_later(store, ["n2", "n3"], HOUR, "")
    going = preemption.make_room(store, machine, demand(4, time_s=2 * HOUR), 60.0, first)
    assert [one.launcher for one in going] == [nice[0].launcher]


def test_what_sets_and_what_clears_it(store: Store, machine: Machine) -> None:
    drain(store, ["n3"], "now", "ada")
    assert drain_later(store, ["n0", "n1", "n3"], HOUR, "later")[0] == ["n0", "n1"], "n3 is drained already"
    _, at = drain_later(store, ["n0"], 2 * HOUR, "much later")
    assert node(store, "n0") == ("up", "", at, "much later")
    drain(store, ["n1"], "at once", "ada")
    assert node(store, "n1")[2:] == (None, "")
    node_down(store, "n0", "b1", 1, "gone")
    assert node(store, "n0")[2] == at, "a node that fails meanwhile"
    define(store, boot_id="b2")
    assert node(store, "n0") == ("up", "", at, "much later"), "and a new boot"
    with pytest.raises(Invalid, match="no node 'n9'"):
        drain_later(store, ["n9"], 1.0, "")
    for never in (-1.0, 1e11, 1e308, math.inf, math.nan):
        with pytest.raises(Invalid, match="that late"):
            drain_later(store, ["n0"], never, "")
    assert node(store, "n0")[2] == at


def test_a_login_processor_is_back_at_once(store: Store) -> None:
    """It has no PCT that would have to register."""
    define(store)
    assert drain(store, [LOGIN], "move away", "ada") == [LOGIN] and node(store, LOGIN)[0] == "drained"
    assert resume(store, [LOGIN], "ada") == [LOGIN] and node(store, LOGIN)[:2] == ("up", "")
    drain_later(store, [LOGIN], 0.0, "")
    drain_due(store)
    assert resume(store, [LOGIN], "ada") == [LOGIN] and node(store, LOGIN) == ("up", "", None, "")
