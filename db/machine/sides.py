"""Sides: the pieces of a machine of cabinets between open switch columns (row A10). Each function is one
transaction.

``mesh.topology`` says which switches are open. The side of every node follows from it and is stored in the node's row,
so that an allocation finds the processors of one side only. Nothing that runs may ever span two sides.

A side keeps its identity through a change if its larger part stays together (``changed_columns``). Only the nodes of
other columns change sides: they must be idle, and their PCTs wipe them before they are used on their new side.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from db.errors import Invalid, StoreError
from db.machine.node_states import GIVEN_UP
from db.schema.models import Launcher, Node, Processor
from db.schema.models import Mesh as MeshTable
from db.store.orm import pw
from db.store.ranges import fold
from db.store.statements import INSTANT, STAMP, Ids, Query, among, statement
from db.store.store import Store, Transaction
from db.topology import Mesh, from_json
from redmesh.text import counted

#: The reason of nodes that are drained until a switch may change.
DRAINED_FOR_SIDES = "a side of the machine is to change"
#: The reason of nodes that changed sides, until their PCTs have wiped them.
TO_BE_WIPED = "changed sides, to be wiped by its PCT"
NAMED_IN_AN_ERROR = 3


@statement
def topology_text() -> Query:
    """The topology as it was defined (JSON), NULL for a plain line."""
    return MeshTable.select(MeshTable.topology).where(MeshTable.id == 1)


@statement
def _set_topology(*, topology: str) -> Query:
    return MeshTable.update({MeshTable.topology: topology}).where(MeshTable.id == 1)


@statement
def _to_be_wiped() -> Query:
    """Nodes that changed sides and have not been wiped since."""
    waits = ((Node.state == "down") & (Node.reason == TO_BE_WIPED)) | (Node.agent == TO_BE_WIPED)
    return Node.select(Node.id, Node.name, Node.address).where(waits, Node.incarnation < GIVEN_UP)


@statement
def _set_side(*, ids: Ids, side: int) -> Query:
    return Node.update({Node.side: side, Node.changed: STAMP}).where(among(Node.id, ids), Node.side != side)


@statement
def _end_life(*, ids: Ids) -> Query:
    """End the boot of nodes. Drained nodes stay drained: until the PCT has begun a new boot, nothing can be resumed."""
    return Node.update({Node.agent: TO_BE_WIPED, Node.incarnation: Node.incarnation + 1, Node.changed: STAMP}).where(
        among(Node.id, ids)
    )


@statement
def _come_in_reach(*, ids: Ids) -> Query:
    return Node.update({Node.side_from: STAMP}).where(among(Node.id, ids))


@statement
def _begin_life(*, ids: Ids, by: str) -> Query:
    return Node.update(
        {
            Node.state: "down",
            Node.reason: TO_BE_WIPED,
            Node.by: by,
            Node.state_at: INSTANT,
            Node.incarnation: Node.incarnation + 1,
            Node.changed: STAMP,
        }
    ).where(among(Node.id, ids))


@statement
def _first_processors() -> Query:
    return Processor.select(Processor.node, pw.fn.MIN(Processor.id)).group_by(Processor.node)


@statement
def _all_nodes() -> Query:
    return Node.select(Node.id, Node.name, Node.address, Node.state, Node.role, Node.boot_id, Node.incarnation)


@statement
def _partitions_on_nodes() -> Query:
    return Processor.select(Processor.partition, Processor.node).where(Processor.partition.is_null(False)).distinct()


@statement
def _logins_of_live() -> Query:
    return Launcher.select(Launcher.partition, Launcher.login_processor).where(Launcher.ended_at.is_null())


@statement
def _drain_nodes(*, ids: Ids, by: str) -> Query:
    return Node.update(
        {
            Node.state: "draining",
            Node.reason: DRAINED_FOR_SIDES,
            Node.by: by,
            Node.state_at: INSTANT,
            Node.changed: STAMP,
        }
    ).where(among(Node.id, ids))


@statement
def _set_leaving(*, ids: Ids) -> Query:
    """Mark login processors from which nothing new may start (db.allocation.free.Machine.leaving)."""
    return Node.update({Node.reason: DRAINED_FOR_SIDES, Node.changed: STAMP}).where(among(Node.id, ids))


_DRAINED = (Node.state.in_(["draining", "drained"]), Node.reason == DRAINED_FOR_SIDES)


@statement
def _undrain_present() -> Query:
    return Node.update(
        {Node.state: "up", Node.reason: "", Node.by: "", Node.state_at: INSTANT, Node.changed: STAMP}
    ).where(*_DRAINED, Node.boot_id != "", Node.incarnation < GIVEN_UP)


@statement
def _undrain_absent(*, by: str) -> Query:
    return Node.update(
        {Node.state: "down", Node.reason: "", Node.by: by, Node.state_at: INSTANT, Node.changed: STAMP}
    ).where(*_DRAINED)


@statement
def _stay() -> Query:
    return Node.update({Node.reason: "", Node.changed: STAMP}).where(Node.reason == DRAINED_FOR_SIDES)


class InUse(StoreError):
    """Something runs that the new sides would cut, or that another side would see."""

    code = "unavailable"


class Place(NamedTuple):
    """A node that changed sides, and the address of its PCT."""

    id: int
    name: str
    address: str


class _Stretch(NamedTuple):
    """Adjacent columns that are on one side before a change and on one side after it."""

    before: int  # the number of the side before
    after: int
    columns: range
    users: bool  # True if people can log in there
    size: int  # in processors


class _Node(NamedTuple):
    id: int
    name: str
    address: str
    state: str
    role: str
    column: int
    lives: bool  # it has registered, and its boot id is not given up


def mesh_of(text: str | None) -> Mesh:
    """The mesh in a ``topology`` column. Raises Invalid if the machine has no cabinets."""
    topology = from_json(text)
    if not isinstance(topology, Mesh):
        raise Invalid("this machine has no switches", "describe its cabinets in [topology]")
    return topology


def sides_of(mesh: Mesh, nodes: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The side of every node, by its id, from its processors' ids; a node without processors is at column 0."""
    return {node: mesh.side_of_column(column_of(mesh, processors)) for node, processors in nodes.items()}


def column_of(mesh: Mesh, processors: Sequence[int]) -> int:
    """The cabinet column of a node with these processors; 0 if the topology knows none of them."""
    known = [one for one in processors[:1] if one < mesh.size]
    return mesh.place(known[0])[0] if known else 0


def set_open(
    store: Store,
    names: Sequence[str],
    by: str,
    *,
    closed: Sequence[str] | None = None,
    drain: bool = False,
    wipe_both: bool = False,
) -> list[Place]:
    """Open exactly these switches, or with ``closed`` open these and close those; returns the nodes to wipe.

    These are the nodes that changed sides (``changed_columns``, which uses ``wipe_both``), and those of an earlier
    change that are not wiped yet. Raises InUse while a partition spans the cut or has processors on such a node. With
    ``drain``, nothing new starts in those columns, nor from login processors there, until the switches could be set.
    Raises Invalid or TopologyError.
    """
    try:
        return store.run(lambda t: _set_open(t, names, closed, by, wipe_both))
    except InUse:
        if drain:
            store.run(lambda t: _drain(t, names, closed, by, wipe_both))
        raise


def _changed(mesh: Mesh, names: Sequence[str], closed: Sequence[str] | None) -> Mesh:
    if closed is None:
        return mesh.with_open(tuple(names))
    mesh.with_open(tuple(closed))  # raises TopologyError for an unknown name
    return mesh.with_open(tuple((mesh.open | set(names)) - set(closed)))


def _set_open(
    t: Transaction, names: Sequence[str], closed: Sequence[str] | None, by: str, wipe_both: bool
) -> list[Place]:
    mesh = mesh_of(_topology(t))
    new = _changed(mesh, names, closed)
    _undrain(t, by)  # nodes that were drained for this change begin anew like the others
    if new.open == mesh.open:
        return _unwiped(t)
    nodes = _nodes(t, mesh)
    columns = changed_columns(mesh, new, wipe_both)
    _refuse(t, new, columns, nodes)
    by_side: dict[int, list[int]] = {}
    for node in nodes.values():
        by_side.setdefault(new.side_of_column(node.column), []).append(node.id)
    for side, ids in by_side.items():
        t.change(_set_side.bind(ids=ids, side=side))
    t.freed = True
    t.change(_set_topology.bind(topology=json.dumps(new.to_dict(), sort_keys=True)))
    shown = ", ".join(sorted(new.open)) or "none"
    t.event("sides", f"open switches: {shown}, by {by}; {counted(len(new.sides), 'side')}")
    moved = [node for node in nodes.values() if node.column in columns]
    _come_near(t, mesh, new, moved)
    there = [node for node in moved if node.role != "login" and node.lives]
    drained = {node.id for node in there if node.state in ("draining", "drained")}
    # A node that is down may come back with its old contents.
    _begin_anew(t, [node.id for node in there if node.id not in drained], by)
    t.change(_end_life.bind(ids=list(drained)))
    places = {node.id: Place(node.id, node.name, node.address) for node in there}
    return list((places | {place.id: place for place in _unwiped(t)}).values())


def _unwiped(t: Transaction) -> list[Place]:
    return [Place._make(row) for row in t.rows(_to_be_wiped.bind())]


def _come_near(t: Transaction, mesh: Mesh, new: Mesh, moved: Iterable[_Node]) -> None:
    """Nodes that changed sides come within reach of others; what happened before stays visible only to their own
    side.

    Of two nodes that come together at least one has changed sides, and a viewer checks both.
    """
    before, after = users_of(mesh), users_of(new)
    ids = [node.id for node in moved if after[node.column] - before[node.column]]
    t.change(_come_in_reach.bind(ids=ids))
    t.trimmed_to = t.stamp  # what a viewer holds now belongs to another side, so viewers read everything anew


def _begin_anew(t: Transaction, ids: Sequence[int], by: str) -> None:
    """Set nodes down until their PCTs have wiped them and begun a new boot; reports about the old boot no longer
    count."""
    t.change(_begin_life.bind(ids=ids, by=by))


def _topology(t: Transaction) -> str | None:
    row = t.row(topology_text.bind())
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def _nodes(t: Transaction, mesh: Mesh) -> dict[int, _Node]:
    first: dict[int, int] = {row[0]: row[1] for row in t.rows(_first_processors.bind())}
    rows = t.rows(_all_nodes.bind())
    columns = {row[0]: column_of(mesh, [first[row[0]]] if row[0] in first else []) for row in rows}
    nodes = {}
    for node, name, address, state, role, boot_id, incarnation in rows:
        lives = bool(boot_id and address) and incarnation < GIVEN_UP
        nodes[node] = _Node(node, name, address, state, role, columns[node], lives)
    return nodes


def users_of(mesh: Mesh) -> dict[int, frozenset[int]]:
    """For every cabinet column, the columns whose users reach it: those of service nodes, and the first, where login
    is."""
    found = {}
    for side in mesh.sides:
        service = frozenset(column for column in (0, *mesh.service_columns) if column in side)
        found.update(dict.fromkeys(range(side.first, side.last + 1), service))
    return found


def changed_columns(mesh: Mesh, new: Mesh, wipe_both: bool = False) -> set[int]:
    """The columns whose nodes change sides.

    The larger part of a side keeps the side: the largest piece of a side that is cut, the larger of sides that are
    joined. A piece with users has priority over one without: nodes that had no users never keep a side that has users.
    ``wipe_both``: additionally every column that new users reach, that of the larger part too.
    """
    stretches = _stretches(mesh, new)
    kept = _kept(stretches)
    changed = {column for stretch in stretches if stretch not in kept for column in stretch.columns}
    if wipe_both:
        before, after = users_of(mesh), users_of(new)
        changed |= {column for column in before if after[column] - before[column]}
    return changed


def _stretches(mesh: Mesh, new: Mesh) -> list[_Stretch]:
    there = sorted({0, *mesh.service_columns})
    found = []
    for (before, after), group in groupby(
        range(mesh.columns), lambda column: (mesh.side_of_column(column), new.side_of_column(column))
    ):
        one = list(group)
        columns = range(one[0], one[-1] + 1)
        users = any(column in columns for column in there)
        found.append(_Stretch(before, after, columns, users, sum(map(mesh.size_of_column, columns))))
    return found


def _kept(stretches: Sequence[_Stretch]) -> tuple[_Stretch, ...]:
    """The stretches that keep their sides: one a side, before and after, with as many processors as possible."""
    with_users = {stretch.after for stretch in stretches if stretch.users}
    # The best choice that ends with each stretch. Stretches of one side are adjacent, so only the last one can
    # conflict.
    best: list[tuple[tuple[int, int], tuple[_Stretch, ...]]] = [((0, 0), ())]
    for stretch in stretches:
        if not stretch.users and stretch.after in with_users:
            continue  # other people reach it from now on
        (users, size), chosen = max(
            (one for one in best if not one[1] or _apart(one[1][-1], stretch)), key=lambda one: one[0]
        )
        best.append(((users + stretch.size * stretch.users, size + stretch.size), (*chosen, stretch)))
    return max(best, key=lambda one: one[0])[1]


def _apart(one: _Stretch, other: _Stretch) -> bool:
    return one.before != other.before and one.after != other.after


def _refuse(t: Transaction, new: Mesh, changed: Collection[int], nodes: Mapping[int, _Node]) -> None:
    """Raise InUse, which names partitions, unless every running launch stays whole and no node to be wiped is in
    use."""
    columns: dict[int, set[int]] = {}
    for partition, node in t.rows(_partitions_on_nodes.bind()):
        columns.setdefault(partition, set()).add(nodes[node].column)
    logins: dict[int, set[int]] = {}
    for partition, login in t.rows(_logins_of_live.bind()):
        logins.setdefault(partition, set()).add(nodes[login].column)
    cut: list[int] = []
    wiped: list[int] = []
    for partition, where in sorted(columns.items()):
        pieces = {new.side_of_column(column) for column in where | logins.get(partition, set())}
        if len(pieces) > 1:
            cut.append(partition)
        elif any(column in changed for column in where):
            wiped.append(partition)
    if cut:
        raise InUse(f"{_named(cut)} would be cut in two", "wait for it, end it, or use --wait")
    if wiped:  # the nodes are wiped, so nothing may run there
        raise InUse(f"{_named(wiped)} would be wiped with its nodes", "wait for it, end it, or use --wait")


def _named(partitions: Sequence[int]) -> str:
    few = ", ".join(map(str, partitions[:NAMED_IN_AN_ERROR])) + (" …" if len(partitions) > NAMED_IN_AN_ERROR else "")
    return f"partition {few}" if len(partitions) == 1 else f"{len(partitions)} partitions ({few})"


def _drain(t: Transaction, names: Sequence[str], closed: Sequence[str] | None, by: str, wipe_both: bool) -> None:
    mesh = mesh_of(_topology(t))
    changed = changed_columns(mesh, _changed(mesh, names, closed), wipe_both)
    there = [node for node in _nodes(t, mesh).values() if node.column in changed and node.state == "up"]
    drained = [node.id for node in there if node.role != "login"]
    t.change(_drain_nodes.bind(ids=drained, by=by))
    # Launches of these users on the part that stays would also prevent the change (db.allocation.free: leaving).
    t.change(_set_leaving.bind(ids=[node.id for node in there if node.role == "login"]))
    if drained:
        t.event("sides", f"{counted(len(drained), 'node gets', 'nodes get')} nothing new: {DRAINED_FOR_SIDES}, by {by}")


def _undrain(t: Transaction, by: str) -> None:
    t.freed = True
    t.change(_undrain_present.bind())
    t.change(_undrain_absent.bind(by=by))
    t.change(_stay.bind())


def kept_open(section: Mapping[str, Any] | None, before: str | None) -> dict[str, Any] | None:
    """The new topology with the same switches open as before, because a boot must not close switches."""
    if section is None or section.get("kind") != Mesh.kind or not before:
        return None if section is None else dict(section)
    old = json.loads(before)
    if old.get("kind") != Mesh.kind:  # it was described as a cluster, whose switches are not these
        return dict(section)
    there = {switch["name"] for switch in section.get("switches", [])}
    was = {switch["name"] for switch in old.get("switches", [])}
    # A switch that is new in the description is as the description says.
    still = {name for name in old.get("open", []) if name in there}
    new = {name for name in section.get("open", []) if name not in was}
    return {**section, "open": sorted(still | new)}


def shown(mesh: Mesh, nodes: Iterable[Any], processors: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    """Every side for display: its columns, its processors (folded) as far as nodes are visible, and its login
    processors."""
    found: list[dict[str, Any]] = []
    everybody = list(nodes)
    only = mesh.only_side({node.side for node in everybody})
    for side in mesh.sides:
        place = {"side": side.number, "first": side.first, "last": side.last, "seen": only in (None, side)}
        if not place["seen"]:
            found.append(place)
            continue
        here = [node for node in everybody if column_of(mesh, processors.get(node.id, ())) in side]
        ids = {role: [] for role in ("compute", "service")}  # type: dict[str, list[int]]
        for node in here:
            ids.setdefault(node.role, []).extend(processors.get(node.id, ()))
        found.append(
            {
                **place,
                "compute": fold(sorted(ids["compute"])),
                "compute_processors": len(ids["compute"]),
                "service": fold(sorted(ids["service"])),
                "service_processors": len(ids["service"]),
                "logins": [node.name for node in here if node.role == "login"],
            }
        )
    return found
