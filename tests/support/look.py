"""What ``showmesh``, ``mesh queue`` and ``mesh job show`` print with ``--json``, read in the process of the test.

A look costs milliseconds, a command 0.2 CPU-s.
"""

import contextlib
import io
import json
import sqlite3
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console import settings
from console.cli.mesh.job import show
from console.cli.mesh.queue import show_queue
from console.cli.showmesh import as_json
from db.views.viewer import Picture, Viewer, open_viewer
from redmesh.state import open_for_reading
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


def queue(mesh: PrivateMesh, ended: bool = False) -> list[dict[str, Any]]:
    """Return the jobs of tasks that have not ended, in the order of submission; with ``ended`` all."""
    rows: list[dict[str, Any]] = _printed(show_queue, mesh, all=ended)
    return rows


def job(mesh: PrivateMesh, uuid: str) -> dict[str, Any]:
    """Return a job's summary."""
    summary: dict[str, Any] = _printed(show, mesh, job=uuid, at="")
    return summary


def asked(path: Path, query: str) -> list[dict[str, Any]]:
    """Ask a state object, as ``mesh job sql`` does."""
    db = open_for_reading(str(path))
    try:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(query)]
    finally:
        db.close()


def _printed(command: Callable[[settings.Settings, Namespace], int], mesh: PrivateMesh, **options: Any) -> Any:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command(settings.load(environ=mesh.env), Namespace(json=True, **options))
    return json.loads(printed.getvalue())
