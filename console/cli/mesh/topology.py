"""``mesh topology``: the topology of the machine, and its differences from the nodes."""

import argparse
import json
import sys
from typing import Any

from console.errors import ConsoleError
from console.settings import Settings, load
from db.errors import StoreError
from db.topology import Cluster, Mesh, Topology, from_json, parse
from db.topology import check as inconsistencies
from db.topology.mesh import Side
from db.topology.validate import Node
from db.views.viewer import open_viewer
from redmesh.text import counted


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print the topology of a file, or of the mesh."""
    topology, _nodes, _side = _find(settings, options.file)
    if options.json:
        print(json.dumps({**topology.to_dict(), **_derived(topology)}))
    else:
        print("\n".join(_as_text(topology)))
    return 0


def check(settings: Settings, options: argparse.Namespace) -> int:
    """Print a line for every inconsistency; returns 1 if there is any."""
    topology, nodes, side = _find(settings, options.file)
    found = inconsistencies(topology, nodes, side)
    if options.json:
        print(json.dumps(found))
    else:
        there = "the nodes" if side is None else f"the nodes of side {side.number}, which is all that is seen,"
        print("\n".join(found) or ("the description is sound" if nodes is None else f"{there} are as described"))
    return int(bool(found))


def differences(settings: Settings) -> list[str]:
    """Differences between the mesh's topology and its nodes, a sentence each."""
    return inconsistencies(*_find(settings, None))


def _find(settings: Settings, file: str | None) -> tuple[Topology, list[Node] | None, Side | None]:
    """Return the topology, the nodes to compare it with (None without a mesh), and the side if only one is seen."""
    if file is not None:
        section = load(config=file).topology
        if section is None:
            raise ConsoleError(f"{file} has no section [topology]", "examples/red_storm.toml has one", exit_status=2)
        return parse(section), None, None
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            reading = viewer.read()
    except StoreError as error:
        if settings.topology is None:
            raise
        print(f"mesh: {error.message}: this is what {settings.where['topology']} says", file=sys.stderr)
        return parse(settings.topology), None, None
    processors: dict[int, list[int]] = {}
    for row in reading.processors:
        processors.setdefault(row.node, []).append(row.id)
    nodes = [(node.name, node.role, processors[node.id]) for node in reading.nodes if node.id in processors]
    topology = from_json(reading.mesh.topology)
    side = topology.only_side({node.side for node in reading.nodes}) if isinstance(topology, Mesh) else None
    return topology, nodes, side


def _derived(topology: Topology) -> dict[str, Any]:
    if not isinstance(topology, Mesh):
        return {}
    return {
        "sides": [
            {"number": side.number, "first": side.first, "last": side.last, **_sizes(topology, side)}
            for side in topology.sides
        ]
    }


def _sizes(mesh: Mesh, side: Any) -> dict[str, int]:
    on = mesh.on(side)
    service = sum(map(mesh.is_service, on))
    return {"compute": len(on) - service, "service": service}


def _as_text(topology: Topology) -> list[str]:
    if isinstance(topology, Cluster):
        nodes = f", {counted(len(topology.nodes), 'node')} named" if topology.nodes else ""
        lines = [f"a {topology.kind} cluster{nodes}"]
        for name in topology.nodes:
            path = " > ".join(filter(None, topology.path(name)))
            lines.append(f"  {name}  {path}".rstrip())
        return lines
    mesh = topology
    service = ", ".join(map(str, mesh.service_columns)) or "none"
    return [
        f"a mesh of {mesh.rows} x {mesh.columns} cabinets, {counted(mesh.cages, 'cage')}"
        f" of {counted(mesh.boards, 'board')} each",
        f"x {mesh.columns} (cabinet columns), y {mesh.height} (routers, row after row), z {mesh.depth} (a torus)",
        f"{mesh.compute} compute and {counted(mesh.service, 'service processor')}; service columns: {service}",
        *(
            f"switch {switch.name} after column {switch.after}:"
            f" {'open' if switch.name in mesh.open else 'closed'}, {mesh.links_cut(switch)} x-links"
            for switch in mesh.switches
        ),
        *(
            f"side {side.number}: columns {side.first}..{side.last}, {sizes['compute']} compute and"
            f" {sizes['service']} service processors"
            for side in mesh.sides
            for sizes in (_sizes(mesh, side),)
        ),
    ]
