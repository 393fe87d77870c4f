"""Partitions of the batch system: created for a job, destroyed when its script exits. Each function is one
transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from db import cookies
from db.allocation.allocate import claim_for_partition, insert_partition
from db.allocation.finish import end_inside
from db.allocation.free import Machine, Placed
from db.allocation.types import Choose
from db.allocation.waiting_requests import in_front
from db.errors import Denied, Expired, Invalid, NotEnough, StoreError, TakenBesides
from db.schema.models import Launcher, Partition, Processor
from db.store.ranges import unfold
from db.store.statements import INSTANT, STAMP, Ids, Query, among, statement
from db.store.store import Store, Transaction
from redmesh.text import counted

DESTROYED = "its partition was destroyed"


@statement
def _made_before(*, request_key: str) -> Query:
    return Partition.select(Partition.id).where(Partition.request_key == request_key)


@statement
def _made(*, partition: int) -> Query:
    return Partition.select(
        Partition.user, Partition.batch_job, Partition.ended_at, Partition.processors, Partition.admin_cookie
    ).where(Partition.id == partition)


@statement
def _renew_cookies(*, partition: int, admin_cookie: str, allocation_cookie: str) -> Query:
    return Partition.update(
        {
            Partition.admin_cookie: admin_cookie,
            Partition.allocation_cookie: allocation_cookie,
            Partition.changed: STAMP,
        }
    ).where(Partition.id == partition)


@statement
def _live_inside(*, partition: int) -> Query:
    return Launcher.select(Launcher.id).where(Launcher.partition == partition, Launcher.ended_at.is_null())


@statement
def _free_processors(*, ids: Ids, partition: int) -> Query:
    return Processor.update({Processor.partition: None, Processor.launcher: None, Processor.changed: STAMP}).where(
        among(Processor.id, ids), Processor.partition == partition
    )


@statement
def _end(*, partition: int) -> Query:
    return Partition.update({Partition.ended_at: INSTANT, Partition.changed: STAMP}).where(
        Partition.id == partition, Partition.ended_at.is_null()
    )


class PartitionDemand(NamedTuple):
    """A request of the batch system; the caller must check that it comes from the batch system.

    ``user`` and ``uid`` are the partition's owner. ``size`` processors; ``wanted``: only those ids, in that order.
    """

    request_key: str
    batch_job: str
    user: str
    uid: int
    size: int
    wanted: Sequence[int] | None = None
    exclude: Sequence[int] = ()
    login: str = ""  # the login processor that requests it; only processors of its side are used


class Created(NamedTuple):
    """A partition, and its two cookies, which are returned only once."""

    partition: int
    admin_cookie: str
    allocation_cookie: str
    processors: list[int]
    nodes: list[Placed]
    again: bool


class PartitionInUse(StoreError):
    """Launchers still run in the partition, and force was not used."""

    code = "unavailable"


def create(store: Store, machine: Machine, demand: PartitionDemand, choose: Choose) -> Created:
    """Create a partition for a batch job from processors of modes batch and interactive.

    Processors of mode interactive are not used while interactive requests wait. Raises NotEnough, Invalid, Denied (the
    key is another job's), Expired (created under this key before, and destroyed) and DatabaseUnavailable.
    """
    if demand.size < 1:
        raise Invalid(f"a partition of {counted(demand.size, 'processor')} cannot be made", "ask for at least 1")
    if not demand.batch_job:
        raise Invalid("a partition needs a batch job's id")
    stamp = 0

    def work(t: Transaction) -> Created:
        nonlocal stamp
        machine.refresh_inside(t)
        row = t.row(_made_before.bind(request_key=demand.request_key))
        if row is not None:
            return _create_again(t, machine, demand, row[0])
        ids = _decide(t, machine, demand, choose)
        partition, t.next_partition = t.next_partition, t.next_partition + 1
        admin, allocation = insert_partition(
            t,
            partition,
            demand.request_key,
            demand.user,
            demand.uid,
            ids,
            batch_job=demand.batch_job,
            login_processor=machine.node_id(demand.login) if demand.login else None,
        )
        claim_for_partition(t, ids, partition)
        stamp = t.stamp
        return Created(partition, admin, allocation, list(ids), machine.nodes_of(ids), False)

    try:
        created = store.run(work)
    except TakenBesides:
        machine.forget()  # so that the next request reads the machine anew
        raise
    if stamp:
        machine.assigned(created.processors, created.partition, None, stamp)
    return created


def _decide(t: Transaction, machine: Machine, demand: PartitionDemand, choose: Choose) -> list[int]:
    waiting = in_front(t.rows, demand.login)
    side, listed = machine.side_of(demand.login) if demand.login else None, demand.wanted is not None
    free: Sequence[int] = machine.free(demand.user, batch=True, interactive=not waiting, service=listed, side=side)
    free = machine.staying(free)
    if demand.wanted is not None:
        there = set(free)
        free = [one for one in demand.wanted if one in there]
    if demand.exclude:
        out = set(demand.exclude)
        free = [one for one in free if one not in out]
    chosen = None
    if demand.size <= len(free):
        chosen = free[: demand.size] if demand.wanted is not None else choose(free, demand.size)
    if chosen is None:
        are = "is" if len(free) == 1 else "are"
        raise NotEnough(
            f"{counted(demand.size, 'processor')} asked for a partition, {len(free)} {are} free",
            f"{counted(waiting, 'interactive request is', 'interactive requests are')} waiting for processors"
            if waiting
            else "ask for fewer, or wait",
            free=len(free),
            waiting=waiting,
            never=demand.size > len(machine.reachable(demand.user, batch=True, service=listed, side=side)),
        )
    if len(chosen) != demand.size or len(set(chosen)) != demand.size or not set(chosen).issubset(free):
        raise StoreError("the placement chose processors that are not free", "use another placement")
    return machine.by_node(chosen)


def _create_again(t: Transaction, machine: Machine, demand: PartitionDemand, partition: int) -> Created:
    row = t.row(_made.bind(partition=partition))
    assert row is not None
    user, batch_job, ended_at, processors, _ = row
    if (user, batch_job) != (demand.user, demand.batch_job):
        raise Denied("this request key belongs to another request", "use a new random key")
    if ended_at is not None:
        raise Expired(f"partition {partition} has been destroyed", "make another, with a new request key")
    admin, allocation = cookies.make(), cookies.make()
    digests = {"admin_cookie": cookies.digest(admin), "allocation_cookie": cookies.digest(allocation)}
    t.change(_renew_cookies.bind(partition=partition, **digests))
    ids = unfold(processors)
    return Created(partition, admin, allocation, ids, machine.nodes_of(ids), True)


def destroy(store: Store, partition: int, cookie: str | None, force: bool = False) -> list[int]:
    """Destroy a partition; returns the launchers that were ended with it. May be repeated.

    ``cookie``: the administration cookie, or None if the caller has checked an administrator's right. With ``force``,
    launchers in it are ended abnormally: clean up after them first (``finish.launchers_in``). Raises PartitionInUse,
    Denied, or Expired if the partition is unknown.
    """

    def work(t: Transaction) -> list[int]:
        row = t.row(_made.bind(partition=partition))
        if row is None:
            raise Expired(f"there is no partition {partition}", "mesh partition list shows those there are")
        _, _, ended_at, processors, admin_cookie = row
        if cookie is not None and not cookies.fits(cookie, admin_cookie):
            raise Denied(f"the administration cookie of partition {partition} is wrong")
        if ended_at is not None:
            return []
        live = [found[0] for found in t.rows(_live_inside.bind(partition=partition))]
        if live and not force:
            raise PartitionInUse(
                f"partition {partition} still runs launcher {', '.join(map(str, live[:5]))}",
                "wait for it, end it, or use --force",
            )
        for launcher in live:
            end_inside(t, launcher, DESTROYED)
        t.change(_free_processors.bind(ids=unfold(processors), partition=partition))
        t.change(_end.bind(partition=partition))
        t.freed = True
        return live

    return store.run(work)
