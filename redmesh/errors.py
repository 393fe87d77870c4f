"""What can go wrong with a launch from Python: one root, with what failed, what to do next, and yod's exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redmesh.events import Result


class RedmeshError(Exception):
    """``message`` says what failed, ``hint`` what to do next; ``exit_status`` is what yod ended with."""

    def __init__(self, message: str, hint: str = "", *, exit_status: int = 125) -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message, self.hint, self.exit_status = message, hint, exit_status


class NotLaunched(RedmeshError):
    """No rank ever ran: refused, not found, no processors, no mesh."""


class LaunchFailed(RedmeshError):
    """It ran, and ended badly; ``result`` tells how each rank ended and what was written."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, exit_status=result.exit_status)
        self.result = result
