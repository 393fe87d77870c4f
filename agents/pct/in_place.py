"""Whether the programs of a load may run where they stand: the question every plain launch asks, in one stat each."""

from __future__ import annotations

import os

from agents.pct.plan import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def identity(path: bytes) -> List[int]:
    """What tells a file from every other without reading it; empty when there is none.

    ctime cannot be set: two files that agree in all five are one file, or whole copies of one disk.
    """
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def plain(program: Program, ranks: List[int]) -> bool:
    """Whether nothing travels with this launch: every program of ``ranks`` runs in place, and no files are served."""
    if not program.cargo:
        return True
    return program.cargo.keys() == {"bcast"} and runs_in_place(program, ranks)


def runs_in_place(program: Program, ranks: List[int]) -> bool:
    """Whether every program of ``ranks`` stands here as it does at the launcher, and may run there."""
    if program.cargo["bcast"] != "ask":
        return False
    segments = {segment.first: segment for segment in map(program.segment_of, ranks)}
    return all(segment.file == identity(segment.path) for segment in segments.values())
