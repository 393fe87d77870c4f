"""The problems of a mesh, from ``mesh status --json``. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.tui.format import amount
from redmesh.sanitise import clean
from redmesh.text import counted

LEAST_FREE = 1 << 30  # bytes on the disk of the mesh's state
SLOW_S = 1.0  # the longest normal reading of the database


_SEVERAL = re.compile(r"\d+ nodes \(")


def about_nodes(problem: str) -> bool:
    """True for a problem of nodes, which the machine's own rows say too."""
    return problem.startswith("node ") or _SEVERAL.match(problem) is not None


def problems(status: Mapping[str, Any], reading_s: float) -> list[str]:
    """A line for each problem. ``reading_s``: the duration of the last reading of the database's changes."""
    found: list[str] = []
    if status.get("trouble"):
        found.append(str(status["trouble"]))
    if status.get("adoptable"):
        found.append("keeper: has exited, so that no daemon is started again: mesh up gives the mesh a new one")
    if status.get("database_error"):
        found.append(f"database: {status['database_error']}")
    elif reading_s > SLOW_S:
        found.append(f"database: a reading took {reading_s:.1f} s")
    for daemon in status.get("daemons") or ():
        if daemon.get("state") != "running":
            found.append(f"{daemon.get('name')}: {daemon.get('state')}")
        if daemon.get("restarts"):
            found.append(f"{daemon.get('name')}: died and was started again {counted(daemon['restarts'], 'time')}")
    found += [f"{name}: does not answer" for name, answers in (status.get("cpas") or {}).items() if not answers]
    if status.get("rca") is False:
        found.append("rca: does not answer")
    found += [told if _SEVERAL.match(told) else f"node {told}" for told in status.get("nodes_told") or ()]
    free = status.get("state_free")
    if isinstance(free, int) and free < LEAST_FREE:
        found.append(f"{status.get('state')}: only {amount(free)} are free")
    if status.get("another_program"):
        found.append("the daemons run another program than this one: mesh upgrade")
    return [clean(line) for line in found]
