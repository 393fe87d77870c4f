"""The processes of a mesh in /proc: evidence of life that does not depend on any directory."""

from __future__ import annotations

import os

from agents.linux.processes import is_agent

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Tuple

#: The kinds of a mesh's processes; the last two are recognised only by their titles (agents/linux/prctl.py, set_title).
KEEPER, CPA, RCA, SIMULATED, PCT, LAUNCH = "keeper", "cpa", "rca", "simulated", "pct", "launch"


def processes(state: str) -> Dict[int, Tuple[str, str]]:
    """Our processes of the mesh in ``state``: pid -> kind and name (for a PCT the name of its node)."""
    return processes_of([state])[state]


def processes_of(states: Iterable[str]) -> Dict[str, Dict[int, Tuple[str, str]]]:
    """:func:`processes` of each of ``states``, with one look at /proc."""
    found: Dict[str, Dict[int, Tuple[str, str]]] = {state: {} for state in states}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb", buffering=0) as file:
                    words = os.fsdecode(file.read(65536)).rstrip("\0").split("\0")
                for state, those in found.items():
                    known = _known(words, state)
                    # Any process may have this name.
                    ours = known is not None and (
                        os.stat(f"/proc/{entry}").st_uid == os.geteuid() or is_agent(int(entry))
                    )
                    if known is not None and ours and has_same_directory(int(entry), state):
                        those[int(entry)] = known
            except OSError:
                continue  # it has exited meanwhile
    return found


def has_same_directory(pid: int, path: str) -> bool:
    """True if ``path`` is the same directory for the process and for us; in a container it can be another.

    True if that cannot be determined. Raises FileNotFoundError if the process has exited.
    """
    try:
        here = os.stat(path)
    except OSError:
        return True
    try:
        there = os.stat(f"/proc/{pid}/root{path}")
    except FileNotFoundError:
        os.stat(f"/proc/{pid}")
        return False
    except OSError:
        return True  # it belongs to another user, or cannot be inspected
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _known(words: List[str], state: str) -> Optional[Tuple[str, str]]:
    if len(words) == 1 and words[0].endswith(f" ({state})"):  # a title: redmesh-KIND NAME (STATE)
        kind, _, name = words[0][len("redmesh-") : -len(f" ({state})")].partition(" ")
        return (kind, name) if kind in (KEEPER, PCT, LAUNCH) and words[0].startswith("redmesh-") else None
    kind = _daemon(words) if f"{state}/keeper.json" in words else ""
    if kind not in ("keeper", "cpa", "rca", "simulated"):
        return None
    return kind, words[words.index("--name") + 1] if "--name" in words[:-1] else kind


def _daemon(words: List[str]) -> str:
    # Started by redmesh/start_command.py; versions before 0.2 started daemons as "python -m agents.keeper".
    for at, word in enumerate(words[:-1]):
        if word == "-m" and words[at + 1] != "redmesh":
            return words[at + 1].rpartition(".")[2]
        if word == "redmesh" or word.endswith("/redmesh/start_command.py"):
            return words[at + 1]
    return ""
