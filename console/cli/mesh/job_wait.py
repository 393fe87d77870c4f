"""``mesh wait``, and the wait of ``mesh submit --wait``: for a job's end, wherever it is and goes (docs/jobs.md)."""

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

from agents.job.description import META
from console.cli.mesh.progress_line import ProgressLine
from console.errors import ConsoleError
from console.jobs.objects import ENDED, summary
from console.jobs.owner_client import NoOwner, await_end, last_words
from console.jobs.rows import paced, queue_row, rate_text, waits
from console.settings import Settings
from console.tracker.source import Source, source
from redmesh.sanitise import clean
from redmesh.state import FAILED, owned

_LOOK_S = 0.5
#: Seconds for a job that is on its way to be found again, or for one elsewhere to get an owner; and until the next try.
_FOUND_S, _AGAIN_S = 60.0, 0.5
#: Seconds between two looks at the progress of a job on another host.
_FAR_S = 4.0


def wait(settings: Settings, options: argparse.Namespace) -> int:
    """Wait for the end of jobs; returns 0 if every task of all of them is done."""
    found = [source(settings, name) for name in options.jobs]
    for one in found:
        _job(one)
    status = max(see_end(settings, one, quiet=options.quiet or options.json) for one in found)
    if options.json:
        print(json.dumps([queue_row(_job(one)) for one in found]))
    return status


def see_end(settings: Settings, found: Source, *, quiet: bool) -> int:
    """Wait for the end of a job of tasks, print its counts, and return its exit status."""
    _tell_open(found, quiet=quiet)
    try:
        with ProgressLine(settings, _Looks(found).look, quiet=quiet):
            job = _end(settings, found)
    except KeyboardInterrupt:
        name = found.uuid[:8] if found.path else found.uuid
        print(f"mesh: the job goes on (mesh wait {name} waits again, mesh cancel {name} ends it)", file=sys.stderr)
        return 130
    if not quiet:
        print(_sentence(job), file=sys.stderr)
        if (job["counts"] or {}).get(FAILED):
            with suppress(ConsoleError):  # its node does not answer any more, and the end is known
                for one in found.failures(1):
                    print(clean(f"mesh: task {one['task']} failed first: {one['text']}"), file=sys.stderr)
    return int(job.get("exit_status") or 0)


def _tell_open(found: Source, *, quiet: bool) -> None:
    """Say that a job ends only after it was closed."""
    if not quiet and queue_row(_job(found))["open"]:
        name = found.uuid[:8] if found.path else found.uuid
        told = f"mesh: job {name} is open: it ends after mesh job close {name}, when its tasks have ended"
        print(told, file=sys.stderr)


class _Looks:
    """Looks at a job while another thread waits for its end; ``found`` is the place that this thread last knew."""

    def __init__(self, found: Source) -> None:
        self._found, self._at = found, 0.0
        self._job: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """The job's summary; of a job on another host no more often than every few seconds. Raises ConsoleError."""
        found = self._found
        if found.path:
            return summary(found.path)
        if not self._job or time.monotonic() - self._at > _FAR_S:
            self._job = Source(found.uuid, address=found.address, proxied=found.proxied).job() or {}
            self._at = time.monotonic()
        return self._job


def _end(settings: Settings, found: Source) -> dict[str, Any]:
    """The summary of a job after its end; ``found`` is where it ended. Raises ConsoleError."""
    since = 0.0
    while True:
        if found.path:
            try:
                return ended(found.path)
            except ConsoleError:
                if os.path.exists(found.path):
                    raise
        try:
            here = source(settings, found.uuid)
            found.path, found.address, found.proxied = here.path, here.address, here.proxied
            if found.path:
                continue  # it has come to this host
            job = _job(found)
            while job["state"] not in ENDED and not _is_lost(job):
                since, job = 0.0, found.job(wait=True) or job
            if job["state"] in ENDED:
                return job
            trouble = ConsoleError(
                f"job {found.uuid[:8]} has lost its owner on {found.proxied or found.node}",
                f"mesh job resume {found.uuid} continues it", exit_status=1,
            )  # fmt: skip
        except ConsoleError as error:
            trouble = error
        # on its way, or nobody answers: no evidence of an end
        since = since or time.monotonic()
        if time.monotonic() - since > _FOUND_S:
            raise trouble
        time.sleep(_AGAIN_S)  # poll: who has it is not known


def _is_lost(job: dict[str, Any]) -> bool:
    """True if a job elsewhere has no owner, and needs one now."""
    awaits_others = json.loads(job[META]).get("after") and not job.get("begun_at")
    return not job["owner_lives"] and not job.get("held") and not awaits_others


def _job(found: Source) -> dict[str, Any]:
    """The summary of a job of tasks. Raises ConsoleError, also for a launch."""
    job = found.job() or {}
    if not job.get(META):
        raise is_launch(job)
    return job


def ended(path: str, resume: str = "mesh job resume") -> dict[str, Any]:
    """The summary of a job of this host after its end. Raises ConsoleError, which names ``resume``, if its owner was
    lost."""
    lost_at = 0.0
    job = summary(path)
    if not job.get(META):
        raise is_launch(job)
    while True:
        try:
            await_end(path)
        except NoOwner:
            pass
        job = summary(path)
        if job["state"] in ENDED:
            return job
        if job.get("held") or waits(job, json.loads(job[META])) or owned(path):
            lost_at = 0.0
        elif not lost_at:
            lost_at = time.monotonic()  # an owner process may be starting
        elif time.monotonic() - lost_at > 20 * _LOOK_S:
            words = last_words(path)
            raise ConsoleError(
                f"job {job['uuid'][:8]} has lost its owner" + (f": {words}" if words else ""),
                f"{resume} {job['uuid'][:8]} continues it", exit_status=1,
            )  # fmt: skip
        time.sleep(_LOOK_S if lost_at == 0.0 else 0.1)  # poll: there is no owner to wait for


def _sentence(job: dict[str, Any]) -> str:
    row = queue_row(job)
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted((job["counts"] or {}).items()))
    took = job["ended_at"] - (paced(job)[0] or job["created_at"])
    cause = f": {job['why']}" if job.get("why") else ""
    rate = f", {rate_text(row['rate'])}" if row["rate"] else ""
    name = job["uuid"][:8]
    look = f" (mesh job tasks {name} --state failed)" if row["failed"] else ""
    return clean(f"mesh: job {name} {job['state']}{cause}: {counts} in {took:.1f} s{rate}{look}")


def is_launch(job: dict[str, Any]) -> ConsoleError:
    """The error for a launch where a job of tasks is wanted."""
    name = job["uuid"][:8]
    hint = f"yod runs it, and yod -signal ends it; mesh job show {name} prints its state"
    if job["state"] in ENDED or job.get("owner_lost"):
        hint = f"it ended with its yod; mesh job show {name} prints what is known of it"
    return ConsoleError(f"{name} is a launch, not a job of tasks", hint, exit_status=1)
