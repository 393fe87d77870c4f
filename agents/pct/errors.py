"""Errors of a PCT and its launch children."""

from __future__ import annotations

import errno

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


#: The exit status of a launch child after an internal error.
FAULT = 70


class PctError(AgentError):
    """The base class of this package's errors; ``fault`` says whose fault it is if a load fails of it (LoadFailed)."""

    code = "pct"
    fault = "node"


#: Errors of system calls that are caused by the machine. Others (permissions, a file in the way, a user's limit) may be
#: caused by a user, who must not be able to take nodes out of service.
_OF_THE_MACHINE = (
    errno.EIO, errno.EROFS, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ENXIO, errno.ESTALE,
)  # fmt: skip


def whose(number: int) -> str:
    """Whose fault a system call's error is: ``node`` or ``launch``."""
    return "node" if number in _OF_THE_MACHINE else "launch"


class LoadFailed(PctError):
    """A launch cannot start on this node.

    ``fault``: ``program`` (it would fail anywhere), ``node`` (another node may work, and this one is taken out of
    service) or ``launch`` (it was killed, its load is malformed, or its user prevents it).
    """

    def __init__(
        self, message: str, fault: str, exit_status: int = 125, rank: Optional[int] = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint, exit_status=exit_status)
        self.fault = fault
        self.rank = rank

    def as_failed(self, node: str) -> Dict[str, Any]:
        """The ``failed`` message to send up the tree."""
        return {
            "op": "failed",
            "node": node,
            "rank": self.rank,
            "message": self.message,
            "hint": self.hint,
            "fault": self.fault,
            "exit_status": self.exit_status,
        }
