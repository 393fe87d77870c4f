"""The processes of a mesh as /proc shows them: evidence of life that no removed directory takes away."""

from __future__ import annotations

import os

from agents.linux.processes import is_agent

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

#: What the processes of a mesh are called; the last two only by their titles (agents/linux/prctl.py, set_title).
KEEPER, CPA, RCA, SIMULATED, PCT, LAUNCH = "keeper", "cpa", "rca", "simulated", "pct", "launch"


def processes(state: str) -> Dict[int, Tuple[str, str]]:
    """Our processes that belong to the mesh in ``state``: by pid, what each is and its name (a PCT's is its node's)."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb", buffering=0) as file:
                    words = os.fsdecode(file.read(65536)).rstrip("\0").split("\0")
                known = _known(words, state)
                # anybody may call a process so
                ours = known is not None and (os.stat(f"/proc/{entry}").st_uid == os.geteuid() or is_agent(int(entry)))
                if known is not None and ours and has_same_directory(int(entry), state):
                    found[int(entry)] = known
            except OSError:
                continue  # it has ended meanwhile
    return found


def has_same_directory(pid: int, path: str) -> bool:
    """Whether ``path`` is the same directory for the process as for us; in a container it can be another.

    True when that cannot be told. FileNotFoundError when the process has exited.
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
        return True  # it is somebody else's, or refuses to be looked at
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
    # What redmesh/start_command.py started; versions before 0.2 started daemons as "python -m agents.keeper".
    for at, word in enumerate(words[:-1]):
        if word == "-m" and words[at + 1] != "redmesh":
            return words[at + 1].rpartition(".")[2]
        if word == "redmesh" or word.endswith("/redmesh/start_command.py"):
            return words[at + 1]
    return ""
