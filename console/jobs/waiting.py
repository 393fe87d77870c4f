"""Why jobs wait for processors, read from the system database without a CPA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.jobs.foreign import job_of
from console.jobs.rows import FIRST
from console.settings import Settings
from db.allocation.limits import shares_of
from db.allocation.managers import Policy, read_policy
from db.errors import Invalid, StoreError
from db.views.viewer import open_viewer
from redmesh.settings.keeper_file import read_keeper_file
from redmesh.text import counted


@dataclass(frozen=True)
class JobInLine:
    """A job that may wait for processors."""

    uuid: str
    #: Pid and start time of each of its yods.
    processes: Sequence[Sequence[int]]
    #: The calls in which its Executor was opened, the innermost first, each as UUID:LAUNCHER: they wait for this job.
    callers: Sequence[str] = ()
    #: Its program makes no further calls, so a worker without one exits.
    closed: bool = False


class Lines:
    """The requests that wait for processors, and the live launchers and the processors of the machine, as of one
    reading. ``processors``: those of nodes that are not drained."""

    def __init__(
        self, policy: Policy | None, waiting: Sequence[Any], live: Sequence[Any], processors: Sequence[Any]
    ) -> None:
        self._policy, self._waiting, self._live, self._processors = policy, waiting, live, processors
        self._by_process = {(row.pid, row.pid_started): row for row in waiting}

    def why(self, jobs: Sequence[JobInLine]) -> list[tuple[str, bool]]:
        """Why each job waits; "" if it does not. The second is true if it waits for ever, because calls that wait for
        it, or for other jobs that wait for ever, have all that it could get; and if it is the one to give up."""
        stuck = self._stuck(jobs)
        found = []
        for job in jobs:
            row = self._row(job)
            reason = stuck.get(job.uuid, "")
            found.append((reason or ("" if row is None else self._limited(job, row) or self._place(row)), bool(reason)))
        return found

    def reason(self, uuid: str, processes: Sequence[Sequence[int]]) -> str:
        """Why a job with these launchers waits; "" if none of them waits."""
        return self.why([JobInLine(uuid, processes)])[0][0]

    def _row(self, job: JobInLine) -> Any:
        return next((found for one in job.processes if (found := self._by_process.get((one[0], one[1])))), None)

    def _limited(self, job: JobInLine, row: Any) -> str:
        return self._limit(job.uuid, row, self._live) if self._policy is not None and row.partition is None else ""

    def _stuck(self, jobs: Sequence[JobInLine]) -> dict[str, str]:
        """Why jobs of calls wait for ever, for those that give up: a program blocks itself, or several block each other
        and it is the one that came last."""
        closed = {job.uuid for job in jobs if job.closed}
        rows = [(job, self._row(job)) for job in jobs if job.callers and len(job.processes) == 1]  # it has none yet
        blocked = [(job, row) for job, row in rows if row is not None]
        while True:
            kept = self._kept(blocked, closed)
            left = [(job, row) for job, row in blocked if self._has_all(job, row, kept)]
            if len(left) == len(blocked):
                break
            blocked = left
        programs: dict[str, list[tuple[JobInLine, Any]]] = {}
        for job, row in blocked:
            programs.setdefault(job.callers[-1].partition(":")[0], []).append((job, row))
        last = max(programs, key=lambda one: min(row.id for _, row in programs[one]), default="")
        found = {}
        for program, its in programs.items():
            alone = self._kept(its, closed)
            for job, row in its:
                reason = self._has_all(job, row, alone) or (self._has_all(job, row, kept) if program == last else "")
                found[job.uuid] = reason
        return found

    def _kept(self, blocked: Sequence[tuple[JobInLine, Any]], closed: set[str]) -> list[Any]:
        """The launchers that keep their processors until one of these jobs has run: those whose calls wait for it, and
        the others of an Executor that is open."""
        ids, names = set(), set()
        for job, row in blocked:
            for caller in job.callers:
                uuid, _, launcher = caller.partition(":")
                ids.add(launcher)
                if uuid not in closed:
                    names.add((row.uid, uuid[:8]))
        return [one for one in self._live if str(one.id) in ids or (one.uid, job_of(one.command)) in names]

    def _has_all(self, job: JobInLine, row: Any, kept: Sequence[Any]) -> str:
        """Who has all that a job could get, if these launchers have it; "" otherwise."""
        own = {caller[:8] for caller in job.callers}
        others = sorted({job_of(one.command) for one in kept} - own - {""})
        if self._limited(job, row):
            theirs = [one for one in kept if one.uid == row.uid]
            limit = self._limit(job.uuid, row, theirs)
            what = f"all that its user may have ({limit})" if limit else ""
        else:
            ids = {one.id for one in kept}
            scope = [one for one in self._processors if row.partition is None or one.partition == row.partition]
            has_all = kept and all(one.launcher in ids for one in scope)
            whole = f"{'all ' if len(scope) > 1 else 'the '}{counted(len(scope), 'processor')}"
            what = f"{whole} of the mesh" if has_all else ""
        if not what:
            return ""
        has = f"job {job.callers[0][:8]}, which waits for it, "
        if others:
            has += f"and job{'s' * (len(others) > 1)} {', '.join(others)}, whose calls wait for processors too, have "
        return f"{has if others else has + 'has '}{what}"

    def _place(self, row: Any) -> str:
        before = [
            one
            for one in self._waiting
            if (one.partition, one.part) == (row.partition, row.part)
            and (one.precedence, one.id) < (row.precedence, row.id)
        ]
        of_manager = f" of manager {row.manager}" if row.manager else ""
        if before:
            return f"{counted(len(before), 'request')} in front"
        return f"{FIRST}{of_manager}: {counted(row.size, 'processor')} not free yet"

    def _limit(self, uuid: str, row: Any, launchers: Sequence[Any]) -> str:
        assert self._policy is not None
        manager = next((one for one in self._policy.managers if one.name == row.manager), None)
        if manager is None:
            return ""
        live = [
            (one.user, one.command, one.size, one.login_processor, one.pid, one.pid_started)
            for one in launchers
            if one.uid == row.uid
        ]
        has, everywhere, jobs = shares_of(self._policy, manager, live)
        new_job = ("job", uuid[:8]) not in jobs
        return self._policy.refusal(manager, row.user, max(1, row.size), has, everywhere, new_job=new_job)[0]


def read_lines(settings: Settings) -> Lines | None:
    """Read the waiting requests; None if there are none, or if the database does not answer."""
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            waiting = viewer.waiting()
            if not waiting:
                return None
            reading = viewer.read()
    except StoreError:
        return None
    batch = {one.id for one in reading.partitions if one.batch_job is not None}
    live = [one for one in reading.launchers if one.ended_at is None and one.partition not in batch]
    drained = {node.id for node in reading.nodes if node.state == "drained"}
    processors = [one for one in reading.processors if one.node not in drained]
    return Lines(_policy(settings), waiting, live, processors)


def _policy(settings: Settings) -> Policy | None:
    """The policy of the CPAs, or if it is unreadable, that of the configuration."""
    try:
        with open(f"{settings.state_dir}/keeper.json", encoding="utf-8") as file:
            told = read_keeper_file(json.load(file))
        return read_policy(told.managers, told.max_processors, told.max_jobs)
    except (OSError, ValueError, Invalid):
        try:
            return read_policy(settings.managers, settings.max_processors, settings.max_jobs)
        except Invalid:
            return None
