"""Reads lines of a source file in a separate process, so that a file server that does not answer blocks nothing
else."""

from __future__ import annotations

from agents.pct.debug import crash
from agents.pct.debug.snapshot import Tool

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List

    from agents.link.loop import Loop

#: Limits: lines of one request, characters of a line, and seconds for reading.
MOST, LONGEST, READ_S = 2000, 300, 3.0


def read(loop: Loop, path: str, first: int, last: int, told: Callable[[List[str], str], None]) -> None:
    """Read lines ``first`` to ``last`` (from 1); calls ``told(lines, reason if there are none)``, perhaps at once."""
    program = crash.find("sed")
    if not program or not path.startswith("/") or not 1 <= first <= last < first + MOST:
        told([], "no such lines can be read here")
        return

    def ended(text: str, why: str) -> None:
        bad = why or (text.strip()[-200:].rpartition(": ")[2] if text.startswith(f"{program}: ") else "")
        told([] if bad else [line[:LONGEST] for line in text.split("\n")[: last - first + 1]], bad)

    try:
        Tool(loop, [program, "-n", f"{first},{last}p;{last}q", "--", path], READ_S, ended)
    except OSError as error:
        told([], str(error.strerror))
