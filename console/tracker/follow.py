"""Waits for the end of jobs that have gone to other hosts, for a job of this host that begins after them
(``mesh submit --after``). ``mesh job follow PATH`` is the process of such a job until it may begin."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence

from agents.job.dependencies import elsewhere
from agents.job.description import META, read
from agents.job.start import FOLLOWER, beside, start_owner
from agents.wire.errors import AgentError
from console.deploy.personal.evidence_of_life import lock_is_held
from console.errors import ConsoleError
from console.jobs.job_record import JobRecord
from console.settings import Settings
from console.tracker.source import source
from redmesh.state import StateError, StateObject
from redmesh.state_reader import StateReader

#: Seconds until a node that did not answer is asked again, at first and at most.
_AGAIN_S, _AGAIN_MOST_S = 1.0, 30.0


def follow(settings: Settings, options: argparse.Namespace) -> int:
    """Start the owner of a job when those of its ``--after`` jobs that are on other hosts have ended; returns 1 if the
    mesh ended first."""
    path: str = options.job
    with _alone(path) as mine:
        if not mine:
            return 0
        pause_s = _AGAIN_S
        while left := _left(path):
            if not lock_is_held(settings.state_dir):
                return 1  # mesh job resume follows again
            try:
                ended = [(uuid, state) for uuid in left if (state := _end_of(settings, uuid))]
            except (AgentError, ConsoleError):
                # On its way, or its node or every CPA is down: no evidence that it has ended.
                time.sleep(pause_s)  # nobody answers: ask again
                pause_s = min(pause_s * 2, _AGAIN_MOST_S)
                continue
            pause_s = _AGAIN_S
            if ended and not _record(path, dict(ended)):
                return 0
    if left is not None:
        with contextlib.suppress(StateError, OSError):
            start_owner(path)
    return 0


def is_followed(path: str) -> bool:
    """True if a process waits for the end of jobs on other hosts on behalf of the job at ``path``."""
    with _alone(path, make=False) as mine:
        return not mine


def _left(path: str) -> Sequence[str] | None:
    """The jobs elsewhere whose end is not known yet. None if the job does not wait for anything any more."""
    try:
        with StateReader(path) as job:
            told = JobRecord(job.summary(), path)
            if told.has_ended or told.begun_at or told.held:
                return None
            return elsewhere(os.path.dirname(path), read(job).after)
    except StateError:
        return None  # it was purged, or has gone


def _end_of(settings: Settings, uuid: str) -> str:
    """The final state of a job; "" if it has not ended. Waits for the next change of a job that has not."""
    found = source(settings, uuid)
    job = found.next_change()
    if job is not None and not job.has_ended:
        job = found.next_change()
    return job.state if job is not None and job.has_ended else ""


def _record(path: str, ended: dict[str, str]) -> bool:
    """Record the ends in the waiting job; False if it has an owner now."""
    try:
        job = StateObject(path)
    except StateError:
        return False
    described = read(job)
    described.after = [[*one[:2], ended[one[0]]] if one[0] in ended else one for one in described.after]
    job.set_meta(**{META: described.dump()})
    job.close()
    return True


@contextlib.contextmanager
def _alone(path: str, *, make: bool = True) -> Iterator[bool]:
    """Whether this process alone follows for the job at ``path`` now."""
    name = beside(path, FOLLOWER)
    try:
        fd = os.open(name, os.O_RDWR | (os.O_CREAT if make else 0) | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
