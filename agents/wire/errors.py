"""The root of the agents' errors, and what the wire refuses."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class AgentError(Exception):
    """What failed, on which node or launcher, and what to do next.

    ``code`` is a word for programs (docs/protocol.md lists them), ``exit_status`` what a command
    that dies of this error ends with.
    """

    code = "internal"
    exit_status = 125

    def __init__(
        self, message: str, hint: str = "", *, code: Optional[str] = None, exit_status: Optional[int] = None
    ) -> None:
        super().__init__(message)
        self.message = _text(message)
        self.hint = _text(hint)
        if code is not None:
            self.code = code
        if exit_status is not None:
            self.exit_status = exit_status

    def as_message(self) -> Dict[str, Any]:
        """The ``error`` member of a reply."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit_status": self.exit_status}

    @classmethod
    def from_message(cls, error: Any) -> "AgentError":
        """The error a reply carried; a malformed one becomes a plain internal error."""
        if not isinstance(error, dict):
            return cls("the peer answered with an error that has no text")
        status = error.get("exit_status")
        return cls(
            str(error.get("message", "the peer gave no reason")),
            str(error.get("hint", "")),
            code=str(error.get("code", "internal")),
            exit_status=status if isinstance(status, int) and 0 < status < 256 else None,
        )


def _text(said: str) -> str:
    # It may name a file whose bytes are not UTF-8, and whoever is told must not be the next to fail.
    return said if said.isascii() else said.encode("utf-8", "replace").decode()


class Refusal(AgentError):
    """A peer, or what it shows, that is refused; ``reason`` is the word that the log has."""

    code = "denied"

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


class WireError(AgentError):
    """Bytes that are not a frame, or a frame that is not a message: the connection is of no more use."""

    code = "protocol"
