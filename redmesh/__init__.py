"""Redmesh from Python: ``redmesh.run(["./heat"], size=16).text`` (docs/python.md)."""

from redmesh.errors import LaunchFailed, NotLaunched, RedmeshError
from redmesh.events import Aborted, Allocated, End, Event, Exit, Lost, Output, Result, Started
from redmesh.launching import PIPE, Launch, attach, launch, run, stacks

__all__ = [
    "PIPE",
    "Aborted",
    "Allocated",
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
    "Started",
    "attach",
    "launch",
    "run",
    "stacks",
]
