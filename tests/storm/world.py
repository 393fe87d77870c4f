"""Processes as /proc has them: the daemons of a mesh, and what carries a token of the storm."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process that lives: the words of its command line, its parent, and its name as the kernel has it."""

    pid: int
    words: tuple[str, ...]
    parent: int
    name: str


_DAEMONS = ("keeper", "cpa", "rca")
_TITLE = re.compile(r"redmesh-(pct|launch) (\S+) \(")


def processes() -> Iterator[Process]:
    """Everything that has a command line: neither zombies nor the kernel's threads."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().rstrip(b"\0").decode("utf-8", "replace")
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue  # it has ended meanwhile
            head, _, rest = stat.rpartition(")")
            state, parent = rest.split()[:2]
            if words and state != "Z":
                yield Process(int(entry), tuple(words.split("\0")), int(parent), head.partition("(")[2])


def role(process: Process) -> tuple[str, str]:
    """``("pct", "n0")``, ``("cpa", "cpa-0")``, ``("keeper", "")`` …; two empty words for what is not a daemon."""
    for word, following in zip(process.words, process.words[1:], strict=False):
        if word.endswith("/redmesh/start_command.py") and following in _DAEMONS:
            return following, process.words[-1] if following == "cpa" else ""
    found = _TITLE.match(process.words[0])
    if found:
        return found[1], found[2]
    # a host's keeper was forked from what SSH started, whose command line it keeps
    return ("keeper", "") if process.name == "redmesh-keeper" else ("", "")


def send(pid: int, number: int) -> bool:
    """Signal a process; whether it was there. Never a group, never init."""
    if pid <= 1:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        send(pid, signal.SIGCONT)
        send(pid, signal.SIGKILL)
