"""Quits on SIGHUP and SIGTERM, and when a check finds that the terminal is gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from textual.app import App

LOOK_S = 2.0
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


def watch(app: App[Any], last: Callable[[], None]) -> None:
    """End the application on SIGHUP or SIGTERM, or when its terminal is gone; running launches continue.

    ``last`` is called before an end without the application's own clean-up.
    """
    if app.is_headless or app.is_web:
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, leave, app, last)
    loop.add_signal_handler(signal.SIGTERM, leave, app, last)
    app.set_interval(LOOK_S, lambda: leave(app, last) if gone() else None)


def gone() -> bool:
    """True if no process holds the terminal's other end any more."""
    poll = select.poll()
    poll.register(sys.__stderr__.fileno() if sys.__stderr__ else 2, 0)
    return any(event & _GONE for _, event in poll.poll(0))


def leave(app: App[Any], last: Callable[[], None]) -> None:
    """Quit. A closed terminal cannot be restored, so do not wait for that."""
    if gone():
        last()
        os._exit(129)
    app.exit(return_code=129)
