"""A job as a row of ``mesh queue`` and of the console, from its state object (console/jobs/objects)."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from agents.job.dependencies import Unmet, elsewhere, unmet
from agents.job.description import META
from agents.job.tasks.adding import OPEN
from agents.yodio.yodfields import PART, filled, has_field
from console.errors import ConsoleError
from console.jobs.objects import ENDED, opened, summary
from redmesh.state import DONE, FAILED, HANDED_TO, RUNNING, SCHEME, WAITING, StateError, job_path, owned

#: How the reason begins for which a job waits (console/jobs/waiting.py), where nobody is in front of it.
FIRST = "first in the line"


def queue_row(job: dict[str, Any]) -> dict[str, Any]:
    """The row of a job of tasks: ``uuid``, ``name``, ``state``, ``owner``, number of tasks, rate, remaining time."""
    described, counts = json.loads(job[META]), job["counts"] or {}
    tasks = sum(counts.values())
    ended = tasks - counts.get(WAITING, 0) - counts.get(RUNNING, 0)
    ran, left = counts.get(DONE, 0) + counts.get(FAILED, 0), tasks - ended
    begun, before = paced(job)
    until = job.get("ended_at") or time.time()
    rate = max(0, ran - before) / (until - begun) if begun and until > begun else 0.0
    return {
        "uuid": job["uuid"],
        "name": described["name"],
        "state": shown_state(job, described),
        "open": bool(job.get(OPEN)) and job["state"] not in ENDED,
        "owner": "" if not owned(job["path"]) else f"{job['host']}:{job.get('pid', '?')}",
        "tasks": tasks,
        "ended": ended,
        "failed": counts.get(FAILED, 0),
        "running": counts.get(RUNNING, 0),
        "noun": "section" if described.get("sections") else "task",
        "rate": rate,
        "left_s": left / rate if rate and left and job["state"] not in ENDED else None,
        "command": " ".join(job["command"] or ()),
    }


def waiting_text(why: str, running: int) -> str:
    """Why a job waits for processors, in brackets. One that runs on others only takes more as they become free."""
    if running and why.startswith(FIRST):
        why = "more when free"
    return f" ({why})" if why else ""


def paced(job: dict[str, Any]) -> tuple[float, int]:
    """From when on the rate counts, and how many tasks had run before.

    Of a job that has ended: from its start, without the time in which it was held or had ended before (with it, if its
    object is not on this host). Else since it was last released or resumed, or since its program is no longer idle.
    """
    begun = float(job.get("begun_at") or 0.0)
    if not begun:
        return begun, 0
    if job["state"] in ENDED:
        again = float(job.get("paced_at") or 0.0) > begun and not job["path"].startswith(SCHEME)
        return (job["ended_at"] - _worked_s(job["path"]) if again else begun), 0
    return float(job.get("paced_at") or begun), int(job.get("paced_from") or 0)


def _worked_s(path: str) -> float:
    """The seconds in which a job that has ended was running and not held."""
    with opened(path) as state:
        changes = [(one.at, one.state == RUNNING) for one in state.job_transitions()]
        changes += [(one.at, one.text == "released") for one in state.log() if one.text in ("held", "released")]
    return sum(till - at for (at, runs), (till, _) in pairwise(sorted(changes)) if runs)


def shown_state(job: dict[str, Any], described: dict[str, Any]) -> str:
    """The state, with the reason if nothing runs."""
    if job["state"] in ENDED:
        return str(job["state"])
    if job.get("held"):
        return "held"
    if not job.get("owner_lost"):
        if job.get("waits_for"):
            return f"waits for {job['waits_for']}"
        if job.get("trouble"):
            return f"no processors: {job['trouble']}"
        return open_text(job) or str(job["state"])
    if waits(job, described):
        return "after " + ",".join(_awaited(os.path.dirname(job["path"]), one) for one in described["after"])
    if job.get(HANDED_TO):
        return f"moving to {job[HANDED_TO]}"
    return "suspended" if job["state"] == WAITING and job.get("begun_at") else "owner lost"


def open_text(job: dict[str, Any]) -> str:
    """That a job takes further tasks, and what it does; "" if it takes none."""
    if not job.get(OPEN) or job["state"] in ENDED:
        return ""
    counts = job["counts"] or {}
    has = counts.get(WAITING, 0) + counts.get(RUNNING, 0)
    return f"{job['state']} (open)" if has else "open: waits for tasks"


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
            if other.get(META):
                state = shown_state(other, json.loads(other[META]))
            elif other.get("owner_lost"):
                state = "owner lost"
    return uuid[:8] + (f" ({state})" if state in ("on another host", "held", "suspended", "owner lost") else "")


def waits(job: dict[str, Any], described: dict[str, Any]) -> bool:
    """True if the job waits for the end of others, and so has no owner yet."""
    if job.get("begun_at"):
        return False
    try:
        return bool(unmet(os.path.dirname(job["path"]), described["after"]))
    except (Unmet, StateError):
        return False


def command_line(described: dict[str, Any], number: int, given: str | None) -> str:
    """The command of a task as a line for the shell; ``given`` is the task's input."""
    if described.get("sections"):
        told = json.loads(given or '{"words": [], "parts": []}')
        words = list(told["words"])
        for place, part in enumerate(told["parts"]):
            words = [word.replace(PART.format(place), part) for word in words]
        return shlex.join(words)
    if not described["command"]:
        return given or str(described["name"])
    words = [filled(word, str(number), str(number) if given is None else given) for word in described["command"]]
    if given is not None and not any(map(has_field, described["command"])):
        words.append(given)
    return shlex.join(words)


def rate_text(rate: float) -> str:
    """``12/s``, ``0.25/s``; empty for none."""
    return "" if not rate else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2f}/s"
