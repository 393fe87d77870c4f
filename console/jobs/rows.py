"""A job as a row of ``mesh queue`` and of the console, from its state object (console/jobs/objects)."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from agents.job.dependencies import Unmet, elsewhere, unmet
from agents.job.description import Description
from agents.yodio.yodfields import PART, filled, has_field
from console.errors import ConsoleError
from console.jobs.job_record import JobRecord
from console.jobs.objects import opened, summary
from redmesh.state import DONE, FAILED, RUNNING, SCHEME, WAITING, StateError, job_path, owned

#: How the reason begins for which a job waits (console/jobs/waiting.py), where nobody is in front of it.
FIRST = "first in the line"


class QueueRow(NamedTuple):
    """A job of tasks as ``mesh queue`` prints it; its fields are keys of ``mesh queue --json``."""

    uuid: str
    name: str
    state: str  # with the reason if nothing runs
    open: bool  # takes further tasks
    owner: str  # HOST:PID; "" for none
    tasks: int  # so many has the job, and so many of these have ended, failed, or run now
    ended: int
    failed: int
    running: int
    noun: str  # "task" or "section"
    rate: float  # tasks a second; 0.0 if it is not known
    left_s: float | None
    command: str


def queue_row(job: JobRecord) -> QueueRow:
    """The row of a job of tasks. Raises ConsoleError for a launch."""
    described, counts = of_tasks(job), job.counts
    tasks = sum(counts.values())
    ended = tasks - counts.get(WAITING, 0) - counts.get(RUNNING, 0)
    ran, left = counts.get(DONE, 0) + counts.get(FAILED, 0), tasks - ended
    begun, before = paced(job)
    until = job.ended_at or time.time()
    rate = max(0, ran - before) / (until - begun) if begun and until > begun else 0.0
    return QueueRow(
        uuid=job.uuid,
        name=described.name,
        state=shown_state(job, described),
        open=job.open,
        owner="" if not owned(job.path) else f"{job.host}:{job.pid or '?'}",
        tasks=tasks,
        ended=ended,
        failed=counts.get(FAILED, 0),
        running=counts.get(RUNNING, 0),
        noun="section" if described.sections else "task",
        rate=rate,
        left_s=left / rate if rate and left and not job.has_ended else None,
        command=" ".join(job.command),
    )


def need_tasks(job: JobRecord) -> None:
    """Raise ConsoleError for a launch where a job of tasks is wanted."""
    if not job.has_tasks:
        hint = f"yod runs it, and yod -signal ends it; mesh job show {job.name} prints its state"
        if job.has_ended or job.owner_lost:
            hint = f"it ended with its yod; mesh job show {job.name} prints what is known of it"
        raise ConsoleError(f"{job.name} is a launch, not a job of tasks", hint, exit_status=1)


def of_tasks(job: JobRecord) -> Description:
    """The description of a job of tasks. Raises ConsoleError for a launch, and for a damaged description."""
    need_tasks(job)
    try:
        return job.description
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None


def waiting_text(why: str, running: int) -> str:
    """Why a job waits for processors, in brackets. One that runs on others only takes more as they become free."""
    if running and why.startswith(FIRST):
        why = "more when free"
    return f" ({why})" if why else ""


def paced(job: JobRecord) -> tuple[float, int]:
    """From when on the rate counts, and how many tasks had run before.

    Of a job that has ended: from its start, without the time in which it was held or had ended before (with it, if its
    object is not on this host). Else since it was last released or resumed, or since its program is no longer idle.
    """
    if not job.begun_at:
        return 0.0, 0
    if job.has_ended:
        again = job.ended_at is not None and job.paced_at > job.begun_at and not job.path.startswith(SCHEME)
        return (job.ended_at - _worked_s(job.path) if again and job.ended_at else job.begun_at), 0
    return job.paced_at or job.begun_at, job.paced_from


def _worked_s(path: str) -> float:
    """The seconds in which a job that has ended was running and not held."""
    with opened(path) as state:
        changes = [(one.at, one.state == RUNNING) for one in state.job_transitions()]
        changes += [(one.at, one.text == "released") for one in state.log() if one.text in ("held", "released")]
    return sum(till - at for (at, runs), (till, _) in pairwise(sorted(changes)) if runs)


def shown_state(job: JobRecord, described: Description) -> str:
    """The state, with the reason if nothing runs."""
    if job.has_ended:
        return job.state
    if job.held:
        return "held"
    if not job.owner_lost:
        if job.waits_for:
            return f"waits for {job.waits_for}"
        if job.trouble:
            return f"no processors: {job.trouble}"
        return open_text(job) or job.state
    if waits(job, described):
        return "after " + ",".join(_awaited(os.path.dirname(job.path), one) for one in described.after)
    if job.handed_to:
        return f"moving to {job.handed_to}"
    return "suspended" if job.state == WAITING and job.begun_at else "owner lost"


def open_text(job: JobRecord) -> str:
    """That a job takes further tasks, and what it does; "" if it takes none."""
    if not job.open:
        return ""
    has = job.counts.get(WAITING, 0) + job.counts.get(RUNNING, 0)
    return f"{job.state} (open)" if has else "open: waits for tasks"


def _awaited(directory: str, after: Sequence[str]) -> str:
    """A job for whose end another one waits, and why the wait may be long: where the job is, or that it needs a
    command before it continues."""
    uuid, _, *ended = after
    state = ""
    if elsewhere(directory, [after]):
        state = "on another host"
    elif not ended:
        with suppress(ConsoleError):  # deleted, and its end does not matter (:any)
            other = summary(job_path(directory, uuid))
            if other.has_tasks:
                state = shown_state(other, of_tasks(other))
            elif other.owner_lost:
                state = "owner lost"
    return uuid[:8] + (f" ({state})" if state in ("on another host", "held", "suspended", "owner lost") else "")


def waits(job: JobRecord, described: Description) -> bool:
    """True if the job waits for the end of others, and so has no owner yet."""
    if job.begun_at:
        return False
    if job.path.startswith(SCHEME):  # on another host, and so are the objects of those for which it waits
        return bool(described.after)
    try:
        return bool(unmet(os.path.dirname(job.path), described.after))
    except (Unmet, StateError):
        return False


def command_line(described: Description, number: int, given: str | None) -> str:
    """The command of a task as a line for the shell; ``given`` is the task's input."""
    if described.sections:
        told = json.loads(given or '{"words": [], "parts": []}')
        words = list(told["words"])
        for place, part in enumerate(told["parts"]):
            words = [word.replace(PART.format(place), part) for word in words]
        return shlex.join(words)
    if not described.command:
        return given or described.name
    words = [filled(word, str(number), str(number) if given is None else given) for word in described.command]
    if given is not None and not any(map(has_field, described.command)):
        words.append(given)
    return shlex.join(words)


def rate_text(rate: float) -> str:
    """``12/s``, ``0.25/s``; empty for none."""
    return "" if not rate else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2f}/s"
