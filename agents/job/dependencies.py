"""Whether the jobs that a job waits for have ended as it wants (``--after``). Reads their state objects."""

from __future__ import annotations

from redmesh.state import CANCELLED, DONE, FAILED, StateError, job_path, open_for_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence

#: What a job may want of the one before it: that it ended with every task done, or that it ended.
OK, ANY = "ok", "any"


class Unmet(Exception):
    """A job will never begin: ``reason``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unmet(directory: str, after: Sequence[Sequence[str]]) -> List[str]:
    """The jobs that have not ended. Unmet where one ended otherwise than is wanted, or is not there."""
    waits = []
    for uuid, wanted in after:
        try:
            db = open_for_reading(job_path(directory, uuid))
        except StateError as error:
            if wanted == ANY:
                continue
            raise Unmet(f"job {uuid[:8]} cannot be read: {error.message}") from None
        try:
            state = db.execute("SELECT value FROM meta WHERE key = 'state'").fetchone()[0]
        finally:
            db.close()
        if state in (FAILED, CANCELLED) and wanted == OK:
            raise Unmet(f"job {uuid[:8]} before it ended: {state}")
        if state not in (DONE, FAILED, CANCELLED):
            waits.append(uuid)
    return waits
