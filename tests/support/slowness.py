"""How slow this machine is for the tests."""

import os
import subprocess
import sys
import time

#: Seconds that four starts of Python take on an idle machine of 2020.
_REFERENCE_S = 0.06
#: The largest factor: a hang must be noticed even on the busiest machine.
_MOST = 5.0
#: So many tests share a processor before they slow one another down: most of their time they wait.
_SHARE = 2
#: The variable that hands the factor on to all processes of a run, which would measure one another.
_NAME = "REDMESH_TESTS_SLOWNESS"


def measured_once(at_once: int = 1) -> float:
    """Return how many times slower this machine was when the run began than an idle one of 2020, from 1 to 5.

    ``at_once``: the number of tests that run at the same time.
    """
    if _NAME not in os.environ:
        os.environ[_NAME] = f"{slowness(at_once):.2f}"
    return float(os.environ[_NAME])


def slowness(at_once: int = 1) -> float:
    """Like `measured_once`, but now."""
    began = time.monotonic()
    for _ in range(4):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)
    starts = (time.monotonic() - began) / _REFERENCE_S
    processors = len(os.sched_getaffinity(0))
    return min(max(1.0, starts, os.getloadavg()[0] / processors, at_once / processors / _SHARE), _MOST)
