"""Giving back: how many processors running jobs give to a request that waits, each after the task at hand.

Nothing is recorded, and nothing is ended here. For each job the answer is how many processors it may keep, so asking
twice changes nothing. The owner of the job chooses the launches and ends them when they have no task
(agents/job/grants/giving.py). Two questions depend on time, and the database has the answers: how long a job keeps what
it has got back (kept.py), and whether those that were asked first have given nothing for so long that others are asked.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from db.allocation.allocate import candidates, could_be_met
from db.allocation.free import Machine
from db.allocation.limits import place_in_line
from db.allocation.managers import worker_of
from db.allocation.scheduling.kept import LOOK_BACK_S, Life, beyond_its_share, kept
from db.allocation.scheduling.preemption import Nice, Vacated, pick, useful_of
from db.allocation.types import Choose, Demand
from db.allocation.waiting_requests import Read, Waiter
from db.schema.models import Launcher, Partition, Waiting
from db.store.orm import pw
from db.store.ranges import unfold
from db.store.statements import NOW, Query, statement
from db.store.store import Row, Store

#: After each so many seconds for which a request waits, it asks as if one more user gave nothing, up to so many users:
#: their jobs may have long tasks, or a client that never gives anything back.
OTHERS_S, _ROUNDS = 10.0, 4
#: The most launches that have ended which are looked at.
_MOST_ENDED = 2000


class JobKey(NamedTuple):
    """A job: its user, and its first digits."""

    uid: int
    digits: str


class Asker(NamedTuple):
    """Who waits. ``job``: the first digits of the job whose workers it would start; "" for any other launch.
    ``grows``: how many more processors that job could use, if it has some. ``missing``: how many it lacks now."""

    uid: int
    job: str
    grows: int
    missing: int


class Launch(NamedTuple):
    """A launch of workers that a job gives back when asked."""

    launcher: int
    job: JobKey
    processors: list[int]
    devices: Mapping[str, Mapping[str, Sequence[int]]]  # by node id and name
    granted_at: float  # by the database's clock


class Keep(NamedTuple):
    """What a job is asked: of these launches it keeps ``keep`` processors at most."""

    job: JobKey
    launchers: list[int]
    keep: int


class Answer(NamedTuple):
    """What jobs are asked for a request; ``again_s``: seconds until more may be asked, if it still waits then."""

    keeps: list[Keep]
    again_s: float | None = None


@statement
def _waits(*, request_key: str) -> Query:
    """The database's time, and for how long a request has waited."""
    return Waiting.select(NOW, NOW - Waiting.created_at).where(Waiting.request_key == request_key)


@statement
def _lives(*, ended_after: float, most: int) -> Query:
    """Launches that are given back and run, or have ended since."""
    return (
        Launcher.select(
            Launcher.id, Launcher.uid, Launcher.command, Launcher.size, Launcher.created_at, Launcher.ended_at
        )
        .where(Launcher.gives_back, Launcher.ended_at > ended_after)
        .order_by(Launcher.ended_at.desc())
        .limit(most)
    )


@statement
def _giving() -> Query:
    """Launches that are given back, outside batch partitions, the youngest first."""
    return (
        Launcher.select(
            Launcher.id,
            Launcher.uid,
            Launcher.command,
            Launcher.processors,
            Launcher.resources,
            Launcher.user,
            Launcher.created_at,
        )
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.gives_back, Launcher.ended_at.is_null(), Partition.batch_job.is_null())
        .order_by(Launcher.id.desc())
    )


@statement
def _held() -> Query:
    """How many processors each user has outside batch partitions."""
    return (
        Launcher.select(Launcher.uid, pw.fn.SUM(Launcher.size))
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.ended_at.is_null(), Partition.batch_job.is_null())
        .group_by(Launcher.uid)
    )


def held(rows: Iterable[Row]) -> dict[int, int]:
    """The processors of each user (uid)."""
    return {int(uid): int(count) for uid, count in rows}


def next_to_grow(read: Read, waiters: Sequence[Waiter]) -> Waiter:
    """The request that is served next if the first of a line is for further processors of a job.

    It is the first one of the user who has the fewest processors.
    """
    alike = [one for one in waiters if one.precedence == waiters[0].precedence]
    if len({one.uid for one in alike}) == 1:
        return alike[0]
    has = held(read(_held.bind()))
    return min(alike, key=lambda one: (has.get(one.uid, 0), one.id))


def shares(asker: Asker, jobs: Mapping[JobKey, int], has: Mapping[int, int]) -> dict[JobKey, int]:
    """How many of its processors each job gives; empty if they would not be enough. ``has``: what each user has.

    Users with the most processors give first, and of theirs the largest job. A launch takes what it lacks, and the last
    processor of a job only if it must. A job takes from other users until it has as many as they have; it leaves them
    the last processor of a job, and takes from its own user's jobs, for its first processors alone.
    """
    taking = _Taking(asker, jobs, has)
    if not asker.job:
        taking.take(asker.missing, least=1)
        taking.take(asker.missing, least=0)
    elif asker.grows:
        taking.take(max(asker.missing, asker.grows), least=1, fair=True)
    else:
        taking.take(asker.missing, least=1, fair=True)
        taking.take(asker.missing, least=0, fair=True)
        taking.take(asker.missing, least=1, own=True)
    return dict(taking.given) if taking.given.total() >= asker.missing else {}


class _Taking:
    """Takes processors from jobs, one after the other."""

    def __init__(self, asker: Asker, jobs: Mapping[JobKey, int], has: Mapping[int, int]) -> None:
        self._asker, self._left = asker, dict(jobs)
        self._left.pop(JobKey(asker.uid, asker.job), None)  # no job gives to itself
        self._has = defaultdict(int, has)
        self.given: Counter[JobKey] = Counter()

    def take(self, most: int, *, least: int, fair: bool = False, own: bool = False) -> None:
        """Take up to ``most`` in all, and leave each job ``least``. ``fair``: from users who have more than the asker;
        ``own``: from the asker's user."""
        uid = self._asker.uid
        by_user: dict[int, list[JobKey]] = {}
        for job, left in self._left.items():
            if left > least and (job.uid == uid if own else not fair or job.uid != uid):
                by_user.setdefault(job.uid, []).append(job)
        while by_user and self.given.total() < most:
            giver = max(by_user, key=lambda one: (self._has[one], one))
            if fair and self._has[giver] - 1 <= self._has[uid]:
                return
            job = max(by_user[giver], key=lambda one: (self._left[one], one))
            self._left[job] -= 1
            self.given[job] += 1
            self._has[giver] -= 1
            self._has[uid] += 1
            if self._left[job] <= least:
                by_user[giver].remove(job)
                if not by_user[giver]:
                    del by_user[giver]


def find(store: Store, machine: Machine, demand: Demand, choose: Choose) -> Answer:
    """What jobs are asked for a request that is first in its line and cannot be met; nothing inside a batch partition,
    and nothing if the request does not wait any more.

    A job that would come before the request when it asks for more is asked for nothing: it would take back what it
    gives. A request of low priority gets nothing, because the next request of the job would end its launch.
    """
    if demand.partition is not None or demand.nice:
        return Answer([])
    machine.refresh(store)
    waits, rows, totals = store.read_together(
        [_waits.bind(request_key=demand.request_key), _giving.bind(), _held.bind()]
    )
    comes_before = _comes_before(machine, demand)
    useful = useful_of(machine, demand)
    launches = [
        Launch(row[0], JobKey(row[1], worker_of(row[2])), unfold(row[3]), json.loads(row[4]), row[6])
        for row in rows
        if not comes_before(row[5], row[2])
    ]
    launches = [one for one in launches if one.job.digits and useful(one.processors)]
    if not waits or not launches:
        return Answer([])
    now, waited_s = waits[0]
    asking = _Asking(machine, demand, choose, held(totals), lambda some: _kept(store, now, some))
    return asking.rounds(launches, waited_s)


def _kept(store: Store, now: float, launches: Sequence[Launch]) -> dict[int, float]:
    """Those of the launches that their jobs keep for a while, and for how many seconds."""
    jobs: dict[JobKey, list[Life]] = {}
    for one in launches:
        life = Life(one.launcher, len(one.processors), now - one.granted_at)
        jobs.setdefault(one.job, []).append(life)
    for launcher, uid, command, size, granted_at, ended_at in store.read(
        _lives.bind(ended_after=now - LOOK_BACK_S, most=_MOST_ENDED)
    ):
        job = JobKey(uid, worker_of(command))
        if job in jobs:
            jobs[job].append(Life(launcher, size, now - granted_at, now - ended_at))
    return {launcher: left_s for lives in jobs.values() for launcher, left_s in kept(lives).items()}


class _Asking:
    """Asks jobs for what one request lacks. ``has``: what each user has; ``kept`` reads which launches jobs keep."""

    def __init__(
        self,
        machine: Machine,
        demand: Demand,
        choose: Choose,
        has: Mapping[int, int],
        kept_of: Callable[[Sequence[Launch]], Mapping[int, float]],
    ) -> None:
        self._machine, self._demand, self._choose, self._has, self._kept_of = machine, demand, choose, has, kept_of
        self._useful = useful_of(machine, demand)
        self._asker = Asker(demand.uid, worker_of(demand.command), demand.grows, 0)
        self._kept: Mapping[int, float] | None = None  # read when it matters, which is seldom
        self._later_s: list[float] = []

    def rounds(self, launches: Sequence[Launch], waited_s: float) -> Answer:
        """Ask for what is missing; after each ``OTHERS_S``, one more user counts as one who gives nothing.

        If the others have too little then, that user alone is left out: who gives nothing may be any of them.
        """
        users = sorted({one.job.uid for one in launches}, key=lambda uid: (-self._has.get(uid, 0), uid))[:_ROUNDS]
        now = min(max(int(waited_s / OTHERS_S), 0), len(users))  # the clock may have been set back
        keeps = {one.job: one for one in self._within_shares(launches)}
        for number, user in enumerate(users[:now], 1):
            out = set(users[:number])
            more = self._within_shares([one for one in launches if one.job.uid not in out])
            for one in more or self._within_shares([one for one in launches if one.job.uid != user]):
                keeps[one.job] = _most(keeps.get(one.job, one), one, launches)
        if keeps and now < len(users) > 1:
            self._later_s.append((now + 1) * OTHERS_S - waited_s)
        return Answer(list(keeps.values()), min(self._later_s, default=None))

    def _within_shares(self, launches: Sequence[Launch]) -> list[Keep]:
        """Ask for launches, but not for those that jobs keep of users who would have less than the asker."""
        left = list(launches)
        while keeps := self._ask(left):
            given: Counter[int] = Counter()
            sizes = {one.launcher: len(one.processors) for one in left}
            for one in keeps:
                given[one.job.uid] += sum(sizes[launcher] for launcher in one.launchers) - one.keep
            needs = self._demand.at_least or self._demand.size
            beyond = beyond_its_share(self._demand.uid, needs, given, self._has)
            if beyond and self._kept is None:
                self._kept = self._kept_of(launches)
            stay = {one.launcher for one in left if one.job.uid in beyond and one.launcher in (self._kept or {})}
            if not stay:
                break
            self._later_s.append(min((self._kept or {})[one] for one in stay))
            left = [one for one in left if one.launcher not in stay]
        return keeps

    def _ask(self, launches: Sequence[Launch]) -> list[Keep]:
        machine, demand = self._machine, self._demand
        jobs: Counter[JobKey] = Counter()
        for one in launches:
            jobs[one.job] += self._useful(one.processors)
        certain = bool(demand.shape or demand.resources) or demand.wanted is not None
        missing = (demand.at_least or demand.size) - (0 if certain else len(candidates(machine, demand)))
        if certain and not self._asker.job:
            return _those(machine, demand, self._choose, launches)
        given = shares(self._asker._replace(missing=missing), jobs, self._has) if missing > 0 else {}
        if certain:
            return _those(machine, demand, self._choose, _up_to(launches, given))
        return [
            Keep(job, [one.launcher for one in launches if one.job == job], jobs[job] - count)
            for job, count in given.items()
        ]


def _comes_before(machine: Machine, demand: Demand) -> Callable[[str, str], bool]:
    """Whether a request for further processors of a job, by the user and the command of its workers, would be served
    before this one."""
    own = place_in_line(machine, demand.user, demand.command, grows=bool(demand.grows))

    def comes_before(user: str, command: str) -> bool:
        if machine.policy is None or own is None:
            return False
        its = place_in_line(machine, user, command, grows=True)
        return its is not None and its.part == own.part and its.precedence < own.precedence

    return comes_before


def _most(one: Keep, other: Keep, launches: Sequence[Launch]) -> Keep:
    """What a job is asked that is asked both."""
    if not one.keep and not other.keep:
        return Keep(one.job, sorted({*one.launchers, *other.launchers}, reverse=True), 0)
    sizes = {each.launcher: len(each.processors) for each in launches}
    return max(one, other, key=lambda keep: sum(sizes[launcher] for launcher in keep.launchers) - keep.keep)


def _up_to(launches: Sequence[Launch], given: Mapping[JobKey, int]) -> list[Launch]:
    """Launches of each job with no more processors together than it gives, the smallest first."""
    left, found = dict(given), []
    for one in sorted(launches, key=lambda one: len(one.processors)):
        if len(one.processors) <= left.get(one.job, 0):
            left[one.job] -= len(one.processors)
            found.append(one)
    return found


def _those(machine: Machine, demand: Demand, choose: Choose, launches: Sequence[Launch]) -> list[Keep]:
    """The launches that a request needs which cannot take just any processors."""
    ends = [Nice(one.launcher, None, one.processors, one.devices) for one in launches]
    picked = {one.launcher for one in pick(lambda some: could_be_met(Vacated(machine, some), demand, choose), ends)}
    by_job: dict[JobKey, list[int]] = {}
    for one in launches:
        if one.launcher in picked:
            by_job.setdefault(one.job, []).append(one.launcher)
    return [Keep(job, launchers, 0) for job, launchers in by_job.items()]
