"""Writes a launch's output into a file: what passes a filter, from the spool where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TextIO

from console.tui.archive import for_each_frame, run_frame
from console.tui.output import NOTE, Line
from console.tui.run import Run

Keep = Callable[[Line], bool]


def save(path: str, lines: list[Line], spool: str, keep: Keep | None, *, overwrite: bool, labels: bool) -> int:
    """Writes ``lines``, or the whole ``spool`` where that exists; how many lines. OSError, AgentError.

    FileExistsError when the file is there and must not be overwritten. Lines are written as they are shown: cleaned.
    """
    count = 0
    with open(os.path.expanduser(path), "w" if overwrite else "x", encoding="utf-8") as file:
        if not os.path.exists(spool):
            return _write(file, lines, keep, labels)
        run = Run(0)
        take = run_frame(run)
        seen = 0

        def drain() -> None:
            nonlocal count, seen
            count += _write(file, run.output.lines(seen), keep, labels)
            seen = run.output.end

        def one(kind: int, payload: bytes) -> None:
            take(kind, payload)
            if run.output.end - seen > 1000:
                drain()

        for_each_frame(spool, 0, 1 << 62, one)
        run.output.finish()
        drain()
    return count


def _write(file: TextIO, lines: Iterable[Line], keep: Keep | None, labels: bool) -> int:
    count = 0
    for line in lines:
        if keep is None or keep(line):
            who = ("yod: " if line.stream == NOTE else f"{line.rank}: ") if labels else ""
            file.write(f"{who}{line.text}\n")
            count += 1
    return count
