"""Which of the free processors a request gets: pluggable, pure, outside every lock.

A placement is a function ``place(free, count, geometry)``:

* ``free``: ids of free processors, each once, ascending unless the caller wants another order of preference;
* ``count``: how many are asked for, 1 ≤ count ≤ len(free);
* ``geometry``: the ``Layout`` of the machine, made once by the caller and kept by it (curves and tables are cached
  in it), or None where nothing is known but the order of the ids. Third parties know it as redmesh.placement.Layout.

It returns ``count`` different ids of ``free`` in the order of ranks, and the same for the same arguments. It sees
neither sockets nor database: who may use what (pools, sides, lists) is decided by whoever makes ``free``. The
transaction checks that they are still free, so a placement may be wrong about the world but never about its arguments.

Names may carry an argument after a colon: ``block:4x4x2``, ``random:7``. Third parties add theirs as an entry
point of the group ``redmesh.placement``, loaded when it is first asked for. docs/placement.md tells which to choose.
Source: row A5; D. Bunde, V. Leung, J. Mache, SAND2003-4522.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from operator import index
from typing import Any

from agents.cpa.placement.first_and_best_fit import best_fit
from agents.cpa.placement.layout import Geometry, Layout, Node
from agents.wire.errors import AgentError
from db.errors import NotEnough, StoreError
from db.topology import from_json
from redmesh.placement import Placement as InstalledPlacement
from redmesh.placement import PlacementError

__all__ = ["DEFAULT", "Choosing", "Geometry", "Layout", "Placement", "UnknownPlacement", "default", "find", "geometry"]

Placement = Callable[[Sequence[int], int, Geometry], list[int]]

DEFAULT = "default"
ENTRY_POINTS = "redmesh.placement"
#: Seconds that a placement of somebody else's may take: the CPA serves nobody meanwhile.
PLACE_S = 2.0

#: Where the placements of ours are; a module is imported when its first placement is asked for.
HERE = {
    "best_fit": "first_and_best_fit:best_fit",
    "first_fit": "first_and_best_fit:first_fit",
    "close_fit": "close:close_fit",
    "hilbert": "along:hilbert",
    "snake": "along:snake",
    "mc1x1": "shells:mc1x1",
    "gen_alg": "shells:gen_alg",
    "mm": "shells:mm",
    "rack_packed": "packed:rack_packed",
    "host_packed": "packed:host_packed",
    "random": "scattered:Scattered",
    "block": "block:Block",
}
#: Those that are made from an argument: the argument when none is given, None where one must be.
MADE: dict[str, str | None] = {"random": "0", "block": None}


class UnknownPlacement(AgentError):
    """A placement that nobody has installed, or an argument that it does not take."""

    code = "invalid"
    exit_status = 2


def default(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Close fit on a mesh, packed in a cluster that is described, best fit by ids where nothing is known."""
    if not isinstance(geometry, Layout):
        return best_fit(free, count)
    if geometry.mesh is not None:
        return find("close_fit")(free, count, geometry)
    return find("rack_packed")(free, count, geometry)


#: Those asked for so far.
PLACEMENTS: dict[str, Placement] = {DEFAULT: default}


def find(name: str) -> Placement:
    """The placement called ``name``. UnknownPlacement, naming those there are."""
    known = PLACEMENTS.get(name)
    if known is not None:
        return known
    word, colon, argument = name.partition(":")
    if word in MADE:
        text = argument if colon else MADE[word]
        if text is None:
            raise UnknownPlacement(f"the placement {word} needs its shape", "write it like block:4x4x2")
        made: Placement = _of_ours(word)(text)
        return made  # not kept: there are as many as people can write arguments
    if name in HERE:
        PLACEMENTS[name] = _of_ours(name)
    else:
        _load_installed(name)
    return PLACEMENTS[name]


def geometry(topology: str | None, nodes: Iterable[Node] = ()) -> Geometry:
    """The layout of the mesh row's ``topology`` column; None where the column is NULL. TopologyError.

    ``nodes`` (name and processors of each) are needed for a cluster, which is None without them.
    """
    if not topology:
        return None
    layout = Layout(from_json(topology), nodes)
    return layout if layout.size else None


def _of_ours(name: str) -> Any:
    module, _, member = HERE[name].partition(":")
    return getattr(import_module(f"{__package__}.{module}"), member)


def _load_installed(name: str) -> None:
    from importlib.metadata import entry_points  # slow to import, and rarely asked for

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        there = ", ".join(sorted({DEFAULT, *HERE, *points}))
        raise UnknownPlacement(f"no placement is called {name[:40]!r}", f"there are: {there}")
    try:
        PLACEMENTS[name] = Installed(name, points[name].load())
    except (Exception, SystemExit) as error:  # somebody else's code
        raise UnknownPlacement(
            f"the placement {name!r} cannot be loaded: {error!r:.200}", points[name].value
        ) from error


class _TooSlow(BaseException):
    """Raised inside a placement whose time is over; no ``except Exception`` of its author's catches it."""


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Interrupt what is called inside when ``seconds`` are over; only in the main thread, as signals are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(_number: int, _frame: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Installed:
    """A placement of somebody else's, which may be wrong about its arguments and shall not end the CPA."""

    def __init__(self, name: str, place: InstalledPlacement) -> None:
        self.__name__ = name
        self._place = place

    def __call__(self, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
        """What it chooses. AgentError when that is not ``count`` different free processors."""
        try:
            with _in_time(PLACE_S):
                chosen = list(map(index, self._place(list(free), count, geometry)))  # a list that it may change
        except _TooSlow:
            raise AgentError(
                f"the placement {self.__name__!r} took longer than {PLACE_S:g} s for {count} of {len(free)} processors,"
                " and the CPA serves nobody else meanwhile",
                "use another placement",
            ) from None
        except PlacementError as error:
            told, hint = str(error.message), str(error.hint)
            raise (NotEnough(told, hint, free=len(free)) if error.may_wait else AgentError(told, hint)) from error
        except (AgentError, StoreError):  # plug-ins written before redmesh.placement raise ours
            raise
        except (Exception, SystemExit) as error:
            raise AgentError(
                f"the placement {self.__name__!r} failed: {error!r:.200}", "use another placement"
            ) from error
        if len(chosen) != count or len(set(chosen)) != count or not set(chosen).issubset(free):
            raise AgentError(
                f"the placement {self.__name__!r} chose processors that are not free, or not {count} of them",
                "this is a fault of the placement: use another with --placement",
            )
        return chosen


class Choosing:
    """``place`` with the machine's geometry, which is read when it is first wanted."""

    def __init__(self, place: Placement, geometry: Callable[[], Geometry]) -> None:
        self._place, self._geometry = place, geometry

    def __call__(self, free: Sequence[int], count: int) -> Sequence[int]:
        """So many of the free processors. NotEnough, where the placement wants others."""
        return self._place(free, count, self._geometry())

    def idle(self, free: Sequence[int], count: int) -> Sequence[int]:
        """The same of a machine on which nothing runs, where it only matters whether there are any: quickly."""
        check = getattr(self._place, "check", None)
        if check is not None:
            check(free, count, self._geometry())
        return free[:count]
