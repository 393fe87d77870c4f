"""Redmesh from Python: ``redmesh.run(["./heat"], size=16).text`` (docs/python.md)."""

from redmesh.errors import LaunchFailed, NotLaunched, RedmeshError
from redmesh.events import Aborted, Allocated, BadExit, End, Event, Exit, Lost, Output, Result, SameEnd, Started
from redmesh.launching import PIPE, Launch, attach, launch, run, stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agents.yodio.yodpdb import debug_here, debug_on_request

__all__ = [
    "PIPE",
    "Aborted",
    "Allocated",
    "BadExit",
    "End",
    "Event",
    "Exit",
    "Launch",
    "LaunchFailed",
    "Lost",
    "NotLaunched",
    "Output",
    "RedmeshError",
    "Result",
    "SameEnd",
    "Started",
    "attach",
    "debug_here",
    "debug_on_request",
    "launch",
    "run",
    "stacks",
]


def __getattr__(name: str) -> object:
    if name in ("debug_here", "debug_on_request"):  # pdb is not loaded by those who only launch
        from agents.yodio import yodpdb

        return getattr(yodpdb, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
