"""Checks whether the jobs that a job waits for (``--after``) have ended as required, from their state objects."""

from __future__ import annotations

from redmesh.state import CANCELLED, DONE, FAILED, StateError, job_path
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


def unmet(directory: str, after: Sequence[Sequence[str]]) -> List[str]:
    """The jobs that have not ended. Raises Unmet if one ended otherwise than required, or does not exist."""
    waits = []
    for uuid, wanted in after:
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
