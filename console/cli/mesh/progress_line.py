"""What a command says while it waits for a job's end: how far the job is, and why nothing of it runs."""

import os
import sys
import threading
import time
from collections.abc import Callable

from console.cli.map.drawing import cut
from console.errors import ConsoleError
from console.jobs.job_record import JobRecord
from console.jobs.reasons import why_idle
from console.jobs.rows import queue_row, rate_text
from console.settings import Settings
from redmesh.sanitise import clean
from redmesh.text import counted

_LOOK_S = 0.5
#: Seconds between looks for why nothing runs, at first and at most.
_IDLE_S, _IDLE_MOST_S = 4.0, 60.0


class ProgressLine:
    """Speaks while its ``with`` block runs: on a terminal in one line, else in a line for each reason to wait.

    ``look`` returns the job's summary. ``quiet``: only about processors that cannot be had.
    """

    def __init__(self, settings: Settings, look: Callable[[], JobRecord], *, quiet: bool) -> None:
        self._settings, self._look, self._quiet, self._stop = settings, look, quiet, threading.Event()
        self._shown = not quiet and sys.stderr.isatty()
        self._thread = threading.Thread(target=self._show if self._shown else self._tell, daemon=True)

    def __enter__(self) -> "ProgressLine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _tell(self) -> None:
        told, pause = "", _IDLE_S
        while not self._stop.wait(pause):
            try:
                job = self._look()
                why = job.trouble if self._quiet else why_idle(self._settings, job)
            except (ConsoleError, OSError):
                continue
            if why and why != told:
                print(f"mesh: job {job.name}: {clean(why)}", file=sys.stderr, flush=True)
                told, pause = why, min(2 * pause, _IDLE_MOST_S)

    def _show(self) -> None:
        looked, why = time.monotonic(), ""
        while not self._stop.wait(_LOOK_S):
            try:
                job = self._look()
                if time.monotonic() - looked > _IDLE_S:
                    looked, why = time.monotonic(), why_idle(self._settings, job)
                text = progress_text(job)
                line = clean(text if why in text or not why else f"{text}: {why}")
                line = cut(line, (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1)
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            except (ConsoleError, OSError):
                continue


def progress_text(job: JobRecord) -> str:
    """How far a job of tasks is: ``41%  410 of 1,000 tasks done, 3 failed, running, 55/s, 0:00:16 left``."""
    row = queue_row(job)
    part = row.ended / row.tasks if row.tasks else 0.0
    done = row.ended - row.failed - job.counts.get("cancelled", 0)
    told = [f"{part:4.0%}  {done:,} of {counted(row.tasks, row.noun)} done"]
    told += [f"{row.failed:,} failed"] if row.failed else []
    told += [row.state]
    told += [rate_text(row.rate)] if row.rate else []
    told += [f"{time_text(row.left_s)} left"] if row.left_s is not None else []
    return ", ".join(told)


def time_text(seconds: float | None) -> str:
    """``1:02:03``; empty for None."""
    if seconds is None:
        return ""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
