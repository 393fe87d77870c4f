"""The part of a state object that says which tasks come after others, and what they are called (docs/state-object.md).

Only jobs with dependencies or open jobs have these tables. Their objects have format 2, so that a Redmesh that would
ignore the order refuses them.
"""

from __future__ import annotations

from redmesh.state import CANCELLED, DONE, FAILED, GRAPH_FORMAT, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, NamedTuple, Optional, Sequence, Tuple, Union

    from redmesh.state import StateObject
    from redmesh.state_reader import StateReader

    class Awaited(NamedTuple):
        """A task that waits for another one, and the state of that."""

        number: int
        after: int
        state: str

else:
    from collections import namedtuple

    Awaited = namedtuple("Awaited", "number after state")

#: The statements that make the tables. A standby (agents/objects/replica.py) runs no others of their kind.
TABLES = (
    "CREATE TABLE IF NOT EXISTS task_id (task INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS task_after (task INTEGER NOT NULL, after INTEGER NOT NULL, PRIMARY KEY (task, after))"
    " WITHOUT ROWID",
    f"PRAGMA user_version = {GRAPH_FORMAT}",
)
_STATE = "(SELECT state FROM task WHERE first <= {} ORDER BY first DESC LIMIT 1)"


class GraphReader:
    """The order of the tasks of a job, and their ids."""

    def __init__(self, job: Union[StateObject, StateReader]) -> None:
        self._job = job

    @property
    def exists(self) -> bool:
        """True if the object has the tables."""
        return bool(self._job.read("SELECT 1 FROM sqlite_master WHERE name = 'task_after'"))

    @property
    def ordered(self) -> bool:
        """True if a task comes after another one."""
        return self.exists and bool(self._job.read("SELECT 1 FROM task_after LIMIT 1"))

    def last_number(self) -> int:
        """The largest number of a task; 0 if there is none."""
        rows = self._job.read("SELECT last FROM task ORDER BY first DESC LIMIT 1")
        return int(rows[0][0]) if rows else 0

    def number_of(self, name: str) -> Optional[int]:
        """The number of a task by its id, or by its number as text; None if there is no such task."""
        rows = self._job.read("SELECT task FROM task_id WHERE id = ?", name) if self.exists else []
        if not rows and name.isascii() and name.isdigit() and len(name) < 19:
            found = self._job.read("SELECT last FROM task WHERE first <= ? ORDER BY first DESC LIMIT 1", int(name))
            return int(name) if found and found[0][0] >= int(name) else None
        return int(rows[0][0]) if rows else None

    def taken(self, name: str) -> bool:
        """True if a task has this id."""
        return self.exists and bool(self._job.read("SELECT 1 FROM task_id WHERE id = ?", name))

    def called(self, number: int) -> str:
        """A task for people: ``7 (prepare)``, or ``7``."""
        rows = self._job.read("SELECT id FROM task_id WHERE task = ?", number) if self.exists else []
        return f"{number} ({rows[0][0]})" if rows else str(number)


class StateGraph(GraphReader):
    """The same, in an object that its owner writes."""

    def __init__(self, job: StateObject) -> None:
        super().__init__(job)
        self._object = job

    def awaited(self, above: int = -1) -> Iterable[Awaited]:
        """What each task that waits, of those above a number, comes after and has not succeeded, in order."""
        if not self.exists:
            return ()
        found = self._object.rows(
            f"SELECT task, after, {_STATE.format('task_after.after')} AS state FROM task_after WHERE task > ?"
            f" AND state IS NOT ? AND {_STATE.format('task_after.task')} = ? ORDER BY task",
            above, DONE, WAITING,
        )  # fmt: skip
        return (Awaited(*row) for row in found)

    def create(self) -> None:
        """Add the tables, if they are not there."""
        if not self.exists:
            for statement in TABLES:
                self._object.write(statement, [()])

    def add(self, ids: Sequence[Tuple[int, str]], edges: Sequence[Tuple[int, int]]) -> None:
        """Record the ids of tasks, and pairs of a task and one that it comes after. Raises StateError."""
        if ids or edges:
            self.create()
        if ids:
            self._object.write("INSERT INTO task_id (task, id) VALUES (?, ?)", ids)
        if edges:
            self._object.write("INSERT INTO task_after (task, after) VALUES (?, ?)", edges)


def dead(state: str) -> bool:
    """True if a task in this state will not succeed by itself."""
    return state in (FAILED, CANCELLED)
