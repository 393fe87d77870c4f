"""The console under Pilot: opened on a chosen database, and waited for."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from textual.pilot import Pilot

from console.tui.app import ConsoleApp


def console_on(url: str, folder: Path) -> ConsoleApp:
    """The application, its sockets and spools in ``folder``."""
    settings: Any = SimpleNamespace(database=url, run_dir=str(folder), state_dir=str(folder))
    return ConsoleApp(settings)


@asynccontextmanager
async def opened(url: str, folder: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[ConsoleApp, Any]]:
    """The application running under Pilot, once it has read the machine."""
    app = console_on(url, folder)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.machine.counter >= 0 or app.trouble, "the first picture")
        yield app, pilot


async def until(pilot: Pilot[Any], probe: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """The first true value of ``probe``; AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}\n{screen_text(pilot.app)}")
        await pilot.pause(0.02)


def screen_text(app: Any) -> str:
    """What stands on the screen now, as lines of text."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
