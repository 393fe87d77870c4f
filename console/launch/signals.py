"""Signals by name or number, as people write them."""

from __future__ import annotations

import signal

from console.errors import UsageError


def signal_number(name: str) -> int:
    """``TERM``, ``SIGTERM`` or ``15``. UsageError when there is no such signal."""
    if name.isascii() and name.isdigit() and 0 < int(name) < signal.NSIG:
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UsageError(f"no signal is called {name!r}", "TERM, KILL, USR1 … or a number") from None
