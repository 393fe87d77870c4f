"""Signals by name or number."""

from __future__ import annotations

import signal

from console.errors import UsageError


def signal_number(name: str) -> int:
    """Parse ``TERM``, ``SIGTERM``, ``term`` or ``15``. Raises UsageError for an unknown signal."""
    word = name.upper()
    if name.isascii() and name.isdigit() and 0 < int(name) < signal.NSIG:
        return int(name)
    try:
        return int(signal.Signals[word if word.startswith("SIG") else f"SIG{word}"])
    except KeyError:
        raise UsageError(f"no signal is called {name!r}", "TERM, KILL, USR1 … or a number") from None


def signal_name(number: int) -> str:
    """``SIGTERM``, or ``signal 40`` for a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
