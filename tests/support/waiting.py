"""Waits until something is true: for a fact, never for a duration, and all with one patience.

What is waited for takes a fraction of the patience on any machine; a wait that ends without it shows a hang, whatever
else the machine does. How fast something is belongs in tests/bench.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tests.support.slowness import measured_once

T = TypeVar("T")

#: Measured once, when the run begins.
SLOWNESS = measured_once()
#: Seconds that a test waits for anything.
PATIENCE_S = 60.0 * SLOWNESS
#: The pause after a look that took long: so many times what it took, and at most so many seconds.
LOOKS, LOOK_S = 3, 1.0
#: The pause in a wait that lasts: such a part of the time since it began, and at most so many seconds.
PART, PART_S = 0.05, 0.1


def wait_until(
    probe: Callable[[], T],
    what: str | Callable[[], str],
    *,
    step_s: float = 0.02,
    patience_s: float = PATIENCE_S,
) -> T:
    """Return the first true value of ``probe``; raise AssertionError naming ``what`` if the patience ends before.

    Between two looks it waits for ``step_s``, or LOOKS times as long as the look took (at most LOOK_S): one that runs a
    command takes 100 to 250 ms of CPU, and what is waited for needs the processors too. In a wait that lasts, the
    pauses grow to PART_S: a look through /proc takes 15 ms. ``what`` may be a function, for what is only
    known at the end. A longer patience is for what takes minutes even on an idle machine: a multiple of PATIENCE_S.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        over = looked - began > patience_s
        value = probe()
        if value:
            return value
        if over:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {time.monotonic() - began:.1f} s: {told} (last: {value!r})")
        now = time.monotonic()
        time.sleep(max(step_s, min(PART_S, PART * (now - began)), min(LOOK_S, LOOKS * (now - looked))))  # the next look


def wait_until_still(pids: Callable[[], Iterable[int]]) -> None:
    """Wait until processes write nothing more, at three looks: who gets no CPU for a moment looks still at two."""
    seen: list[int] = []

    def still() -> bool:
        seen.append(sum(map(_written, pids())))
        return len(seen) > 2 and seen[-1] > 0 and len(set(seen[-3:])) == 1

    wait_until(still, "they stand still", step_s=0.3)


def _written(pid: int) -> int:
    """How many bytes a process has written; 0 if it has exited."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def silence(seconds: float) -> float:
    """Return a setting after which the product gives up who is silent: ``seconds`` of an idle machine."""
    return round(seconds * SLOWNESS, 1)


def freeze(pid: int) -> None:
    """Send SIGSTOP to a process and wait until all its threads have stopped.

    kill() returns before that: a thread on another CPU can still answer a request.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_frozen(pid), f"process {pid} has stopped")


def _is_frozen(pid: int) -> bool:
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has exited
        if state not in "TtZX":
            return False
    return True


class Process(subprocess.Popen[Any]):
    """A process that is waited for with the patience of `wait_until`."""

    def wait(self, timeout: float | None = PATIENCE_S) -> int:
        """Like Popen.wait."""
        return super().wait(timeout)

    def communicate(self, input: Any = None, timeout: float | None = PATIENCE_S) -> tuple[Any, Any]:
        """Like Popen.communicate."""
        return super().communicate(input, timeout)
