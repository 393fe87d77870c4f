"""Checks whether the jobs that a job waits for (``--after``) have ended as required, from their state objects."""

from __future__ import annotations

import json
import os

from redmesh.state import CANCELLED, DONE, FAILED, SUFFIX, StateError, job_path
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence

#: Requirements: the other job ended with every task done, or it ended.
OK, ANY = "ok", "any"


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


def unmet(directory: str, after: Sequence[Sequence[str]]) -> List[str]:
    """The jobs that have not ended, or whose end is not known here. Raises Unmet if one ended otherwise than required,
    or does not exist."""
    waits = []
    for uuid, wanted in after:
        if has_left(directory, uuid):
            waits.append(uuid)
            continue
        try:
            with StateReader(job_path(directory, uuid)) as job:
                state = job.meta("state")
        except StateError as error:
            if wanted == ANY:
                continue
            raise Unmet(f"job {uuid[:8]} cannot be read: {error.message}") from None
        if state in (FAILED, CANCELLED) and wanted == OK:
            raise Unmet(f"job {uuid[:8]} before it ended: {state}")
        if state not in (DONE, FAILED, CANCELLED):
            waits.append(uuid)
    return waits
