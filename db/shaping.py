"""Which processors, where a request asks for more than so many of them: whole tasks, nodes, GPUs, a load file's lines.

A *task* is what one rank runs on: ``each`` processors of one node, and devices of that node. Everything is decided
from the picture of the machine, as db.allocation decides what is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from db.errors import Invalid, NotEnough, StoreError
from db.free import Machine

Choose = Callable[[Sequence[int], int], Sequence[int] | None]
NEVER = "this mesh never has as much"
_Tasks = dict[int, list[tuple[int, ...]]]  # by node id


class Segment(NamedTuple):
    """A line of a load file: so many tasks, on the processors listed if there is a list."""

    tasks: int
    wanted: Sequence[int] | None


class Shape(NamedTuple):
    """``nodes``: spread over exactly so many; ``most``: tasks on a node at most, by its id; ``per_task``: devices.

    ``side``: of the machine, where it is to be found; None: anywhere.
    """

    each: int = 1
    nodes: int | None = None
    most: Mapping[int, int] = {}
    per_task: Mapping[str, int] = {}
    segments: Sequence[Segment] = ()
    side: int | None = None


def decide(
    machine: Machine,
    shape: Shape,
    free: Sequence[int],
    tasks: int,
    choose: Choose,
    *,
    listed: bool,
    at_least: int = 0,
) -> list[int]:
    """Processors for ``tasks`` tasks, task after task, out of ``free`` (in the order wanted if it is ``listed``).

    With ``at_least`` fewer will do. NotEnough, Invalid.
    """
    for name in shape.per_task:
        if not machine.total_of(name, shape.side):
            raise Invalid(f"no node of this mesh has a {name}", "`gpus` in the configuration says how many a node has")
    if shape.segments:
        return _lines(machine, shape, free, choose)
    there = _tasks_of(machine, shape, free, {})
    if shape.nodes is not None:
        chosen = _spread(there, shape.nodes, tasks, choose, listed=listed, at_least=at_least)
    else:
        room = sum(map(len, there.values()))
        chosen = _pick(there, tasks, choose, free if listed else None) if room >= tasks else None
    if chosen is None:
        raise _not_enough(machine, shape, there, tasks, at_least)
    return [one for task in chosen for one in task]


def _tasks_of(machine: Machine, shape: Shape, free: Sequence[int], used: Mapping[int, int]) -> _Tasks:
    """The tasks there is room for on each node, in the order of ``free``; ``used`` were given out before, by node."""
    on_node: dict[int, list[int]] = {}
    for one in free:
        on_node.setdefault(machine.node_of(one), []).append(one)
    tasks: _Tasks = {}
    for node, ids in on_node.items():
        room, before = len(ids) // shape.each, used.get(node, 0)
        if node in shape.most:
            room = min(room, shape.most[node] - before)
        for name, amount in shape.per_task.items():
            room = min(room, machine.left_on(node, name) // amount - before)
        if room > 0:
            tasks[node] = [tuple(ids[at * shape.each : (at + 1) * shape.each]) for at in range(room)]
    return tasks


def _pick(there: _Tasks, count: int, choose: Choose, order: Sequence[int] | None) -> list[tuple[int, ...]] | None:
    """So many tasks, the first in ``order`` or (None) those of the placement, which sees each by its first processor.

    A node's tasks stay together.
    """
    by_first = {task[0]: (node, task) for node, tasks in there.items() for task in tasks}
    firsts = choose(sorted(by_first), count) if order is None else [one for one in order if one in by_first][:count]
    if firsts is None:
        return None
    if len(firsts) != count or len(set(firsts)) != count or not set(firsts) <= set(by_first):
        raise StoreError("the placement chose processors that are not free", "use another placement")
    together: _Tasks = {}
    for first in firsts:
        node, task = by_first[first]
        together.setdefault(node, []).append(task)
    return [task for tasks in together.values() for task in tasks]


def _spread(
    there: _Tasks, nodes: int, tasks: int, choose: Choose, *, listed: bool, at_least: int
) -> list[tuple[int, ...]] | None:
    """Evenly over exactly so many nodes, the first of which have one more where it does not come out even."""
    share, more = divmod(tasks, nodes)
    if at_least:
        share, more = 1, 0  # a place on each; what there is beyond is taken below
    roomy = [node for node, found in there.items() if len(found) >= share + (1 if more else 0)]
    if len(roomy) >= nodes:
        order = _nodes(there, roomy, nodes, choose, listed=listed)
    elif len(roomy) >= more:
        rest = [node for node, found in there.items() if len(found) == share and node not in roomy]
        others = _nodes(there, rest, nodes - len(roomy), choose, listed=listed) if rest else None
        order = None if others is None else roomy + others
    else:
        order = None
    if order is None:
        return None
    if at_least:
        each = -(-tasks // nodes)
        return [task for node in order for task in there[node][:each]]
    return [task for at, node in enumerate(order) for task in there[node][: share + (at < more)]]


def _nodes(there: _Tasks, among: list[int], count: int, choose: Choose, *, listed: bool) -> list[int] | None:
    if len(among) < count:
        return None
    if listed:
        return among[:count]
    by_first = {there[node][0][0]: node for node in among}
    firsts = choose(sorted(by_first), count)
    return None if firsts is None else [by_first[first] for first in firsts]


def _lines(machine: Machine, shape: Shape, free: Sequence[int], choose: Choose) -> list[int]:
    """Every line's tasks, line after line. Those with lists choose first: others could take what they need."""
    taken: set[int] = set()
    used: dict[int, int] = {}
    given: list[list[int]] = [[] for _ in shape.segments]
    there = set(free)
    for listed in (True, False):
        for number, segment in enumerate(shape.segments):
            if (segment.wanted is not None) is not listed:
                continue
            if segment.wanted is None:
                order: Sequence[int] = [one for one in free if not machine.is_service(one)]
            else:
                order = [one for one in segment.wanted if one in there]
            room = _tasks_of(machine, shape, [one for one in order if one not in taken], used)
            enough = sum(map(len, room.values())) >= segment.tasks
            chosen = _pick(room, segment.tasks, choose, order if listed else None) if enough else None
            if chosen is None:
                line = f" by program {number + 1} of the load file"
                raise _not_enough(machine, shape, room, segment.tasks, 0, line, segment)
            for task in chosen:
                given[number] += task
                taken.update(task)
                node = machine.node_of(task[0])
                used[node] = used.get(node, 0) + 1
    return [one for ids in given for one in ids]


def _not_enough(
    machine: Machine,
    shape: Shape,
    there: _Tasks,
    tasks: int,
    at_least: int,
    where: str = "",
    segment: Segment | None = None,
) -> NotEnough:
    room = sum(map(len, there.values()))
    what = "a processor" if shape.each == 1 else f"{shape.each} processors"
    what += "".join(f" and {amount} {name}" for name, amount in shape.per_task.items())
    over = f" on {shape.nodes} nodes" if shape.nodes is not None else ""
    ranks, spots = "rank" if tasks == 1 else "ranks", "node" if len(there) == 1 else "nodes"
    left = f"room for {room} on {len(there)} {spots}" if room else "no room"
    message = f"{tasks} {ranks}{over} with {what} each asked for{where}, there is {left}"
    if never(machine, shape, tasks, at_least, segment):
        return NotEnough(message, NEVER, free=room * shape.each, never=True)
    return NotEnough(message, "ask for fewer, or wait with --wait-for-nodes", free=room * shape.each)


def never(
    machine: Machine,
    shape: Shape,
    tasks: int,
    at_least: int,
    segment: Segment | None = None,
    among: Set[int] | None = None,
) -> bool:
    """Whether there would be no room for so many tasks on the idle machine either, ``among`` these processors."""
    held = machine.holds(shape.each, shape.per_task, shape.side, among)
    if segment is not None and segment.wanted is not None:
        named = set(map(machine.node_of, segment.wanted))
        held = {node: room for node, room in held.items() if node in named}
    elif segment is not None:
        held = {node: room for node, room in held.items() if not machine.serves(node)}
    rooms = sorted((min(room, shape.most.get(node, room)) for node, room in held.items()), reverse=True)
    if shape.nodes is None:
        return (1 if at_least else tasks) > sum(rooms)
    share, more = (1, 0) if at_least else divmod(tasks, shape.nodes)
    return shape.nodes > len(rooms) or rooms[shape.nodes - 1] < share or (more > 0 and rooms[more - 1] <= share)


def beyond(machine: Machine, login: str, lists: Sequence[tuple[int, Sequence[int] | None]]) -> str:
    """Why no waiting will help who names processors: too many are on another side than ``login``; empty otherwise.

    ``lists``: how many of each list are asked for (None: of no list).
    """
    for asked, wanted in lists:
        if wanted is not None and login:
            side = machine.side_of(login)
            elsewhere = sum(machine.side_of_processor(one) != side for one in wanted)
            if len(wanted) - elsewhere < min(asked, len(wanted)):
                are = "is" if elsewhere == 1 else "are"
                return f"{elsewhere} of the {len(wanted)} named {are} on another side of the machine than {login}"
    return ""
