"""Why nothing of a job runs, in words for the command that waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from agents.linux.processes import start_time, state
from console.jobs.job_record import JobRecord
from console.jobs.rows import of_tasks, queue_row
from console.settings import Settings
from redmesh.state import RUNNING, WAITING


def in_line(settings: Settings, jobs: Sequence[JobRecord]) -> list[tuple[str, bool]]:
    """Why each of ``jobs`` (summaries) waits for processors, "" if it does not; and whether it will wait for ever."""
    if all(job.has_ended for job in jobs):
        return [("", False)] * len(jobs)
    from console.jobs.waiting import JobInLine, read_lines  # the rules of allocation load the database's library

    lines = read_lines(settings)
    if lines is None:
        return [("", False)] * len(jobs)
    waiting = []
    for job in jobs:
        callers = (of_tasks(job).functions or {}).get("callers", ())
        waiting.append(JobInLine(job.uuid, job.yods, callers, closed=job.calls_closed))
    return lines.why(waiting)


class StoppedProcess(NamedTuple):
    """A process of a job that somebody has stopped (SIGSTOP). Nothing is ended because of it."""

    what: str  # "owner", "yod", "worker", "task" or "call"
    node: str  # its node, or the login processor
    pid: int
    since: float | None  # when that was noticed (UTC); the kernel does not say it
    task: int | None = None  # its number


def stopped_processes(job: JobRecord) -> list[StoppedProcess]:
    """The stopped processes of a job: the owner and its yods if they are on this host, workers and tasks
    as the owner has noted them."""
    if job.has_ended or job.owner_lost:
        return []
    found = []
    if job.host == os.uname().nodename:
        for what, pid, started in [("owner", job.pid, 0), *(("yod", *one) for one in job.yods)]:
            if pid and state(pid) in ("T", "t") and (not started or start_time(pid) == started):
                found.append(StoppedProcess(what, job.host, pid, None))
    for one in job.stopped:
        task = one.get("task")
        what = "worker" if task is None else "task" if task >= 0 else "call"
        found.append(StoppedProcess(what, one["node"], one["pid"], one["since"], task if what == "task" else None))
    return found


def stopped_text(stopped: Sequence[StoppedProcess]) -> str:
    """Stopped processes as a line for people, with what to do."""
    first, count = stopped[0], len(stopped)
    since = f", since {time.strftime('%H:%M:%S', time.localtime(first.since))}" if first.since else ""
    more = f", and {count - 1} more" if count > 1 else ""
    where = f"kill -CONT {first.pid}" if first.what in ("owner", "yod") else f"there: kill -CONT {first.pid}"
    name = f"the job's {first.what}" if first.what == "owner" else f"a {first.what} of the job"
    name = name if first.task is None else f"task {first.task}"
    return f"{name} on {first.node} (process {first.pid}) is stopped (SIGSTOP){since}{more}; to continue it, {where}"


def why_idle(settings: Settings, job: JobRecord) -> str:
    """Why a job does not go on: what it waits for, or nodes that do not answer; "" if it does, or if that is not
    known."""
    row = queue_row(job)
    if job.has_ended:
        return ""
    stopped = stopped_processes(job)
    if stopped:
        return stopped_text(stopped)
    if job.silent and not job.owner_lost:
        return f"no word from {job.silent} for seconds (stopped, or overloaded); waiting for it"
    if row.running:
        return ""
    if row.state not in (RUNNING, WAITING):
        return row.state
    return in_line(settings, [job])[0][0]
