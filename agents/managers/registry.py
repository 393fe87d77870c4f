"""Finds the manager in whose allocation this process runs."""

from __future__ import annotations

from importlib import import_module

from agents.linux.batch_signals import Reach
from redmesh.managers import ENTRY_POINTS, ManagerError, problems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional, Tuple

#: Our managers, in the order of detection: a Flux instance may run inside an allocation of any other.
OURS = ("flux", "slurm", "grid_engine", "pbs", "lsf")
NONE = "none"
#: Seconds from SIGTERM to SIGKILL for a manager that names none.
_KILL_DELAY_S = 5.0


def find(environ: Mapping[str, str], name: str = "auto") -> Tuple[str, Any]:
    """The name and module of the present manager; ``("", None)`` if there is none. Raises ManagerError.

    ``name``: ``auto`` tries the built-in managers, ``none`` none of them; any other value names the manager to use.
    """
    if name == NONE:
        return "", None
    if name != "auto":
        manager = load(name)
        if not manager.detect(environ):
            raise ManagerError(
                f"this process is not in an allocation of the manager {name!r}",
                "run it in a job of that manager, or with --manager none",
            )
        return name, manager
    for one in OURS:
        manager = load(one)
        if manager.detect(environ):
            return one, manager
    return "", None


def signals_reach(manager: Any, environ: Mapping[str, str]) -> str:
    """Which processes a signal of the manager to a job reaches (Reach). Raises ManagerError."""
    return str(manager.signals_reach(environ)) if hasattr(manager, "signals_reach") else Reach.GROUP


def kill_wait(manager: Any, environ: Mapping[str, str]) -> Optional[float]:
    """After SIGTERM to the job: seconds until the manager kills it; None: the job goes on. Raises ManagerError."""
    if hasattr(manager, "ending"):
        left_s: Optional[float] = manager.ending(environ)
        return left_s
    return float(getattr(manager, "kill_delay_s", _KILL_DELAY_S))


def names() -> List[str]:
    """All managers: the built-in ones, then those that others have installed."""
    from importlib.metadata import entry_points

    return [*OURS, *sorted({point.name for point in entry_points(group=ENTRY_POINTS)} - set(OURS))]


def load(name: str) -> Any:
    """The module of the manager ``name``. Raises ManagerError if it is not installed, or incomplete."""
    if name in OURS:
        return import_module(f"agents.managers.{name}")
    from importlib.metadata import entry_points  # slow to import, and needed only for third parties' managers

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        there = ", ".join(sorted({*OURS, *points}))
        raise ManagerError(f"no manager is called {name[:40]!r}", f"there are: {there}, none")
    try:
        manager = points[name].load()
    except (Exception, SystemExit) as error:  # a third party's code
        told = f"the manager {name!r} cannot be loaded: {error!r:.200}"
        raise ManagerError(told, f"it is {points[name].value}") from error
    found = problems(manager)
    if found:
        raise ManagerError(
            f"the manager {name!r} is incomplete: {'; '.join(found)}", "python -m pydoc redmesh.managers"
        )
    return manager
