"""Allocation for the lines of a load file: processors for all lines at once, from each line's list or from any.

First every line takes the first processors of its list. If that leaves too few for a line, assignments are moved
between lines; a request that is then refused cannot be met. (The exception are lists that cut a node into pieces that
no task fits into.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from db.allocation import tasks_and_nodes as shaping
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Choose, Shape, Task


def decide(machine: Machine, shape: Shape, free: Sequence[int], choose: Choose) -> list[int]:
    """Processors from ``free`` for every line's tasks, line after line. Raises NotEnough, which names a line."""
    first = _Dealt(machine, shape, free)
    short = first.lists()
    if short is None:
        short = first.others(choose)
    if short is None:
        return first.processors()
    moved = _Matching(_places(machine, shape, free), machine, shape).match()
    if moved is not None:
        again = _Dealt(machine, shape, free)
        for number, tasks in moved.items():
            again.give(number, tasks)
        short = again.others(choose)  # a placement may refuse free processors
        if short is None:
            return again.processors()
    line = shape.segments[short.line]
    source = line.source or f"program {short.line + 1} of the load file"
    beside = "the other programs" if len(shape.segments) > 1 else ""
    raise shaping.not_enough(shape, short.room, line.tasks, source, beside)


class _Short(NamedTuple):
    line: int
    room: Mapping[int, Sequence[Task]]


class _Dealt:
    """What each line has got so far."""

    def __init__(self, machine: Machine, shape: Shape, free: Sequence[int]) -> None:
        self._machine, self._shape, self._free = machine, shape, free
        self._taken: set[int] = set()
        self._used: dict[int, int] = {}
        self._given: list[list[int]] = [[] for _ in shape.segments]

    def give(self, line: int, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._given[line] += task
            self._taken.update(task)
            node = self._machine.node_of(task[0])
            self._used[node] = self._used.get(node, 0) + 1

    def lists(self) -> _Short | None:
        """Assign processors to lines with lists, which choose first. Returns the line that has too few, if any."""
        there = set(self._free)
        for line, segment in enumerate(self._shape.segments):
            if segment.wanted is not None:
                order = [one for one in segment.wanted if one in there and one not in self._taken]
                room = shaping.tasks_of(self._machine, self._shape, order, self._used)
                chosen = shaping.pick(room, segment.tasks, None, order)
                if chosen is None:
                    return _Short(line, room)
                self.give(line, chosen)
        return None

    def others(self, choose: Choose) -> _Short | None:
        """Assign processors chosen by the placement to lines without lists. Returns the line that has too few, if
        any."""
        for line, segment in enumerate(self._shape.segments):
            if segment.wanted is None:
                order = [one for one in self._free if one not in self._taken and not self._machine.is_service(one)]
                room = shaping.tasks_of(self._machine, self._shape, order, self._used)
                chosen = shaping.pick(room, segment.tasks, choose)
                if chosen is None:
                    return _Short(line, room)
                self.give(line, chosen)
        return None

    def processors(self) -> list[int]:
        return [one for ids in self._given for one in ids]


def _places(machine: Machine, shape: Shape, free: Sequence[int]) -> list[tuple[Task, Set[int]]]:
    """The free processors cut into tasks, grouped by the set of lines that may have them."""
    may: dict[int, set[int]] = {one: set() for one in free}
    for line, segment in enumerate(shape.segments):
        for one in segment.wanted or ():
            if one in may:
                may[one].add(line)
    anywhere = {line for line, segment in enumerate(shape.segments) if segment.wanted is None}
    alike: dict[int, dict[frozenset[int], list[int]]] = {}
    for one in free:
        lines = may[one] if machine.is_service(one) else may[one] | anywhere
        alike.setdefault(machine.node_of(one), {}).setdefault(frozenset(lines), []).append(one)
    places: list[tuple[Task, Set[int]]] = []
    for groups in alike.values():
        left: list[tuple[int, frozenset[int]]] = []
        for lines_, ids in groups.items():
            whole = len(ids) // shape.each * shape.each
            places += [(tuple(ids[at : at + shape.each]), lines_) for at in range(0, whole, shape.each)]
            left += [(one, lines_) for one in ids[whole:]]
        for at in range(0, len(left) - shape.each + 1, shape.each):
            pieces = left[at : at + shape.each]
            places.append((tuple(one for one, _ in pieces), frozenset.intersection(*(those for _, those in pieces))))
    return places


class _Matching:
    """Assigns places to tasks by augmenting paths: a line without a place takes another line's, which then finds
    another."""

    def __init__(self, places: list[tuple[Task, Set[int]]], machine: Machine, shape: Shape) -> None:
        self._places, self._segments = places, shape.segments
        self._node = [machine.node_of(task[0]) for task, _ in places]
        self._on: dict[int, list[int]] = {}
        for at, node in enumerate(self._node):
            self._on.setdefault(node, []).append(at)
        self._most = {node: shaping.most_on(machine, shape, node, len(those)) for node, those in self._on.items()}
        self._count = dict.fromkeys(self._on, 0)
        self._owner: list[int | None] = [None] * len(places)

    def match(self) -> dict[int, list[Task]] | None:
        """The tasks of every line with a list, in its order; None if a line finds too few."""
        if not self._may_be():
            return None
        for line, segment in enumerate(self._segments):
            missing = segment.tasks - self._take_free(line, segment.tasks)
            if not all(self._find(line) for _ in range(missing)):
                return None
        found: dict[int, list[Task]] = {}
        for line, segment in enumerate(self._segments):
            if segment.wanted is not None:
                order = {one: at for at, one in enumerate(segment.wanted)}
                mine = [task for (task, _), owner in zip(self._places, self._owner, strict=True) if owner == line]
                found[line] = sorted(mine, key=lambda task: order[task[0]])
        return found

    def _may_be(self) -> bool:
        """A quick necessary check: enough places for all lines together, and for each line alone."""
        if sum(segment.tasks for segment in self._segments) > sum(self._most.values()):
            return False
        alone = [0] * len(self._segments)
        for _, lines in self._places:
            for line in lines:
                alone[line] += 1
        return all(room >= segment.tasks for room, segment in zip(alone, self._segments, strict=True))

    def _take_free(self, line: int, count: int) -> int:
        """Take up to ``count`` unused places for a line; returns how many."""
        taken = 0
        for at, (_, lines) in enumerate(self._places):
            node = self._node[at]
            if taken == count:
                break
            if self._owner[at] is None and line in lines and self._count[node] < self._most[node]:
                self._owner[at] = line
                self._count[node] += 1
                taken += 1
        return taken

    def _find(self, line: int) -> bool:
        """Find one more place for a line along the shortest augmenting path."""
        # line -> (line that takes its place, the place gained, the place lost)
        came: dict[int, tuple[int, int, int]] = {}
        looked: set[int] = set()
        queue = deque([line])
        while queue:
            here = queue.popleft()
            for at, (_, lines) in enumerate(self._places):
                if at in looked or here not in lines:
                    continue
                looked.add(at)
                node = self._node[at]
                if self._owner[at] is None and self._count[node] < self._most[node]:
                    self._count[node] += 1
                    self._pass_along(here, at, came)
                    return True
                for lost in [at] if self._owner[at] is not None else self._on[node]:
                    owner = self._owner[lost]
                    if owner is not None and owner != line and owner not in came:
                        came[owner] = here, at, lost
                        queue.append(owner)
        return False

    def _pass_along(self, line: int, gained: int, came: Mapping[int, tuple[int, int, int]]) -> None:
        while line in came:
            taker, its, lost = came[line]
            self._owner[lost] = None
            self._owner[gained] = line
            line, gained = taker, its
        self._owner[gained] = line
