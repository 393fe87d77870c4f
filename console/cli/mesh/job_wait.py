"""``mesh wait``, and the wait of ``mesh submit --wait``: for a job's end, wherever it is and goes (docs/jobs.md)."""

import argparse
import json
import os
import sys
import time
from contextlib import suppress

from console.cli.mesh.progress_line import ProgressLine
from console.errors import ConsoleError
from console.jobs.job_record import JobRecord
from console.jobs.objects import summary
from console.jobs.owner_client import NoOwner, await_end, last_words
from console.jobs.rows import need_tasks, of_tasks, paced, queue_row, rate_text, waits
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
        need_tasks(one.job())
    status = max(see_end(settings, one, quiet=options.quiet or options.json) for one in found)
    if options.json:
        print(json.dumps([queue_row(one.job())._asdict() for one in found]))
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
        if job.counts.get(FAILED):
            with suppress(ConsoleError):  # its node does not answer any more, and the end is known
                for one in found.failures(1):
                    print(clean(f"mesh: task {one['task']} failed first: {one['text']}"), file=sys.stderr)
    return job.exit_status or 0


def _tell_open(found: Source, *, quiet: bool) -> None:
    """Say that a job ends only after it was closed."""
    if not quiet and found.job().open:
        name = found.uuid[:8] if found.path else found.uuid
        told = f"mesh: job {name} is open: it ends after mesh job close {name}, when its tasks have ended"
        print(told, file=sys.stderr)


class _Looks:
    """Looks at a job while another thread waits for its end; ``found`` is the place that this thread last knew."""

    def __init__(self, found: Source) -> None:
        self._found, self._at = found, 0.0
        self._job: JobRecord | None = None

    def look(self) -> JobRecord:
        """The job's summary; of a job on another host no more often than every few seconds. Raises ConsoleError."""
        found = self._found
        if found.path:
            return summary(found.path)
        if self._job is None or time.monotonic() - self._at > _FAR_S:
            self._job = Source(found.uuid, address=found.address, proxied=found.proxied).job()
            self._at = time.monotonic()
        return self._job


def _end(settings: Settings, found: Source) -> JobRecord:
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
            job = found.job()
            while not job.has_ended and not _needs_owner(job):
                since, job = 0.0, found.next_change() or job
            if job.has_ended:
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


def _needs_owner(job: JobRecord) -> bool:
    """True if a job elsewhere has no owner, and needs one now."""
    return job.owner_lost and not job.held and not waits(job, of_tasks(job))


def ended(path: str, resume: str = "mesh job resume") -> JobRecord:
    """The summary of a job of this host after its end. Raises ConsoleError, which names ``resume``, if its owner was
    lost."""
    lost_at = 0.0
    need_tasks(summary(path))
    while True:
        try:
            await_end(path)
        except NoOwner:
            pass
        job = summary(path)
        if job.has_ended:
            return job
        if job.held or waits(job, of_tasks(job)) or owned(path):
            lost_at = 0.0
        elif not lost_at:
            lost_at = time.monotonic()  # an owner process may be starting
        elif time.monotonic() - lost_at > 20 * _LOOK_S:
            words = last_words(path)
            raise ConsoleError(
                f"job {job.name} has lost its owner" + (f": {words}" if words else ""),
                f"{resume} {job.name} continues it", exit_status=1,
            )  # fmt: skip
        time.sleep(_LOOK_S if lost_at == 0.0 else 0.1)  # poll: there is no owner to wait for


def _sentence(job: JobRecord) -> str:
    row = queue_row(job)
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(job.counts.items()))
    took = (job.ended_at or time.time()) - (paced(job)[0] or job.created_at)
    cause = f": {job.why}" if job.why else ""
    rate = f", {rate_text(row.rate)}" if row.rate else ""
    look = f" (mesh job tasks {job.name} --state failed)" if row.failed else ""
    return clean(f"mesh: job {job.name} {job.state}{cause}: {counts} in {took:.1f} s{rate}{look}")
