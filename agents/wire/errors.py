"""The base class of the agents' errors, and the errors of the wire protocol."""

from __future__ import annotations

from redmesh.byte_text import without_surrogates

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class AgentError(Exception):
    """``message`` says what failed, on which node or for which launcher; ``hint`` says what to do next.

    ``code`` is a word for programs (listed in docs/protocol.md); ``exit_status`` is the exit status of a command that
    fails with this error.
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
        """The error in a reply; a malformed ``error`` becomes a plain internal error."""
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
    # The text may contain a file name whose bytes are not UTF-8. Sending and printing it must not fail.
    return without_surrogates(said)


class Refusal(AgentError):
    """A peer, or its credential, was refused; ``reason`` is the word in the log."""

    code = "denied"

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


class WireError(AgentError):
    """Bytes that are not a frame, or a frame that is not a message. The connection must be closed."""

    code = "protocol"
