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
#: Seconds that a third party's placement may take; the CPA serves nobody meanwhile.
PLACE_S = 2.0

#: The modules of our placements; a module is imported when its first placement is requested.
HERE = {
    "best_fit": "first_and_best_fit:best_fit",
    "first_fit": "first_and_best_fit:first_fit",
    "close_fit": "close_fit:close_fit",
    "hilbert": "along_curve:hilbert",
    "snake": "along_curve:snake",
    "gen_alg": "gen_alg:gen_alg",
    "rack_packed": "packed:rack_packed",
    "host_packed": "packed:host_packed",
    "random": "random_choice:Scattered",
    "block": "block:Block",
}
#: Placements with an argument: its default, or None if the argument is required.
MADE: dict[str, str | None] = {"random": "0", "block": None}


class UnknownPlacement(AgentError):
    """A placement that is not installed, or an argument that it does not accept."""

    code = "invalid"
    exit_status = 2


def default(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Close fit on a mesh, packing in a described cluster, best fit by ids if nothing is known."""
    if not isinstance(geometry, Layout):
        return best_fit(free, count)
    if geometry.mesh is not None:
        return find("close_fit")(free, count, geometry)
    return find("rack_packed")(free, count, geometry)


#: The placements requested so far.
PLACEMENTS: dict[str, Placement] = {DEFAULT: default}


def find(name: str) -> Placement:
    """The placement ``name``. Raises UnknownPlacement, which names the existing ones."""
    known = PLACEMENTS.get(name)
    if known is not None:
        return known
    word, colon, argument = name.partition(":")
    if word in MADE:
        text = argument if colon else MADE[word]
        if text is None:
            raise UnknownPlacement(f"the placement {word} needs its shape", "write it like block:4x4x2")
        made: Placement = _of_ours(word)(text)
        return made  # not cached, because there are unlimited arguments
    if name in HERE:
        PLACEMENTS[name] = _of_ours(name)
    else:
        _load_installed(name)
    return PLACEMENTS[name]


def geometry(topology: str | None, nodes: Iterable[Node] = ()) -> Geometry:
    """The layout for the mesh row's ``topology``; None if the column is NULL. Raises TopologyError.

    A cluster also needs ``nodes`` (name and processors of each); without them it is None.
    """
    if not topology:
        return None
    layout = Layout(from_json(topology), nodes)
    return layout if layout.size else None


def _of_ours(name: str) -> Any:
    module, _, member = HERE[name].partition(":")
    return getattr(import_module(f"{__package__}.{module}"), member)


def _load_installed(name: str) -> None:
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        there = ", ".join(sorted({DEFAULT, *HERE, *points}))
        raise UnknownPlacement(f"no placement is called {name[:40]!r}", f"there are: {there}")
    try:
        PLACEMENTS[name] = Installed(name, points[name].load())
    except (Exception, SystemExit) as error:  # a third party's code
        raise UnknownPlacement(
            f"the placement {name!r} cannot be loaded: {error!r:.200}", points[name].value
        ) from error


class _TooSlow(BaseException):
    """Raised inside a placement that takes too long. It is a BaseException, so that ``except Exception`` does not
    catch it."""


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Interrupt the body after ``seconds``. Works only in the main thread, as signals do."""
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
    """A third party's placement. Its result is checked, and its errors do not end the CPA."""

    def __init__(self, name: str, place: InstalledPlacement) -> None:
        self.__name__ = name
        self._place = place

    def __call__(self, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
        """Call the placement. Raises AgentError unless it returns ``count`` different free processors."""
        try:
            with _in_time(PLACE_S):
                chosen = list(map(index, self._place(list(free), count, geometry)))  # a copy that it may change
        except _TooSlow:
            raise AgentError(
                f"the placement {self.__name__!r} took longer than {PLACE_S:g} s for {count} of {len(free)} processors,"
                " and the CPA serves nobody else meanwhile",
                "use another placement",
            ) from None
        except PlacementError as error:
            told, hint = str(error.message), str(error.hint)
            raise (NotEnough(told, hint, free=len(free)) if error.may_wait else AgentError(told, hint)) from error
        except (AgentError, StoreError):  # plug-ins older than redmesh.placement raise our errors
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
    """``place`` with the machine's geometry, which is read when first needed."""

    def __init__(self, place: Placement, geometry: Callable[[], Geometry]) -> None:
        self._place, self._geometry = place, geometry

    def __call__(self, free: Sequence[int], count: int) -> Sequence[int]:
        """Choose ``count`` of the free processors. Raises NotEnough if the placement refuses them."""
        return self._place(free, count, self._geometry())

    def idle(self, free: Sequence[int], count: int) -> Sequence[int]:
        """Choose on an idle machine, quickly, if only the existence of a choice matters."""
        check = getattr(self._place, "check", None)
        if check is not None:
            check(free, count, self._geometry())
        return free[:count]
