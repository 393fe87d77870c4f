"""Where a node keeps its files in RUN (docs/architecture.md)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List


#: What ranks under ``--io`` find on their PATH and PYTHONPATH.
YODIO = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "yodio")


def pct_socket(run: str, node: str) -> str:
    """Where the node's PCT listens."""
    return os.path.join(run, f"{node}.sock")


def launch_socket(run: str, node: str, launcher: int) -> str:
    """Where a launch child listens, for its PCT and the next one."""
    return os.path.join(run, f"launch-{node}-{launcher}.sock")


def rank_map(run: str, node: str, launcher: int) -> str:
    """A launch's rank map on this node: one file, for making a directory is what a launch would spend most time on."""
    return os.path.join(run, f"launch-{node}-{launcher}.ranks")


def file_socket(run: str, node: str, launcher: int) -> str:
    """Where the ranks of a launch reach files on the login processor, under ``--io``."""
    return os.path.join(run, f"launch-{node}-{launcher}.files")


def incarnation_file(run: str, node: str) -> str:
    """How often the node's PCT was started since the mesh came up."""
    return os.path.join(run, f"incarnation-{node}")


def life_file(state: str, node: str) -> str:
    """A copy of what RUN says of the node's life, in case RUN is removed: boot id, kernel's boot id, incarnation."""
    return os.path.join(state, f"life-{node}")


def write_incarnation(run: str, node: str, number: int) -> None:
    """What the next PCT of the node counts on from. OSError."""
    replace_file(incarnation_file(run, node), str(number))


def replace_file(path: str, text: str) -> None:
    """Write a small file, whole or not at all. OSError."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


def tombstone(run: str, node: str, launcher: int) -> str:
    """A file that says: this launcher has been killed here, its load is refused."""
    return os.path.join(run, f"killed-{node}-{launcher}")


def owed_epilog(run: str, node: str, launcher: int) -> str:
    """A file that says: the site's epilog has not run yet for this launch (system mode)."""
    return os.path.join(run, f"epilog-{node}-{launcher}")


def last_words(run: str, node: str, launcher: int) -> str:
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
    """Remove what a launch left in RUN."""
    for path in (f(run, node, launcher) for f in (launch_socket, rank_map, file_socket)):
        try:
            os.unlink(path)
        except OSError:
            pass
    if os.path.isdir(os.path.join(run, "pmix")):
        import shutil  # heavy, and few launches have such a server

        for name in os.listdir(os.path.join(run, "pmix")):
            if name.startswith(f"{launcher}-"):
                shutil.rmtree(os.path.join(run, "pmix", name), ignore_errors=True)
