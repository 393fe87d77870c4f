"""The lines of requests that wait: whoever frees processors serves their heads, in the same transaction.

Strictly first come, first served in each line: a part of the pool of a side of the machine, a batch partition. Higher
priorities stand before lower ones. Where requests say how long they take, smaller ones may pass
(db.allocation.backfill), and everybody passes those whose users have as much as they may have (db.allocation.limits).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from db import cookies
from db.allocation import backfill, limits, waiting_requests
from db.allocation.allocate import candidates, decide, grant_again, take
from db.allocation.finish import end_inside
from db.allocation.free import Machine
from db.allocation.types import Allocation, Choose, Demand
from db.allocation.waiting_requests import Wait, Waiter
from db.errors import Denied, Expired, NotEnough, StoreError
from db.schema.models import Launcher, Partition, PostBack
from db.store.orm import pw
from db.store.ranges import unfold
from db.store.statements import Query, statement
from db.store.store import Store, Transaction

#: Which demand a row of the line is, and how its processors are chosen. StoreError for one that is wrong.
Understand = Callable[[Waiter], tuple[Demand, Choose]]
DEPTH = 100  # requests of a line that are looked at for one that may pass


class Grant(NamedTuple):
    """What a request got, or why it gets no more. ``given``: of what it asked for; ``missing``: what it waits for."""

    waiter: Waiter
    sequence: int
    given: int
    missing: int
    allocation: Allocation | None
    demand: Demand | None = None
    error: StoreError | None = None


TOO_LATE = Expired("its time to wait (--wait-for-nodes) is over", "ask again")


def ended(waiter: Waiter, error: StoreError = TOO_LATE) -> Grant:
    """That a request gets no more."""
    return Grant(waiter, waiter.sequence + 1, 0, waiter.size, None, None, error)


class Unconfirmed(NamedTuple):
    """A grant that its requester has not confirmed: a row of ``post_back``."""

    request_key: str
    sequence: int
    launcher: int
    missing: int
    place: str
    cpa: str
    uid: int
    failures: int


@statement
def _insert_post_back(
    *, request_key: str, sequence: int, launcher: int, missing: int, place: str, cpa: str, uid: int
) -> Query:
    return PostBack.insert(
        {
            PostBack.request_key: request_key,
            PostBack.sequence: sequence,
            PostBack.launcher: launcher,
            PostBack.missing: missing,
            PostBack.place: place,
            PostBack.cpa: cpa,
            PostBack.uid: uid,
            PostBack.failures: 0,
        }
    )


_UNCONFIRMED = (
    PostBack.request_key,
    PostBack.sequence,
    PostBack.launcher,
    PostBack.missing,
    PostBack.place,
    PostBack.cpa,
    PostBack.uid,
    PostBack.failures,
)


@statement
def _unconfirmed_of(*, request_key: str) -> Query:
    return PostBack.select(*_UNCONFIRMED).where(PostBack.request_key == request_key).order_by(PostBack.sequence)


@statement
def _unconfirmed_at(*, cpa: str) -> Query:
    return PostBack.select(*_UNCONFIRMED).where(PostBack.cpa == cpa).order_by(PostBack.id)


@statement
def _hold_unconfirmed(*, request_key: str, cpa: str, place: str) -> Query:
    return PostBack.update({PostBack.cpa: cpa, PostBack.place: place}).where(PostBack.request_key == request_key)


@statement
def _confirm(*, request_key: str, sequence: int, uid: int) -> Query:
    return PostBack.delete().where(
        PostBack.request_key == request_key, PostBack.sequence == sequence, PostBack.uid == uid
    )


@statement
def _delete_post_back(*, launcher: int) -> Query:
    return PostBack.delete().where(PostBack.launcher == launcher)


@statement
def _count_failure(*, request_key: str, sequence: int) -> Query:
    return PostBack.update({PostBack.failures: PostBack.failures + 1}).where(
        PostBack.request_key == request_key, PostBack.sequence == sequence
    )


@statement
def _granted_first(*, request_key: str) -> Query:
    return Launcher.select(Launcher.uid).where(Launcher.request_key == request_key)


@statement
def _cookie_of(*, launcher: int) -> Query:
    return Launcher.select(Launcher.cookie).where(Launcher.id == launcher)


@statement
def _is_pending(*, launcher: int) -> Query:
    return Launcher.select(Launcher.id).where(Launcher.id == launcher, Launcher.state == "pending")


@statement
def _ends() -> Query:
    """When launchers outside batch partitions will have ended, of those that said it, and their processors.

    Of one that has not started: when it will, if it takes all the time that it has for that.
    """
    began = pw.fn.COALESCE(Launcher.started_at, Launcher.pending_until)
    return (
        Launcher.select(began + Launcher.time_s, Launcher.processors)
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.ended_at.is_null(), Partition.batch_job.is_null(), Launcher.time_s.is_null(False))
    )


class Line:
    """Serves the heads of all lines inside transactions, for a ``Store`` (``Serving``).

    ``grants`` and ``stuck`` (requests that are first and have to wait on) are of the transactions since they were taken
    by ``taken``; ``on_served`` is called after each that has some.
    """

    def __init__(self, machine: Machine, understand: Understand, *, passing: bool = True) -> None:
        self._machine, self._understand, self._passing = machine, understand, passing
        self._grants: list[Grant] = []
        self._stuck: list[Waiter] = []
        self._new: tuple[list[Grant], list[Waiter]] = [], []
        self._uncertain: list[Grant] = []
        self.on_served: Callable[[], None] = lambda: None
        self.on_undone: Callable[[], None] = lambda: None

    def taken(self) -> tuple[list[Grant], list[Waiter]]:
        """What was granted and who is first in vain, since the last time."""
        found = self._grants, self._stuck
        self._grants, self._stuck = [], []
        return found

    # --- for the Store

    def serve(self, t: Transaction) -> None:
        """Gives what is free to the heads of all lines."""
        self._new = [], []
        if t.row(waiting_requests.any_request.bind()) is None:
            return
        self._machine.see_inside(t)
        sides: dict[tuple[int, bool], list[int]] = {}
        for login, side, leaving in self._machine.logins(service=True):
            sides.setdefault((side, leaving), []).append(login)
        parts = self._machine.policy.parts if self._machine.policy is not None else ("",)
        for logins in sides.values():
            for part in parts:
                self._serve_line(t, None, logins, part)
        if t.freed or t.moved_line:
            every = [login for logins in sides.values() for login in logins]
            for partition in waiting_requests.partitions_waited_for(t):
                self._serve_line(t, partition, every)
        if not t.changed:
            self._machine.counter = t.counter  # there will be no transaction of that number

    def committed(self) -> None:
        """What was granted stands."""
        grants, stuck = self._new
        self._new = [], []
        self._grants += grants
        self._stuck += stuck
        if grants or stuck:
            self.on_served()

    def undone(self) -> None:
        """Nobody has what the picture says, or the answer to the COMMIT was lost (``find_lost``)."""
        grants, _stuck = self._new
        self._new = [], []
        self._machine.forget()
        if grants:
            self._uncertain += grants
            self.on_undone()

    def find_lost(self, store: Store) -> None:
        """Counts as granted what was, by transactions of whose end the database did not tell. DatabaseUnavailable."""
        found = []
        for grant in self._uncertain:
            if grant.allocation is not None:
                rows = store.read(_cookie_of.bind(launcher=grant.allocation.launcher))
                if rows and cookies.fits(grant.allocation.cookie, rows[0][0]):
                    found.append(grant)
        self._uncertain = []
        self._grants += found
        if found:
            self.on_served()

    # --- inside

    def _serve_line(self, t: Transaction, partition: int | None, logins: Sequence[int], part: str = "") -> None:
        full: set[tuple[int, str]] = set()  # users (uid and manager) who have as much as they may have
        while True:
            heads = waiting_requests.first_in(t, partition, logins, part=part, passed=full)
            if not heads:
                return
            try:
                if not self._serve_one(t, heads[0]):
                    break
            except limits.AtLimit:
                full.add((heads[0].uid, heads[0].manager))
        self._new[1].append(heads[0])
        may_pass = self._passing and partition is None and self._machine.sides() == 1
        if may_pass and waiting_requests.says_how_long(t, logins, DEPTH, part):
            self._let_pass(t, waiting_requests.first_in(t, partition, logins, DEPTH, part, full), part)

    def _serve_one(self, t: Transaction, waiter: Waiter) -> bool:
        """Whether it leaves the line, or got a part of what it waits for."""
        if waiter.deadline_at <= t.now:
            self._end(t, waiter, TOO_LATE)
            return True
        try:
            demand, choose = self._understand(waiter)
            given, ids = self._decide(t, waiter, demand, choose)
        except NotEnough as error:
            if isinstance(error, limits.AtLimit) and not error.never:
                raise
            if not error.never:
                return False
            self._end(t, waiter, error)
            return True
        except StoreError as error:
            self._end(t, waiter, error)
            return True
        self._give(t, waiter, demand, given, ids)
        return True

    def _decide(self, t: Transaction, waiter: Waiter, demand: Demand, choose: Choose) -> tuple[int, Sequence[int]]:
        """How many of those it waits for it can have now, and which processors. NotEnough; AtLimit."""
        if not waiter.partial:
            limits.check(t.rows, self._machine, demand, max(1, demand.at_least or demand.size))
            return waiter.size, decide(self._machine, limits.fitting(t.rows, self._machine, demand), choose)
        each = demand.shape.each if demand.shape is not None else demand.size // waiter.size
        limits.check(t.rows, self._machine, demand, each)
        allowed = min(len(candidates(self._machine, demand)), limits.room(t.rows, self._machine, demand))
        most = min(waiter.size, allowed // each)
        while most > 1:
            try:
                return most, decide(self._machine, demand._replace(size=most * each), choose)
            except NotEnough:
                most //= 2  # processors of a task are on one node, and there may be some on each that nobody can use
        return 1, decide(self._machine, demand._replace(size=each), choose)

    def _give(self, t: Transaction, waiter: Waiter, demand: Demand, given: int, ids: Sequence[int]) -> None:
        sequence = waiter.sequence + 1
        if waiter.place:
            demand = demand._replace(request_key=f"{waiter.request_key}.{sequence}")
        waiting_requests.give(t, waiter, given if waiter.place else waiter.size)
        allocation = take(t, self._machine, demand, ids)
        missing = waiter.size - given if waiter.place else 0
        if waiter.place:
            t.write(
                _insert_post_back.bind(
                    request_key=waiter.request_key,
                    sequence=sequence,
                    launcher=allocation.launcher,
                    missing=missing,
                    place=waiter.place,
                    cpa=waiter.cpa,
                    uid=waiter.uid,
                )
            )
        devices = bool(allocation.devices)
        self._machine.hand_inside(t, allocation.processors, allocation.partition, allocation.launcher, devices=devices)
        self._new[0].append(Grant(waiter, sequence, given, missing, allocation, demand))

    def _end(self, t: Transaction, waiter: Waiter, error: StoreError) -> None:
        waiting_requests.leave(t, waiter)
        self._new[0].append(ended(waiter, error))

    # --- those who pass

    def _let_pass(self, t: Transaction, waiters: Sequence[Waiter], part: str = "") -> None:
        """Smaller requests that say how long they take start where they delay nobody who came before."""
        asked: list[backfill.Asked] = []
        plain: list[tuple[Waiter, Demand, Choose]] = []
        for waiter in waiters:
            try:
                demand, choose = self._understand(waiter)
            except StoreError:
                break  # its turn will come, and it will be told
            if demand.shape is not None or demand.wanted is not None or demand.exclude or demand.resources:
                break  # not any processor will do for it, so when it starts cannot be told from numbers
            asked.append(backfill.Asked(demand.size, waiter.time_s, waiter.partial))
            plain.append((waiter, demand, choose))
        if len(plain) < 2:
            return
        free = {len(candidates(self._machine, demand)) for _, demand, _ in plain}
        if len(free) > 1:
            return  # processors are reserved: they are not all alike for these users
        user = plain[0][1].user

        def may_have(one: int) -> bool:
            return self._machine.may_have(one, user) and self._machine.is_in_part(one, part)

        ends = [
            backfill.End(until, sum(map(may_have, unfold(processors)))) for until, processors in t.rows(_ends.bind())
        ]
        for place in backfill.may_start(t.now, free.pop(), ends, asked):
            waiter, demand, choose = plain[place]
            try:
                ids = decide(self._machine, demand, choose)
                limits.check(t.rows, self._machine, demand, len(ids))
            except NotEnough:
                continue
            self._give(t, waiter, demand, waiter.size, ids)


# What a requester says.


def ask(store: Store, wait: Wait) -> tuple[Waiter | None, int, list[Unconfirmed]]:
    """Puts a request in its line, served at once where its turn is now (by ``Store.serving``).

    Its row where it stood there already, how many stand before it, and what it was granted before and has not
    confirmed. One whose processors were all granted before is not put in line again. Denied, Invalid.
    """
    waiting_requests.check_wait(wait.wait_s)

    def work(t: Transaction) -> tuple[Waiter | None, int, list[Unconfirmed]]:
        (whose,), (before,) = t.answers[0] or [(None,)], (waiting_requests.of_key(t.rows, wait.request_key),)
        if whose[0] not in (None, wait.uid) or (before is not None and before.uid != wait.uid):
            raise Denied("this request key belongs to somebody else's request", "draw a new one")
        unconfirmed: list[Unconfirmed] = []
        if whose[0] is not None:
            t.write(_hold_unconfirmed.bind(request_key=wait.request_key, cpa=wait.cpa, place=wait.place))
            unconfirmed = [Unconfirmed._make(row) for row in t.rows(_unconfirmed_of.bind(request_key=wait.request_key))]
            if before is None:
                return None, 0, unconfirmed
        row = waiting_requests.put(t, wait)
        count = waiting_requests.in_front(t.rows, wait.login, wait.partition, row, wait.place_in_line)
        return before, count, unconfirmed

    return store.run(work, [_granted_first.bind(request_key=f"{wait.request_key}.1")])


def confirm(store: Store, request_key: str, sequence: int, uid: int) -> bool:
    """The requester has a grant. May be repeated."""
    return store.change_alone(_confirm.bind(request_key=request_key, sequence=sequence, uid=uid)) > 0


def cancel(store: Store, request_key: str, uid: int) -> tuple[int, list[int]]:
    """A request waits no longer: what was missing. Grants that it had not confirmed end: which. Denied."""

    def work(t: Transaction) -> tuple[int, list[int]]:
        waiter = waiting_requests.of_key(t.rows, request_key)
        rows = [Unconfirmed._make(row) for row in t.rows(_unconfirmed_of.bind(request_key=request_key))]
        if any(whose != uid for whose in [*([waiter.uid] if waiter else []), *(row.uid for row in rows)]):
            raise Denied("this request is somebody else's")
        if waiter is not None:
            waiting_requests.leave(t, waiter)
        for row in rows:
            t.write(_delete_post_back.bind(launcher=row.launcher))
        ended = [row.launcher for row in rows if t.row(_is_pending.bind(launcher=row.launcher)) is not None]
        for launcher in ended:
            end_inside(t, launcher, "its request was cancelled")
        return (waiter.size if waiter is not None else 0), ended

    return store.run(work)


def count_failure(store: Store, request_key: str, sequence: int) -> None:
    """Its place did not take a grant."""
    store.change_alone(_count_failure.bind(request_key=request_key, sequence=sequence))


def unconfirmed_at(store: Store, cpa: str) -> list[Unconfirmed]:
    """What was granted to requests that a CPA holds, and is not confirmed."""
    return [Unconfirmed._make(row) for row in store.read(_unconfirmed_at.bind(cpa=cpa))]


def post_again(store: Store, machine: Machine, row: Unconfirmed) -> Allocation | None:
    """The grant once more, under a new cookie; None when it ran out, and then it is forgotten."""
    machine.refresh(store)

    def work(t: Transaction) -> Allocation | None:
        machine.refresh_inside(t)
        try:
            return grant_again(t, machine, row.uid, row.launcher)
        except Expired:
            t.write(_delete_post_back.bind(launcher=row.launcher))
            return None

    return store.run(work)
