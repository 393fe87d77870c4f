"""Finds inconsistencies between the described machine and the nodes in the database."""

from __future__ import annotations

from db.topology.cluster import Cluster
from db.topology.mesh import Mesh, Side

#: A node in the database: name, role, processor ids.
Node = tuple[str, str, list[int]]
#: After this many findings of one kind, the rest is only counted.
SHOWN = 10


def check(topology: Mesh | Cluster, nodes: list[Node] | None = None, side: Side | None = None) -> list[str]:
    """One sentence for every inconsistency; empty if there is none. Without ``nodes``, checks the description alone.

    ``side``: the nodes are those of one side, and the others are unknown.
    """
    if isinstance(topology, Mesh):
        return _sides(topology) + ([] if nodes is None else _mesh(topology, nodes, side))
    return [] if nodes is None else _cluster(topology, nodes)


def _sides(mesh: Mesh) -> list[str]:
    found = []
    if not mesh.compute:
        found.append("every column is a service column: there is no compute processor")
    if mesh.service_columns and not mesh.service:
        found.append("service_routers is empty: the service columns have no processors")
    for side in mesh.sides if mesh.open else ():
        compute = any(column in side for column in mesh.compute_columns)
        service = any(column in side for column in mesh.service_columns)
        if compute and not service:
            found.append(
                f"columns {side.first}..{side.last} are cut off from every service column: nobody can launch there"
            )
    return found


def _mesh(mesh: Mesh, nodes: list[Node], side: Side | None) -> list[str]:
    found: list[str] = []
    owner: dict[int, str] = {}
    for name, role, processors in nodes:
        known = [one for one in processors if 0 <= one < mesh.size]
        unknown = [one for one in processors if not 0 <= one < mesh.size]
        if unknown:
            found.append(f"node {name} has processor {unknown[0]}, and the machine ends at {mesh.size - 1}")
        found += [f"processor {one} is on nodes {owner[one]} and {name}" for one in known if one in owner]
        owner.update(dict.fromkeys(known, name))
        if role == "compute" and any(map(mesh.is_service, known)):
            found.append(f"node {name} is a compute node, and its processors are on service boards")
        elif role != "compute" and not all(map(mesh.is_service, known)):
            found.append(f"node {name} has the role {role}, and its processors are on compute boards")
        place = mesh.named(name)
        if place is not None and known and place not in known:
            found.append(f"node {name} has the name of processor {place}, and not that processor")
        boards = {(x, y // mesh.routers, z) for x, y, z in map(mesh.place, known)}
        if len(boards) > 1:
            found.append(f"node {name} has processors on {len(boards)} boards")
    expected = range(mesh.compute) if side is None else [one for one in mesh.on(side) if one < mesh.compute]
    missing = [one for one in expected if one not in owner]
    if missing:
        found.append(f"{len(missing)} compute processors are on no node, the first is {missing[0]}")
    return _shortened(found)


def _cluster(cluster: Cluster, nodes: list[Node]) -> list[str]:
    if cluster.kind == "flat":
        return []
    named, there = set(cluster.nodes), {name for name, _, processors in nodes}
    where = "rack" if cluster.kind == "racks" else "switch"
    found = [f"node {name} is in no {where}" for name, role, _ in nodes if role == "compute" and name not in named]
    found += [
        f"{where} {cluster.path(name)[-1] or 'at the root'} has node {name}, which is not in the mesh"
        for name in cluster.nodes
        if name not in there
    ]
    return _shortened(found)


def _shortened(found: list[str]) -> list[str]:
    if len(found) <= SHOWN:
        return found
    return [*found[:SHOWN], f"and {len(found) - SHOWN} more"]
