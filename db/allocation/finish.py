"""What becomes of a launcher once it has its processors: started, finished, lost, expired.

One function, one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from db import cookies
from db.allocation.allocate import ABNORMAL_FROM, Ended, Live
from db.allocation.free import Machine
from db.errors import Denied, Expired, Invalid
from db.store.ranges import conditions, unfold
from db.store.store import Row, Statement, Store, Transaction

NEVER_STARTED = "nothing was started within the pending time"

_LIVE = "SELECT id, pid, pid_started, `partition`, uid, user, state, processors FROM launcher WHERE ended_at IS NULL"
_LATE = "state = 'pending' AND pending_until <="
_STARTING = "SELECT cookie, state, pending_until, reason, processors FROM launcher WHERE id = ?"
_ENDING = (
    "SELECT l.cookie, l.state, l.`partition`, l.processors, l.resources, p.batch_job"
    " FROM launcher l LEFT JOIN `partition` p ON p.id = l.`partition` WHERE l.id = ?"
)


def started(
    store: Store, launcher: int, cookie: str, ranks: Sequence[int], root: str = "", machine: Machine | None = None
) -> None:
    """Moves a reservation from pending to busy; may be repeated. ``machine`` is told.

    Expired when the pending time ran out, Denied (cookie), Invalid (``ranks`` are not its processors).
    """

    def work(t: Transaction) -> int:
        state, _until, processors = _check_reserved(t, launcher, cookie)
        if not set(ranks) <= set(unfold(processors)):
            raise Invalid(f"the ranks of launcher {launcher} are not on its processors")
        if state == "pending":
            t.write(
                "UPDATE launcher SET state = 'busy', started_at = ?, ranks = ?, changed = ?"
                + (", root = ?" if root else "")
                + " WHERE id = ? AND state = 'pending'",
                (t.now, json.dumps(list(ranks), separators=(",", ":")), t.stamp, *([root] if root else []), launcher),
            )
        return t.stamp if t.changed else 0

    stamp = store.run(work, [(_STARTING, (launcher,))])
    if machine is not None and stamp:
        machine.assigned((), None, None, stamp)


def loading(store: Store, launcher: int, cookie: str, seconds: float) -> None:
    """Keeps a reservation for ``seconds`` from now: its nodes have the load, and its launcher lives. May be repeated.

    Expired when it ran out before, Denied (cookie). Nothing changes once it has started.
    """

    def work(t: Transaction) -> None:
        state, _until, _processors = _check_reserved(t, launcher, cookie)
        if state == "pending":
            t.write(
                "UPDATE launcher SET pending_until = ?, changed = ?"
                " WHERE id = ? AND state = 'pending' AND pending_until < ?",
                (t.now + seconds, t.stamp, launcher, t.now + seconds),
            )

    store.run(work, [(_STARTING, (launcher,))])


def _check_reserved(t: Transaction, launcher: int, cookie: str) -> tuple[str, float, str]:
    """State, end of the pending time and processors of a reservation that has not run out. Expired, Denied."""
    if not t.answers[0]:
        raise Expired(f"there is no launcher {launcher}", "start again")
    row = t.answers[0][0]
    _check_cookie(launcher, cookie, row[0])
    state, until, reason, processors = row[1:5]
    if state == "ended" or (state == "pending" and until <= t.now):
        raise Expired(f"the reservation of launcher {launcher} is gone: {reason or NEVER_STARTED}", "start again")
    return state, until, processors


def finish(
    store: Store,
    launcher: int,
    cookie: str,
    exit_status: int,
    processor_error: bool = False,
    reason: str = "",
    machine: Machine | None = None,
) -> Ended:
    """A launcher ends by itself: its processors are free, its interactive partition is destroyed. May be repeated.

    ``machine`` is told, so that it need not read what is free now.

    An abnormal end (a node was lost, or yod's status is one of its own failures or a signal's) sets the error of its
    batch job. Denied (cookie), Expired (nothing is known of it).
    """
    abnormal = processor_error or exit_status >= ABNORMAL_FROM
    stamp = 0

    def work(t: Transaction) -> Ended:
        nonlocal stamp
        if not t.answers[0]:
            raise Expired(f"there is no launcher {launcher}", "it ended long ago, or in another boot")
        row = t.answers[0][0]
        _check_cookie(launcher, cookie, row[0])
        stamp = t.stamp
        return _end(t, launcher, row, exit_status, abnormal, reason)

    ended = store.run(work, [(_ENDING, (launcher,))])
    if machine is not None and ended.news and not ended.resources:
        machine.assigned(ended.processors, None if ended.partition_too else ended.partition, None, stamp)
    return ended


def moved(store: Store, launcher: int, cookie: str, pid: int, pid_started: int) -> None:
    """Another process goes on as this launcher. Denied (cookie), Expired."""

    def work(t: Transaction) -> None:
        row = t.row("SELECT cookie FROM launcher WHERE id = ? AND ended_at IS NULL", (launcher,))
        if row is None:
            raise Expired(f"launcher {launcher} has ended", "start again")
        _check_cookie(launcher, cookie, row[0])
        t.write(
            "UPDATE launcher SET pid = ?, pid_started = ?, changed = ? WHERE id = ?",
            (pid, pid_started, t.stamp, launcher),
        )

    store.run(work)


def lose(store: Store, launcher: int, reason: str) -> Ended | None:
    """A launcher is gone and cleaned up after: as ``finish``, abnormally. None when nothing is known of it."""

    def work(t: Transaction) -> Ended | None:
        row = t.row(_ENDING, (launcher,))
        return None if row is None else _lost(t, launcher, row, reason)

    return store.run(work)


def any_expired(store: Store) -> Statement:
    """Whether a launcher was not started in time."""
    return f"SELECT id FROM launcher WHERE ended_at IS NULL AND {_LATE} {store.now_sql} LIMIT 1", ()


def expire_pending(store: Store) -> list[Ended]:
    """Ends the launchers that were not started in time."""

    def work(t: Transaction) -> list[Ended]:
        ended = []
        for late_row in t.rows(f"{_LIVE} AND {_LATE} ?", (t.now,)):
            row = t.row(_ENDING, (late_row[0],))
            if row is not None:
                ended.append(_lost(t, late_row[0], row, NEVER_STARTED))
        return ended

    return store.run(work)


def launchers_of(store: Store, login: str) -> list[Live]:
    """The live launchers of a login processor."""
    rows = store.read(f"{_LIVE} AND login_processor = (SELECT id FROM node WHERE name = ?) ORDER BY id", (login,))
    return [Live.from_row(row) for row in rows]


def launchers_of_process(store: Store, login: str, pid: int, pid_started: int) -> list[Live]:
    """The live launchers of one process (one, unless something is very wrong)."""
    return [live for live in launchers_of(store, login) if (live.pid, live.pid_started) == (pid, pid_started)]


def launchers_in(store: Store, partition: int) -> list[Live]:
    """The live launchers in a partition, for whoever must clean up after them before it is destroyed by force."""
    return [Live.from_row(row) for row in store.read(f"{_LIVE} AND `partition` = ? ORDER BY id", (partition,))]


def find_live(store: Store, launcher: int) -> Live | None:
    """A launcher that has not ended; None for any other."""
    rows = store.read(f"{_LIVE} AND id = ?", (launcher,))
    return Live.from_row(rows[0]) if rows else None


def login_of(store: Store, launcher: int) -> str:
    """The login processor that a launcher is on; empty when the mesh has none such any more."""
    rows = store.read(
        "SELECT n.name FROM launcher l JOIN node n ON n.id = l.login_processor WHERE l.id = ?", (launcher,)
    )
    return str(rows[0][0]) if rows else ""


def live_partitions(store: Store) -> int:
    """How many partitions there are; 0 in an idle mesh."""
    return int(store.read("SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL")[0][0])


def end_inside(t: Transaction, launcher: int, reason: str) -> None:
    """Ends a launcher abnormally in a transaction that does more than that."""
    row = t.row(_ENDING, (launcher,))
    if row is not None:
        _lost(t, launcher, row, reason)


def check_live(store: Store, launcher: int, cookie: str) -> Live:
    """The launcher, when the cookie is its own. Expired, Denied."""
    rows = store.read("SELECT cookie FROM launcher WHERE id = ? AND ended_at IS NULL", (launcher,))
    live = find_live(store, launcher)
    if not rows or live is None:
        raise Expired(f"launcher {launcher} has ended", "start again")
    _check_cookie(launcher, cookie, rows[0][0])
    return live


def _check_cookie(launcher: int, cookie: str, stored: str) -> None:
    if not cookies.fits(cookie, stored):
        raise Denied(f"the cookie of launcher {launcher} is another", "only the launcher itself may say this")


def _lost(t: Transaction, launcher: int, row: Row, reason: str) -> Ended:
    ended = _end(t, launcher, row, None, True, reason)
    if ended.news:
        t.event("launcher_lost", f"launcher {launcher}: {reason}", launcher=launcher, partition=ended.partition)
    return ended


def _end(t: Transaction, launcher: int, row: Row, exit_status: int | None, abnormal: bool, reason: str) -> Ended:
    """The one place where a launcher ends and its processors become free."""
    _, state, partition, processors, resources, batch_job = row
    ids = unfold(processors)
    if state == "ended":
        return Ended(launcher, partition, ids, False)
    interactive = batch_job is None
    t.write_these(
        ids,
        f"UPDATE processor SET launcher = NULL, {'`partition` = NULL, ' if interactive else ''}changed = ?",
        (t.stamp, launcher),
        "launcher = ?",
    )
    t.write(
        "UPDATE launcher SET state = 'ended', ended_at = ?, exit_status = ?, abnormal = ?,"
        " reason = CASE WHEN ? = '' THEN reason ELSE ? END, changed = ? WHERE id = ?",
        (t.now, exit_status, bool(abnormal), reason, reason, t.stamp, launcher),
    )
    if interactive:
        t.write("UPDATE `partition` SET ended_at = ?, changed = ? WHERE id = ?", (t.now, t.stamp, partition))
    elif abnormal:
        t.write("UPDATE `partition` SET batch_job_error = 1, changed = ? WHERE id = ?", (t.stamp, partition))
    held = json.loads(resources)
    _give_back(t, held)
    return Ended(launcher, partition, ids, True, interactive, bool(held))


def _give_back(t: Transaction, resources: dict[str, dict[str, Any]]) -> None:
    for node, amounts in resources.items():
        for name, devices in amounts.items():
            t.write(
                "UPDATE node_resource SET in_use = in_use - ?, changed = ? WHERE node = ? AND name = ?",
                (len(devices), t.stamp, int(node), name),
            )


# What a launch credential is made of: who was granted what, and which life of each node it was granted on.


class Grant(NamedTuple):
    """A reservation that has not begun: ``until`` is when it runs out, by the database's clock."""

    launcher: int
    uid: int
    until: float
    processors: list[int]


def pending(store: Store, launcher: int, cookie: str) -> Grant:
    """The reservation of ``launcher``. Expired when it has begun or is gone, Denied (cookie)."""
    rows = store.read("SELECT cookie, state, uid, pending_until, processors FROM launcher WHERE id = ?", (launcher,))
    if not rows:
        raise Expired(f"there is no launcher {launcher}", "start again")
    stored, state, uid, until, processors = rows[0]
    if not cookies.fits(cookie, stored):
        raise Denied(f"the cookie of launcher {launcher} is another", "only the launcher itself may say this")
    if state != "pending":
        raise Expired(f"launcher {launcher} is {state}: a credential is for its load", "start again")
    return Grant(launcher, uid, until, list(unfold(processors)))


def lives(store: Store, nodes: Sequence[int]) -> dict[str, tuple[str, int]]:
    """Boot id and incarnation of these nodes (ids), by name; of one that is not up they are of nobody."""
    found: dict[str, tuple[str, int]] = {}
    for condition in conditions(nodes):
        for name, boot_id, incarnation in store.read(f"SELECT name, boot_id, incarnation FROM node WHERE {condition}"):
            found[name] = (boot_id, incarnation)
    return found
