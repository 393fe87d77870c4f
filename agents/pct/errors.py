"""What a PCT and its launch children refuse or fail at."""

from __future__ import annotations

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class PctError(AgentError):
    """The root of this package's errors."""

    code = "pct"


class LoadFailed(PctError):
    """A launch that cannot begin on this node.

    ``fault`` says whose it is: ``program`` (it would fail anywhere), ``node`` (another node may do) or
    ``launch`` (it was killed, or its load is wrong).
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
