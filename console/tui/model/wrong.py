"""What is wrong with the machine, in words: nodes out of service with the launches that had ranks there, lost ranks,
and the problems of ``mesh status``. No I/O."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from console.launch.options.lists import fold_nodes
from console.tui.format import fitted, lasting, several
from console.tui.model.health import about_nodes
from console.tui.model.launch import RankState, Run
from console.tui.model.machine import Launcher, Machine, Node
from db.machine.node_states import GIVEN_UP
from redmesh.idset import fold_ranks

_MOST_RANKS = 24  # columns of a list of ranks; a longer one is given as a number
_MOST_NODES = 2  # nodes that a line names
_MOST_LAUNCHES = 3  # launches that a line names
_LEAST_REASON = 12  # columns of a reason; with fewer it is left out
#: The worst first.
_UNREAD, _LOST, _DOWN_IN_USE, _DOWN, _SUSPECT_IN_USE, _SUSPECT, _OTHER = range(7)


class Wrong(NamedTuple):
    """One thing that is wrong: nodes out of service for one reason, a launch with lost ranks, or a problem.

    ``kind`` and ``name`` are the place where it is to be seen (console/tui/navigation/links.py); ``health`` is the page
    of problems.
    """

    badness: int
    what: str
    why: str = ""
    whom: str = ""  # the launches that have ranks there
    brief: str = ""  # the same in fewer words
    kind: str = "health"
    name: str = ""

    @property
    def grave(self) -> bool:
        """True if something is lost or out of service; otherwise it may be over by itself."""
        return self.badness <= _DOWN

    @property
    def place(self) -> tuple[str, str]:
        """Where it is to be seen; for a problem, what it is."""
        return self.kind, self.what if self.kind == "health" else self.name

    @property
    def text(self) -> str:
        """All of it: ``n4 down since 14:02: no heartbeat for 15 s; launch 7 lost ranks 3,4``."""
        return _joined(self.what, self.why, self.whom)

    def within(self, columns: int) -> str:
        """As much as fits: the reason is shortened first, then left out; then the launches are only counted."""
        for whom in (self.whom, self.brief):
            left = columns - cell_len(_joined(self.what, "", whom)) - 2
            if left >= min(_LEAST_REASON, cell_len(self.why)) and self.why:
                return _joined(self.what, fitted(self.why, left), whom)
            if left >= -2:
                return _joined(self.what, "", whom)
        return fitted(_joined(self.what, "", self.brief), columns)


def _joined(what: str, why: str, whom: str) -> str:
    return what + (f": {why}" if why else "") + (f"; {whom}" if whom else "")


class Round:
    """The order in which things that are wrong are visited: the worst that was not visited in this round."""

    def __init__(self) -> None:
        self._visited: set[tuple[str, str]] = set()

    def coming(self, wrongs: Sequence[Wrong]) -> int | None:
        """The index of the next one; None if nothing is wrong."""
        fresh = (at for at, wrong in enumerate(wrongs) if wrong.place not in self._visited)
        return next(fresh, 0 if wrongs else None)

    def visit(self, wrong: Wrong, wrongs: Sequence[Wrong]) -> None:
        """Note that this one was visited; after the last one, a new round begins."""
        there = {one.place for one in wrongs}
        if there <= self._visited:
            self._visited.clear()
        self._visited = self._visited & there | {wrong.place}


class Wrongs:
    """What is wrong now; looked for again only after a change."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seen: tuple[object, ...] = ()
        self._found: tuple[Wrong, ...] = ()
        self.launchers: dict[int, str] = {}  # live launches on nodes that are down: what became of their ranks

    def now(self, trouble: str, problems: Sequence[str], runs: Mapping[int, Run]) -> tuple[Wrong, ...]:
        """The worst first. ``trouble``: why the machine cannot be read; ``problems``: of ``mesh status``."""
        lost = {number: count for number, run in runs.items() if run.live and (count := _lost_in(run))}
        hour = int(self._machine.now / 3600)  # of the age of what lasts for days
        seen = (self._machine.counter, self._machine.shapes, hour, trouble, tuple(problems), tuple(lost.items()))
        if seen != self._seen:
            self._seen = seen
            self._found = self._look(trouble, problems, {number: runs[number] for number in lost})
        return self._found

    def _look(self, trouble: str, problems: Sequence[str], runs: Mapping[int, Run]) -> tuple[Wrong, ...]:
        machine = self._machine
        out = [node for node in machine.nodes if node.state in ("down", "suspect")]
        self.launchers = {}
        found = [self._of_nodes(nodes, runs) for nodes in _alike(out)]
        for number, run in runs.items():
            if number not in self.launchers:  # its nodes are up again, its ranks are not
                ranks = [rank for rank, state in enumerate(run.states) if state == RankState.LOST]
                self.launchers[number] = f"lost {_ranks(ranks)}"
                found.append(Wrong(_LOST, f"launch {number} lost {_ranks(ranks)}", kind="run", name=str(number)))
        found += [Wrong(_OTHER, problem) for problem in problems if not about_nodes(problem)]
        if trouble:
            found.append(Wrong(_UNREAD, trouble))
        return tuple(sorted(found, key=lambda wrong: wrong.badness))

    def _of_nodes(self, nodes: list[Node], runs: Mapping[int, Run]) -> Wrong:
        machine, first = self._machine, nodes[0]
        gone = first.state == "down"
        there: dict[int, set[int]] = {}  # by launcher, its processors on these nodes
        for node in nodes:
            for cell in machine.cells_of_node(node.id):
                row = machine.processors[cell]
                if row.launcher is not None and row.launcher in machine.launchers:
                    there.setdefault(row.launcher, set()).add(row.id)
        given_up = all(node.incarnation >= GIVEN_UP for node in nodes)
        became = {
            number: _became(machine.launchers[number], processors, runs.get(number), gone and given_up)
            for number, processors in sorted(there.items())
        }
        if gone:
            for number, text in became.items():
                self.launchers[number] = f"{self.launchers[number]}, {text}" if number in self.launchers else text
        whom, brief = _whom(became)
        badness = (_DOWN_IN_USE if there else _DOWN) if gone else _SUSPECT_IN_USE if there else _SUSPECT
        since = f" {lasting(min(node.state_at for node in nodes), machine.now)}" if first.state_at else ""
        names = ", ".join(node.name for node in nodes)
        what = names if len(nodes) <= _MOST_NODES else f"{several(len(nodes), 'node')} ({first.name} …)"
        return Wrong(badness, f"{what} {first.state}{since}", first.reason, whom, brief, *self._where(nodes))

    def _where(self, nodes: list[Node]) -> tuple[str, str]:
        on_map = [node for node in nodes if self._machine.cells_of_node(node.id)]
        if not on_map:  # a login processor is not on the map
            return "nodes", ""
        names = [node.name for node in on_map]
        if len(names) == 1:
            return "node", names[0]
        return "select", " | ".join(f"node={part}" for part in fold_nodes(names).split(","))


def _whom(became: Mapping[int, str]) -> tuple[str, str]:
    """What became of the launches, in words, and in fewer."""
    named = [f"launch {number} {text}" for number, text in list(became.items())[:_MOST_LAUNCHES]]
    more = len(became) - len(named)
    whom = ", ".join(named) + (f" and {more} more" if more else "")
    verb = "lost ranks" if all(text.startswith("lost") for text in became.values()) else "there"
    return whom, f"{several(len(became), 'launch')} {verb}" if len(became) > 1 else whom


def _lost_in(run: Run) -> int:
    return run.states.count(RankState.LOST)


def _alike(nodes: Iterable[Node]) -> list[list[Node]]:
    """Nodes that went for the same reason in the same minute: one item, however many they are. The newest first."""
    groups: dict[tuple[str, str, int], list[Node]] = {}
    for node in nodes:
        reason = re.sub(r"\d+", "0", node.reason.replace(node.name, ""))
        groups.setdefault((node.state, reason, int(node.state_at / 60)), []).append(node)
    return sorted(groups.values(), key=lambda group: -group[0].state_at)


def _became(launcher: Launcher, processors: set[int], run: Run | None, given_up: bool) -> str:
    """``lost ranks 3,4``; ``has ranks 3,4 there`` while a PCT may still come back to them."""
    ranks = [rank for rank, at in enumerate(ranks_of(launcher.ranks)) if at in processors]
    if not ranks:
        return f"has {several(len(processors), 'processor')} there"
    states = run.states if run is not None else b""
    lost = given_up or all(rank < len(states) and states[rank] == RankState.LOST for rank in ranks)
    return f"lost {_ranks(ranks)}" if lost else f"has {_ranks(ranks)} there"


def _ranks(ranks: list[int]) -> str:
    folded = fold_ranks(ranks)
    if len(folded) > _MOST_RANKS:
        return several(len(ranks), "rank")
    return f"rank{'s' if len(ranks) > 1 else ''} {folded}"


@functools.lru_cache(16)
def ranks_of(text: str) -> tuple[int, ...]:
    """The processor of each rank, from a launcher's row; empty if it is unknown."""
    try:
        ranks = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(at if isinstance(at, int) else -1 for at in ranks) if isinstance(ranks, list) else ()
