"""Jobs of tasks and of sections: rows, and the state of each task. No I/O; console/tui/sources/jobs.py reads them."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from console.jobs.rows import waiting_text
from console.tui.model.output import Line

ENDED = ("done", "failed", "cancelled")
_OF_JOB = re.compile(r"\S*yodwork job ([0-9a-f]{8})\b")  # the command of a job's workers (agents/job/job_owner.py)


class Job(NamedTuple):
    """A job. ``number`` is its row here; ``id`` the first digits of its UUID, which every command accepts."""

    number: int
    uuid: str
    name: str
    state: str  # with the reason if nothing runs: "no processors: …", "after 1a2b3c4d"
    owner: str  # host:pid; empty if no process owns it
    user: str
    tasks: int
    finished: int  # done
    failed: int
    running: int
    over: int  # done, failed or cancelled
    created_at: float
    begun_at: float
    paced: tuple[float, int]  # from when on the rate counts, and how many tasks had run before
    ended_at: float | None
    command: str
    why: str  # the reason of its end
    sections: bool
    calls: bool  # of a Python program (redmesh.Executor), which alone can submit them again
    path: str
    yods: tuple[tuple[int, int], ...] = ()  # the processes of its launches, each with its start time
    waits: str = ""  # why it waits for processors (console/jobs/waiting.py)

    @property
    def id(self) -> str:
        """The job's name on the screen: the first digits of its UUID."""
        return self.uuid[:8]

    @property
    def shown(self) -> str:
        """Its state, and why it waits."""
        return self.state + waiting_text(self.waits, self.running)

    @property
    def live(self) -> bool:
        """True if it has not ended."""
        return self.state not in ENDED

    @property
    def noun(self) -> str:
        """What its parts are called: section or task."""
        return "section" if self.sections else "task"

    @property
    def share(self) -> float:
        """How far it is: tasks that need no more work; of an ended job those that were done."""
        return (self.over if self.live else self.finished) / self.tasks if self.tasks else 0.0

    def rate(self, now: float) -> float:
        """Tasks a second: of an ended job since its start, else since it last began to run."""
        until, (begun, before) = self.ended_at or now, self.paced
        return max(0, self.finished + self.failed - before) / (until - begun) if begun and until > begun else 0.0

    def left_s(self, now: float) -> float | None:
        """Seconds to its end at the present rate; None if unknown, or if nobody works at it."""
        if self.state == "owner lost":
            return None
        rate = self.rate(now)
        return (self.tasks - self.over) / rate if rate and self.over < self.tasks and self.live else None


def job_of(command: str) -> str:
    """The job (its first digits) for which a launch with this command works; empty for others."""
    found = _OF_JOB.match(command)
    return found[1] if found else ""


class TaskState(IntEnum):
    """The state of a task; the value is its byte in :class:`TaskMap`."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3
    CANCELLED = 4


STATES = {state.name.lower(): state for state in TaskState}
#: The words for states of tasks and sections.
WORDS = {
    False: ("waiting", "running", "done", "failed", "cancelled"),
    True: ("to do", "running", "finished", "failed", "given up"),
}


class Task(NamedTuple):
    """All data about one task."""

    number: int
    state: str
    input: str
    node: str
    attempt: int
    started_at: float | None
    ended_at: float | None
    exit: int | None
    progress: float | None
    lines: list[Line]  # the last ones that it wrote, as a terminal shows them
    history: list[tuple[float, str, str, str]]  # time, state, node, cause


class TaskMap:
    """The state of every task, by its index; numbers may have gaps."""

    def __init__(self) -> None:
        self.states = bytearray()
        self.progress: dict[int, float] = {}  # by index, for running tasks
        self.ids: list[str] = []  # of sections
        self._firsts = array("q")  # the first number of each run of numbers, and its index
        self._places = array("q")
        self.last = -1  # the highest number

    def __len__(self) -> int:
        return len(self.states)

    def load(self, ranges: Iterable[tuple[int, int, str]]) -> None:
        """Set all tasks: first and last number and state, in order."""
        self.states.clear()
        self._firsts, self._places = array("q"), array("q")
        self.last = -1
        self.add(ranges)

    def add(self, ranges: Iterable[tuple[int, int, str]]) -> None:
        """Add tasks with higher numbers: the calls of a Python program come one after another."""
        for first, last, state in ranges:
            if not self.states or first != self.last + 1:
                self._firsts.append(first)
                self._places.append(len(self.states))
            self.states += bytes((STATES[state],)) * (last - first + 1)
            self.last = last

    def set(self, first: int, last: int, state: str) -> None:
        """Set the state of tasks."""
        at, end = self.place(first), self.place(last)
        if at is not None and end is not None and at <= end:
            self.states[at : end + 1] = bytes((STATES[state],)) * (end - at + 1)

    def place(self, number: int) -> int | None:
        """The index of a task's number; None if it does not exist."""
        run = bisect_right(self._firsts, number) - 1
        if run < 0:
            return None
        at = self._places[run] + number - self._firsts[run]
        end = self._places[run + 1] if run + 1 < len(self._places) else len(self.states)
        return at if at < end else None

    def number(self, place: int) -> int:
        """The number of the task at an index."""
        run = bisect_right(self._places, place) - 1
        return self._firsts[run] + place - self._places[run]

    def name(self, place: int) -> str:
        """A section's id, or a task's number."""
        return self.ids[place] if place < len(self.ids) else str(self.number(place))

    def count(self, state: TaskState, first: int = 0, last: int | None = None) -> int:
        """How many of these indices are in a state."""
        return self.states.count(bytes((state,)), first, len(self.states) if last is None else last + 1)
