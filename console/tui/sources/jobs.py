"""The jobs of this user on this host, read from their state objects when the kernel reports a change."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.objects.changes import DirectoryChanges
from console.errors import ConsoleError
from console.jobs.objects import directory_of, make_directory, opened, summary, uuids
from console.jobs.rows import of_tasks, paced, queue_row
from console.tui.model.jobs import ENDED, Job, Task, TaskMap, TaskState
from console.tui.model.output import lines_of
from redmesh.sanitise import clean
from redmesh.state import FAILED, is_uuid, job_path
from redmesh.state_reader import StateReader

if TYPE_CHECKING:
    from console.jobs.waiting import Lines

_PAUSE_S = 0.25  # between two readings, because an owner commits up to 50 times a second
_MOST_LINES = 500  # log lines and failures
_MOST_CHANGES = 50  # of one task


class JobsReader:
    """Keeps a row for each job. It reads only when the kernel reports a change of a state object."""

    def __init__(
        self,
        state_dir: str,
        changed: Callable[[set[str]], None],
        ended: Callable[[list[Job]], None],
        read_lines: Callable[[], Lines | None] = lambda: None,
    ) -> None:
        """``changed`` gets the UUIDs of changed jobs, ``ended`` those jobs that have ended since the last reading.

        ``read_lines`` reads the waiting requests from the system database.
        """
        self._ended, self._read_lines = ended, read_lines
        self._line_due = False  # True if the database has changed since the requests were read
        self._line: Lines | None = None
        self.jobs: dict[int, Job] = {}  # by number
        self.trouble = ""
        self._directory, self._changed = directory_of(state_dir), changed
        self._numbers: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._changes: DirectoryChanges | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading = False
        self._thread = ThreadPoolExecutor(1, "jobs")

    def start(self) -> None:
        """Read all jobs, and follow changes."""
        self._loop = asyncio.get_running_loop()
        try:
            make_directory(self._directory)
            self._changes = DirectoryChanges(self._directory)
        except (ConsoleError, OSError) as error:
            self.trouble = clean(f"jobs are not followed: {getattr(error, 'message', error)}")
        else:
            self._loop.add_reader(self._changes.fd, self._happened)
        self._dirty.update(uuids(self._directory))
        self._read_soon()

    def close(self) -> None:
        """Stop following changes, and end the thread."""
        if self._changes is not None and self._loop is not None:
            self._loop.remove_reader(self._changes.fd)
            self._changes.close()
            self._changes = None
        self._thread.shutdown(wait=False)

    def by_id(self, text: str) -> Job | None:
        """The only job whose UUID has this beginning."""
        found = [job for job in self.jobs.values() if job.uuid.startswith(text)]
        return found[0] if len(found) == 1 and text else None

    def work(self, do: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run ``do`` in the thread that reads objects."""
        return asyncio.get_running_loop().run_in_executor(self._thread, do, *arguments)

    def read_line(self) -> None:
        """Find out why jobs wait: the system database has changed."""
        if any(job.live and job.yods for job in self.jobs.values()):
            self._line_due = True
            self._read_soon()

    def _happened(self) -> None:
        assert self._changes is not None
        found = {name[:36] for name in self._changes.names()}
        self._dirty.update(uuid for uuid in found if is_uuid(uuid))
        self._read_soon()

    def _read_soon(self) -> None:
        if (self._dirty or self._line_due) and not self._reading and self._loop is not None:
            self._reading = True
            self._task = self._loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            while (self._dirty or self._line_due) and self._loop is not None:
                due, self._dirty = self._dirty, set()
                rows = await self.work(_rows, self._directory, due)
                if self._line_due or any(row is not None and row["yods"] for row in rows.values()):
                    self._line_due = False
                    self._line = await self.work(self._read_lines)
                    rows = {**{job.uuid: _told(job) for job in self.jobs.values() if job.live}, **rows}
                lived = {number for number, job in self.jobs.items() if job.live}
                changed = {uuid for uuid, row in rows.items() if self._put(uuid, row)}
                if changed:
                    if over := [self.jobs[one] for one in lived & self.jobs.keys() if not self.jobs[one].live]:
                        self._ended(over)
                    self._changed(changed)
                await asyncio.sleep(_PAUSE_S)
        except RuntimeError:
            pass  # the thread has ended because the console is closing
        finally:
            self._reading = False

    def _put(self, uuid: str, told: dict[str, Any] | None) -> bool:
        number = self._numbers.setdefault(uuid, len(self._numbers) + 1)
        if told is None:
            return self.jobs.pop(number, None) is not None
        line = self._line if told["yods"] and told["state"] not in ENDED else None
        row = Job(number, **{**told, "waits": clean(line.reason(uuid, told["yods"])) if line is not None else ""})
        if self.jobs.get(number) == row:
            return False
        self.jobs[number] = row
        return True


def _told(job: Job) -> dict[str, Any]:
    """What a reading of this job's object told."""
    return {key: value for key, value in job._asdict().items() if key != "number"}


def _rows(directory: str, wanted: set[str]) -> dict[str, dict[str, Any] | None]:
    """The summary of each job; None if it was removed, or is not a job of tasks."""
    return {uuid: _row(job_path(directory, uuid)) for uuid in sorted(wanted)}


def _row(path: str) -> dict[str, Any] | None:
    try:
        job = summary(path)
        described = of_tasks(job)
        row = queue_row(job)
    except (ConsoleError, KeyError, ValueError, TypeError):
        return None  # removed, or being created
    return {
        "uuid": row.uuid,
        "name": clean(row.name),
        "state": clean(row.state),
        "owner": clean(row.owner),
        "user": clean(job.user),
        "tasks": row.tasks,
        "finished": job.counts.get("done", 0),
        "failed": row.failed,
        "running": row.running,
        "over": row.ended,
        "created_at": job.created_at,
        "begun_at": job.begun_at,
        "paced": paced(job),
        "ended_at": job.ended_at,
        "command": clean(row.command),
        "why": clean(job.why),
        "sections": described.sections is not None,
        "calls": bool(described.functions),
        "path": path,
        "yods": tuple(job.yods),
    }


class Line(NamedTuple):
    """A line of a job's log, or a failed task (``place`` is not None)."""

    at: float
    place: int | None
    name: str
    text: str
    bad: bool = False


class JobReading:
    """A job that is shown: states of its tasks, failures, log. Reads changes since the last time.

    Use it only in the thread of :meth:`JobsReader.work`.
    """

    def __init__(self, job: Job) -> None:
        self.path, self.sections = job.path, job.sections
        self.tasks = TaskMap()
        self.changed: set[int] | None = None  # indices; None: all
        self.log: list[Line] = []
        self.failures: list[Line] = []
        self.excluded: dict[str, str] = {}  # excluded nodes, with reasons
        self._transition = self._logged = self._changed_at = -1
        self._failed_anew = False

    def read(self) -> None:
        """Read changes. Raises ConsoleError or sqlite3.Error."""
        with opened(self.path) as job:
            self._read_states(job)
            self._read_log(job)
            if self._failed_anew:
                self._read_failures(job)

    def _read_states(self, job: StateReader) -> None:
        newest = job.newest_transition()
        failed = self.tasks.count(TaskState.FAILED)
        if self._transition < 0 or newest < self._transition:
            self.tasks.load(job.states())
            if self.sections:
                from console.sections.job import read_made  # imported late: rarely needed

                self.tasks.ids = [clean(one) for one in read_made(job, self.path).ids]
            self.changed, self._failed_anew = None, True
        else:
            self.changed, self._failed_anew = set(), False
            grown = job.states(self.tasks.last)
            self.tasks.add(grown)
            for _, _, first, last, state, _, _ in job.task_transitions(self._transition):
                self.tasks.set(first, last, state)
                self._failed_anew |= state == FAILED
                at, end = self.tasks.place(first), self.tasks.place(last)
                if at is not None and end is not None:
                    self.changed.update(range(at, end + 1))
            self.changed = None if grown else self.changed
        self._failed_anew |= failed != self.tasks.count(TaskState.FAILED)
        self._transition = newest
        if self.sections:
            self._read_progress(job)

    def _read_progress(self, job: StateReader) -> None:
        before, now = self.tasks.progress, {}
        for number, progress in job.progress().items():
            if (place := self.tasks.place(number)) is not None:
                now[place] = float(progress)
        if self.changed is not None:
            self.changed |= {place for place in before.keys() | now.keys() if before.get(place) != now.get(place)}
        self.tasks.progress = now

    def _read_log(self, job: StateReader) -> None:
        for number, at, node, task, text in job.newest_log(self._logged, _MOST_LINES):
            self._logged = number
            if node and self.sections:  # the texts that the job's owner writes (agents/job/job_owner.py)
                self.excluded.pop(clean(node), None)
                if text.startswith(f"{node} is left out: "):
                    self.excluded[clean(node)] = clean(text.partition(": ")[2])
            place = None if task is None else self.tasks.place(task)
            who = clean(str(node or "")) if place is None else self.tasks.name(place)
            self.log.append(Line(at, place, who, _drawn(text)))
        for change in job.job_transitions(self._changed_at):
            self._changed_at, told = change.id, f"the job is {change.state}"
            self.log.append(Line(change.at, None, "", clean(told + (f": {change.cause}" if change.cause else ""))))
        self.log.sort(key=lambda line: line.at)
        del self.log[:-_MOST_LINES]

    def _read_failures(self, job: StateReader) -> None:
        found = []
        for task in job.failures(_MOST_LINES, newest=True):
            place = self.tasks.place(task.task)
            name = "" if place is None else self.tasks.name(place)
            how, colon, last = task.text.partition(": ")
            found.append(Line(task.at, place, name, clean(how) + colon + _drawn(last), bad=True))
        self.failures = found

    def task(self, place: int, *, past: bool = False) -> Task | None:
        """All data about one task, with ``past`` its history; None if it was removed. Raises ConsoleError or
        sqlite3.Error."""
        if not 0 <= place < len(self.tasks):
            return None
        number = self.tasks.number(place)
        with opened(self.path) as job:
            row = job.task(number)
            changes = job.history(number, _MOST_CHANGES) if past else []
        if row is None:
            return None
        text = _section_words(row.input) if self.sections else row.input or ""
        history = [(one.at, one.state, clean(one.node or ""), clean(one.cause or "")) for one in reversed(changes)]
        known = (row.attempt, row.started_at, row.ended_at, row.exit, row.progress)
        return Task(number, row.state, clean(text), clean(row.node or ""), *known, lines_of(row.lines or ""), history)


def _drawn(text: str) -> str:
    """A line that may hold a program's output, as a terminal shows it, without colours."""
    return " ".join(line.text for line in lines_of(text))


def _section_words(text: str | None) -> str:
    """The command of a section, from its input."""
    try:
        told = json.loads(text or "")
        words = " ".join(told["words"])
        for place, part in enumerate(told["parts"]):  # a worker gives each attempt's part a name of its own
            words = words.replace(f"\ue000{place}\ue000", os.path.basename(part))
        return words
    except (ValueError, KeyError, TypeError):
        return text or ""
