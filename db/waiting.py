"""Requests that may wait for processors: strictly first in, first out, in each place where processors come free.

The pool is one such place, every batch partition another. The head of a queue is served by ``allocation.allocate``
under its own request key, which takes it out of the queue in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from db.connection import Row, Store, Transaction
from db.errors import Denied, Invalid

#: Never stored: a viewer's account may not see them, so neither may a table.
SECRETS = ("cookie", "key")
LONGEST_WAIT_S = 30 * 86400.0

_SELECT = (
    "SELECT request_key, `partition`, uid, `user`, login_processor, pid, pid_started, size, request, created_at,"
    " deadline_at FROM waiting"
)


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
        same, params = _same(wait.partition)
        return int(t.rows(f"SELECT COUNT(*) FROM waiting WHERE `partition` {same} AND id < ?", (*params, row[0]))[0][0])

    return store.run(work)


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


def heads(store: Store) -> list[Waiter]:
    """The next request of every queue: what the CPA's timer tries to serve."""
    rows = store.read(f"{_SELECT} WHERE id IN (SELECT MIN(id) FROM waiting GROUP BY `partition`) ORDER BY id")
    return [_waiter(row) for row in rows]


def drop(store: Store, request_key: str) -> bool:
    """Takes a request out of the queue, because its client gave up; whether it was in."""
    if not store.read("SELECT id FROM waiting WHERE request_key = ?", (request_key,)):
        return False
    return store.run(lambda t: t.change("DELETE FROM waiting WHERE request_key = ?", (request_key,))) > 0


def drop_process(store: Store, login: str, pid: int, pid_started: int) -> int:
    """Takes out what a vanished process asked for; how many requests that were."""
    where = "login_processor = (SELECT id FROM node WHERE name = ?) AND pid = ? AND pid_started = ?"
    params = (login, pid, pid_started)
    if not store.read(f"SELECT id FROM waiting WHERE {where}", params):
        return 0
    return store.run(lambda t: t.change(f"DELETE FROM waiting WHERE {where}", params))


def drop_late(store: Store) -> list[str]:
    """Takes out the requests that have waited long enough, and those of partitions that are gone; their keys."""
    late = (
        "deadline_at <= ? OR (`partition` IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM `partition` p WHERE p.id = waiting.`partition` AND p.ended_at IS NULL))"
    )
    if not store.read("SELECT id FROM waiting LIMIT 1"):
        return []

    def work(t: Transaction) -> list[str]:
        rows = t.rows(f"SELECT id, request_key FROM waiting WHERE {late}", (t.now,))
        for row in rows:
            t.change("DELETE FROM waiting WHERE id = ?", (row[0],))
        return [row[1] for row in rows]

    return store.run(work)


def _same(partition: int | None) -> tuple[str, tuple[int, ...]]:
    return ("IS NULL", ()) if partition is None else ("= ?", (partition,))


def _waiter(row: Row) -> Waiter:
    return Waiter._make((*row[:8], json.loads(row[8]), *row[9:]))
