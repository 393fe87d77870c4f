"""Mends a fault of Textual's notes that stopped the console for ever.

A note that expires between the check of its time and its mounting gets a negative time. Textual's timer then counts
backwards without end and the application handles nothing any more. The fuzz met it on a busy machine (Textual 8.2.8).
"""

from __future__ import annotations

from textual.events import Mount
from textual.widgets._toast import Toast

_LEAST_S = 0.01


def _mounted(self: Toast, _: Mount) -> None:
    self.set_timer(max(_LEAST_S, self._timeout), self._expire)


def mend() -> None:
    """Give every note a time that is greater than zero."""
    Toast._on_mount = _mounted  # type: ignore[method-assign]
