"""Waits for a slow peer on a thread that does not hold up the end of the console."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def unawaited(do: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """As ``asyncio.to_thread``, whose threads asyncio joins at its end: the console would end up to 15 s after ``q``,
    while a launch does not answer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_R] = loop.create_future()

    def report(settle: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    def run() -> None:
        try:
            result = do(*args, **kwargs)
        except Exception as error:
            report(partial(future.set_exception, error))
        else:
            report(partial(future.set_result, result))

    threading.Thread(target=run, name="unawaited", daemon=True).start()
    return await future
