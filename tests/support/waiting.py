"""Waiting for something to become true, instead of sleeping and hoping.

A limit of time in a test is what a machine without other work keeps many times over. On a machine that is slower or
busy, every limit is longer by the load factor: a test fails for what the product does, not for what else runs.
"""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: What the starts of `_measure` take on an idle machine of 2020.
_REFERENCE_S = 0.06
#: No limit grows further: what hangs is to be seen on the busiest machine.
_MOST = 10.0


def wait_until(probe: Callable[[], T], what: str, timeout_s: float = 10.0, step_s: float = 0.02) -> T:
    """The first true value of ``probe``; AssertionError naming ``what`` when there is none in time."""
    began = time.monotonic()
    while True:
        elapsed = time.monotonic() - began
        value = probe()
        if value:
            return value
        if elapsed > timeout_s and elapsed > patience(timeout_s) and elapsed > timeout_s * load_factor():
            raise AssertionError(f"not within {elapsed:.1f} s: {what} (last: {value!r})")
        time.sleep(step_s)


class Process(subprocess.Popen[Any]):
    """A process that is waited for with patience."""

    def wait(self, timeout: float | None = None) -> int:
        """As in Popen."""
        return super().wait(timeout and patience(timeout))

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """As in Popen."""
        return super().communicate(input, timeout and patience(timeout))


def within(seconds: float, began: float) -> bool:
    """Whether it is less than ``seconds`` of an idle machine since ``began`` (of time.monotonic)."""
    elapsed = time.monotonic() - began
    return elapsed < seconds or elapsed < patience(seconds) or elapsed < seconds * load_factor()


def patience(seconds: float) -> float:
    """A limit of ``seconds`` of an idle machine, on this one as it was when the run began and as it was of late."""
    return seconds * _capped(max(_at_the_beginning(), _waiting_processes()))


def silence(seconds: float) -> float:
    """A setting after which the product takes who is silent for gone: longer on a busy machine."""
    return round(seconds * max(1.0, patience(1.0) / 3), 1)  # a load of 3 for each CPU is what a run of its own makes


def load_factor() -> float:
    """How many times longer than on an idle machine something takes here and now, by trying it (0.1 s to 1 s)."""
    return _capped(max(_at_the_beginning(), _waiting_processes(), _measure()))


@functools.cache
def _at_the_beginning() -> float:
    return _measure()


def _waiting_processes() -> float:
    """How many processes wanted each CPU during the last minute."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def _measure() -> float:
    began = time.monotonic()
    for _ in range(4):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)
    return (time.monotonic() - began) / _REFERENCE_S


def _capped(factor: float) -> float:
    return min(max(1.0, factor), _MOST)
