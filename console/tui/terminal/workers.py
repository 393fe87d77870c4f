"""One fault of Textual's workers mended: a warning of Python on the terminal after the console has ended.

A worker that is cancelled before its task has begun never awaits its coroutine (Textual 8.2.8): the second of two
copies in a row cancels the first one, and the end of the application cancels all. Python reports each such coroutine
(``coroutine … was never awaited``) when it is deleted. Here it is closed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.worker import Worker

_start = Worker._start


def _start_and_close(self: Worker[Any], app: App[Any], done: Callable[[Worker[Any]], None] | None = None) -> None:
    _start(self, app, done)
    if self._task is not None:
        self._task.add_done_callback(lambda _: _close(self._work))


def _close(work: object) -> None:
    if asyncio.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def mend() -> None:
    """Close the coroutines of workers that end before they begin."""
    Worker._start = _start_and_close  # type: ignore[method-assign, assignment]
