"""Requests that may wait for processors: strictly first in, first out, in each place where processors come free.

The pool of a side of the machine is one such place, every batch partition another. The head of a queue is served by
``allocation.allocate`` under its own request key, which takes it out of the queue in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from db.errors import Denied, Invalid
from db.machine.sides import DRAINED_FOR_SIDES
from db.store.store import Row, Statement, Store, Transaction

#: What runs a SELECT: a transaction's, or a store's outside every lock.
Read = Callable[[str, Sequence[Any]], list[Row]]

#: Never stored: a viewer's account may not see them, so neither may a table.
SECRETS = ("cookie", "key")
LONGEST_WAIT_S = 30 * 86400.0

_SELECT = (
    "SELECT request_key, `partition`, uid, `user`, login_processor, pid, pid_started, size, request, created_at,"
    " deadline_at FROM waiting"
)
_LEAVING = "({}.reason = ?)"


class Wait(NamedTuple):
    """A request to be put into the queue; ``request`` is what was asked, for those who look."""

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


def enqueue(store: Store, wait: Wait) -> int:
    """Puts a request at the end of its queue; how many stand before it. One that is there keeps its place. Denied."""
    if not 0 < wait.wait_s <= LONGEST_WAIT_S:
        raise Invalid(f"a request cannot wait for {wait.wait_s:g} s", f"at most {LONGEST_WAIT_S:g} s")

    def work(t: Transaction) -> int:
        row = t.row("SELECT id, uid FROM waiting WHERE request_key = ?", (wait.request_key,))
        if row is None:
            _insert(t, wait)
            row = t.row("SELECT id, uid FROM waiting WHERE request_key = ?", (wait.request_key,))
        assert row is not None
        if row[1] != wait.uid:
            raise Denied("this request key belongs to somebody else's request", "draw a new one")
        return in_front(t.rows, wait.login, wait.partition, row[0])

    return store.run(work)


def in_front(read: Read, login: str, partition: int | None = None, request: int | None = None) -> int:
    """How many requests wait before one from ``login``, of which ``request`` is the row if it waits as well.

    The pool has a line for every side of the machine. Without ``login``, those of all are counted.
    """
    same, params = _same(partition)
    where, near = f"w.`partition` {same}", ""
    if request is not None:
        where, params = f"{where} AND w.id < ?", (*params, request)
    if login:
        near = " JOIN node n ON n.id = w.login_processor JOIN node me ON me.side = n.side"
        where, params = f"{where} AND me.name = ? AND {_LEAVING.format('n')} = {_LEAVING.format('me')}", (
            *params, login, DRAINED_FOR_SIDES, DRAINED_FOR_SIDES
        )  # fmt: skip
    return int(read(f"SELECT COUNT(*) FROM waiting w{near} WHERE {where}", params)[0][0])


def line(store: Store) -> list[tuple[str, int | None, int]]:
    """Of every request that waits, first in first: its key and its place, the partition (None: the pool) and the side.

    A partition is on one side. Who logs in where the side is about to change waits in a line apart, of that side's
    negative number: nothing is given out there until then, and nobody is to wait behind that.
    """
    rows = store.read(
        f"SELECT w.request_key, w.`partition`, CASE WHEN {_LEAVING.format('n')} THEN -n.side ELSE n.side END"
        " FROM waiting w JOIN node n ON n.id = w.login_processor ORDER BY w.id",
        (DRAINED_FOR_SIDES,),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def _insert(t: Transaction, wait: Wait) -> None:
    node = t.row("SELECT id FROM node WHERE name = ?", (wait.login,))
    if node is None:
        raise Invalid(f"there is no node {wait.login[:80]!r} in this mesh")
    t.insert(
        "waiting",
        {
            "request_key": wait.request_key,
            "partition": wait.partition,
            "uid": wait.uid,
            "user": wait.user,
            "login_processor": node[0],
            "pid": wait.pid,
            "pid_started": wait.pid_started,
            "size": wait.size,
            "request": json.dumps({key: value for key, value in wait.request.items() if key not in SECRETS}),
            "created_at": t.now,
            "deadline_at": t.now + wait.wait_s,
        },
    )


def head(store: Store, partition: int | None = None) -> Waiter | None:
    """The request that is next, None when nobody waits."""
    same, params = _same(partition)
    rows = store.read(f"{_SELECT} WHERE `partition` {same} ORDER BY id LIMIT 1", params)
    return _waiter(rows[0]) if rows else None


def drop(store: Store, request_key: str) -> bool:
    """Takes a request out of the queue, because its client gave up; whether it was in."""
    if not store.read("SELECT id FROM waiting WHERE request_key = ?", (request_key,)):
        return False
    return store.run(lambda t: t.change("DELETE FROM waiting WHERE request_key = ?", (request_key,))) > 0


def processes_of(store: Store, login: str) -> list[tuple[int, int]]:
    """The processes of a login processor whose requests wait: pid and start time of each."""
    where = "login_processor = (SELECT id FROM node WHERE name = ?)"
    rows = store.read(f"SELECT DISTINCT pid, pid_started FROM waiting WHERE {where}", (login,))
    return [(int(pid), int(started)) for pid, started in rows]


def drop_process(store: Store, login: str, pid: int, pid_started: int) -> int:
    """Takes out what a vanished process asked for; how many requests that were."""
    where = "login_processor = (SELECT id FROM node WHERE name = ?) AND pid = ? AND pid_started = ?"
    params = (login, pid, pid_started)
    if not store.read(f"SELECT id FROM waiting WHERE {where}", params):
        return 0
    return store.run(lambda t: t.change(f"DELETE FROM waiting WHERE {where}", params))


#: Whether any request waits.
ANYBODY: Statement = ("SELECT id FROM waiting LIMIT 1", ())


def drop_late(store: Store) -> list[str]:
    """Takes out the requests that have waited long enough, and those of partitions that are gone; their keys."""
    late = (
        "deadline_at <= ? OR (`partition` IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM `partition` p WHERE p.id = waiting.`partition` AND p.ended_at IS NULL))"
    )

    def work(t: Transaction) -> list[str]:
        rows = t.rows(f"SELECT id, request_key FROM waiting WHERE {late}", (t.now,))
        for row in rows:
            t.change("DELETE FROM waiting WHERE id = ?", (row[0],))
        return [row[1] for row in rows]

    return store.run(work)


def _same(partition: int | None) -> tuple[str, tuple[Any, ...]]:
    return ("IS NULL", ()) if partition is None else ("= ?", (partition,))


def _waiter(row: Row) -> Waiter:
    return Waiter._make((*row[:8], json.loads(row[8]), *row[9:]))
