"""Quits on SIGHUP, SIGTERM and ^C^C, and when a check finds that the terminal is gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.message import Message

    from console.tui.terminal.crash import TerminalGuard

LOOK_S = 2.0
TWICE_S = 1.0  # two ^C within this time
GRACE_S = 5.0  # for an end in order; a console that handles nothing any more is ended without it
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Leaving:
    """Ends the application when somebody asks for it, also from a signal handler or the thread that reads keys."""

    def __init__(self, app: App[Any], last: Callable[[], None], guard: TerminalGuard | None) -> None:
        """``last`` is called before an end without the application's own clean-up."""
        self._app, self._last, self._guard = app, last, guard
        self._loop = asyncio.get_running_loop()
        self._interrupted_at = -TWICE_S

    def ask(self, status: int) -> None:
        """End the application; running launches continue. The end comes even if the application handles nothing."""
        if self._guard is not None:
            self._guard.end_after(GRACE_S)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(leave, self._app, self._last, status)

    def interrupted(self) -> None:
        """^C was read from the terminal: the second within a second ends the application."""
        before, self._interrupted_at = self._interrupted_at, time.monotonic()
        if self._interrupted_at - before < TWICE_S:
            self.ask(130)


def watch(app: App[Any], last: Callable[[], None], guard: TerminalGuard | None) -> Leaving | None:
    """End the application on SIGHUP or SIGTERM, or when its terminal is gone; running launches continue.

    The handlers are Python's own: asyncio's need a loop that turns.
    """
    if app.is_headless or app.is_web:
        return None
    leaving = Leaving(app, last, guard)
    signal.signal(signal.SIGHUP, lambda *_: leaving.ask(129))
    signal.signal(signal.SIGTERM, lambda *_: leaving.ask(129))
    app.set_interval(LOOK_S, lambda: leave(app, last, 129) if gone() else None)
    return leaving


def interruptible(base: type[Driver], interrupted: Callable[[], None]) -> type[Driver]:
    """A driver that calls ``interrupted`` for each ^C, in the thread that reads keys, before it passes the key on."""

    class Interruptible(base):  # type: ignore[misc, valid-type]
        def process_message(self, message: Message) -> None:
            if isinstance(message, events.Key) and message.key == "ctrl+c":
                interrupted()
            super().process_message(message)

    return Interruptible


def gone() -> bool:
    """True if no process holds the terminal's other end any more."""
    poll = select.poll()
    poll.register(sys.__stderr__.fileno() if sys.__stderr__ else 2, 0)
    return any(event & _GONE for _, event in poll.poll(0))


def leave(app: App[Any], last: Callable[[], None], status: int) -> None:
    """Quit. A closed terminal cannot be restored, so do not wait for that."""
    if gone():
        last()
        os._exit(status)
    app.exit(return_code=status)
