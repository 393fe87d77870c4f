"""Allocate processors to a launcher. Each function is one transaction.

The processors are chosen from the cached picture outside the lock. Inside the lock the picture is brought up to date,
which costs only what has changed, and a choice that no longer holds is made again. When other CPAs keep overtaking, the
choice is made only inside the lock until it once holds, because two choices would cost every CPA more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from db import cookies
from db.allocation import limits, load_file
from db.allocation import tasks_and_nodes as shaping
from db.allocation.devices import amounts, by_name, devices_in_use, lowest, take_devices
from db.allocation.free import Idle, Machine, Placed, Read, first
from db.allocation.free_ids import FreeIds
from db.allocation.full_texts import split_command
from db.allocation.limits import place_in_line
from db.allocation.types import Allocation, Choose, Demand
from db.allocation.waiting_requests import LAST_ID, in_front, those_in_front, waits_before
from db.errors import Denied, Expired, Invalid, NotEnough, StoreError, TakenBesides
from db.schema.models import Launcher, Node, NodeResource, Partition, Processor, Waiting
from db.store.orm import pw
from db.store.ranges import fold, unfold
from db.store.statements import INSTANT, STAMP, Bound, Ids, Query, among, same, statement
from db.store.store import Row, Store, Transaction
from redmesh.text import counted

NOT_YOURS = "this request key belongs to a request of another user"
OUTSIDE = "to launch outside a job: unset REDMESH_PARTITION REDMESH_ALLOCATION_COOKIE"
HOPEFUL = 10_000  # how many requests are remembered as ones that can be met


@statement
def _granted_before(*, request_key: str) -> Query:
    return Launcher.select(Launcher.id).where(Launcher.request_key == request_key)


@statement
def _state_of_request(*, request_key: str) -> Query:
    """The launcher granted under this key before, whether any request waits, and the last changes of nodes and
    resources."""
    return pw.Select(
        columns=[
            Launcher.select(Launcher.id).where(Launcher.request_key == request_key),
            Waiting.select(pw.fn.MIN(Waiting.id)),
            Node.select(pw.fn.MAX(Node.changed)),
            NodeResource.select(pw.fn.MAX(NodeResource.changed)),
        ]
    )


@statement
def _place_in_line(*, partition: int | None, request_key: str) -> Query:
    """The head of the line, and the row and uid of this request if it waits."""
    mine = Waiting.request_key == request_key
    return pw.Select(
        columns=[
            Waiting.select(pw.fn.MIN(Waiting.id)).where(same(Waiting.partition, partition)),
            Waiting.select(pw.fn.MIN(Waiting.id)).where(mine),
            Waiting.select(pw.fn.MIN(Waiting.uid)).where(mine),
        ]
    )


@statement
def _leave_line(*, request: int) -> Query:
    return Waiting.delete().where(Waiting.id == request)


@statement
def _granted(*, launcher: int) -> Query:
    return Launcher.select(
        Launcher.uid,
        Launcher.state,
        Launcher.pending_until,
        Launcher.partition,
        Launcher.processors,
        Launcher.resources,
    ).where(Launcher.id == launcher)


@statement
def _renew_cookie(*, launcher: int, cookie: str) -> Query:
    return Launcher.update({Launcher.cookie: cookie, Launcher.changed: STAMP}).where(Launcher.id == launcher)


@statement
def _insert_launcher(
    *,
    launcher: int,
    cookie: str,
    partition: int,
    login_processor: int,
    pid: int,
    pid_started: int,
    user: str,
    uid: int,
    command: str,
    full_command: str | None,
    size: int,
    processors: str,
    root: str,
    pending_until: float,
    resources: str,
    request_key: str,
    nice: bool,
    time_s: float | None,
    gives_back: bool,
) -> Query:
    return Launcher.insert(
        {
            Launcher.id: launcher,
            Launcher.cookie: cookie,
            Launcher.partition: partition,
            Launcher.login_processor: login_processor,
            Launcher.pid: pid,
            Launcher.pid_started: pid_started,
            Launcher.user: user,
            Launcher.uid: uid,
            Launcher.command: command,
            Launcher.full_command: full_command,
            Launcher.size: size,
            Launcher.processors: processors,
            Launcher.root: root,
            Launcher.state: "pending",
            Launcher.created_at: INSTANT,
            Launcher.pending_until: pending_until,
            Launcher.abnormal: False,
            Launcher.reason: "",
            Launcher.resources: resources,
            Launcher.request_key: request_key,
            Launcher.changed: STAMP,
            Launcher.nice: nice,
            Launcher.time_s: time_s,
            Launcher.gives_back: gives_back,
        }
    )


@statement
def _insert_partition(
    *,
    partition: int,
    admin_cookie: str,
    allocation_cookie: str,
    user: str,
    uid: int,
    batch_job: str | None,
    size: int,
    processors: str,
    max_in_use: int,
    request_key: str,
    login_processor: int | None,
) -> Query:
    return Partition.insert(
        {
            Partition.id: partition,
            Partition.admin_cookie: admin_cookie,
            Partition.allocation_cookie: allocation_cookie,
            Partition.user: user,
            Partition.uid: uid,
            Partition.batch_job: batch_job,
            Partition.size: size,
            Partition.processors: processors,
            Partition.created_at: INSTANT,
            Partition.max_in_use: max_in_use,
            Partition.batch_job_error: False,
            Partition.request_key: request_key,
            Partition.login_processor: login_processor,
            Partition.changed: STAMP,
        }
    )


@statement
def _claim_free(*, ids: Ids, partition: int, launcher: int | None) -> Query:
    """Assign free processors to a partition and to a launcher."""
    return Processor.update(
        {Processor.partition: partition, Processor.launcher: launcher, Processor.changed: STAMP}
    ).where(among(Processor.id, ids), Processor.launcher.is_null(), Processor.partition.is_null())


@statement
def _claim_inside(*, ids: Ids, partition: int, launcher: int) -> Query:
    """Assign processors of a partition that no launcher has to a launcher."""
    return Processor.update({Processor.launcher: launcher, Processor.changed: STAMP}).where(
        among(Processor.id, ids), Processor.launcher.is_null(), Processor.partition == partition
    )


@statement
def _right_to(*, partition: int) -> Query:
    return Partition.select(Partition.allocation_cookie, Partition.ended_at).where(Partition.id == partition)


@statement
def _keep_maximum(*, partition: int, in_use: int) -> Query:
    most = pw.Case(None, [(Partition.max_in_use < in_use, in_use)], Partition.max_in_use)
    return Partition.update({Partition.max_in_use: most, Partition.changed: STAMP}).where(Partition.id == partition)


def allocate(store: Store, machine: Machine, demand: Demand, choose: Choose) -> Allocation:
    """Allocate processors, in state pending, in a new partition or inside the one named.

    Raises NotEnough (also if earlier requests wait), Invalid, Denied (cookie), Expired (the partition is gone, or the
    request was granted before and its launcher has ended) and DatabaseUnavailable (repeat the request with the same
    key).
    """
    _check(demand)
    limits.check_ever(machine, demand, demand.at_least or demand.size)
    plan = None if machine.overtaken else _plan(store, machine, demand, choose)
    stamp = 0

    def work(t: Transaction) -> Allocation:
        nonlocal stamp
        granted, nodes_changed_at, behind = _look(t, machine, demand)
        ids = plan if behind is None else None
        if machine.is_current(t):
            machine.overtaken, machine.now = False, t.now
            if ids is not None and len(machine.staying(ids, demand.time_s)) < len(ids):
                ids = None
        else:
            machine.refresh_inside(t, nodes_changed_at, t.answers[1] if len(t.answers) > 1 else None)
            if ids is not None and (demand.shape is not None or not _are_in(ids, candidates(machine, demand))):
                ids, machine.overtaken = None, True
        if granted is not None:
            return grant_again(t, machine, demand.uid, granted)
        if demand.partition is not None:
            _check_right(t, demand)
        stamp = t.stamp
        fitting = limits.fitting(t.rows, machine, demand)
        if ids is not None and len(ids) > fitting.size:
            ids = None
        if behind is not None:
            chosen = _from_reserved(machine, fitting, choose, behind)
        else:
            chosen = ids or decide(machine, fitting, choose)
        limits.check(t.rows, machine, demand, len(chosen))
        allocation = take(t, machine, demand, chosen)
        if t.answers[0][0][1] is not None and limits.may_reach(machine, demand):
            # Its user may have reached a limit now, and be first in a line: then others in the line pass. Because of
            # ``freed`` the line reads the picture again, which lacks these processors.
            t.moved_line = t.freed = True
        return allocation

    try:
        allocation = store.run(work, [_state_of_request.bind(request_key=demand.request_key), *machine.question()])
    except TakenBesides:
        machine.forget()  # so that the next request reads the machine anew
        raise
    if stamp and not allocation.devices:
        machine.assigned(allocation.processors, allocation.partition, allocation.launcher, stamp)
    return allocation


def _plan(store: Store, machine: Machine, demand: Demand, choose: Choose) -> Sequence[int] | None:
    """Choose processors outside the lock.

    Returns None if only the transaction can decide: the request was granted before, so its own processors may be the
    missing ones, or it names a partition, and a missing right to the partition has to be reported first.
    """
    machine.refresh(store)
    try:
        return decide(machine, demand, choose)
    except NotEnough:
        if demand.partition is not None or store.read(_granted_before.bind(request_key=demand.request_key)):
            return None
        raise


def _check(demand: Demand) -> None:
    if demand.size < 1 or demand.at_least > demand.size:
        raise Invalid(f"{demand.size} processors cannot be allocated", "ask for at least 1")
    if len(demand.request_key) != 32 or not set(demand.request_key) <= set("0123456789abcdef"):
        raise Invalid("a request key is 32 hexadecimal digits")
    if any(type(amount) is not int or amount < 1 for amount in demand.resources.values()):
        raise Invalid("a resource is requested in amounts of at least 1")


def candidates(machine: Machine, demand: Demand) -> Sequence[int]:
    """The free ids that this request may get: in the requested order if it names processors, otherwise ascending."""
    side = machine.side_of(demand.login) if demand.login else None
    if demand.partition is not None:
        free: Sequence[int] = machine.free_in(demand.partition)
        if side is not None and machine.side_of_partition(demand.partition) not in (None, side):
            raise Denied(f"partition {demand.partition} is on another side of the machine than {demand.login}")
    else:
        free = machine.free(demand.user, service=names_processors(demand), side=side)
        manager = limits.manager_of(machine, demand)
        if manager is not None and machine.policy is not None:
            free = machine.in_part(free, machine.policy.part_of(manager))
    if demand.own:
        free = machine.reserved_among(free, demand.user)
    if demand.wanted is not None:
        there = set(free)
        free = [one for one in demand.wanted if one in there]
    if demand.exclude:
        out = set(demand.exclude)
        free = [one for one in free if one not in out]
    if demand.resources:
        free = machine.with_resources(free, demand.resources)
    return machine.staying(free, demand.time_s)


def names_processors(demand: Demand) -> bool:
    """True if the request, or a line of its load file, names processors."""
    segments = demand.shape.segments if demand.shape is not None else ()
    return demand.wanted is not None or any(segment.wanted is not None for segment in segments)


def decide(machine: Machine, demand: Demand, choose: Choose) -> Sequence[int]:
    """The processors that this request gets from the current picture. Raises NotEnough or Invalid."""
    try:
        return _decide(machine, demand, choose)
    except NotEnough as error:
        error.hint += _leaving(machine, demand)
        if error.never or demand.request_key in machine.hopeful:
            raise
        hint = _beyond(machine, demand) or _never(machine, demand, choose)
        if not hint:
            if len(machine.hopeful) == HOPEFUL:
                machine.hopeful.clear()
            machine.hopeful.add(demand.request_key)  # a waiting request asks again and again
            raise
        raise NotEnough(error.message, hint + _kept(machine, demand), free=error.free, never=True) from None


def _leaving(machine: Machine, demand: Demand) -> str:
    """The nodes in service that this request cannot use because they will be drained, as the end of a hint; empty for
    none."""
    names = machine.leaving_within(demand.time_s) if demand.time_s else []
    if not names:
        return ""
    some = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return f"; {counted(len(names), 'node')} ({some}) will be drained before this launch's time limit (-time) ends"


def _kept(machine: Machine, demand: Demand) -> str:
    """What reservations keep from this request, as the end of a hint; empty for nothing."""
    kept = machine.kept_from(demand.user, demand.wanted) if demand.partition is None else {}
    if not kept:
        return ""
    told = [
        f"{count} {'is' if count == 1 else 'are'} reserved" + (f" for {whose}" if whose else "")
        for whose, count in list(kept.items())[:5]
    ]
    return f"; {', '.join(told)}: showmesh says by whom and why"


def check_could_be_met(machine: Machine, demand: Demand, choose: Choose) -> None:
    """Raise NotEnough (``never``) or Invalid for a request that could not be met even by an idle machine."""
    limits.check_ever(machine, demand, demand.at_least or demand.size)
    try:
        decide(machine, demand, choose)
    except NotEnough as error:
        if error.never:
            raise


def check_right(store: Store, demand: Demand) -> None:
    """Check the right to allocate inside the demand's partition. Raises Expired or Denied."""
    assert demand.partition is not None
    rows = store.read(_right_to.bind(partition=demand.partition))
    _check_row(demand, rows[0] if rows else None)


def could_be_met(machine: Machine, demand: Demand, choose: Choose) -> bool:
    """True if ``machine``, a picture of a possible state, has enough for this request. See ``_never``."""
    try:
        _decide(machine, demand, getattr(choose, "idle", first))
    except NotEnough:
        return False
    return True


def _decide(machine: Machine, demand: Demand, choose: Choose) -> Sequence[int]:
    if demand.login and machine.leaving(demand.login):
        raise NotEnough(
            f"{demand.login} is about to change sides of the machine, so no launch can start from there",
            "try again when the switches are set, or wait with --wait-for-nodes 600",
        )
    free = candidates(machine, demand)
    if demand.shape is not None:
        return _shaped(machine, demand, demand.shape, free, choose)
    count = demand.size
    if demand.at_least and demand.at_least <= len(free) < count:
        count = len(free)
    if count > len(free):
        raise _not_enough(machine, demand, len(free))
    chosen = free[:count] if demand.wanted is not None else choose(free, count)
    if chosen is None:
        raise _not_enough(machine, demand, len(free))
    if len(chosen) != count or len(set(chosen)) != count or not _are_in(chosen, free):
        raise StoreError("the placement chose processors that are not free", "use another placement")
    return machine.by_node(chosen)


def _shaped(
    machine: Machine, demand: Demand, shape: shaping.Shape, free: Sequence[int], choose: Choose
) -> Sequence[int]:
    shape = shape._replace(side=machine.side_of(demand.login) if demand.login else None)
    shaping.check(machine, shape)
    if shape.segments:
        return load_file.decide(machine, shape, free, choose)
    tasks, listed = demand.size // shape.each, demand.wanted is not None
    return shaping.decide(machine, shape, free, tasks, choose, listed=listed, at_least=demand.at_least)


def _never(machine: Machine, demand: Demand, choose: Choose) -> str:
    """The reason why waiting cannot help: what an idle machine would have for this request. Empty if waiting may
    help.

    A placement that may refuse free processors has a function ``idle``, which says whether it would refuse on an idle
    machine; other placements never refuse.
    """
    try:
        _decide(Idle(machine), demand, getattr(choose, "idle", first))
    except NotEnough as error:
        if error.never:
            return error.hint
        if error.left:
            more = "; --overcommit allows more ranks than processors" if _may_overcommit(demand) else ""
            return f"this mesh never has as much: with nothing running there is {error.left}{more}"
        where = _where(machine, demand) or " for you"
        if not error.free:
            return f"there is none{where}, also when nothing runs"
        shared = "" if demand.at_least else f"; --overcommit shares {'it' if error.free == 1 else 'them'}"
        return f"there {'is' if error.free == 1 else 'are'} {error.free}{where} at most{shared}"
    return ""


def _may_overcommit(demand: Demand) -> bool:
    shape = demand.shape
    return not demand.at_least and shape is not None and shape.nodes is None and not shape.per_task


def _are_in(ids: Sequence[int], free: Sequence[int]) -> bool:
    return free.has_all(ids) if isinstance(free, FreeIds) else set(ids).issubset(free)


def _not_enough(machine: Machine, demand: Demand, free: int) -> NotEnough:
    asked = demand.at_least or demand.size
    fewer = "ask for fewer, or " if asked > 1 else ""
    are = "is" if free == 1 else "are"
    wanted = ("at least " if demand.at_least else "") + counted(asked, "processor")
    message = f"{wanted} asked for, {free} {are} free{_where(machine, demand)}"
    if not free:
        fewer = "showmesh shows who has them and which nodes are out; "
    more = "; showmesh shows who has the others and which nodes are out" if free else ""
    return NotEnough(message, f"{fewer}wait with --wait-for-nodes 600{more}", free=free)


def _where(machine: Machine, demand: Demand) -> str:
    """The part of the machine that this request may use, in words; empty for the whole machine."""
    if demand.partition is not None:
        return f" in partition {demand.partition}"
    if demand.wanted is not None:
        return " of the service processors" if all(map(machine.is_service, demand.wanted)) else " of those listed"
    if demand.exclude:
        return " beside those excluded"
    manager = limits.manager_of(machine, demand)
    return f" for manager {manager.name}" if manager is not None and manager.name else ""


def _beyond(machine: Machine, demand: Demand) -> str:
    named = [(demand.at_least or demand.size, demand.wanted)]
    if demand.shape is not None:
        named += [(segment.tasks * demand.shape.each, segment.wanted) for segment in demand.shape.segments]
    return shaping.beyond(machine, demand.login, named)


def _from_reserved(machine: Machine, demand: Demand, choose: Choose, behind: NotEnough) -> Sequence[int]:
    """Processors that are reserved for the request's user. Raises ``behind`` if those do not suffice."""
    try:
        return _decide(machine, demand._replace(own=True), choose)
    except NotEnough:
        raise behind from None


def _look(t: Transaction, machine: Machine, demand: Demand) -> tuple[int | None, int, NotEnough | None]:
    """The launcher that this request was granted before, and the counter of the last change of a node.

    Raises NotEnough if other requests wait in front of this one. The error is returned instead if all of them are
    other users', and processors are reserved for this user: those are taken from nobody in front.
    """
    granted, anybody, node_changed, resource_changed = t.answers[0][0]
    behind = _look_at_line(t, machine, demand, granted) if anybody is not None else None
    return granted, max(node_changed or 0, resource_changed or 0), behind


def _look_at_line(t: Transaction, machine: Machine, demand: Demand, granted: int | None) -> NotEnough | None:
    row = t.row(_place_in_line.bind(partition=demand.partition, request_key=demand.request_key))
    assert row is not None
    head, mine, whose = row
    if mine is not None and whose != demand.uid:
        raise Denied(NOT_YOURS, "use a new random key")
    behind = None
    if granted is None and head is not None and (head != mine or machine.policy is not None or demand.grows):
        count = _in_front(t.rows, machine, demand, mine)
        if count:
            behind = NotEnough(
                f"{counted(count, 'request')} that came before {'is' if count == 1 else 'are'} waiting for processors",
                "wait as well",
                waiting=count,
            )
            own = demand.partition is None and machine.reserves_for(demand.user)
            if not own or waits_before(t.rows, demand.uid, mine):
                raise behind
    if mine is not None:
        t.write(_leave_line.bind(request=mine))
        t.moved_line = True
    return behind


def _in_front(read: Read, machine: Machine, demand: Demand, request: int | None = None) -> int:
    """How many requests wait in front of this one, without those held back only by a limit of their users."""
    place = place_in_line(machine, demand.user, demand.command, demand.partition, grows=bool(demand.grows))
    if place is None or machine.policy is None or demand.partition is not None:
        return in_front(read, demand.login, demand.partition, request, place)
    before = those_in_front(read, demand.login, LAST_ID if request is None else request, place)
    counts: dict[tuple[int, str], bool] = {}  # for each user (uid and manager): True if their requests count
    for waiter in before:
        who = waiter.uid, waiter.manager
        if who not in counts:
            counts[who] = who == (demand.uid, place.manager) or not limits.is_at_limit(read, machine, waiter)
    return sum(counts[waiter.uid, waiter.manager] for waiter in before)


def grant_again(t: Transaction, machine: Machine, asker: int, launcher: int) -> Allocation:
    """Return a launcher that was granted before, with a new cookie. Raises Denied or Expired."""
    row = t.row(_granted.bind(launcher=launcher))
    assert row is not None
    uid, state, pending_until, partition, processors, resources = row
    if uid != asker:
        raise Denied(NOT_YOURS, "use a new random key")
    if state == "ended" or (state == "pending" and pending_until <= t.now):
        raise Expired(f"launcher {launcher} has ended", "start again, with a new request key")
    cookie = cookies.make()
    t.write(_renew_cookie.bind(launcher=launcher, cookie=cookies.digest(cookie)))
    ids = unfold(processors)
    devices = by_name(machine.nodes_of(ids), json.loads(resources))
    return Allocation(launcher, cookie, partition, ids, machine.runs_of(ids), pending_until - t.now, True, devices)


def take(t: Transaction, machine: Machine, demand: Demand, ids: Sequence[int]) -> Allocation:
    """Insert the rows of an allocation of exactly these processors."""
    launcher, t.next_launcher = t.next_launcher, t.next_launcher + 1
    folded, login = fold(ids), machine.node_id(demand.login)
    if demand.partition is None:
        partition, t.next_partition = t.next_partition, t.next_partition + 1
        whose = (demand.request_key, demand.user, demand.uid)
        insert_partition(
            t, partition, *whose, ids, batch_job=None, max_in_use=len(ids), folded=folded, login_processor=login
        )
        claim = _claim_free.bind(ids=ids, partition=partition, launcher=launcher)
    else:
        partition = demand.partition
        t.write(_keep_maximum.bind(partition=partition, in_use=machine.in_use(partition) + len(ids)))
        claim = _claim_inside.bind(ids=ids, partition=partition, launcher=launcher)
    runs = machine.runs_of(ids)
    nodes = runs if len({placed.id for placed in runs}) == len(runs) else machine.nodes_of(ids)
    devices = take_devices(t, nodes, demand)
    cookie = cookies.make()
    command, full_command = split_command(demand.command, hidden=machine.hides_texts)
    t.write(
        _insert_launcher.bind(
            launcher=launcher,
            cookie=cookies.digest(cookie),
            partition=partition,
            login_processor=login,
            pid=demand.pid,
            pid_started=demand.pid_started,
            user=demand.user,
            uid=demand.uid,
            command=command,
            full_command=full_command,
            size=len(ids),
            processors=folded,
            root=nodes[0].name,
            pending_until=t.now + demand.pending_s,
            resources=json.dumps(devices, sort_keys=True),
            request_key=demand.request_key,
            nice=demand.nice,
            time_s=demand.time_s,
            gives_back=demand.gives_back,
        )
    )
    _change_exactly(t, claim, len(ids))  # the last statement: its row count is checked together with the commit
    named = by_name(nodes, devices)
    return Allocation(launcher, cookie, partition, list(ids), runs, demand.pending_s, False, named)


def insert_partition(
    t: Transaction,
    partition: int,
    key: str,
    user: str,
    uid: int,
    ids: Sequence[int],
    *,
    batch_job: str | None,
    max_in_use: int = 0,
    folded: str | None = None,
    login_processor: int | None = None,
) -> tuple[str, str]:
    """Insert a partition; returns its administration and allocation cookies."""
    admin, allocation = cookies.make(), cookies.make()
    t.write(
        _insert_partition.bind(
            partition=partition,
            admin_cookie=cookies.digest(admin),
            allocation_cookie=cookies.digest(allocation),
            user=user,
            uid=uid,
            batch_job=batch_job,
            size=len(ids),
            processors=fold(ids) if folded is None else folded,
            max_in_use=max_in_use,
            request_key=key,
            login_processor=login_processor,
        )
    )
    return admin, allocation


def claim_for_partition(t: Transaction, ids: Sequence[int], partition: int) -> None:
    """Assign free processors to a partition, for launchers inside it."""
    _change_exactly(t, _claim_free.bind(ids=ids, partition=partition, launcher=None), len(ids))


def _change_exactly(t: Transaction, claim: Bound, count: int) -> None:
    t.change_exactly(
        claim,
        count,
        TakenBesides(
            f"some of {counted(count, 'processor')} were taken by a writer that did not lock the mesh",
            "make sure that only CPAs write to the system database",
        ),
    )


def _check_right(t: Transaction, demand: Demand) -> None:
    """Check the right to allocate inside a partition. Raises Expired or Denied."""
    assert demand.partition is not None
    _check_row(demand, t.row(_right_to.bind(partition=demand.partition)))


def _check_row(demand: Demand, row: Row | None) -> None:
    if row is None:
        raise Expired(f"there is no partition {demand.partition}: its job has ended, or never was", OUTSIDE)
    if not cookies.fits(demand.cookie, row[0]):
        raise Denied(
            f"the allocation cookie of partition {demand.partition} is wrong",
            "use the cookie in the environment of the batch job",
        )
    if row[1] is not None:
        raise Expired(f"partition {demand.partition} has been destroyed: its batch job has ended", OUTSIDE)


def consider(store: Store, machine: Machine, demand: Demand, choose: Choose) -> tuple[list[Placed], dict[str, Any]]:
    """The nodes, in rank order, and the devices that an allocation would get now. Changes nothing. Errors as
    ``allocate``."""
    machine.refresh(store)
    if demand.partition is not None:
        check_right(store, demand)
    waiting = _in_front(store.read, machine, demand)
    if waiting:
        before = counted(waiting, "request waits", "requests wait")
        raise NotEnough(f"{before} for processors before it", "wait as well", waiting=waiting)
    ids = decide(machine, limits.fitting(store.read, machine, demand), choose)
    limits.check(store.read, machine, demand, len(ids))
    nodes = machine.nodes_of(ids)
    devices: dict[str, dict[str, list[int]]] = {}
    taken = devices_in_use(store.read)
    for node, wanted in amounts(nodes, demand).items():
        for name, amount in wanted.items():
            total = machine.left_on(node, name) + len(taken.get((str(node), name), ()))
            devices.setdefault(str(node), {})[name] = lowest(total, taken.get((str(node), name), set()), amount)
    return machine.runs_of(ids), by_name(nodes, devices)
