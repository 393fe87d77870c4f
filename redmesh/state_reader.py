"""Reads state objects. With :mod:`redmesh.state`, which writes them, the only place that names their columns.

A :class:`StateReader` sees one moment, also while the owner writes. Python 3.9, standard library.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import namedtuple

from redmesh.state import FAILED, RUNNING, damaged, open_for_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

    from redmesh.state import StateError, Value

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

TaskRange = namedtuple("TaskRange", "first last state")

#: What a column or an entry of ``meta`` may hold. An object is a file that anybody may have written or damaged.
_NUMBER, _TIME, _TEXT, _NONE = (int,), (int, float), (str,), (type(None),)
_KINDS = {
    TaskRow: (
        _NUMBER, _NUMBER, _TEXT, _TEXT + _NONE, _TEXT + _NONE, _NUMBER + _NONE, _NUMBER, _TIME + _NONE, _TIME + _NONE,
        _NUMBER + _NONE, _TIME + _NONE, _TEXT + _NONE,
    ),
    Transition: (_NUMBER, _TIME, _NUMBER + _NONE, _NUMBER + _NONE, _TEXT, _TEXT + _NONE, _TEXT + _NONE),
    LogLine: (_NUMBER, _TIME, _TEXT + _NONE, _NUMBER + _NONE, _TEXT),
    Resource: (_TEXT, _TEXT, _TIME, _TIME + _NONE),
    TaskRange: (_NUMBER, _NUMBER, _TEXT),
}  # fmt: skip
_NEEDED = ("uuid", "kind", "state", "created_at")
_TIMES = ("created_at", "begun_at", "ended_at", "paced_at")
_NUMBERS = ("commits", "counter", "exit_status", "held", "keep", "limit", "open", "paced_from", "pid", "uid")
_TEXTS = ("uuid", "kind", "state", "user", "host", "cwd", "tasks", "yods")
_LATEST = 253402300799.0  # the end of the year 9999; what is not finite is beyond it

TIMED_OUT = 124  # the exit status of a task that reached its time limit, as of timeout(1)
#: Exit statuses whose cause says more than the task's last line: a time limit, and a SIGKILL for lack of memory.
_CAUSED = (TIMED_OUT, 128 + signal.SIGKILL)

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


def _is_description(told: Any) -> bool:
    """Whether the entry ``tasks`` has what every reader of a job's description needs (agents/job/description.py)."""
    if not isinstance(told, dict) or not isinstance(told.get("command"), list):
        return False
    texts = [*told["command"], told.get("name"), told.get("cwd")]
    return all(isinstance(text, str) for text in texts) and isinstance(told.get("after"), list)


def _are_yods(told: Any) -> bool:
    """Whether the entry ``yods`` lists the process and start time of each launch."""
    return isinstance(told, list) and all(
        isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one) for one in told
    )


def _are_stopped(told: Any) -> bool:
    """Whether the entry ``stopped`` lists processes that somebody has stopped."""
    return isinstance(told, list) and all(
        isinstance(one, dict) and type(one.get("node")) is str and type(one.get("pid")) is int
        and type(one.get("since")) in _TIME and abs(one["since"]) <= _LATEST
        for one in told
    )  # fmt: skip


_STRUCTURES = {"tasks": _is_description, "yods": _are_yods, "stopped": _are_stopped}


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
        self._check_entry(key, found)
        return found

    def summary(self) -> Dict[str, Any]:
        """All entries of ``meta`` except the token."""
        told: Dict[str, Any] = dict(self._answer("SELECT key, value FROM meta WHERE key != 'token'"))
        for key in _NEEDED:
            if told.get(key) is None:
                raise self._wrong(f"meta has no {key}")
        for key, value in told.items():
            self._check_entry(key, value)
        command = told["command"] = self._json("command", told.get("command"))
        if command is not None and not (isinstance(command, list) and all(isinstance(word, str) for word in command)):
            raise self._wrong("meta: command is not a list of words")
        counts = told["counts"] = self._json("counts", told.get("counts"))
        if counts is not None and not (isinstance(counts, dict) and all(type(one) is int for one in counts.values())):
            raise self._wrong("meta: counts are not numbers by state")
        return told

    def read(self, query: str, *values: Value) -> List[Any]:
        """The rows of a query. Raises StateError."""
        return self._answer(query, *values)

    def _json(self, key: str, text: Value) -> Any:
        if not text:
            return None
        try:
            return json.loads(str(text))
        except (ValueError, RecursionError):
            raise self._wrong(f"meta: {key} is not JSON") from None

    def _check_entry(self, key: str, value: Value) -> None:
        """Raises StateError if an entry of ``meta`` cannot be what an owner wrote."""
        if value is None:
            return
        if key in _TIMES:
            right = type(value) in _TIME and abs(value) <= _LATEST  # type: ignore[arg-type]
        elif key in _NUMBERS:
            right = type(value) is int
        elif key in _STRUCTURES:
            right = type(value) is str and _STRUCTURES[key](self._json(key, value))
        else:
            right = type(value) is str or (key not in _TEXTS and type(value) in (int, float) and value - value == 0)  # type: ignore[operator]
        if not right:
            raise self._wrong(f"meta: {key} is {value!r:.40}")

    def _wrong(self, what: str) -> StateError:
        return damaged(self.path, ValueError(what))

    def _rows(self, made: Any, asked: str, values: Sequence[Value]) -> List[Any]:
        """Rows of a query as ``made``. Raises StateError if a value is none that an owner writes."""
        kinds, good, rows = _KINDS[made], set(), []
        times = [place for place, kind in enumerate(kinds) if float in kind]
        first, last = (made._fields.index(name) if name in made._fields else -1 for name in ("first", "last"))
        for row in self._answer(asked, *values):
            types = tuple(map(type, row))
            if types not in good:  # most rows are alike
                for name, value, kind in zip(made._fields, row, kinds):  # noqa: B905
                    if type(value) not in kind:
                        raise self._wrong(f"{made.__name__}: {name} is {value!r:.40}")
                good.add(types)
            for place in times:
                if row[place] is not None and not -_LATEST <= row[place] <= _LATEST:
                    raise self._wrong(f"{made.__name__}: {made._fields[place]} is {row[place]!r}")
            if first >= 0 and row[first] is not None and not row[first] <= (row[last] or 0) <= _LATEST:
                raise self._wrong(f"{made.__name__}: first is {row[first]!r} and last {row[last]!r}")
            rows.append(made(*row))
        return rows

    def cause(self) -> Optional[str]:
        """The latest cause that was given for a change of the job's state."""
        found = self._transitions("WHERE first IS NULL AND cause IS NOT NULL ORDER BY id DESC LIMIT 1")
        return found[0].cause if found else None

    def values(self, limit: int = -1) -> Dict[str, str]:
        """The job's own values, in the order of their keys."""
        values = dict(self._answer("SELECT key, value FROM value ORDER BY key LIMIT ?", limit))
        for key, value in values.items():
            if type(key) is not str or type(value) is not str:
                raise self._wrong(f"value: {key!r:.40} is {value!r:.40}")
        return values

    def resources(self, limit: int = -1) -> List[Resource]:
        """The job's processors, those that it still has first."""
        return self._rows(Resource, f"{_RESOURCE} ORDER BY freed_at IS NOT NULL, id LIMIT ?", (limit,))

    def file(self, name: str) -> Optional[bytes]:
        """The content of a file in the object; None if the file does not exist."""
        found = self._one("SELECT content FROM file WHERE name = ?", name)
        if found is not None and type(found) is not bytes:
            raise self._wrong(f"file: the content of {name} is {found!r:.40}")
        return found

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
        unsaid = {task.first for task in tasks if task.exit in _CAUSED or not (task.lines or "").strip()}
        causes: Dict[int, str] = {}
        if unsaid:
            for change in self._transitions("WHERE state = ? AND first IS NOT NULL AND cause IS NOT NULL", FAILED):
                for number in unsaid:
                    if change.first <= number <= change.last:
                        causes[number] = str(change.cause)
        found = []
        for task in tasks:
            cause = causes.get(task.first, "")
            why = (task.lines or "").rstrip().rpartition("\n")[2] or cause
            how = "" if task.exit is None else f"exit {exit_text(task.exit)}"
            if task.exit in _CAUSED and cause not in ("", why) and not cause.startswith("signal "):
                how = f"exit {task.exit} ({cause})"
            told = " ".join(filter(None, (how, f"on {task.node}" if task.node else "")))
            text = ": ".join(filter(None, (told, why)))
            found.append(Failure(task.first, task.ended_at or 0.0, task.node, task.first, text))
        return found

    def states(self, after: int = -1) -> List[Tuple[int, int, str]]:
        """First task, last task and state of every row of tasks after number ``after``, in order."""
        asked = "SELECT first, last, state FROM task WHERE first > ? ORDER BY first"
        return [tuple(row) for row in self._rows(TaskRange, asked, (after,))]

    def progress(self) -> Dict[int, float]:
        """How far the running tasks that report progress are."""
        asked = "SELECT first, progress FROM task WHERE state = ? AND progress > 0"
        found = dict(self._answer(asked, RUNNING))
        for number, share in found.items():
            if type(share) not in _TIME or not share <= _LATEST:
                raise self._wrong(f"TaskRow: progress of task {number} is {share!r:.40}")
        return found

    def _tasks(self, condition: str, *values: Value) -> List[TaskRow]:
        return self._rows(TaskRow, f"{_TASK} {condition}", values)

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
        asked = "WHERE first <= ? AND last >= ? AND state = ? ORDER BY id DESC LIMIT 1"
        found = self._transitions(asked, task, task, FAILED)
        return (found[0].cause or "") if found else ""

    def log(self, after: int = -1, limit: int = -1) -> List[LogLine]:
        """Lines of the log in order, after line number ``after``."""
        return self._rows(LogLine, f"{_LOG} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    def newest_log(self, after: int, limit: int) -> List[LogLine]:
        """The latest ``limit`` lines of the log after line number ``after``, in order."""
        return self._rows(LogLine, f"{_LOG} WHERE id > ? ORDER BY id DESC LIMIT ?", (after, limit))[::-1]

    def _transitions(self, condition: str, *values: Value) -> List[Transition]:
        return self._rows(Transition, f"{_TRANSITION} {condition}", values)

    def _one(self, asked: str, *values: Value) -> Any:
        rows = self._answer(asked, *values)
        return rows[0][0] if rows else None

    def _answer(self, asked: str, *values: Value) -> List[Any]:
        """All rows of a query. Raises StateError: a page that is damaged is found when it is read."""
        try:
            return self.connection.execute(asked, values).fetchall()
        except sqlite3.ProgrammingError:  # a mistake of the caller's
            raise
        except sqlite3.DatabaseError as error:
            raise damaged(self.path, error) from None
