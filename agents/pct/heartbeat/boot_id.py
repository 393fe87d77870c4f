"""The boot id of a node on another machine, and the number of PCTs started under it (the incarnation).

A boot id is the mesh's boot id, a dash and eight digits of the node's own. It is stored in RUN, and in STATE in case
RUN is removed, so that a restarted PCT adopts what its predecessor left. The node gets a new one after a reboot of the
machine, in another boot of the mesh, and whenever it was cleared because the mesh had given it up.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Tuple

_KERNEL = "/proc/sys/kernel/random/boot_id"


def boot_id(run: str, state: str, node: str, mesh_boot: str) -> Tuple[str, bool]:
    """The node's boot id, and whether it is new: none was known, or the machine or the mesh has rebooted since."""
    for path in (_path(run, node), life_file(state, node)):
        known, kernel, _ = read_life(path)
        if kernel == kernel_boot() and known.startswith(mesh_boot + "-"):
            keep(run, node, known)
            return known, False
    return new_boot_id(run, node, mesh_boot), True


def life_file(state: str, node: str) -> str:
    """The file with a copy of the node's boot data, in case RUN is removed: boot id, kernel's boot id, incarnation."""
    return os.path.join(state, f"life-{node}")


def read_life(path: str) -> Tuple[str, str, int]:
    """Boot id, kernel's boot id and incarnation in the file; empty and 0 for missing values."""
    try:
        with open(path, encoding="ascii") as file:
            chosen, kernel, *number = file.read().split()
            return chosen, kernel, int(number[0]) if number else 0
    except (OSError, ValueError):
        return "", "", 0


def keep(run: str, node: str, chosen: str) -> None:
    """Write the boot id of a running PCT again if its file was removed. Raises OSError."""
    if chosen and not os.path.exists(_path(run, node)):
        _write(run, node, chosen)


def new_boot_id(run: str, node: str, mesh_boot: str) -> str:
    """A boot id that this node never had. Raises OSError."""
    chosen = f"{mesh_boot}-{os.urandom(4).hex()}"
    _write(run, node, chosen)
    return chosen


def _write(run: str, node: str, chosen: str) -> None:
    replace_file(_path(run, node), f"{chosen} {kernel_boot()}\n")


def replace_file(path: str, text: str) -> None:
    """Write a small file atomically. Raises OSError."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


def present(run: str, node: str) -> Tuple[str, int]:
    """Boot id and incarnation of the last PCT, for its keeper; ("", 0) if there was none."""
    try:
        with open(os.path.join(run, f"incarnation-{node}"), encoding="ascii") as file:
            return read_life(_path(run, node))[0], int(file.read())
    except (OSError, ValueError):
        return "", 0


def kernel_boot() -> str:
    """The kernel's own boot id; ``?`` if unknown."""
    try:
        with open(_KERNEL, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "?"


def _path(run: str, node: str) -> str:
    return os.path.join(run, f"boot-{node}")
