"""Limits of users: how many more processors a user may have now, counted from running launchers in the transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from db.allocation.free import Machine
from db.allocation.managers import Manager, Policy, Share, job_of
from db.allocation.types import Demand
from db.allocation.waiting_requests import PlaceInLine, Waiter
from db.errors import NotEnough
from db.schema.models import Launcher, Partition
from db.store.statements import Bound, Query, statement
from db.store.store import Row

#: Added to the precedence of a request for further processors of a job.
GROWTH = 1

Read = Callable[[Bound], list[Row]]


class AtLimit(NotEnough):
    """The user has reached a limit. Requests of other users may pass this one."""


@statement
def _live_of(*, uid: int) -> Query:
    """The live launchers of a user outside batch partitions."""
    return (
        Launcher.select(
            Launcher.user,
            Launcher.command,
            Launcher.size,
            Launcher.login_processor,
            Launcher.pid,
            Launcher.pid_started,
        )
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.uid == uid, Launcher.ended_at.is_null(), Partition.batch_job.is_null())
    )


class _Asker(NamedTuple):
    uid: int
    user: str
    command: str
    login: int
    pid: int
    pid_started: int


def manager_of(machine: Machine, demand: Demand) -> Manager | None:
    """The manager that a request belongs to; None without managers and limits, or inside a batch partition."""
    if machine.policy is None or demand.partition is not None:
        return None
    return machine.policy.manager_of(demand.user, demand.command)


def place_in_line(
    machine: Machine, user: str, command: str, partition: int | None = None, *, grows: bool = False
) -> PlaceInLine | None:
    """The line in which a request waits; None without managers, or inside a batch partition.

    ``grows``: it is for further processors of a job that has some. Such a request comes behind all others of its
    priority, because it may wait for as long as the job runs.
    """
    if machine.policy is None or partition is not None:
        return PlaceInLine(precedence=GROWTH) if grows else None
    manager = machine.policy.manager_of(user, command)
    return PlaceInLine(manager.name, machine.policy.part_of(manager), -2 * manager.priority + GROWTH * grows)


def check(read: Read, machine: Machine, demand: Demand, size: int) -> None:
    """Raise AtLimit if ``size`` more processors exceed a limit of this request's user."""
    if may_reach(machine, demand):
        assert machine.policy is not None
        _check(read, machine.policy, _asker(machine, demand), size)


def may_reach(machine: Machine, demand: Demand) -> bool:
    """True if what this request gets counts towards a limit of its user."""
    return machine.policy is not None and machine.policy.limited and demand.partition is None


def check_ever(machine: Machine, demand: Demand, size: int) -> None:
    """Raise AtLimit (``never``) if the request alone exceeds a limit of its user. Reads nothing."""
    manager, policy = manager_of(machine, demand), machine.policy
    if manager is not None and policy is not None and policy.limited:
        told, never = policy.refusal(manager, demand.user, size, Share(0, 0), Share(0, 0), new_job=False)
        if never:
            raise AtLimit(told, "ask for fewer", never=True)


def room(read: Read, machine: Machine, demand: Demand) -> int:
    """How many more processors the user of this request may have."""
    policy = machine.policy
    if policy is None or not policy.limited or demand.partition is not None:
        return (1 << 31) - 1
    manager = policy.manager_of(demand.user, demand.command)
    has, everywhere, _jobs = shares_of(policy, manager, read(_live_of.bind(uid=demand.uid)))
    return policy.left(manager, has, everywhere)


def fitting(read: Read, machine: Machine, demand: Demand) -> Demand:
    """The request, reduced towards ``at_least`` if a limit of its user requires it."""
    if not demand.at_least:
        return demand
    size = max(demand.at_least, min(demand.size, room(read, machine, demand)))
    return demand if size == demand.size else demand._replace(size=size)


def is_at_limit(read: Read, machine: Machine, waiter: Waiter) -> bool:
    """True if a request of the pool waits because its user has reached a limit."""
    policy = machine.policy
    if policy is None or not policy.limited:
        return False
    command = str(waiter.request.get("command", ""))
    asker = _Asker(waiter.uid, waiter.user, command, waiter.login_processor, waiter.pid, waiter.pid_started)
    each = 1 if waiter.request.get("overcommit") else max(1, waiter.request.get("cpus_per_task") or 1)
    try:
        _check(read, policy, asker, each * (1 if waiter.partial else max(1, waiter.size)))
    except AtLimit:
        return True
    return False


def _asker(machine: Machine, demand: Demand) -> _Asker:
    login = machine.node_id(demand.login) if demand.login else 0
    return _Asker(demand.uid, demand.user, demand.command, login, demand.pid, demand.pid_started)


def _check(read: Read, policy: Policy, asker: _Asker, size: int) -> None:
    manager = policy.manager_of(asker.user, asker.command)
    has, everywhere, jobs = shares_of(policy, manager, read(_live_of.bind(uid=asker.uid)))
    new_job = job_of(asker.command, *asker[3:]) not in jobs
    told, never = policy.refusal(manager, asker.user, size, has, everywhere, new_job=new_job)
    if told:
        hint = "ask for fewer" if never else "wait with --wait-for-nodes 600: it starts when others of yours have ended"
        raise AtLimit(told, hint, never=never)


def shares_of(policy: Policy, manager: Manager, live: Iterable[Row]) -> tuple[Share, Share, set[tuple[Any, ...]]]:
    """The user's share of the manager, the share of the machine, and the jobs, from rows of ``_live_of``."""
    jobs: set[tuple[Any, ...]] = set()
    of_manager: set[tuple[Any, ...]] = set()
    processors = mine = 0
    for user, command, size, login, pid, pid_started in live:
        job = job_of(command, login, pid, pid_started)
        jobs.add(job)
        processors += size
        if policy.manager_of(user, command) is manager:
            of_manager.add(job)
            mine += size
    return Share(mine, len(of_manager)), Share(processors, len(jobs)), jobs
