"""Redmesh from Python: ``redmesh.run(["./heat"], size=16).text`` (docs/python.md).

Importing the package loads nothing else: every layer, agents included, imports modules of this package.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agents.yodio.yodpdb import debug_here as debug_here
    from agents.yodio.yodpdb import debug_on_request as debug_on_request
    from agents.yodio.yodstate import job as job
    from redmesh.api import PIPE as PIPE
    from redmesh.api import Launch as Launch
    from redmesh.api import attach as attach
    from redmesh.api import launch as launch
    from redmesh.api import run as run
    from redmesh.api import stacks as stacks
    from redmesh.errors import LaunchFailed as LaunchFailed
    from redmesh.errors import NotLaunched as NotLaunched
    from redmesh.errors import RedmeshError as RedmeshError
    from redmesh.events import Aborted as Aborted
    from redmesh.events import Allocated as Allocated
    from redmesh.events import End as End
    from redmesh.events import Event as Event
    from redmesh.events import Exit as Exit
    from redmesh.events import Lost as Lost
    from redmesh.events import Output as Output
    from redmesh.events import Result as Result
    from redmesh.events import Started as Started

#: The public names, by the module that defines them (PEP 562).
_DEFINED_IN = {
    "redmesh.errors": ("LaunchFailed", "NotLaunched", "RedmeshError"),
    "redmesh.events": ("Aborted", "Allocated", "End", "Event", "Exit", "Lost", "Output", "Result", "Started"),
    "redmesh.api": ("PIPE", "Launch", "attach", "launch", "run", "stacks"),
    "agents.yodio.yodpdb": ("debug_here", "debug_on_request"),
    "agents.yodio.yodstate": ("job",),
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}
__all__ = [*_MODULE_OF]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError("module 'redmesh' has no attribute %r" % name)
    from importlib import import_module

    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
