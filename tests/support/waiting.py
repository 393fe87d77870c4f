"""Waits until a condition is true, with time limits that grow with the machine's load.

A time limit in a test is many times what an idle machine needs. On a slow or busy machine every limit is multiplied by
the load factor, so that a test fails because of the product, not because of other processes.
"""

import functools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds that the four Python starts of `_measure` take on an idle machine of 2020.
_REFERENCE_S = 0.06
#: The largest load factor: a hang must be noticed even on the busiest machine.
_MOST = 10.0
#: The kernel counts the runnable processes every 5 s, so a shorter period has no average.
_PERIOD_S = 10.0
#: (time.monotonic, load average of the last minute), noted when a test looks at the load.
_loads: list[tuple[float, float]] = []


def wait_until(probe: Callable[[], T], what: str, timeout_s: float = 10.0, step_s: float = 0.02) -> T:
    """Return the first true value of ``probe``; raise AssertionError naming ``what`` on a timeout."""
    began = time.monotonic()
    _waiting_processes()
    while True:
        elapsed = time.monotonic() - began
        value = probe()
        if value:
            return value
        if elapsed > timeout_s and not _in_time(elapsed, timeout_s, began):
            raise AssertionError(f"not within {elapsed:.1f} s: {what} (last: {value!r})")
        time.sleep(step_s)


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
    """A process whose timeouts grow with the load factor."""

    def wait(self, timeout: float | None = None) -> int:
        """Like Popen.wait; ``timeout`` is for an idle machine."""
        return super().wait(timeout and patience(timeout))

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Like Popen.communicate; ``timeout`` is for an idle machine."""
        return super().communicate(input, timeout and patience(timeout))


def within(seconds: float, began: float) -> bool:
    """Return whether less than ``seconds``, times the load factor, have passed since ``began`` (time.monotonic)."""
    elapsed = time.monotonic() - began
    return elapsed < seconds or _in_time(elapsed, seconds, began)


def _in_time(elapsed: float, limit_s: float, began: float) -> bool:
    return (
        elapsed < patience(limit_s)
        or elapsed < limit_s * _capped(_waiting_since(began))
        or elapsed < limit_s * load_factor()
    )


def patience(seconds: float) -> float:
    """Return ``seconds`` of an idle machine times the load factor: at the start of the run or, if higher, now."""
    return seconds * _capped(max(_at_the_beginning(), _waiting_processes()))


def silence(seconds: float) -> float:
    """Return a timeout setting after which the product gives up a silent node: longer on a busy machine."""
    return round(seconds * max(1.0, patience(1.0) / 3), 1)  # the test run itself causes a load of 3 per CPU


def load_factor() -> float:
    """Return how many times slower this machine is now than an idle one; measuring takes 0.1 s to 1 s."""
    return _capped(max(_at_the_beginning(), _waiting_processes(), _measure()))


@functools.cache
def _at_the_beginning() -> float:
    return _measure()


def _waiting_processes() -> float:
    """Return the load average of the last minute per CPU; note it for ``_waiting_since``."""
    now, load = time.monotonic(), os.getloadavg()[0]
    if not _loads or now - _loads[-1][0] > 1.0:
        _loads.append((now, load))
        del _loads[:-600]
    return load / len(os.sched_getaffinity(0))


def _waiting_since(began: float) -> float:
    """Return how many processes per CPU were runnable since ``began``, or a few seconds earlier; 0 if not known.

    The load may have ended before a limit is compared with it. The kernel's average is load = before · d + runnable ·
    (1 - d) with d = exp(-seconds / 60).
    """
    now, load = time.monotonic(), os.getloadavg()[0]
    earlier = [(at, before) for at, before in _loads if at <= min(began, now - _PERIOD_S)]
    if not earlier:
        return 0.0
    at, before = earlier[-1]
    decay = math.exp((at - now) / 60.0)
    return (load - before * decay) / (1.0 - decay) / len(os.sched_getaffinity(0))


def _measure() -> float:
    began = time.monotonic()
    for _ in range(4):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)
    return (time.monotonic() - began) / _REFERENCE_S


def _capped(factor: float) -> float:
    return min(max(1.0, factor), _MOST)
