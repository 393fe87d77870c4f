"""Which SIGTERM ends a daemon in the job of a batch system that sends signals to all of a job's processes (Slurm).

There SIGTERM may be a user's signal to the ranks (``scancel --signal=TERM``), or announce SIGKILL for the whole job.
Neither may end a daemon, because that would kill the ranks before they have written a checkpoint. So whoever ends the
mesh first writes the file ``STATE/ending``; without it, daemons there ignore signals (agents/keeper/job_end.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable

    from agents.link.loop import Loop

_FILE = "ending"
#: SIGHUP, SIGINT, SIGQUIT, SIGTERM
_ENDS = (1, 2, 3, 15)
#: SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, SIGPWR
_FOR_RANKS = (10, 12, 14, 24, 26, 27, 29, 30)
_state = ""  # STATE of a mesh whose manager signals daemons too; forked children inherit it


def expect_signals(state: str) -> None:
    """From now on this process, and those that it forks, obey signals only if ``state`` has the file.

    Signals for the ranks that would end a process by default get a handler, which exec resets, unlike SIG_IGN.
    """
    import signal  # slow to import, and needed only in a batch system's job

    global _state
    _state = state
    for number in _FOR_RANKS:
        signal.signal(number, lambda *_: None)


def announce(state: str) -> None:
    """Write the file. Raises OSError."""
    with open(os.path.join(state, _FILE), "w", encoding="ascii"):
        pass


def forget(state: str) -> None:
    """Remove what an earlier keeper announced."""
    try:
        os.unlink(os.path.join(state, _FILE))
    except OSError:
        pass


def is_meant() -> bool:
    """True if a signal to end that has arrived is meant for this daemon, or its STATE was removed."""
    if not _state or os.path.exists(os.path.join(_state, _FILE)):
        return True
    try:
        os.stat(_state)
    except FileNotFoundError:
        return True
    except OSError:
        pass  # a file system that does not answer has removed nothing
    return False


def on_terminate(loop: Loop, end: Callable[[], None], *numbers: int) -> None:
    """Have the loop call ``end`` when one of these signals arrives, if it is meant for this daemon."""
    for number in dict.fromkeys((*numbers, *(_ENDS if _state else ()))):
        loop.on_signal(number, lambda: end() if is_meant() else None)
