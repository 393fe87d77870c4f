"""Signals by name or number, as people write them."""

from __future__ import annotations

import signal

from console.errors import UsageError


def signal_number(name: str) -> int:
    """``TERM``, ``SIGTERM``, ``term`` or ``15``. UsageError when there is no such signal."""
    word = name.upper()
    if name.isascii() and name.isdigit() and 0 < int(name) < signal.NSIG:
        return int(name)
    try:
        return int(signal.Signals[word if word.startswith("SIG") else f"SIG{word}"])
    except KeyError:
        raise UsageError(f"no signal is called {name!r}", "TERM, KILL, USR1 … or a number") from None


def signal_name(number: int) -> str:
    """``SIGTERM``, or ``signal 40`` for one of the real-time signals, which have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
