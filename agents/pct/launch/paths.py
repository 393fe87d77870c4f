"""Where launches keep their files in RUN (docs/architecture.md)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List


def launch_socket(run: str, node: str, launcher: int) -> str:
    """Where a launch child listens, for its PCT and the next one."""
    return os.path.join(run, f"launch-{node}-{launcher}.sock")


def rank_map(run: str, node: str, launcher: int) -> str:
    """A launch's rank map on this node: one file, for making a directory is what a launch would spend most time on."""
    return os.path.join(run, f"launch-{node}-{launcher}.ranks")


def file_socket(run: str, node: str, launcher: int) -> str:
    """Where the ranks of a launch reach files on the login processor, under ``--io``."""
    return os.path.join(run, f"launch-{node}-{launcher}.files")


def tombstone(run: str, node: str, launcher: int) -> str:
    """A file that says: this launcher has been killed here, its load is refused."""
    return os.path.join(run, f"killed-{node}-{launcher}")


def owed_epilog(run: str, node: str, launcher: int) -> str:
    """A file that says: the site's epilog has not run yet for this launch (system mode)."""
    return os.path.join(run, f"epilog-{node}-{launcher}")


def fault_file(run: str, node: str, launcher: int) -> str:
    """What a launch child that met a fault of its own leaves for its PCT, which takes it away."""
    return os.path.join(run, f"fault-{node}-{launcher}")


def processor_locks(run: str, node: str) -> str:
    """Where launch children have a byte locked for each processor whose processes they have (system mode)."""
    return os.path.join(run, f"processors-{node}")


def launchers_here(run: str, node: str, kind: str = "launch") -> List[int]:
    """Launchers that have a file of that kind here, whether their launch child lives or not."""
    prefix = f"{kind}-{node}-"
    found = set()
    try:
        names = os.listdir(run)
    except FileNotFoundError:
        return []  # RUN was removed; it is made again (agents/link/sockets.py, listen_again)
    for name in names:
        number = name[len(prefix) :].partition(".")[0] if name.startswith(prefix) else ""
        if number.isdigit():
            found.add(int(number))
    return sorted(found)


def pmix_directory(run: str, launcher: int, machine: int) -> str:
    """Where the PMIx server of a launch on this machine keeps its files, whatever PCTs the ranks run under."""
    return os.path.join(run, "pmix", f"{launcher}-{machine}")


def clear_files(run: str, node: str, launcher: int) -> None:
    """Remove what a launch left in RUN; what its launch children here share, with the last of them."""
    for path in (f(run, node, launcher) for f in (launch_socket, rank_map, file_socket)):
        try:
            os.unlink(path)
        except OSError:
            pass
    if os.path.isdir(os.path.join(run, "pmix")) and not _has_launch_child(run, launcher):
        import shutil  # heavy, and few launches have such a server

        for name in os.listdir(os.path.join(run, "pmix")):
            if name.startswith(f"{launcher}-"):
                shutil.rmtree(os.path.join(run, "pmix", name), ignore_errors=True)


def _has_launch_child(run: str, launcher: int) -> bool:
    # of another node in the same RUN: its PMIx server may serve ranks of all of them
    return any(name.startswith("launch-") and name.endswith(f"-{launcher}.sock") for name in os.listdir(run))
