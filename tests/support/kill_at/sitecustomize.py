"""Kills the process that imports it (by ``PYTHONPATH``) at a certain step, so that a test needs no luck.

The file ``$KILL_AT`` has a line: ``call`` or ``return``, a file of ours, a function, and the pids to kill (0: this
process), as in ``call console/tracker/hand_over.py _take 0``. It is removed before, so that it happens once. The
functions of all files are in ``$KILL_AT_FUNCTIONS``: at any other call the file is not looked at.
"""

import os
import signal
import sys

_STEPS = os.environ.get("KILL_AT", "")
_FUNCTIONS = frozenset(os.environ.get("KILL_AT_FUNCTIONS", "").split())
_ROOMS = ("/agents/", "/console/", "/db/")


def _look(frame, event, _argument):  # type: ignore[no-untyped-def]
    code = frame.f_code
    if code.co_name not in _FUNCTIONS or event not in ("call", "return"):
        return
    if not any(room in code.co_filename for room in _ROOMS):
        return
    try:
        with open(_STEPS, encoding="utf-8") as file:
            when, name, function, *pids = file.read().split()
    except (OSError, ValueError):
        return
    if (when, function) == (event, code.co_name) and code.co_filename.endswith(name):
        try:
            os.unlink(_STEPS)
        except FileNotFoundError:
            return  # another process was here first
        for pid in pids:
            os.kill(int(pid) or os.getpid(), signal.SIGKILL)


if _STEPS and any(word in ("job", "standby", "--name", "mesh", "agents.cpa", "cpa") for word in sys.orig_argv):
    sys.setprofile(_look)
