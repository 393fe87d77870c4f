"""The hosts of a batch system's allocation, for a job's mesh."""

import os
from collections.abc import Sequence
from typing import Any

from agents.managers import registry
from console.errors import ConsoleError
from console.settings import Settings
from redmesh.managers import ManagerError


def find_manager(settings: Settings) -> Any:
    """The manager of the allocation in the settings. Raises ConsoleError."""
    try:
        name, manager = registry.find(os.environ, settings.manager)
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint) from None
    if not name:
        raise ConsoleError("this process is not in a job of a batch system", "run it in the job's script")
    return manager


def job_hosts(settings: Settings) -> list[tuple[str, str, int]]:
    """Return (node name, the manager's name of the host, slots) of each allocated host, in the manager's order.

    Raises ConsoleError.
    """
    manager = find_manager(settings)
    try:
        found = manager.hosts(os.environ)
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint) from None
    if not found:
        raise ConsoleError("the manager says that the job has no hosts", "mesh manager check")
    names = short_names([name for name, _slots in found])
    return [(short, name, int(slots)) for short, (name, slots) in zip(names, found, strict=True)]


def short_names(names: Sequence[str]) -> list[str]:
    """Host names without their domains, if these are still different."""
    short = [name.partition(".")[0] for name in names]
    return short if len(set(short)) == len(names) else list(names)
