"""What viewers do not read of a launch in system mode: the arguments of its command, and the reason that its yod gave.

Every viewer's account reads ``launcher.command`` and ``launcher.reason``, and every user knows a viewer's password. So
in system mode, unless the site has ``show_commands = 1``, these columns hold the program's name and no reason of yod's.
``full_command`` and ``full_reason`` hold the rest; no view and no procedure returns them, and a CPA gives them to the
launch's user (docs/security.md, *Viewers*). They are NULL where the public column already has everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from db.allocation.managers import application_of, worker_of
from db.schema.models import Launcher, Node
from db.store.orm import pw
from db.store.statements import Ids, Query, among, statement
from db.store.store import Store, Transaction

#: The most launchers of one request for their full texts.
MOST_LAUNCHERS = 100
AT_ONCE = 200
_DIGITS = re.compile(r"[0-9a-f]{8}")


class FullTexts(NamedTuple):
    """The full command of a launch, and the reason for its end."""

    launcher: int
    command: str
    reason: str


def program_alone(command: str) -> str:
    """The file name of a launch's program; for the workers of a job, also the job's first digits.

    ``application_of`` and ``job_of`` (db/allocation/managers.py) find the same in it as in the whole command.
    """
    program, job = application_of(command), worker_of(command)
    return f"yodwork job {job} {program}".rstrip() if _DIGITS.fullmatch(job) else program


def split_command(command: str, *, hidden: bool) -> tuple[str, str | None]:
    """The values of ``command`` and ``full_command``."""
    shown = program_alone(command) if hidden else command
    return shown, None if shown == command else command


def split_reason(reason: str, *, hidden: bool) -> tuple[str, str | None]:
    """The values of ``reason`` and ``full_reason`` for a reason that yod gave, which may name files and arguments."""
    return ("", reason) if hidden and reason else (reason, None)


_HERE, _ASKING = Node.alias("n"), Node.alias("me")


@statement
def _of_launchers(*, ids: Ids, login: str) -> Query:
    """Uids and texts of launchers, as far as the viewers of login processor ``login`` see them (db/schema/login_views,
    ``_SINCE_NEAR``): a user has the same uid on both sides of a machine."""
    since = (Launcher.changed >= _HERE.side_from) & (Launcher.changed >= _ASKING.side_from)
    return (
        Launcher.select(
            Launcher.id,
            Launcher.uid,
            pw.fn.COALESCE(Launcher.full_command, Launcher.command),
            pw.fn.COALESCE(Launcher.full_reason, Launcher.reason),
        )
        .join(_HERE, on=_HERE.id == Launcher.login_processor)
        .join(_ASKING, on=_ASKING.side == _HERE.side)
        .where(
            among(Launcher.id, ids),
            _ASKING.name == login,
            Launcher.full_command.is_null(False) | Launcher.full_reason.is_null(False),
            (_HERE.id == _ASKING.id) | since,
        )
    )


@statement
def _stored(*, after: int) -> Query:
    """Launchers whose texts were stored whole."""
    whole = Launcher.full_command.is_null() | (Launcher.full_reason.is_null() & (Launcher.reason != ""))
    return (
        Launcher.select(
            Launcher.id, Launcher.command, Launcher.reason, Launcher.exit_status, Launcher.full_command,
            Launcher.full_reason,
        )
        .where(Launcher.id > after, whole)
        .order_by(Launcher.id)
        .limit(AT_ONCE)
    )  # fmt: skip


@statement
def _hide_command(*, launcher: int, command: str, full_command: str | None) -> Query:
    """``changed`` stays: viewers of another side see what has changed since it came within reach."""
    return Launcher.update({Launcher.command: command, Launcher.full_command: full_command}).where(
        Launcher.id == launcher
    )


@statement
def _hide_reason(*, launcher: int, reason: str, full_reason: str | None) -> Query:
    return Launcher.update({Launcher.reason: reason, Launcher.full_reason: full_reason}).where(Launcher.id == launcher)


def read(store: Store, launchers: Sequence[int], login: str, uid: int | None) -> list[FullTexts]:
    """The full texts of those launchers of ``uid`` (None: of all users) that viewers of ``login`` see, as far as the
    public columns lack them."""
    rows = store.read(_of_launchers.bind(ids=sorted(set(launchers)), login=login)) if launchers else []
    return [FullTexts(one, command, reason) for one, owner, command, reason in rows if uid is None or owner == uid]


def hide_stored(store: Store, after: int) -> int | None:
    """Hide what launchers with ids above ``after`` have in their public columns, in one small transaction.

    Returns the id to go on after; None at the end. Such rows are from before an upgrade or a change of
    ``show_commands``.
    """
    rows = store.read(_stored.bind(after=after))
    changes = []
    for launcher, command, reason, exit_status, full_command, full_reason in rows:
        shown, whole = split_command(command, hidden=True)
        if full_command is None and whole is not None:
            changes.append(_hide_command.bind(launcher=launcher, command=shown, full_command=whole))
        # Only of a launch that yod ended: another CPA may be ending one that lives, with a reason.
        if full_reason is None and exit_status is not None and reason:
            shown, whole = split_reason(reason, hidden=True)
            changes.append(_hide_reason.bind(launcher=launcher, reason=shown, full_reason=whole))

    def work(t: Transaction) -> None:
        for change in changes:
            t.write(change)

    if changes:
        store.run(work)
    return int(rows[-1][0]) if len(rows) == AT_ONCE else None
