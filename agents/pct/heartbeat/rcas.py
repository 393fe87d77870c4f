"""The addresses of the mesh's RCAs: from the node's file, and from later lists of RCAs.

Stored in RUN, so that a restarted PCT finds another RCA if the one in its file is lost.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Sequence


def known(run: str, node: str, mesh_boot: str, configured: Sequence[str]) -> List[str]:
    """All known addresses; those stored in another boot of the mesh are ignored."""
    try:
        with open(_path(run, node), encoding="ascii") as file:
            boot, *said = file.read(4096).split()
    except (OSError, ValueError):
        boot, said = "", []
    return list(dict.fromkeys([*(said if boot == mesh_boot else ()), *configured]))


def remember(run: str, node: str, mesh_boot: str, places: Sequence[str]) -> None:
    """Store a list. Raises OSError."""
    path = _path(run, node)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(" ".join((mesh_boot, *places)) + "\n")
    os.replace(path + ".new", path)


def _path(run: str, node: str) -> str:
    return os.path.join(run, f"rcas-{node}")
