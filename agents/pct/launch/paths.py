"""The files of launches in RUN (docs/architecture.md)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List


def launch_socket(run: str, node: str, launcher: int) -> str:
    """The socket of a launch child, for its PCT and later PCTs."""
    return os.path.join(run, f"launch-{node}-{launcher}.sock")


def rank_map(run: str, node: str, launcher: int) -> str:
    """A launch's rank map on this node: a single file, because creating a directory would be the most expensive step
    of a launch."""
    return os.path.join(run, f"launch-{node}-{launcher}.ranks")


def file_socket(run: str, node: str, launcher: int) -> str:
    """The socket by which ranks reach files on the login processor, under ``--io``."""
    return os.path.join(run, f"launch-{node}-{launcher}.files")


def tombstone(run: str, node: str, launcher: int) -> str:
    """The tombstone file: this launcher has been killed here, so its load is refused."""
    return os.path.join(run, f"killed-{node}-{launcher}")


def owed_epilog(run: str, node: str, launcher: int) -> str:
    """The marker file: the site's epilog has not run yet for this launch (system mode)."""
    return os.path.join(run, f"epilog-{node}-{launcher}")


def fault_file(run: str, node: str, launcher: int) -> str:
    """The error file of a launch child, for its PCT, which removes it."""
    return os.path.join(run, f"fault-{node}-{launcher}")


def processor_locks(run: str, node: str) -> str:
    """The file in which launch children lock a byte for each processor in use (system mode)."""
    return os.path.join(run, f"processors-{node}")


def launchers_here(run: str, node: str, kind: str = "launch") -> List[int]:
    """Launchers that have a file of that kind here, whether or not their launch child lives."""
    prefix = f"{kind}-{node}-"
    found = set()
    try:
        names = os.listdir(run)
    except FileNotFoundError:
        return []  # RUN was removed; it is created again (agents/link/sockets.py, listen_again)
    for name in names:
        number = name[len(prefix) :].partition(".")[0] if name.startswith(prefix) else ""
        if number.isdigit():
            found.add(int(number))
    return sorted(found)


def pmix_directory(run: str, launcher: int, machine: int) -> str:
    """The directory of a launch's PMIx server on this machine, shared by all its PCTs."""
    return os.path.join(run, "pmix", f"{launcher}-{machine}")


def clear_files(run: str, node: str, launcher: int) -> None:
    """Remove a launch's files in RUN; files shared by its launch children go with the last of them."""
    _unlink(launch_socket(run, node, launcher))
    _unlink(file_socket(run, node, launcher))
    if os.path.isdir(os.path.join(run, "pmix")) and not _has_launch_child(run, launcher):
        from agents.linux.removal import remove_tree  # few launches have such a server

        # Killed ranks that have not exited yet may be creating their session directories there.
        for name in os.listdir(os.path.join(run, "pmix")):
            if name.startswith(f"{launcher}-"):
                remove_tree(os.path.join(run, "pmix", name))
    # Last: if this process is killed before it has removed all, the PCT finds the launch by this file (launchers_here).
    _unlink(rank_map(run, node, launcher))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _has_launch_child(run: str, launcher: int) -> bool:
    # Another node in the same RUN: its ranks may use the same PMIx server.
    return any(name.startswith("launch-") and name.endswith(f"-{launcher}.sock") for name in os.listdir(run))
