"""Why nothing of a job runs, in words for the command that waits for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agents.job.description import META
from console.jobs.objects import ENDED
from console.jobs.rows import queue_row
from console.settings import Settings
from redmesh.state import RUNNING, WAITING


def in_line(settings: Settings, jobs: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Why each of ``jobs`` (summaries) waits for processors, "" if it does not; and whether it will wait for ever."""
    if all(job["state"] in ENDED for job in jobs):
        return [("", False)] * len(jobs)
    from console.jobs.waiting import JobInLine, read_lines  # the rules of allocation load the database's library

    lines = read_lines(settings)
    if lines is None:
        return [("", False)] * len(jobs)
    waiting = []
    for job in jobs:
        callers = (json.loads(job[META]).get("functions") or {}).get("callers", ())
        processes = json.loads(str(job.get("yods") or "[]"))
        waiting.append(JobInLine(job["uuid"], processes, callers, closed=bool(job.get("calls_closed"))))
    return lines.why(waiting)


def why_idle(settings: Settings, job: dict[str, Any]) -> str:
    """Why a job does not go on: what it waits for, or nodes that do not answer; "" if it does, or if that is not
    known."""
    row = queue_row(job)
    if job["state"] in ENDED:
        return ""
    if job.get("silent") and not job.get("owner_lost"):
        return f"no word from {job['silent']} for seconds (stopped, or overloaded); waiting for it"
    if row["running"]:
        return ""
    if row["state"] not in (RUNNING, WAITING):
        return str(row["state"])
    return in_line(settings, [job])[0][0]
