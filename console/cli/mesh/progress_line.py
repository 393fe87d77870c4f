"""The line on a terminal that says how far a job is, while a command waits for its end."""

import os
import sys
import threading
from typing import Any

from console.cli.map.drawing import cut
from console.errors import ConsoleError
from console.jobs.objects import summary
from console.jobs.rows import queue_row, rate_text
from redmesh.sanitise import clean
from redmesh.text import counted

_LOOK_S = 0.5


class ProgressLine:
    """Shows the line while its ``with`` block runs, unless it is quiet or standard error is no terminal."""

    def __init__(self, path: str, *, quiet: bool) -> None:
        self._path, self._stop = path, threading.Event()
        shown = not quiet and sys.stderr.isatty()
        self._thread = threading.Thread(target=self._show, daemon=True) if shown else None

    def __enter__(self) -> "ProgressLine":
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _show(self) -> None:
        while not self._stop.wait(_LOOK_S):
            try:
                line = clean(progress_text(summary(self._path)))
                line = cut(line, (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1)
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            except (ConsoleError, OSError):
                continue


def progress_text(job: dict[str, Any]) -> str:
    """How far a job of tasks is: ``41%  410 of 1,000 tasks done, 3 failed, running, 55/s, 0:00:16 left``."""
    row = queue_row(job)
    part = row["ended"] / row["tasks"] if row["tasks"] else 0.0
    done = row["ended"] - row["failed"] - (job["counts"] or {}).get("cancelled", 0)
    told = [f"{part:4.0%}  {done:,} of {counted(row['tasks'], row['noun'])} done"]
    told += [f"{row['failed']:,} failed"] if row["failed"] else []
    told += [row["state"]]
    told += [rate_text(row["rate"])] if row["rate"] else []
    told += [f"{time_text(row['left_s'])} left"] if row["left_s"] is not None else []
    return ", ".join(told)


def time_text(seconds: float | None) -> str:
    """``1:02:03``; empty for None."""
    if seconds is None:
        return ""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
