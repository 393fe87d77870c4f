"""The life of a node on another machine: its boot id, and how often its PCT was started under it.

A boot id is the mesh's, a dash and eight digits of the node's own. It is kept in RUN, so that a PCT that is started
again adopts what its predecessor left, and is another one after a reboot of the machine, in another boot of the mesh,
and whenever the node was cleared because the mesh had given it up.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Tuple

_KERNEL = "/proc/sys/kernel/random/boot_id"


def boot_id(run: str, node: str, mesh_boot: str) -> Tuple[str, bool]:
    """The node's boot id, and whether it is a new one: none was known, or the machine or the mesh has booted since."""
    known, kernel = _read(run, node)
    if kernel == _kernel() and known.startswith(mesh_boot + "-"):
        return known, False
    return new_boot_id(run, node, mesh_boot), True


def keep(run: str, node: str, chosen: str) -> None:
    """Write the boot id of a PCT that lives once more where its file was removed. OSError."""
    if chosen and not os.path.exists(_path(run, node)):
        _write(run, node, chosen)


def new_boot_id(run: str, node: str, mesh_boot: str) -> str:
    """A boot id that this node never had. OSError."""
    chosen = f"{mesh_boot}-{os.urandom(4).hex()}"
    _write(run, node, chosen)
    return chosen


def _write(run: str, node: str, chosen: str) -> None:
    path = _path(run, node)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(f"{chosen} {_kernel()}\n")
    os.replace(path + ".new", path)


def present(run: str, node: str) -> Tuple[str, int]:
    """Boot id and incarnation of the PCT that was started last, for its keeper; ("", 0) where there was none."""
    try:
        with open(os.path.join(run, f"incarnation-{node}"), encoding="ascii") as file:
            return _read(run, node)[0], int(file.read())
    except (OSError, ValueError):
        return "", 0


def _read(run: str, node: str) -> Tuple[str, str]:
    try:
        with open(_path(run, node), encoding="ascii") as file:
            chosen, kernel = file.read().split()
            return chosen, kernel
    except (OSError, ValueError):
        return "", ""


def _kernel() -> str:
    try:
        with open(_KERNEL, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "?"


def _path(run: str, node: str) -> str:
    return os.path.join(run, f"boot-{node}")
