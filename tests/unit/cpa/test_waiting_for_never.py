"""Whoever is told to wait could be served by the idle machine, and whoever is refused could not: by brute force.

A small machine of any kind (sizes, GPUs, service nodes, modes, reservations, nodes that are down), any request of all
that shapes one, and beside it somebody who holds processors.
"""

import itertools
import os
import pwd
import secrets
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from agents.wire.errors import AgentError
from db.allocation.allocate import allocate
from db.errors import Invalid, NotEnough
from db.machine import nodes, reservations
from db.store.store import Store, open_store
from tests.support.chance import long
from tests.support.stores import LOGIN, empty, first, migrated

ME = pwd.getpwuid(os.getuid()).pw_name


class Node(NamedTuple):
    """A node as it was drawn; what may be given to me of its processors is in ``mine``."""

    name: str
    ids: list[int]
    mine: list[int]
    gpus: int
    service: bool
    up: bool


@st.composite
def machines(draw: st.DrawFn) -> list[Node]:
    found: list[Node] = []
    start = 0
    for number in range(draw(st.integers(1, 4))):
        ids = list(range(start, start + draw(st.integers(1, 4))))
        start += len(ids)
        uses = draw(st.lists(st.sampled_from("     mb"), min_size=len(ids), max_size=len(ids)))
        mine = [one for one, use in zip(ids, uses, strict=True) if use in " m"]
        service = number > 0 and draw(st.integers(0, 3)) == 0
        up = draw(st.integers(0, 3)) > 0
        found.append(Node(f"n{number}", ids, mine, draw(st.integers(0, 2)), service, up))
    return found


@st.composite
def requests(draw: st.DrawFn, machine: list[Node], kind: str) -> dict[str, Any]:
    """An allocate as yod makes one: what excludes each other there is not drawn together."""
    message: dict[str, Any] = {"cpus_per_task": draw(st.sampled_from([1, 1, 2, 3]))}
    names = [node.name for node in machine]
    every = [one for node in machine for one in node.ids][: 5 if kind == "lines" else None]  # so that lines meet
    by_names = st.lists(st.sampled_from(names), min_size=1, unique=True).map(lambda those: _listed([], those))
    by_ids = st.lists(st.sampled_from(every), min_size=1, max_size=5, unique=True).map(lambda ids: _listed(ids, []))
    lists = by_names | by_ids if message["cpus_per_task"] == 1 else by_names
    if draw(st.integers(0, 2)) == 0:
        message["exclude"] = draw(by_names | by_ids)
    if draw(st.integers(0, 2)) == 0:
        message["per_task"] = {"gpu": draw(st.integers(1, 2))}
    elif kind != "lines":
        message["overcommit"] = draw(st.booleans())
    if kind == "lines":
        lines = st.none() | lists
        if any(node.service for node in machine):
            lines |= st.just({"processors": [], "nodes": [], "service": True})
        sizes = st.integers(1, 3)
        message["segments"] = [
            {"size": draw(sizes if wanted is None else sizes | st.none()), "wanted": wanted}
            for wanted in draw(st.lists(lines, min_size=1, max_size=3))
        ]
        return message
    message["wanted"] = draw(st.none() | lists) if kind != "hostfile" else draw(by_names)
    message["size"] = draw(st.integers(1, 9) if message["wanted"] is None else st.none() | st.integers(1, 9))
    if kind == "nodes":
        message["nodes"] = draw(st.integers(1, 4))
        message["size"] = max(message["size"] or 1, message["nodes"])
    if kind == "hostfile":
        named = st.sampled_from(message["wanted"]["nodes"])
        message["most"] = draw(st.dictionaries(named, st.integers(1, 3)))
    return message


def _listed(processors: list[int], names: list[str]) -> dict[str, Any]:
    return {"processors": [[one, one] for one in processors], "nodes": names}


def resolved(machine: list[Node], wanted: dict[str, Any] | None) -> set[int] | None:
    if wanted is None:
        return None
    named = {one for node in machine if node.name in wanted["nodes"] for one in node.ids}
    served = {one for node in machine if node.service and wanted.get("service") for one in node.ids}
    return named | served | {pair[0] for pair in wanted["processors"]}


def could_be_met(machine: list[Node], message: dict[str, Any], tasks: list[int]) -> bool:
    """Whether any choice on the machine with nothing running and every node up meets the request; ``tasks`` by line."""
    out = resolved(machine, message.get("exclude")) or set()
    each = 1 if message.get("overcommit") else message["cpus_per_task"]
    segments = message.get("segments") or [message]
    lists = [resolved(machine, segment.get("wanted")) for segment in segments]
    gpus = message.get("per_task", {}).get("gpu", 0)

    def room(node: Node, wanted: set[int] | None) -> list[int]:
        if wanted is None and node.service:
            return []
        return [one for one in node.mine if one not in out and (wanted is None or one in wanted)]

    if "segments" in message:
        on = {one: number for number, node in enumerate(machine) for one in node.ids}
        may = [{one for node in machine for one in room(node, wanted)} for wanted in lists]
        return _lines(
            tuple(map(frozenset, may)), tuple(tasks), each, on, [n.gpus // gpus if gpus else 99 for n in machine]
        )
    held = []
    for node in machine:
        count = len(room(node, lists[0])) // each
        if not message.get("overcommit"):
            count = min(count, message.get("most", {}).get(node.name, count))
        held.append(min(count, node.gpus // gpus) if gpus else count)
    if message.get("nodes") is None:
        return sum(held) >= (1 if message.get("overcommit") else tasks[0])
    share, more = divmod(tasks[0], message["nodes"])
    need = (
        [1] * message["nodes"]
        if message.get("overcommit")
        else [share + 1] * more + [share] * (message["nodes"] - more)
    )
    return any(
        all(held[at] >= count for at, count in zip(chosen, need, strict=True))
        for chosen in itertools.permutations(range(len(held)), len(need))
    )


def _lines(
    may: tuple[frozenset[int], ...], tasks: tuple[int, ...], each: int, on: dict[int, int], most: list[int]
) -> bool:
    """Every way to give every line's tasks processors of one node each; ``most`` tasks on a node."""
    todo = [line for line, count in enumerate(tasks) for _ in range(count)]

    @cache
    def rest(at: int, used: frozenset[int]) -> bool:
        if at == len(todo):
            return True
        on_node = Counter(on[one] for one in used)
        left = sorted(may[todo[at]] - used)
        for chosen in itertools.combinations(left, each):
            node = on[chosen[0]]
            whole = all(on[one] == node for one in chosen) and on_node[node] // each < most[node]
            if whole and rest(at + 1, used | frozenset(chosen)):
                return True
        return False

    return rest(0, frozenset())


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(migrated(tmp_path_factory.mktemp("never"))) as store:
        yield store


def build(store: Store, machine: list[Node], reserved: bool) -> None:
    empty(store)
    specs = [
        nodes.NodeSpec(
            at + 1, node.name, node.ids, role="service" if node.service else "compute", resources={"gpu": node.gpus}
        )
        for at, node in enumerate(machine)
    ]
    nodes.define_machine(store, "test", "b1", LOGIN, specs)
    for node in machine:
        nodes.node_up(store, node.name, "b1", 1, "/run/x", "1")
        others = [one for one in node.ids if one not in node.mine]
        if others and reserved:
            reservations.reserve(store, others, "somebody-else")
        elif others:
            reservations.set_mode(store, others, "batch")


@pytest.mark.parametrize("kind", ["plain", "nodes", "hostfile", "lines"])
@pytest.mark.storm
@settings(max_examples=long(20, 4000), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_who_waits_could_be_served_and_who_is_refused_could_not(ground: Store, kind: str, data: st.DataObject) -> None:
    machine = data.draw(machines())
    message = data.draw(requests(machine, kind))
    build(ground, machine, data.draw(st.booleans()))
    operations = Operations(ground, Rights(os.getuid(), frozenset(), frozenset()), login=LOGIN)
    whoever = {"login": LOGIN, "pid": 4711, "pid_started": 9, "command": "x"}
    held = data.draw(st.integers(0, 6))
    if held:
        try:
            taker = {"key": secrets.token_hex(16), "size": held, "overcommit": True, **whoever}
            allocate(ground, operations.machine, operations.demand(os.getuid(), taker), first)
        except NotEnough:
            pass
    for node in machine:
        if not node.up:
            nodes.node_down(ground, node.name, "b1", 1, "gone")
    try:
        asked = operations.demand(os.getuid(), {"key": secrets.token_hex(16), **message, **whoever})
    except (AgentError, Invalid):
        return  # wrong, whatever the machine is like
    shape = asked.shape
    tasks = (
        [one.tasks for one in shape.segments]
        if shape and shape.segments
        else [asked.size // (shape.each if shape else 1)]
    )
    possible = could_be_met(machine, message, tasks)
    try:
        allocate(ground, operations.machine, asked, operations.choose_for(message))
    except NotEnough as error:
        assert error.never is not possible, (error.message, error.hint)
        assert error.hint
    except Invalid as error:
        assert not possible, error
    else:
        assert possible
