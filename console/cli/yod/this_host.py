"""Names of this host in lists and host files: ``localhost`` is the nodes of a personal mesh, as with mpiexec."""

from __future__ import annotations

import os

from console.launch.options.lists import LOOPBACK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.options.request import Request

_INCARNATION = "incarnation-"  # RUN has a file with this beginning for each node of a personal mesh


def rename(request: Request, run_dir: str) -> None:
    """Replace this host's names in ``request`` by the nodes of the personal mesh whose RUN is ``run_dir``."""
    host = os.uname().nodename
    names = {"localhost", *LOOPBACK, host, host.partition(".")[0]}
    nodes = _nodes(run_dir)
    where = request.where
    for one in (where.wanted, where.exclude, *(line.wanted for line in request.program.segments or ())):
        if one is not None and one.get("nodes"):
            one["nodes"] = _replaced(one["nodes"], names, nodes)
    for name in names & where.most.keys():
        ranks = where.most.pop(name)
        where.most.update(dict.fromkeys(nodes, -(-ranks // len(nodes))))


def _nodes(run_dir: str) -> list[str]:
    try:
        found = [name.removeprefix(_INCARNATION) for name in os.listdir(run_dir) if name.startswith(_INCARNATION)]
    except OSError:
        found = []
    return sorted(found, key=lambda name: (len(name), name)) or ["n0"]  # yod starts a mesh of one node


def _replaced(given: list[Any], names: set[str], nodes: list[str]) -> list[Any]:
    if not names.intersection(given):
        return given
    replaced = [node for name in given for node in (nodes if name in names else [name])]
    return list(dict.fromkeys(replaced))
