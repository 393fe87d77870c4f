"""Data from the database's rows for showmesh and pingd: names, ranks, elapsed times, counts."""

import time

from db.store.ranges import fold, unfold
from db.views.rows import STATES
from db.views.viewer import Picture

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from db.topology.mesh import Side


def by_node(picture: Picture) -> "Iterator[tuple[Any, list[Any]]]":
    """Every node that has processors, with its processors, in the order of ids and slots."""
    cells: dict[int, list[Any]] = {}
    for row in picture.processors.values():
        cells.setdefault(row.node, []).append(row)
    for node in sorted(cells):
        yield picture.nodes[node], sorted(cells[node], key=lambda row: row.slot)


def reservations(picture: Picture, events: "list[Any]") -> list[str]:
    """A line for each reservation in force: which processors, for whom, by whom and why, as the events tell it."""
    left = {one for one, row in picture.processors.items() if row.reserved_for is not None}
    left |= {one for one, row in picture.processors.items() if row.alloc_mode == "reserved"}
    lines: list[str] = []
    for event in reversed(events):
        ids, _, text = event.text.partition(": ")
        if event.kind != "mode" or not left:
            continue
        try:
            these = left.intersection(unfold(ids))
        except ValueError:
            continue
        if these:
            lines.append(f"{fold(sorted(these))}: {text}")
            left -= these
    unknown: dict[str, list[int]] = {}  # their events were deleted
    for one in sorted(left):
        whose = picture.processors[one].reserved_for
        unknown.setdefault(f"reserved for {whose}" if whose else "mode reserved", []).append(one)
    return [f"{fold(these)}: {text}" for text, these in unknown.items()] + lines[::-1]


def to_be_drained(picture: Picture) -> list[str]:
    """A line for each group of nodes that will be drained at the same time for the same reason, the next first."""
    alike: dict[tuple[float, str], list[str]] = {}
    for _, node in sorted(picture.nodes.items()):
        if node.drain_at is not None:
            alike.setdefault((node.drain_at, node.drain_reason), []).append(node.name)
    if not alike:
        return []
    from redmesh.idset import fold_names  # rarely needed
    from redmesh.sanitise import clean

    return [
        f"{fold_names(names)} will be drained at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}"
        + (f": {clean(reason)}" if reason else "")
        for (at, reason), names in sorted(alike.items())
    ]


_topologies: "dict[str, Any]" = {}


def topology_of(picture: Picture) -> "Any":
    """The machine's topology, read again only after a change."""
    from db.topology import from_json

    text = picture.mesh.topology or ""
    if text not in _topologies:
        _topologies.clear()
        _topologies[text] = from_json(text)
    return _topologies[text]


def side_seen(picture: Picture) -> "Side | None":
    """The side that this viewer sees; None if it sees the whole machine."""
    if not picture.mesh.topology:
        return None
    topology = topology_of(picture)
    return topology.only_side({node.side for node in picture.nodes.values()}) if topology.kind == "mesh" else None


def counts(picture: Picture) -> dict[str, int]:
    """The number of processors in every state."""
    found = dict.fromkeys(STATES, 0)
    for one in picture.processors:
        found[picture.state(one)] += 1
    return found


def login(picture: Picture, launcher: "Any") -> str:
    """Login processor and pid of a launcher: ``login1/4711``."""
    node = picture.nodes.get(launcher.login_processor)
    return f"{node.name if node else launcher.login_processor}/{launcher.pid}"


def elapsed_s(picture: Picture, launcher: "Any") -> float:
    """Seconds since the launch's start (GO), or since its request while it is pending, by the database's clock."""
    begun: float = launcher.started_at or launcher.created_at
    return max(0.0, picture.now - begun)


def ranks_by_processor(launcher: "Any") -> dict[int, list[int]]:
    """Map each processor of a launcher to its ranks; empty before *started*.

    If a rank has several processors, the others follow its first one in the launcher's list.
    """
    if not launcher.ranks:
        return {}
    import json

    first: dict[int, list[int]] = {}
    for rank, processor in enumerate(json.loads(launcher.ranks)):
        first.setdefault(processor, []).append(rank)
    ranks: dict[int, list[int]] = {}
    current: list[int] = []
    for processor in unfold(launcher.processors):
        current = first.get(processor, current)
        ranks[processor] = current
    return ranks
