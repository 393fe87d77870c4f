"""What ``showmesh --json`` prints, read in the process of the test: a look costs milliseconds, a command 0.2 CPU-s."""

import json
from typing import Any

from console.cli.showmesh import as_json
from db.views.viewer import Picture, Viewer, open_viewer
from tests.support.mesh import PrivateMesh


def look(mesh: PrivateMesh) -> Any:
    """Return the machine: nodes, launchers, and how many processors are in each state."""
    with open_viewer(mesh.database) as viewer:
        return seen_by(viewer)


def seen_by(viewer: Viewer) -> Any:
    """Return the same, as far as a viewer sees it."""
    picture = Picture()
    picture.update(viewer)
    return json.loads(as_json(picture, 0)[0])


def processors(mesh: PrivateMesh, state: str) -> int:
    """Return how many processors are in a state: ``free``, ``pending``, ``busy`` …"""
    return int(look(mesh)["states"][state])


def states(mesh: PrivateMesh) -> dict[str, str]:
    """Return the state of every node."""
    return {node["name"]: node["state"] for node in look(mesh)["nodes"]}


def times_down(mesh: PrivateMesh) -> int:
    """Return how often a node has gone down since the database was made: it may be up again before anybody looks."""
    with open_viewer(mesh.database) as viewer:
        return sum(event.kind == "node_down" for event in viewer.events(0, 100_000))
