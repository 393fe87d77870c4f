"""Requests that wait for processors: first in, first out, in each place where processors become free.

Such a place is the pool of a side of the machine (with managers, each part of it), or a batch partition. In a part,
requests of a higher priority come first. ``allocation.allocate`` serves the head of a queue under its own request key,
and removes it from the queue in the same transaction.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from db.errors import Denied, Invalid
from db.machine.sides import DRAINED_FOR_SIDES
from db.schema.models import Node, Partition, Waiting
from db.store.orm import pw
from db.store.statements import INSTANT, STAMP, Bound, Query, same, statement
from db.store.store import Row, Store, Transaction

#: Runs a query, inside a transaction or, with a store, outside every lock.
Read = Callable[[Bound], list[Row]]

#: Never stored: viewers' accounts may read the table, and may not see these.
SECRETS = ("cookie", "key")
LONGEST_WAIT_S = 30 * 86400.0
LAST_ID = 2**63 - 1
AT_ONCE = 100  # requests read at a time if the first of a line may be passed


def _leaving(node: pw.ModelAlias[Node]) -> pw.Case:
    """True if a login processor is to change sides (db.allocation.free.Machine.leaving)."""
    return pw.Case(None, [(node.reason == DRAINED_FOR_SIDES, 1)], 0)


def _sooner(precedence: int, before: int) -> pw.Expression:
    """True for requests that are served before one with this precedence and the id ``before``."""
    return (Waiting.precedence < precedence) | ((Waiting.precedence == precedence) & (Waiting.id < before))


@statement
def _request(*, request_key: str) -> Query:
    return Waiting.select(Waiting.id, Waiting.uid).where(Waiting.request_key == request_key)


@statement
def _count(*, partition: int | None, before: int, precedence: int) -> Query:
    """The number of requests for a partition (None: the pool) that are served before one with id ``before``."""
    return Waiting.select(pw.fn.COUNT(Waiting.id)).where(
        same(Waiting.partition, partition), _sooner(precedence, before)
    )


@statement
def _count_near(*, login: str, partition: int | None, before: int, precedence: int) -> Query:
    """The same number, for login processors on the side of ``login`` that change sides as it does, or do not."""
    there, here = Node.alias("there"), Node.alias("here")
    return (
        Waiting.select(pw.fn.COUNT(Waiting.id))
        .join(there, on=there.id == Waiting.login_processor)
        .join(here, on=here.side == there.side)
        .where(
            same(Waiting.partition, partition),
            _sooner(precedence, before),
            here.name == login,
            _leaving(there) == _leaving(here),
        )
    )


@statement
def _near_in_part(*, login: str, before: int, part: str, precedence: int) -> Query:
    """The requests in front of one in the line of a manager's part."""
    there, here = Node.alias("there"), Node.alias("here")
    return (
        Waiting.select(*_COLUMNS)
        .join(there, on=there.id == Waiting.login_processor)
        .join(here, on=here.side == there.side)
        .where(
            Waiting.partition.is_null(),
            Waiting.part == part,
            _sooner(precedence, before),
            here.name == login,
            _leaving(there) == _leaving(here),
        )
        .order_by(Waiting.precedence, Waiting.id)
    )


@statement
def _line() -> Query:
    login = Node.alias("login")
    side = pw.Case(None, [(login.reason == DRAINED_FOR_SIDES, login.side * -1)], login.side)
    return (
        Waiting.select(Waiting.request_key, Waiting.partition, side)
        .join(login, on=login.id == Waiting.login_processor)
        .order_by(Waiting.id)
    )


@statement
def _node_id(*, name: str) -> Query:
    return Node.select(Node.id).where(Node.name == name)


@statement
def _insert_request(
    *,
    request_key: str,
    partition: int | None,
    uid: int,
    user: str,
    login_processor: int,
    pid: int,
    pid_started: int,
    size: int,
    request: str,
    deadline_at: float,
    partial: bool,
    place: str,
    cpa: str,
    time_s: float | None,
    manager: str,
    part: str,
    precedence: int,
) -> Query:
    return Waiting.insert(
        {
            Waiting.request_key: request_key,
            Waiting.partition: partition,
            Waiting.uid: uid,
            Waiting.user: user,
            Waiting.login_processor: login_processor,
            Waiting.pid: pid,
            Waiting.pid_started: pid_started,
            Waiting.size: size,
            Waiting.request: request,
            Waiting.created_at: INSTANT,
            Waiting.deadline_at: deadline_at,
            Waiting.changed: STAMP,
            Waiting.partial: partial,
            Waiting.place: place,
            Waiting.cpa: cpa,
            Waiting.sequence: 0,
            Waiting.time_s: time_s,
            Waiting.manager: manager,
            Waiting.part: part,
            Waiting.precedence: precedence,
        }
    )


_COLUMNS = (
    Waiting.request_key,
    Waiting.partition,
    Waiting.uid,
    Waiting.user,
    Waiting.login_processor,
    Waiting.pid,
    Waiting.pid_started,
    Waiting.size,
    Waiting.request,
    Waiting.created_at,
    Waiting.deadline_at,
    Waiting.partial,
    Waiting.place,
    Waiting.cpa,
    Waiting.sequence,
    Waiting.time_s,
    Waiting.manager,
    Waiting.part,
    Waiting.precedence,
    Waiting.id,
)


@statement
def _first_of(*, partition: int | None, login_processor: int, part: str, most: int) -> Query:
    """The first requests of a line. It uses the index of the line, so the length of the line does not matter."""
    return (
        Waiting.select(*_COLUMNS)
        .where(same(Waiting.partition, partition), Waiting.login_processor == login_processor, Waiting.part == part)
        .order_by(Waiting.precedence, Waiting.id)
        .limit(most)
    )


@statement
def _next_of(
    *, partition: int | None, login_processor: int, part: str, precedence: int, after: int, most: int
) -> Query:
    """The requests behind one in the same line."""
    later = (Waiting.precedence > precedence) | ((Waiting.precedence == precedence) & (Waiting.id > after))
    return (
        Waiting.select(*_COLUMNS)
        .where(
            same(Waiting.partition, partition),
            Waiting.login_processor == login_processor,
            Waiting.part == part,
            later,
        )
        .order_by(Waiting.precedence, Waiting.id)
        .limit(most)
    )


@statement
def _times_of(*, login_processor: int, part: str, most: int) -> Query:
    return (
        Waiting.select(Waiting.time_s)
        .where(Waiting.partition.is_null(), Waiting.login_processor == login_processor, Waiting.part == part)
        .order_by(Waiting.precedence, Waiting.id)
        .limit(most)
    )


@statement
def _all_of_pool() -> Query:
    return Waiting.select(*_COLUMNS).where(Waiting.partition.is_null())


@statement
def _classify(*, request: int, manager: str, part: str, precedence: int) -> Query:
    return Waiting.update(
        {
            Waiting.manager: manager,
            Waiting.part: part,
            Waiting.precedence: precedence,
            Waiting.changed: STAMP,
        }
    ).where(Waiting.id == request)


@statement
def _next_partition(*, after: int) -> Query:
    return Waiting.select(pw.fn.MIN(Waiting.partition)).where(Waiting.partition > after)


@statement
def _of_key(*, request_key: str) -> Query:
    return Waiting.select(*_COLUMNS).where(Waiting.request_key == request_key)


@statement
def _hold(*, request: int, cpa: str, place: str) -> Query:
    return Waiting.update({Waiting.cpa: cpa, Waiting.place: place, Waiting.changed: STAMP}).where(Waiting.id == request)


@statement
def _give_part(*, request: int, given: int) -> Query:
    return Waiting.update(
        {
            Waiting.size: Waiting.size - given,
            Waiting.sequence: Waiting.sequence + 1,
            Waiting.changed: STAMP,
        }
    ).where(Waiting.id == request)


@statement
def next_deadline() -> Query:
    """The earliest deadline of a waiting request."""
    return Waiting.select(pw.fn.MIN(Waiting.deadline_at))


@statement
def _delete_request(*, request_key: str) -> Query:
    return Waiting.delete().where(Waiting.request_key == request_key)


@statement
def _delete(*, request: int) -> Query:
    return Waiting.delete().where(Waiting.id == request)


def _of_login(login: str) -> pw.Expression:
    return Waiting.login_processor == Node.select(Node.id).where(Node.name == login)


@statement
def _processes_of(*, login: str) -> Query:
    return Waiting.select(Waiting.pid, Waiting.pid_started).where(_of_login(login)).distinct()


@statement
def _of_process(*, login: str, pid: int, pid_started: int) -> Query:
    return Waiting.select(Waiting.id).where(_of_login(login), Waiting.pid == pid, Waiting.pid_started == pid_started)


@statement
def _delete_of_process(*, login: str, pid: int, pid_started: int) -> Query:
    return Waiting.delete().where(_of_login(login), Waiting.pid == pid, Waiting.pid_started == pid_started)


@statement
def _waits_before(*, uid: int, before: int) -> Query:
    return (
        Waiting.select(Waiting.id).where(Waiting.partition.is_null(), Waiting.uid == uid, Waiting.id < before).limit(1)
    )


@statement
def _users_of(*, login_processor: int, part: str) -> Query:
    """The users who have requests in a line of the pool."""
    return (
        Waiting.select(Waiting.user)
        .where(Waiting.partition.is_null(), Waiting.login_processor == login_processor, Waiting.part == part)
        .distinct()
    )


@statement
def _of_user(*, login_processor: int, part: str, user: str, most: int) -> Query:
    """The first requests of a user in a line of the pool."""
    return (
        Waiting.select(*_COLUMNS)
        .where(
            Waiting.partition.is_null(),
            Waiting.login_processor == login_processor,
            Waiting.part == part,
            Waiting.user == user,
        )
        .order_by(Waiting.precedence, Waiting.id)
        .limit(most)
    )


@statement
def _count_of(*, uid: int) -> Query:
    return Waiting.select(pw.fn.COUNT(Waiting.id)).where(Waiting.uid == uid)


@statement
def any_request() -> Query:
    """True if any request waits."""
    return Waiting.select(Waiting.id).limit(1)


@statement
def _late() -> Query:
    """Requests past their deadline, and those for destroyed partitions."""
    live = Partition.select(Partition.id).where(Partition.id == Waiting.partition, Partition.ended_at.is_null())
    gone = Waiting.partition.is_null(False) & ~pw.fn.EXISTS(live)
    return Waiting.select(*_COLUMNS).where((Waiting.deadline_at <= INSTANT) | gone)


class PlaceInLine(NamedTuple):
    """The owner of a request and its line; lower precedence comes first (db/allocation/managers.py)."""

    manager: str = ""
    part: str = ""
    precedence: int = 0


class Wait(NamedTuple):
    """A request to put into the queue; ``request`` is its text for people."""

    request_key: str
    partition: int | None
    uid: int
    user: str
    login: str
    pid: int
    pid_started: int
    size: int
    request: Mapping[str, Any]
    wait_s: float
    partial: bool = False  # processors as they become free, instead of all at once
    place: str = ""  # the address for post-backs; empty: in the reply to an ``allocate``
    cpa: str = ""  # the CPA that holds the connection
    time_s: float | None = None  # the time limit in seconds
    place_in_line: PlaceInLine | None = None  # None: this mesh has no managers


class Waiter(NamedTuple):
    """A request in the queue."""

    request_key: str
    partition: int | None
    uid: int
    user: str
    login_processor: int
    pid: int
    pid_started: int
    size: int
    request: dict[str, Any]
    created_at: float
    deadline_at: float
    partial: bool
    place: str
    cpa: str
    sequence: int
    time_s: float | None
    manager: str
    part: str
    precedence: int
    id: int

    @property
    def grows(self) -> bool:
        """True if it is for further processors of a job that has some."""
        return bool(self.request.get("grows"))


def enqueue(store: Store, wait: Wait) -> int:
    """Put a request at the end of its queue; returns how many are in front. A queued request keeps its place. Raises
    Denied."""
    check_wait(wait.wait_s)

    def work(t: Transaction) -> int:
        row = put(t, wait)
        return in_front(t.rows, wait.login, wait.partition, row, wait.place_in_line)

    return store.run(work)


def check_wait(wait_s: float) -> None:
    """Raise Invalid if a request may not wait that long."""
    if not 0 < wait_s <= LONGEST_WAIT_S:
        raise Invalid(f"a request cannot wait for {wait_s:g} s", f"at most {LONGEST_WAIT_S:g} s")


def put(t: Transaction, wait: Wait) -> int:
    """The row of a request in its line: at the end, or where it already was, now held by this CPA. Raises Denied."""
    row = t.row(_request.bind(request_key=wait.request_key))
    if row is None:
        _insert(t, wait)
        row = t.row(_request.bind(request_key=wait.request_key))
        assert row is not None
    elif row[1] != wait.uid:
        raise Denied("this request key belongs to a request of another user", "use a new random key")
    else:
        t.write(_hold.bind(request=row[0], cpa=wait.cpa, place=wait.place))
    t.moved_line, t.queued_for = True, wait.user
    return int(row[0])


def leave(t: Transaction, waiter: Waiter) -> None:
    """Remove a request from its line."""
    t.write(_delete.bind(request=waiter.id))
    t.moved_line = True


def give(t: Transaction, waiter: Waiter, given: int) -> None:
    """Record that a request got ``given`` more processors. It leaves the line with the last of them."""
    if given >= waiter.size:
        t.write(_delete.bind(request=waiter.id))
    else:
        t.write(_give_part.bind(request=waiter.id, given=given))


def first_in(
    t: Transaction,
    partition: int | None,
    logins: Sequence[int],
    most: int = 1,
    part: str = "",
    passed: Container[tuple[int, str]] = (),
) -> list[Waiter]:
    """The first requests from these login processors for a partition, or a part of the pool.

    ``passed``: users (uid and manager) whose requests are left out.
    """
    if passed:
        lines = [_in_order(t, partition, login, part) for login in logins]
        found: list[Waiter] = []
        for waiter in heapq.merge(*lines, key=_order):
            if (waiter.uid, waiter.manager) not in passed:
                found.append(waiter)
                if len(found) == most:
                    break
        return found
    rows = t.rows_of(
        [_first_of.bind(partition=partition, login_processor=login, part=part, most=most) for login in logins]
    )
    return [_waiter(row) for row in sorted(rows, key=lambda row: (row[-2], row[-1]))[:most]]


def first_of_users(t: Transaction, logins: Sequence[int], part: str, users: set[str], most: int) -> list[Waiter]:
    """The first requests of each of these users in a line of the pool, in the order of the line.

    A question about one user may read the whole line, so users without requests are left out by one question for all.
    """
    if len(users) > 1:
        there = t.rows_of([_users_of.bind(login_processor=login, part=part) for login in logins])
        users = users & {row[0] for row in there}
    questions = [
        _of_user.bind(login_processor=login, part=part, user=user, most=most) for login in logins for user in users
    ]
    return sorted((_waiter(row) for row in t.rows_of(questions)), key=_order)


def waits_before(read: Read, uid: int, request: int | None) -> bool:
    """True if a user has a request for the pool in front of this one (None: at all)."""
    return bool(read(_waits_before.bind(uid=uid, before=LAST_ID if request is None else request)))


def _order(waiter: Waiter) -> tuple[int, int]:
    return waiter.precedence, waiter.id


def _in_order(t: Transaction, partition: int | None, login: int, part: str) -> Iterator[Waiter]:
    """The whole line of a login processor, read as far as the caller iterates."""
    which = {"partition": partition, "login_processor": login, "part": part, "most": AT_ONCE}
    rows = t.rows(_first_of.bind(**which))  # type: ignore[arg-type]
    while rows:
        yield from map(_waiter, rows)
        if len(rows) < AT_ONCE:
            return
        rows = t.rows(_next_of.bind(**which, precedence=rows[-1][-2], after=rows[-1][-1]))  # type: ignore[arg-type]


def says_how_long(t: Transaction, logins: Sequence[int], most: int, part: str = "") -> bool:
    """True if any of the first requests for a part of the pool has a time limit."""
    rows = t.rows_of([_times_of.bind(login_processor=login, part=part, most=most) for login in logins])
    return any(row[0] is not None for row in rows)


def classify(store: Store, place_of: Callable[[Waiter], PlaceInLine]) -> int:
    """Move requests of the pool to the lines of the present managers; returns how many moved."""

    def moves(read: Read) -> list[tuple[int, PlaceInLine]]:
        waiters = map(_waiter, read(_all_of_pool.bind()))
        there = [(one.id, PlaceInLine(one.manager, one.part, one.precedence), place_of(one)) for one in waiters]
        return [(request, place) for request, before, place in there if place != before]

    if not moves(store.read):
        return 0

    def work(t: Transaction) -> int:
        these = moves(t.rows)
        for request, place in these:
            t.write(_classify.bind(request=request, **place._asdict()))
        t.moved_line = bool(these)
        return len(these)

    return store.run(work)


def partitions_waited_for(t: Transaction) -> list[int]:
    """The batch partitions for which requests wait."""
    found: list[int] = []
    while True:
        row = t.row(_next_partition.bind(after=found[-1] if found else 0))
        if row is None or row[0] is None:
            return found
        found.append(int(row[0]))


def of_key(read: Read, request_key: str) -> Waiter | None:
    """The request that waits under this key."""
    rows = read(_of_key.bind(request_key=request_key))
    return _waiter(rows[0]) if rows else None


def in_front(
    read: Read,
    login: str,
    partition: int | None = None,
    request: int | None = None,
    place: PlaceInLine | None = None,
) -> int:
    """How many requests wait in front of one from ``login``; ``request`` is its row if it waits too.

    The pool has a line for every side of the machine and every part of it (``place``; None: all are counted). Without
    ``login``, the requests of all sides are counted.
    """
    before = LAST_ID if request is None else request
    if login and partition is None and place is not None:
        return len(those_in_front(read, login, before, place))
    precedence = place.precedence if place is not None else 0
    if login:
        question = _count_near.bind(login=login, partition=partition, before=before, precedence=precedence)
    else:
        question = _count.bind(partition=partition, before=before, precedence=precedence)
    return int(read(question)[0][0])


def those_in_front(read: Read, login: str, before: int, place: PlaceInLine) -> list[Waiter]:
    """The requests in front of one in the line of a part of the pool, in order."""
    question = _near_in_part.bind(login=login, before=before, part=place.part, precedence=place.precedence)
    return [_waiter(row) for row in read(question)]


def count_of(store: Store, uid: int) -> int:
    """How many requests of a user wait."""
    return int(store.read(_count_of.bind(uid=uid))[0][0])


def line(store: Store) -> list[tuple[str, int | None, int]]:
    """For every waiting request in order: its key and its place, which is the partition (None: the pool) and the
    side.

    A partition is on one side. Requests from a side that is about to change wait in a separate line with the negative
    number of that side: nothing is allocated there until the change, and no other request waits behind them.
    """
    rows = store.read(_line.bind())
    return [(row[0], row[1], row[2]) for row in rows]


def _insert(t: Transaction, wait: Wait) -> None:
    node = t.row(_node_id.bind(name=wait.login))
    if node is None:
        raise Invalid(f"there is no node {wait.login[:80]!r} in this mesh")
    asked = {key: value for key, value in wait.request.items() if key not in SECRETS}
    t.write(
        _insert_request.bind(
            request_key=wait.request_key,
            partition=wait.partition,
            uid=wait.uid,
            user=wait.user,
            login_processor=node[0],
            pid=wait.pid,
            pid_started=wait.pid_started,
            size=wait.size,
            request=json.dumps(asked),
            deadline_at=t.now + wait.wait_s,
            partial=wait.partial,
            place=wait.place,
            cpa=wait.cpa,
            time_s=wait.time_s,
            **(wait.place_in_line or PlaceInLine())._asdict(),
        )
    )


def drop(store: Store, request_key: str, cpa: str | None = None) -> bool:
    """Remove the request of a client that gave up; returns whether it was queued.

    ``cpa``: only if that CPA still holds its connection.
    """
    there = of_key(store.read, request_key)
    if there is None or cpa not in (None, there.cpa):
        return False

    def work(t: Transaction) -> int:
        t.moved_line = True
        return t.change(_delete_request.bind(request_key=request_key))

    return store.run(work) > 0


def processes_of(store: Store, login: str) -> list[tuple[int, int]]:
    """The processes on a login processor whose requests wait: pid and start time of each."""
    rows = store.read(_processes_of.bind(login=login))
    return [(int(pid), int(started)) for pid, started in rows]


def drop_process(store: Store, login: str, pid: int, pid_started: int) -> int:
    """Remove the requests of a process that has exited; returns how many."""
    if not store.read(_of_process.bind(login=login, pid=pid, pid_started=pid_started)):
        return 0

    def work(t: Transaction) -> int:
        t.moved_line = True
        return t.change(_delete_of_process.bind(login=login, pid=pid, pid_started=pid_started))

    return store.run(work)


def drop_late(store: Store) -> list[Waiter]:
    """Remove requests past their deadline, and those of destroyed partitions."""

    def work(t: Transaction) -> list[Waiter]:
        rows = t.rows(_late.bind())
        t.moved_line = bool(rows)
        for row in rows:
            t.change(_delete.bind(request=row[-1]))
        return [_waiter(row) for row in rows]

    return store.run(work)


def _waiter(row: Row) -> Waiter:
    return Waiter._make((*row[:8], json.loads(row[8]), *row[9:11], bool(row[11]), *row[12:]))
