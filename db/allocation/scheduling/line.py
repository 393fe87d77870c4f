"""Lines of waiting requests. The transaction that frees processors also serves the heads of the lines.

Each line is first come, first served: one for each part of the pool on a side of the machine, and one for each
batch partition. Higher priorities come first. Requests with a time limit may pass others (backfill.py), and every
request may pass those whose users have reached a limit (db.allocation.limits). A request that processors reserved for
its user suffice for passes requests of other users, who cannot be given those. Requests for further processors of
running jobs come last; of those, the one whose user has the fewest processors is next (giving_back.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from db import cookies
from db.allocation import limits, waiting_requests
from db.allocation.allocate import candidates, decide, grant_again, take
from db.allocation.finish import end_inside
from db.allocation.free import Machine
from db.allocation.scheduling import backfill, giving_back
from db.allocation.types import Allocation, Choose, Demand
from db.allocation.waiting_requests import Wait, Waiter
from db.errors import Denied, Expired, NotEnough, StoreError
from db.schema.models import Launcher, Partition, PostBack, Waiting
from db.store.orm import pw
from db.store.ranges import unfold
from db.store.statements import Query, statement
from db.store.store import Store, Transaction

#: Converts a row of the line into its demand and its choice of processors. Raises StoreError for a bad row.
Understand = Callable[[Waiter], tuple[Demand, Choose]]
DEPTH = 100  # how many requests of a line are considered for backfill


class Grant(NamedTuple):
    """What a request got, or why it gets no more. ``given``: how many it got now; ``missing``: how many it still
    waits for."""

    waiter: Waiter
    sequence: int
    given: int
    missing: int
    allocation: Allocation | None
    demand: Demand | None = None
    error: StoreError | None = None


TOO_LATE = Expired("its time to wait (--wait-for-nodes) is over", "ask again")


def ended(waiter: Waiter, error: StoreError = TOO_LATE) -> Grant:
    """A Grant that says that a request gets no more."""
    return Grant(waiter, waiter.sequence + 1, 0, waiter.size, None, None, error)


class Unconfirmed(NamedTuple):
    """A grant that its requester has not confirmed yet: a row of ``post_back``."""

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
def _any_post_back() -> Query:
    return PostBack.select(PostBack.id).limit(1)


@statement
def _delete_ended() -> Query:
    return PostBack.delete().where(
        PostBack.launcher.in_(Launcher.select(Launcher.id).where(Launcher.ended_at.is_null(False)))
    )


@statement
def _waiting_outside(*, cpa: str, connection: str) -> Query:
    return Waiting.select(Waiting.request_key).where(
        Waiting.cpa == cpa, Waiting.place != "", Waiting.place != connection
    )


@statement
def _grants_outside(*, cpa: str, connection: str) -> Query:
    return PostBack.select(PostBack.request_key).where(PostBack.cpa == cpa, PostBack.place != connection)


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
    """The expected ends of launchers outside batch partitions that have a time limit, with their processors.

    For a launcher that has not started, the end of its time limit after its latest possible start.
    """
    began = pw.fn.COALESCE(Launcher.started_at, Launcher.pending_until)
    return (
        Launcher.select(began + Launcher.time_s, Launcher.processors)
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.ended_at.is_null(), Partition.batch_job.is_null(), Launcher.time_s.is_null(False))
    )


class Line:
    """Serves the heads of all lines inside transactions, for a ``Store`` (``Serving``).

    ``grants`` and ``stuck`` (requests that are first and must go on waiting) collect results until ``taken`` takes
    them; ``on_served`` is called after each transaction with results.
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
        """Take the grants, and the heads that could not be served, since the last call."""
        found = self._grants, self._stuck
        self._grants, self._stuck = [], []
        return found

    # --- called by the Store

    def serve(self, t: Transaction) -> None:
        """Allocate free processors to the heads of all lines."""
        self._new = [], []
        if t.row(waiting_requests.any_request.bind()) is None:
            return
        self._machine.see_inside(t)
        sides: dict[tuple[int, bool], list[int]] = {}
        for login, side, leaving in self._machine.logins(service=True):
            sides.setdefault((side, leaving), []).append(login)
        policy = self._machine.policy
        parts, limited = (policy.parts, policy.limited) if policy is not None else (("",), False)
        while True:
            before = len(self._new[0])
            self._new[1].clear()
            for logins in sides.values():
                for part in parts:
                    self._serve_line(t, None, logins, part)
            # What a user gets in one line may reach a limit of theirs in another, where others then pass.
            if not limited or len(self._new[0]) == before:
                break
        if t.freed or t.moved_line:
            every = [login for logins in sides.values() for login in logins]
            for partition in waiting_requests.partitions_waited_for(t):
                self._serve_line(t, partition, every)
        if not t.changed:
            self._machine.counter = t.counter  # no transaction will have that number

    def committed(self) -> None:
        """The transaction of the grants was committed."""
        grants, stuck = self._new
        self._new = [], []
        self._grants += grants
        self._stuck += stuck
        if grants or stuck:
            self.on_served()

    def undone(self) -> None:
        """The transaction was rolled back, or the answer to the COMMIT was lost (``find_lost``)."""
        grants, _stuck = self._new
        self._new = [], []
        self._machine.forget()
        if grants:
            self._uncertain += grants
            self.on_undone()

    def find_lost(self, store: Store) -> None:
        """Find grants of transactions whose COMMIT was not answered. Raises DatabaseUnavailable."""
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

    # --- inside a transaction

    def _serve_line(self, t: Transaction, partition: int | None, logins: Sequence[int], part: str = "") -> None:
        full: set[tuple[int, str]] = set()  # users (uid and manager) who have reached a limit
        while True:
            heads = waiting_requests.first_in(t, partition, logins, part=part, passed=full)
            if not heads:
                return
            if heads[0].grows:
                heads = waiting_requests.first_in(t, partition, logins, DEPTH, part, full)
                heads = [giving_back.next_to_grow(t.rows, heads)]
            try:
                if not self._serve_one(t, heads[0]):
                    break
            except limits.AtLimit:
                full.add((heads[0].uid, heads[0].manager))
        self._new[1].append(heads[0])
        if partition is None:
            self._serve_from_reserved(t, logins, part, heads[0], full)
        may_pass = self._passing and partition is None and self._machine.sides() == 1
        if may_pass and waiting_requests.says_how_long(t, logins, DEPTH, part):
            self._let_pass(t, waiting_requests.first_in(t, partition, logins, DEPTH, part, full), part)

    def _serve_from_reserved(
        self, t: Transaction, logins: Sequence[int], part: str, head: Waiter, full: Container[tuple[int, str]]
    ) -> None:
        """Serve requests behind ``head`` from processors that are reserved for their users.

        Requests of one user keep their order: behind one that these processors do not suffice for, none is served.
        """
        stay = {head.user}
        users = self._machine.with_free_reserved() - stay
        if t.queued_for and not t.freed:  # requests of others are where they were: a long line is not read for each
            users &= {t.queued_for}
        if not users:
            return
        for waiter in waiting_requests.first_of_users(t, logins, part, users, DEPTH):
            if waiter.user in stay or (waiter.uid, waiter.manager) in full:
                continue
            try:
                demand, choose = self._understand(waiter)
                given, ids = self._decide(t, waiter, demand._replace(own=True), choose)
            except StoreError:
                stay.add(waiter.user)
                continue
            self._give(t, waiter, demand, given, ids)
            if given < waiter.size:
                stay.add(waiter.user)

    def _serve_one(self, t: Transaction, waiter: Waiter) -> bool:
        """Serve a request; True if it leaves the line or got a part."""
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
        """How many of the missing processors the request can have now, and which. Raises NotEnough or AtLimit."""
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
                most //= 2  # processors of a task are on one node, so each node may have some that nobody can use
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

    # --- backfill

    def _let_pass(self, t: Transaction, waiters: Sequence[Waiter], part: str = "") -> None:
        """Start requests with a time limit that delay no earlier request."""
        asked: list[backfill.Asked] = []
        plain: list[tuple[Waiter, Demand, Choose]] = []
        for waiter in waiters:
            try:
                demand, choose = self._understand(waiter)
            except StoreError:
                break  # this request will be served when its turn comes
            if demand.shape is not None or demand.wanted is not None or demand.exclude or demand.resources:
                break  # this request needs certain processors, so numbers do not tell when it can start
            asked.append(backfill.Asked(demand.size, waiter.time_s, waiter.partial))
            plain.append((waiter, demand, choose))
        if len(plain) < 2:
            return
        free = {len(candidates(self._machine, demand)) for _, demand, _ in plain}
        if len(free) > 1:
            return  # processors are reserved, so they are not equal for these users
        user = plain[0][1].user

        def may_have(one: int) -> bool:
            return self._machine.may_have(one, user) and self._machine.is_in_part(one, part)

        ends = [
            backfill.End(until, sum(map(may_have, unfold(processors)))) for until, processors in t.rows(_ends.bind())
        ]
        horizon = max([t.now, *(end.at or 0.0 for end in ends)]) + sum(one.time_s or 0.0 for one in asked)
        if (drain_at := self._machine.next_drain()) is not None and drain_at < horizon:
            return  # nodes will be drained meanwhile, so numbers do not tell when a request can start
        for place in backfill.may_start(t.now, free.pop(), ends, asked):
            waiter, demand, choose = plain[place]
            try:
                ids = decide(self._machine, demand, choose)
                limits.check(t.rows, self._machine, demand, len(ids))
            except NotEnough:
                continue
            self._give(t, waiter, demand, waiter.size, ids)


# Calls of requesters


def ask(store: Store, wait: Wait) -> tuple[Waiter | None, int, list[Unconfirmed]]:
    """Put a request into its line; it is served at once if it is first (by ``Store.serving``).

    Returns its row if it waits, how many requests are in front, and its earlier grants that are unconfirmed. A request
    whose processors were all granted before does not wait again. Raises Denied or Invalid.
    """
    waiting_requests.check_wait(wait.wait_s)

    def work(t: Transaction) -> tuple[Waiter | None, int, list[Unconfirmed]]:
        (whose,), (before,) = t.answers[0] or [(None,)], (waiting_requests.of_key(t.rows, wait.request_key),)
        if whose[0] not in (None, wait.uid) or (before is not None and before.uid != wait.uid):
            raise Denied("this request key belongs to a request of another user", "use a new random key")
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
    """Confirm that the requester has a grant. May be repeated."""
    return store.change_alone(_confirm.bind(request_key=request_key, sequence=sequence, uid=uid)) > 0


def cancel(store: Store, request_key: str, uid: int) -> tuple[int, list[int]]:
    """Cancel a request: returns how many processors were missing, and the unconfirmed grants that end. Raises
    Denied."""

    def work(t: Transaction) -> tuple[int, list[int]]:
        waiter = waiting_requests.of_key(t.rows, request_key)
        rows = [Unconfirmed._make(row) for row in t.rows(_unconfirmed_of.bind(request_key=request_key))]
        if any(whose != uid for whose in [*([waiter.uid] if waiter else []), *(row.uid for row in rows)]):
            raise Denied("this request belongs to another user")
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
    """Count a failed delivery of a grant."""
    store.change_alone(_count_failure.bind(request_key=request_key, sequence=sequence))


def give_up(store: Store, request_key: str, sequence: int, uid: int, reason: str) -> bool:
    """End a request whose grant could not be delivered: its processors return, and an event says why.

    Returns False if the requester has confirmed the grant meanwhile.
    """

    def work(t: Transaction) -> bool:
        rows = [Unconfirmed._make(row) for row in t.rows(_unconfirmed_of.bind(request_key=request_key))]
        mine = [row for row in rows if row.sequence == sequence and row.uid == uid]
        if not mine:
            return False
        waiter = waiting_requests.of_key(t.rows, request_key)
        if waiter is not None:
            waiting_requests.leave(t, waiter)
        launcher = mine[0].launcher
        t.write(_delete_post_back.bind(launcher=launcher))
        if t.row(_is_pending.bind(launcher=launcher)) is not None:
            end_inside(t, launcher, "it could not be posted back")
        t.event("post_back_failed", f"request {request_key}: {reason}", launcher=launcher)
        return True

    return store.run(work)


def collect(store: Store, machine: Machine, request_key: str, sequence: int, uid: int) -> Allocation:
    """Confirm a grant and return it with a new cookie. Raises Expired if there is none, or Denied."""
    machine.refresh(store)

    def work(t: Transaction) -> Allocation:
        machine.refresh_inside(t)
        rows = [Unconfirmed._make(row) for row in t.rows(_unconfirmed_of.bind(request_key=request_key))]
        mine = [row for row in rows if row.sequence == sequence]
        if not mine:
            raise Expired(f"request {request_key} has no grant {sequence} that waits", "ask again, under a new uuid")
        allocation = grant_again(t, machine, uid, mine[0].launcher)
        t.write(_confirm.bind(request_key=request_key, sequence=sequence, uid=uid))
        return allocation

    return store.run(work)


def forget_ended(store: Store) -> int:
    """Delete grants that nobody confirmed and whose launchers have ended; returns how many."""
    if not store.read(_any_post_back.bind()):
        return 0
    return store.change_alone(_delete_ended.bind())


def outside_at(store: Store, cpa: str, connection: str) -> list[str]:
    """The uuids of requests held by a CPA that wait, or have unconfirmed grants, and are not posted to a connection."""
    questions = [each.bind(cpa=cpa, connection=connection) for each in (_waiting_outside, _grants_outside)]
    rows = store.read_together(questions)
    return sorted({str(row[0]) for answer in rows for row in answer})


def unconfirmed_at(store: Store, cpa: str) -> list[Unconfirmed]:
    """The unconfirmed grants of requests that a CPA holds."""
    return [Unconfirmed._make(row) for row in store.read(_unconfirmed_at.bind(cpa=cpa))]


def post_again(store: Store, machine: Machine, row: Unconfirmed) -> Allocation | None:
    """Return the grant again with a new cookie. If it has expired, delete it and return None."""
    machine.refresh(store)

    def work(t: Transaction) -> Allocation | None:
        machine.refresh_inside(t)
        try:
            return grant_again(t, machine, row.uid, row.launcher)
        except Expired:
            t.write(_delete_post_back.bind(launcher=row.launcher))
            return None

    return store.run(work)
