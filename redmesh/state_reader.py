"""Reads state objects. With :mod:`redmesh.state`, which writes them, the only place that names their columns.

A :class:`StateReader` sees one moment, also while the owner writes. Python 3.9, standard library.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import namedtuple

from redmesh.state import FAILED, RUNNING, open_for_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

    from redmesh.state import Value

    class TaskRow(NamedTuple):
        """A task or rank, or tasks that are alike and untouched: ``first`` to ``last``."""

        first: int
        last: int
        state: str
        input: Optional[str]
        node: Optional[str]
        slot: Optional[int]
        attempt: int
        started_at: Optional[float]
        ended_at: Optional[float]
        exit: Optional[int]
        progress: Optional[float]
        lines: Optional[str]

    class Transition(NamedTuple):
        """A change of state: of tasks, or of the job itself (``first`` is None)."""

        id: int
        at: float
        first: int
        last: int
        state: str
        node: Optional[str]
        cause: Optional[str]

    class LogLine(NamedTuple):
        """A line of the job's log."""

        id: int
        at: float
        node: Optional[str]
        task: Optional[int]
        text: str

    class Failure(NamedTuple):
        """A failed task: ``text`` is where and how it ended, and the last line it wrote or else the cause."""

        id: int
        at: float
        node: Optional[str]
        task: int
        text: str

    class Resource(NamedTuple):
        """Processors that the job has or had."""

        node: str
        processors: str
        granted_at: float
        freed_at: Optional[float]

else:
    TaskRow = namedtuple("TaskRow", "first last state input node slot attempt started_at ended_at exit progress lines")
    Transition = namedtuple("Transition", "id at first last state node cause")
    LogLine = namedtuple("LogLine", "id at node task text")
    Failure = namedtuple("Failure", "id at node task text")
    Resource = namedtuple("Resource", "node processors granted_at freed_at")

TIMED_OUT = 124  # the exit status of a task that reached its time limit, as of timeout(1)

_TASK, _TRANSITION, _LOG, _RESOURCE = (
    f"SELECT {', '.join(row._fields)} FROM {table}"
    for row, table in ((TaskRow, "task"), (Transition, "transition"), (LogLine, "log"), (Resource, "resource"))
)


def signal_of(status: Optional[int]) -> str:
    """The signal for which an exit status stands (``SIGSEGV`` for 139); empty for other statuses."""
    try:
        return signal.Signals((status or 0) - 128).name
    except ValueError:
        return ""


def exit_text(status: Optional[int]) -> str:
    """``3``, ``139 (SIGSEGV)``; empty for None."""
    name = signal_of(status)
    return "" if status is None else f"{status} ({name})" if name else str(status)


class StateReader:
    """A state object, open for reading as of one moment. Use it in a ``with`` block, or close it."""

    def __init__(self, path: str) -> None:
        """Open the object. Raises StateError."""
        self.path = path
        self.connection: sqlite3.Connection = open_for_reading(path)

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def copy_to(self, target: str) -> None:
        """Copy the object as it is now to the empty file ``target``. Raises sqlite3.Error."""
        self.connection.execute("COMMIT")  # the backup makes its own transaction
        made = sqlite3.connect(target, isolation_level=None)
        try:
            self.connection.backup(made)
            made.execute("PRAGMA journal_mode = delete")
        finally:
            made.close()

    # The job

    def meta(self, key: str) -> Value:
        """The value of an entry of ``meta``; None if the entry does not exist."""
        found: Value = self._one("SELECT value FROM meta WHERE key = ?", key)
        return found

    def summary(self) -> Dict[str, Any]:
        """All entries of ``meta`` except the token."""
        told: Dict[str, Any] = dict(self.connection.execute("SELECT key, value FROM meta WHERE key != 'token'"))
        for key in ("command", "counts"):
            told[key] = json.loads(told[key]) if told.get(key) else None
        return told

    def cause(self) -> Optional[str]:
        """The latest cause that was given for a change of the job's state."""
        found: Optional[str] = self._one(
            "SELECT cause FROM transition WHERE first IS NULL AND cause IS NOT NULL ORDER BY id DESC LIMIT 1"
        )
        return found

    def values(self, limit: int = -1) -> Dict[str, str]:
        """The job's own values, in the order of their keys."""
        return dict(self.connection.execute("SELECT key, value FROM value ORDER BY key LIMIT ?", (limit,)))

    def resources(self, limit: int = -1) -> List[Resource]:
        """The job's processors, those that it still has first."""
        rows = self.connection.execute(f"{_RESOURCE} ORDER BY freed_at IS NOT NULL, id LIMIT ?", (limit,))
        return [Resource(*row) for row in rows]

    def file(self, name: str) -> Optional[bytes]:
        """The content of a file in the object; None if the file does not exist."""
        found = self._one("SELECT content FROM file WHERE name = ?", name)
        return None if found is None else bytes(found)

    # Tasks

    def tasks(self, states: Sequence[str] = (), after: int = -1, limit: int = -1) -> List[TaskRow]:
        """Tasks in the order of their numbers, after number ``after``; only those in ``states`` unless it is empty."""
        wanted = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
        return self._tasks(f"WHERE first > ?{wanted} ORDER BY first LIMIT ?", after, *states, limit)

    def task(self, number: int) -> Optional[TaskRow]:
        """The row that has task ``number``; None if it was removed."""
        found = self._tasks("WHERE first <= ? ORDER BY first DESC LIMIT 1", number)
        return found[0] if found else None

    def failures(self, limit: int = -1, *, newest: bool = False) -> List[Failure]:
        """The tasks that failed first, in order; ``newest``: those that failed last, the latest first."""
        order = "ended_at DESC" if newest else "ended_at, first"
        tasks = self._tasks(f"WHERE state = ? ORDER BY {order} LIMIT ?", FAILED, limit)
        unsaid = {task.first for task in tasks if task.exit == TIMED_OUT or not (task.lines or "").strip()}
        causes: Dict[int, str] = {}
        if unsaid:
            for change in self._transitions("WHERE state = ? AND first IS NOT NULL AND cause IS NOT NULL", FAILED):
                for number in unsaid.intersection(range(change.first, change.last + 1)):
                    causes[number] = str(change.cause)
        found = []
        for task in tasks:
            cause = causes.get(task.first, "")
            why = (task.lines or "").rstrip().rpartition("\n")[2] or cause
            how = "" if task.exit is None else f"exit {exit_text(task.exit)}"
            if task.exit == TIMED_OUT and cause not in ("", why):
                how += f" ({cause})"
            told = " ".join(filter(None, (how, f"on {task.node}" if task.node else "")))
            text = ": ".join(filter(None, (told, why)))
            found.append(Failure(task.first, task.ended_at or 0.0, task.node, task.first, text))
        return found

    def states(self, after: int = -1) -> List[Tuple[int, int, str]]:
        """First task, last task and state of every row of tasks after number ``after``, in order."""
        asked = "SELECT first, last, state FROM task WHERE first > ? ORDER BY first"
        return self.connection.execute(asked, (after,)).fetchall()

    def progress(self) -> Dict[int, float]:
        """How far the running tasks that report progress are."""
        asked = "SELECT first, progress FROM task WHERE state = ? AND progress > 0"
        return dict(self.connection.execute(asked, (RUNNING,)))

    def _tasks(self, condition: str, *values: Value) -> List[TaskRow]:
        return [TaskRow(*row) for row in self.connection.execute(f"{_TASK} {condition}", values)]

    # What happened

    def newest_transition(self) -> int:
        """The number of the latest change of state, of a task or of the job."""
        return int(self._one("SELECT max(id) FROM transition") or 0)

    def task_transitions(self, after: int = -1) -> List[Transition]:
        """Changes of tasks in order, after change number ``after``."""
        return self._transitions("WHERE first IS NOT NULL AND id > ? ORDER BY id", after)

    def job_transitions(self, after: int = -1, limit: int = -1) -> List[Transition]:
        """Changes of the job itself in order, after change number ``after``."""
        return self._transitions("WHERE first IS NULL AND id > ? ORDER BY id LIMIT ?", after, limit)

    def history(self, task: int, limit: int) -> List[Transition]:
        """The changes of one task, the latest first."""
        return self._transitions("WHERE first <= ? AND last >= ? ORDER BY id DESC LIMIT ?", task, task, limit)

    def failure(self, task: int) -> str:
        """Why a task failed last; empty if that is not known."""
        asked = "SELECT cause FROM transition WHERE first <= ? AND last >= ? AND state = ? ORDER BY id DESC LIMIT 1"
        return self._one(asked, task, task, FAILED) or ""

    def log(self, after: int = -1, limit: int = -1) -> List[LogLine]:
        """Lines of the log in order, after line number ``after``."""
        rows = self.connection.execute(f"{_LOG} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return [LogLine(*row) for row in rows]

    def newest_log(self, after: int, limit: int) -> List[LogLine]:
        """The latest ``limit`` lines of the log after line number ``after``, in order."""
        rows = self.connection.execute(f"{_LOG} WHERE id > ? ORDER BY id DESC LIMIT ?", (after, limit)).fetchall()
        return [LogLine(*row) for row in reversed(rows)]

    def _transitions(self, condition: str, *values: Value) -> List[Transition]:
        return [Transition(*row) for row in self.connection.execute(f"{_TRANSITION} {condition}", values)]

    def _one(self, asked: str, *values: Value) -> Any:
        row = self.connection.execute(asked, values).fetchone()
        return None if row is None else row[0]
