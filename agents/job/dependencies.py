"""Checks whether the jobs that a job waits for (``--after``) have ended as required, from their state objects."""

from __future__ import annotations

import json
import os
import sqlite3

from redmesh.state import CANCELLED, DONE, FAILED, SUFFIX, StateError, job_path, owned
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

#: Requirements: the other job ended with every task done, or it ended.
OK, ANY = "ok", "any"
#: The state of a launch whose yod was killed: no other process continues it.
LOST = "lost"


class Unmet(Exception):
    """The job can never begin because of ``reason``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def has_left(directory: str, uuid: str) -> bool:
    """True if an object was moved from here to another host: the end of its job is not known here."""
    path = job_path(directory, uuid)
    if os.path.exists(path):
        return False
    try:
        with open(path[: -len(SUFFIX)] + ".place", encoding="utf-8") as file:
            return bool(json.load(file).get("state") == "gone")
    except (OSError, ValueError, AttributeError):
        return False


def elsewhere(directory: str, after: Sequence[Sequence[str]]) -> List[str]:
    """The jobs that have gone to other hosts and whose end is not recorded."""
    return [uuid for uuid, _, *ended in after if not ended and has_left(directory, uuid)]


def unmet(directory: str, after: Sequence[Sequence[str]]) -> List[str]:
    """The jobs that have not ended, or whose end is not known here. A third element of an ``after`` is the state in
    which a job ended on another host.

    Raises Unmet if one ended otherwise than required, or was deleted. Raises StateError if one exists and cannot be
    read, because that is no evidence of its end.
    """
    waits = []
    for uuid, wanted, *ended in after:
        if not ended and has_left(directory, uuid):
            waits.append(uuid)
            continue
        try:
            state = ended[0] if ended else _state_of(directory, uuid)
        except FileNotFoundError:
            if wanted == ANY:
                continue
            raise Unmet(
                f"job {uuid[:8]} was deleted, so it is not known whether it was done: submit this job again without"
                f" --after {uuid[:8]}"
            ) from None
        if state == LOST and wanted == OK:
            raise Unmet(
                f"job {uuid[:8]} is a launch whose yod was killed, so it is not known whether it was done: submit this"
                f" job again without --after {uuid[:8]}"
            )
        if state in (FAILED, CANCELLED) and wanted == OK:
            raise Unmet(f"job {uuid[:8]} before it ended: {state}")
        if state not in (DONE, FAILED, CANCELLED, LOST):
            waits.append(uuid)
    return waits


def _state_of(directory: str, uuid: str) -> object:
    path = job_path(directory, uuid)
    try:
        state, is_launch = _read(path)
        if is_launch and state not in (DONE, FAILED, CANCELLED) and not owned(path):
            state, _ = _read(path)  # it may have ended meanwhile
            return state if state in (DONE, FAILED, CANCELLED) else LOST
        return state
    except (StateError, sqlite3.Error) as error:
        try:
            os.stat(path)
        except FileNotFoundError:
            raise  # the object was deleted
        except OSError:
            pass
        told = error.message if isinstance(error, StateError) else str(error)
        raise StateError(
            f"job {uuid[:8]}, after which this job starts, cannot be read: {told}",
            "mesh job resume tries again; mesh release starts this job without waiting",
        ) from None


def _read(path: str) -> Tuple[object, bool]:
    """The state of a job, and whether it is a launch."""
    with StateReader(path) as job:
        return job.meta("state"), job.meta("kind") == "launch"
