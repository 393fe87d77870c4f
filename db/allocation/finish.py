"""The states of a launcher after its allocation: started, finished, lost, expired. Each function is one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from db import cookies
from db.allocation.devices import give_back
from db.allocation.free import Machine
from db.allocation.full_texts import split_reason
from db.allocation.types import Ended, Live
from db.errors import Denied, Expired, Invalid
from db.schema.models import Launcher, Node, Partition, Processor
from db.store.orm import pw
from db.store.ranges import unfold
from db.store.statements import INSTANT, STAMP, Ids, Query, among, statement, unless_empty
from db.store.store import Row, Store, Transaction

ABNORMAL_FROM = 124  # exit statuses of yod from here on are failures of yod itself and deaths by signal
NEVER_STARTED = "nothing was started within the pending time"

_EXPIRED = (Launcher.ended_at.is_null(), Launcher.state == "pending")


def _live(*conditions: pw.ColumnBase) -> pw.ModelSelect[Launcher]:
    """Launchers that have not ended, in the form that ``Live.from_row`` needs."""
    return Launcher.select(
        Launcher.id,
        Launcher.pid,
        Launcher.pid_started,
        Launcher.partition,
        Launcher.uid,
        Launcher.user,
        Launcher.state,
        Launcher.processors,
    ).where(Launcher.ended_at.is_null(), *conditions)


@statement
def _reservation(*, launcher: int) -> Query:
    return Launcher.select(
        Launcher.cookie, Launcher.state, Launcher.pending_until, Launcher.reason, Launcher.processors, Launcher.uid
    ).where(Launcher.id == launcher)


@statement
def _to_end(*, launcher: int) -> Query:
    """The columns of a launcher and its partition that ending it needs."""
    return (
        Launcher.select(
            Launcher.cookie,
            Launcher.state,
            Launcher.partition,
            Launcher.processors,
            Launcher.resources,
            Partition.batch_job,
        )
        .join(Partition, pw.JOIN.LEFT_OUTER, on=Partition.id == Launcher.partition)
        .where(Launcher.id == launcher)
    )


@statement
def _start(*, launcher: int, ranks: str, root: str) -> Query:
    return Launcher.update(
        {
            Launcher.state: "busy",
            Launcher.started_at: INSTANT,
            Launcher.ranks: ranks,
            Launcher.root: unless_empty(root, Launcher.root),
            Launcher.changed: STAMP,
        }
    ).where(Launcher.id == launcher, Launcher.state == "pending")


@statement
def _keep_pending(*, launcher: int, until: float) -> Query:
    return Launcher.update({Launcher.pending_until: until, Launcher.changed: STAMP}).where(
        Launcher.id == launcher, Launcher.state == "pending", Launcher.pending_until < until
    )


@statement
def _right_of_live(*, launcher: int) -> Query:
    return Launcher.select(Launcher.cookie, Launcher.uid).where(Launcher.id == launcher, Launcher.ended_at.is_null())


@statement
def _set_process(*, launcher: int, pid: int, pid_started: int) -> Query:
    return Launcher.update({Launcher.pid: pid, Launcher.pid_started: pid_started, Launcher.changed: STAMP}).where(
        Launcher.id == launcher
    )


@statement
def _expired() -> Query:
    return Launcher.select(Launcher.id).where(*_EXPIRED, Launcher.pending_until <= INSTANT)


@statement
def next_expiry() -> Query:
    """The earliest time at which a pending launcher expires."""
    return Launcher.select(pw.fn.MIN(Launcher.pending_until)).where(*_EXPIRED)


@statement
def _live_of_login(*, login: str) -> Query:
    number = Node.select(Node.id).where(Node.name == login)
    return _live(Launcher.login_processor == number).order_by(Launcher.id)


def _with_login(*conditions: pw.ColumnBase) -> pw.ModelSelect[Launcher]:
    """Live launchers, each with the name of its login processor in front of the columns of ``_live``."""
    found = _live(*conditions)
    found = found.join(Node, on=Node.id == Launcher.login_processor).order_by(Launcher.id)
    return found.select(Node.name, *found.selected_columns)


@statement
def _live_with_login() -> Query:
    return _with_login()


@statement
def _live_of_pids(*, ids: Ids) -> Query:
    return _with_login(among(Launcher.pid, ids))


@statement
def _live_in(*, partition: int) -> Query:
    return _live(Launcher.partition == partition).order_by(Launcher.id)


@statement
def _live_launcher(*, launcher: int) -> Query:
    return _live(Launcher.id == launcher)


@statement
def _login_of(*, launcher: int) -> Query:
    return Node.select(Node.name).join(Launcher, on=Node.id == Launcher.login_processor).where(Launcher.id == launcher)


@statement
def _end_launcher(
    *, launcher: int, exit_status: int | None, abnormal: bool, reason: str, full_reason: str | None
) -> Query:
    """End a launcher. An empty ``reason`` keeps the reason that is stored."""
    return Launcher.update(
        {
            Launcher.state: "ended",
            Launcher.ended_at: INSTANT,
            Launcher.exit_status: exit_status,
            Launcher.abnormal: abnormal,
            Launcher.reason: unless_empty(reason, Launcher.reason),
            Launcher.full_reason: full_reason,
            Launcher.changed: STAMP,
        }
    ).where(Launcher.id == launcher)


@statement
def _free_processors(*, ids: Ids, launcher: int) -> Query:
    """Free the processors of a launcher whose interactive partition ends with it."""
    return Processor.update({Processor.launcher: None, Processor.partition: None, Processor.changed: STAMP}).where(
        among(Processor.id, ids), Processor.launcher == launcher
    )


@statement
def _give_back_to_partition(*, ids: Ids, launcher: int) -> Query:
    return Processor.update({Processor.launcher: None, Processor.changed: STAMP}).where(
        among(Processor.id, ids), Processor.launcher == launcher
    )


@statement
def _end_partition(*, partition: int) -> Query:
    return Partition.update({Partition.ended_at: INSTANT, Partition.changed: STAMP}).where(Partition.id == partition)


@statement
def _mark_batch_job(*, partition: int) -> Query:
    return Partition.update({Partition.batch_job_error: True, Partition.changed: STAMP}).where(
        Partition.id == partition
    )


@statement
def _lives_of(*, ids: Ids) -> Query:
    return Node.select(Node.name, Node.boot_id, Node.incarnation).where(among(Node.id, ids))


def started(
    store: Store, launcher: int, cookie: str, ranks: Sequence[int], root: str = "", machine: Machine | None = None
) -> None:
    """Change a reservation from pending to busy; may be repeated. ``machine`` is updated.

    Raises Expired if the pending time ran out, Denied (cookie) or Invalid (``ranks`` are not its processors).
    """

    def work(t: Transaction) -> int:
        state, _until, processors = _check_reserved(t, launcher, cookie)
        if not set(ranks) <= set(unfold(processors)):
            raise Invalid(f"the ranks of launcher {launcher} are not on its processors")
        if state == "pending":
            placed = json.dumps(list(ranks), separators=(",", ":"))
            t.write(_start.bind(launcher=launcher, ranks=placed, root=root))
        return t.stamp if t.changed else 0

    stamp = store.run(work, [_reservation.bind(launcher=launcher)])
    if machine is not None and stamp:
        machine.assigned((), None, None, stamp)


def loading(store: Store, launcher: int, cookie: str, seconds: float) -> None:
    """Extend a reservation to ``seconds`` from now: its nodes have the load, and its launcher runs. May be repeated.

    Raises Expired if it ran out before, or Denied (cookie). Changes nothing after the start.
    """

    def work(t: Transaction) -> None:
        state, _until, _processors = _check_reserved(t, launcher, cookie)
        if state == "pending":
            t.write(_keep_pending.bind(launcher=launcher, until=t.now + seconds))

    store.run(work, [_reservation.bind(launcher=launcher)])


def _check_reserved(t: Transaction, launcher: int, cookie: str) -> tuple[str, float, str]:
    """State, end of the pending time and processors of an unexpired reservation. Raises Expired or Denied."""
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
    """End a launcher: free its processors and destroy its interactive partition. May be repeated.

    ``machine`` is updated, so that it need not read the free processors again; it says whether viewers may read the
    reason. An abnormal end (a node was lost, or
    yod's exit status is one of its own failures or a signal) sets the error of the batch job. Raises Denied (cookie),
    or Expired if the launcher is unknown.
    """
    abnormal = processor_error or exit_status >= ABNORMAL_FROM
    shown, whole = split_reason(reason, hidden=machine is not None and machine.hides_texts)
    stamp = 0

    def work(t: Transaction) -> Ended:
        nonlocal stamp
        if not t.answers[0]:
            raise Expired(f"there is no launcher {launcher}", "it ended long ago, or in another boot")
        row = t.answers[0][0]
        _check_cookie(launcher, cookie, row[0])
        stamp = t.stamp
        return _end(t, launcher, row, exit_status, abnormal, shown, whole)

    ended = store.run(work, [_to_end.bind(launcher=launcher)])
    if machine is not None and ended.news and not ended.resources:
        machine.assigned(ended.processors, None if ended.partition_too else ended.partition, None, stamp)
    return ended


def moved(store: Store, launcher: int, cookie: str, uid: int, pid: int, pid_started: int) -> None:
    """Record that another process of the same user continues as this launcher. Raises Denied (cookie, uid) or
    Expired."""

    def work(t: Transaction) -> None:
        row = t.row(_right_of_live.bind(launcher=launcher))
        if row is None:
            raise Expired(f"launcher {launcher} has ended", "start again")
        _check_cookie(launcher, cookie, row[0])
        if row[1] != uid:
            raise Denied(f"launcher {launcher} is another user's", "only its own user's processes can continue it")
        t.write(_set_process.bind(launcher=launcher, pid=pid, pid_started=pid_started))

    store.run(work)


def lose(store: Store, launcher: int, reason: str) -> Ended | None:
    """End a lost launcher after clean-up: as ``finish``, abnormally. Returns None if the launcher is unknown."""

    def work(t: Transaction) -> Ended | None:
        row = t.row(_to_end.bind(launcher=launcher))
        return None if row is None else _lost(t, launcher, row, reason)

    return store.run(work)


def expire_pending(store: Store) -> list[Ended]:
    """End the launchers that were not started in time."""

    def work(t: Transaction) -> list[Ended]:
        ended = []
        for (launcher,) in t.rows(_expired.bind()):
            row = t.row(_to_end.bind(launcher=launcher))
            if row is not None:
                ended.append(_lost(t, launcher, row, NEVER_STARTED))
        return ended

    return store.run(work)


def launchers_of(store: Store, login: str) -> list[Live]:
    """The live launchers of a login processor."""
    return [Live.from_row(row) for row in store.read(_live_of_login.bind(login=login))]


def launchers_of_process(store: Store, login: str, pid: int, pid_started: int) -> list[Live]:
    """The live launchers of one process: normally one."""
    return [live for live in launchers_of(store, login) if (live.pid, live.pid_started) == (pid, pid_started)]


def launchers_and_logins(store: Store, pids: Sequence[int] | None = None) -> list[tuple[str, Live]]:
    """Live launchers and their login processors: all of them, or those of processes with these pids."""
    rows = store.read(_live_with_login.bind() if pids is None else _live_of_pids.bind(ids=pids))
    return [(str(row[0]), Live.from_row(row[1:])) for row in rows]


def launchers_in(store: Store, partition: int) -> list[Live]:
    """The live launchers in a partition, which must be cleaned up before the partition is destroyed by force."""
    return [Live.from_row(row) for row in store.read(_live_in.bind(partition=partition))]


def find_live(store: Store, launcher: int) -> Live | None:
    """A launcher that has not ended; None for any other."""
    rows = store.read(_live_launcher.bind(launcher=launcher))
    return Live.from_row(rows[0]) if rows else None


def login_of(store: Store, launcher: int) -> str:
    """The login processor of a launcher; empty if the mesh no longer has that login processor."""
    rows = store.read(_login_of.bind(launcher=launcher))
    return str(rows[0][0]) if rows else ""


def end_inside(t: Transaction, launcher: int, reason: str) -> None:
    """End a launcher abnormally inside a transaction that does more."""
    row = t.row(_to_end.bind(launcher=launcher))
    if row is not None:
        _lost(t, launcher, row, reason)


def check_live(store: Store, launcher: int, cookie: str) -> Live:
    """The launcher with this cookie. Raises Expired or Denied."""
    rows = store.read(_right_of_live.bind(launcher=launcher))
    live = find_live(store, launcher)
    if not rows or live is None:
        raise Expired(f"launcher {launcher} has ended", "start again")
    _check_cookie(launcher, cookie, rows[0][0])
    return live


def _check_cookie(launcher: int, cookie: str, stored: str) -> None:
    if not cookies.fits(cookie, stored):
        raise Denied(f"the cookie of launcher {launcher} is wrong", "only the launcher itself may send this")


def _lost(t: Transaction, launcher: int, row: Row, reason: str) -> Ended:
    ended = _end(t, launcher, row, None, True, reason)
    if ended.news:
        t.event("launcher_lost", f"launcher {launcher}: {reason}", launcher=launcher, partition=ended.partition)
    return ended


def _end(
    t: Transaction,
    launcher: int,
    row: Row,
    exit_status: int | None,
    abnormal: bool,
    reason: str,
    full_reason: str | None = None,
) -> Ended:
    """End a launcher and free its processors. No other function does this."""
    _, state, partition, processors, resources, batch_job = row
    ids = unfold(processors)
    if state == "ended":
        return Ended(launcher, partition, ids, False)
    t.freed = True
    interactive = batch_job is None
    free = _free_processors if interactive else _give_back_to_partition
    t.write(free.bind(ids=ids, launcher=launcher))
    t.write(
        _end_launcher.bind(
            launcher=launcher, exit_status=exit_status, abnormal=bool(abnormal), reason=reason, full_reason=full_reason
        )
    )
    if interactive:
        t.write(_end_partition.bind(partition=partition))
    elif abnormal:
        t.write(_mark_batch_job.bind(partition=partition))
    held = json.loads(resources)
    for node, amounts in held.items():
        for name, devices in amounts.items():
            t.write(give_back.bind(node=int(node), name=name, amount=len(devices)))
    return Ended(launcher, partition, ids, True, interactive, bool(held))


# Contents of a launch credential: the processors granted to a launcher, and the boot id and incarnation of each node at
# that time.


class Grant(NamedTuple):
    """A pending reservation; it expires at ``until`` by the database's clock."""

    launcher: int
    uid: int
    until: float
    processors: list[int]


def pending(store: Store, launcher: int, cookie: str) -> Grant:
    """The reservation of ``launcher``. Raises Expired if it has started or is gone, or Denied (cookie)."""
    rows = store.read(_reservation.bind(launcher=launcher))
    if not rows:
        raise Expired(f"there is no launcher {launcher}", "start again")
    stored, state, until, _, processors, uid = rows[0]
    if not cookies.fits(cookie, stored):
        raise Denied(f"the cookie of launcher {launcher} is wrong", "only the launcher itself may send this")
    if state != "pending":
        raise Expired(f"launcher {launcher} is {state}: a credential is for its load", "start again")
    return Grant(launcher, uid, until, list(unfold(processors)))


def lives(store: Store, nodes: Sequence[int]) -> dict[str, tuple[str, int]]:
    """Boot id and incarnation of these nodes (ids), by name. A node that is not up has an empty boot id."""
    return {name: (boot_id, incarnation) for name, boot_id, incarnation in store.read(_lives_of.bind(ids=nodes))}
