"""Where the RCAs of the mesh are reached: as the node's file has it, and as they themselves said since.

Kept in RUN, so that a PCT that is started again while the one of its file is gone finds another.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Sequence


def known(run: str, node: str, mesh_boot: str, configured: Sequence[str]) -> List[str]:
    """Every place that is known; what was said in another boot of the mesh is none."""
    try:
        with open(_path(run, node), encoding="ascii") as file:
            boot, *said = file.read(4096).split()
    except (OSError, ValueError):
        boot, said = "", []
    return list(dict.fromkeys([*(said if boot == mesh_boot else ()), *configured]))


def remember(run: str, node: str, mesh_boot: str, places: Sequence[str]) -> None:
    """What was said. OSError."""
    path = _path(run, node)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(" ".join((mesh_boot, *places)) + "\n")
    os.replace(path + ".new", path)


def _path(run: str, node: str) -> str:
    return os.path.join(run, f"rcas-{node}")
