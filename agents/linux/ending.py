"""Which SIGTERM ends a daemon in the job of a batch system.

There SIGTERM may be a user's signal to the ranks (``scancel --signal=TERM``), or announce SIGKILL for the whole job.
Neither may end a daemon, because that would kill the ranks before they have written a checkpoint. So whoever ends the
mesh first writes the file ``STATE/ending``; without it, daemons there end by no signal (agents/keeper/job_end.py). What
becomes of each signal is in the table of agents/linux/batch_signals.py.
"""

from __future__ import annotations

import os

from agents.linux.batch_signals import ROWS, Reach

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable

    from agents.link.loop import Loop

_FILE, _REACH_FILE = "ending", "signals_reach"
#: SIGHUP, SIGINT, SIGQUIT, SIGTERM
_ENDS = (1, 2, 3, 15)
_state = ""  # STATE of a mesh in a batch system's job; forked children inherit it
_reach = ""  # the processes that the batch system signals


def expect_signals(state: str, reach: str = "") -> None:
    """From now on this process, and those that it forks, obey signals only if ``state`` has the file.

    Signals for the ranks that would end a process by default get a handler, which exec resets, unlike SIG_IGN.
    ``reach``: see Reach.
    """
    import signal  # slow to import, and needed only in a batch system's job

    global _state, _reach
    _state, _reach = state, reach
    for row in ROWS:
        if signal.getsignal(row.number) in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler):
            signal.signal(row.number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [row.number for row in ROWS])  # blocked by whoever started a daemon


def between_launches() -> None:
    """In a launch child whose loop is closed: SIGTERM ends it, but in a batch system's job no signal does."""
    import signal

    if _state:
        expect_signals(_state, _reach)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing(*_: object) -> None:
    pass


def in_job() -> bool:
    """True in a process of a mesh in a batch system's job."""
    return bool(_state)


def reaches_ranks() -> bool:
    """True if the batch system signals the ranks themselves."""
    return bool(_state) and (_reach or learned_reach(_state)) == Reach.ALL


def learn_reach(state: str, reach: str) -> None:
    """Record which processes the batch system signals, for those that were started before it said so. Raises
    OSError."""
    path = os.path.join(state, _REACH_FILE)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(reach)
    os.replace(path + ".new", path)


def learned_reach(state: str) -> str:
    """What ``learn_reach`` has recorded, or Reach.UNKNOWN."""
    try:
        with open(os.path.join(state, _REACH_FILE), encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return Reach.UNKNOWN


def known_reach(state: str) -> str:
    """What the mesh at ``state`` was told as it started, or has learned since; or Reach.UNKNOWN."""
    import json

    from redmesh.settings.keeper_file import read_keeper_file

    try:
        with open(os.path.join(state, "keeper.json"), encoding="utf-8") as file:
            told = read_keeper_file(json.load(file)).signals_reach
    except (OSError, ValueError, RecursionError):
        told = ""
    return told or learned_reach(state)


def announce(state: str, reason: str) -> None:
    """Write the file. Raises OSError."""
    with open(os.path.join(state, _FILE), "w", encoding="utf-8") as file:
        file.write(reason)


def reason() -> str:
    """Why the mesh of this process ends, as far as somebody has written it."""
    try:
        with open(os.path.join(_state, _FILE), encoding="utf-8", errors="replace") as file:
            return file.read(200) if _state else ""
    except OSError:
        return ""


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
    if _state:
        import signal

        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def block() -> None:
    """In a daemon that was just forked: block what may end it until ``on_terminate``."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
