"""Processor selection for requests beyond a plain number: whole tasks, nodes, GPUs, lines of a load file.

A *task* is what one rank runs on: ``each`` processors of one node, and devices of that node. The selection uses the
picture of the machine, as db.allocation.allocate does for plain requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from db.allocation.free import Machine
from db.errors import Invalid, NotEnough, StoreError
from redmesh.text import counted

Choose = Callable[[Sequence[int], int], Sequence[int] | None]
#: The processors that one rank runs on.
Task = tuple[int, ...]
_Tasks = dict[int, list[Task]]  # by node id


class Segment(NamedTuple):
    """A line of a load file: its number of tasks, and its processors if it lists them; ``source``: FILE:LINE."""

    tasks: int
    wanted: Sequence[int] | None
    source: str = ""


class Shape(NamedTuple):
    """``nodes``: spread over exactly that many; ``most``: the most tasks on a node, by its id; ``per_task``:
    devices.

    ``side``: the side of the machine to use; None: any.
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
    """Processors for ``tasks`` tasks, task after task, from ``free`` (in the requested order if ``listed``).

    With ``at_least``, fewer tasks are enough. Raises NotEnough or Invalid.
    """
    there = tasks_of(machine, shape, free, {})
    if shape.nodes is not None:
        chosen = _spread(there, shape.nodes, tasks, choose, listed=listed, at_least=at_least)
    else:
        count = min(tasks, max(at_least, sum(map(len, there.values())))) if at_least else tasks
        chosen = pick(there, count, None if listed else choose, free)
    if chosen is None:
        raise not_enough(shape, there, tasks)
    return [one for task in chosen for one in task]


def check(machine: Machine, shape: Shape) -> None:
    """Raise Invalid if a requested device exists on no node."""
    for name in shape.per_task:
        if not machine.total_of(name, shape.side):
            raise Invalid(f"no node of this mesh has a {name}", "`gpus` in the configuration says how many a node has")


def tasks_of(machine: Machine, shape: Shape, free: Sequence[int], used: Mapping[int, int]) -> _Tasks:
    """The tasks that fit on each node, in the order of ``free``; ``used`` tasks are already placed, by node."""
    on_node: dict[int, list[int]] = {}
    for one in free:
        on_node.setdefault(machine.node_of(one), []).append(one)
    tasks: _Tasks = {}
    for node, ids in on_node.items():
        before = used.get(node, 0)
        room = most_on(machine, shape, node, len(ids) // shape.each + before) - before
        if room > 0:
            tasks[node] = [tuple(ids[at * shape.each : (at + 1) * shape.each]) for at in range(room)]
    return tasks


def most_on(machine: Machine, shape: Shape, node: int, room: int) -> int:
    """How many tasks fit on a node with ``room`` free processors."""
    devices = (machine.left_on(node, name) // amount for name, amount in shape.per_task.items())
    return min(room, shape.most.get(node, room), *devices)


def pick(there: _Tasks, count: int, choose: Choose | None, order: Sequence[int] = ()) -> list[Task] | None:
    """Choose ``count`` tasks: by the placement, which sees each task as its first processor, or the first in
    ``order``.

    The tasks of a node stay together. Returns None if there are too few.
    """
    if sum(map(len, there.values())) < count:
        return None
    by_first = {task[0]: (node, task) for node, tasks in there.items() for task in tasks}
    firsts = choose(sorted(by_first), count) if choose else [one for one in order if one in by_first][:count]
    if firsts is None:
        return None
    if len(firsts) != count or len(set(firsts)) != count or not set(firsts) <= set(by_first):
        raise StoreError("the placement chose processors that are not free", "use another placement")
    together: _Tasks = {}
    for first in firsts:
        node, task = by_first[first]
        together.setdefault(node, []).append(task)
    return [task for tasks in together.values() for task in tasks]


def _spread(there: _Tasks, nodes: int, tasks: int, choose: Choose, *, listed: bool, at_least: int) -> list[Task] | None:
    """Spread tasks evenly over exactly ``nodes`` nodes; the first nodes get one more if it does not divide evenly."""
    share, more = divmod(tasks, nodes)
    if at_least:
        share, more = 1, 0  # one place on each node; the rest is taken below
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


def not_enough(
    shape: Shape, there: Mapping[int, Sequence[Task]], tasks: int, source: str = "", beside: str = ""
) -> NotEnough:
    """The error for a request that finds too little in ``there``; ``source``: the line of the load file, if any.

    ``beside``: what else of the same request has a part of the processors.
    """
    room = sum(map(len, there.values()))
    what = "a processor" if shape.each == 1 else counted(shape.each, "processor")
    what += "".join(f" and {amount} {name}" for name, amount in shape.per_task.items())
    over = f" on {counted(shape.nodes, 'node')}" if shape.nodes is not None else ""
    left = f"room for {room} on {counted(len(there), 'node')}" if room else "no room"
    left += f" beside {beside}" if beside else ""
    message = f"{source and source + ': '}{counted(tasks, 'rank')}{over} with {what} each asked for, there is {left}"
    return NotEnough(message, "ask for fewer, or wait with --wait-for-nodes 600", free=room * shape.each, left=left)


def beyond(machine: Machine, login: str, lists: Sequence[tuple[int, Sequence[int] | None]]) -> str:
    """Why waiting cannot help a request that names processors: too many are on another side than ``login``; ""
    otherwise.

    ``lists``: the size of each request with its list (None: no list).
    """
    for asked, wanted in lists:
        if wanted is not None and login:
            side = machine.side_of(login)
            elsewhere = sum(machine.side_of_processor(one) != side for one in wanted)
            if len(wanted) - elsewhere < min(asked, len(wanted)):
                are = "is" if elsewhere == 1 else "are"
                return f"{elsewhere} of the {len(wanted)} named {are} on another side of the machine than {login}"
    return ""
