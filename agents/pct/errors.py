"""What a PCT and its launch children refuse or fail at."""

from __future__ import annotations

import errno

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


#: What a launch child ends with that met a fault of its own.
FAULT = 70


class PctError(AgentError):
    """The root of this package's errors; ``fault``: whose it is where a load fails of it (LoadFailed)."""

    code = "pct"
    fault = "node"


#: What a system call refuses because of the machine. Anything else (a right, a file in the way, a user's limit) may be
#: a user's doing, who must not be able to take nodes out of service.
_OF_THE_MACHINE = (
    errno.EIO, errno.EROFS, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ENXIO, errno.ESTALE,
)  # fmt: skip


def whose(number: int) -> str:
    """Whose fault a system call's error is: the ``node``'s, or this ``launch``'s."""
    return "node" if number in _OF_THE_MACHINE else "launch"


class LoadFailed(PctError):
    """A launch that cannot begin on this node.

    ``fault`` says whose it is: ``program`` (it would fail anywhere), ``node`` (another node may do, and this one is
    taken out of service) or ``launch`` (it was killed, its load is wrong, its user stands in its way).
    """

    def __init__(
        self, message: str, fault: str, exit_status: int = 125, rank: Optional[int] = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint, exit_status=exit_status)
        self.fault = fault
        self.rank = rank

    def as_failed(self, node: str) -> Dict[str, Any]:
        """The ``failed`` message that goes up the tree."""
        return {
            "op": "failed",
            "node": node,
            "rank": self.rank,
            "message": self.message,
            "hint": self.hint,
            "fault": self.fault,
            "exit_status": self.exit_status,
        }
