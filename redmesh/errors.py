"""Errors of a launch from Python. All derive from one class with the failure, the next step and yod's exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redmesh.events import Result


class RedmeshError(Exception):
    """The base class. ``message`` says what failed, ``hint`` what to do next; ``exit_status`` is the exit status of
    yod."""

    def __init__(self, message: str, hint: str = "", *, exit_status: int = 125) -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message, self.hint, self.exit_status = message, hint, exit_status


class NotLaunched(RedmeshError):
    """No rank ever ran: yod refused the request, did not find the program, got no processors, or found no mesh."""


class LaunchFailed(RedmeshError):
    """The program ran and failed; ``result`` has the exit of each rank and the output."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, exit_status=result.exit_status)
        self.result = result
