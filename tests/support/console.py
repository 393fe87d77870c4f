"""Run the console without a terminal on a given database, press keys in it, and wait for its state."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from textual import events
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.pilot import Pilot

from console.tui.app import ConsoleApp
from tests.support.waiting import PATIENCE_S


class Keyboard:
    """Presses keys. Textual's own pilot waits up to 30 s if a widget is removed while it waits; this class does not."""

    def __init__(self, pilot: Pilot[Any]) -> None:
        self.app = pilot.app
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, each after the previous one was processed."""
        for key in keys:
            await self.app._press_keys([key])
            await self.pause()

    async def paste(self, text: str) -> None:
        """Paste a text at the cursor."""
        self.app.post_message(events.Paste(text))
        await self.pause()

    async def pause(self, delay_s: float = 0.0) -> None:
        """Wait until all message queues are empty (2 s at most), then for ``delay_s``."""
        deadline = time.monotonic() + 2.0
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            pumps = [self.app, *self.app.screen.walk_children(with_self=True)]
            quiet = quiet + 1 if all(not pump.message_queue_size for pump in pumps) else 0
            await asyncio.sleep(0.005)
        await asyncio.sleep(delay_s)

    async def resize_terminal(self, width: int, height: int) -> None:
        """Resize the terminal."""
        size = Size(width, height)
        if isinstance(self.app._driver, HeadlessDriver):
            self.app._driver._size = size
        self.app.post_message(events.Resize(size, size))
        await self.pause()


class _Parsed(LRUCache[Any, Any]):
    """What any application of this process has parsed of the style sheets: a quarter of the time of a start."""

    _rules: ClassVar[dict[Any, Any]] = {}

    def __init__(self, sheet: Stylesheet) -> None:
        super().__init__(1)
        self._sheet = sheet

    def __getitem__(self, source: Any) -> Any:
        return self._rules[source, frozenset(self._sheet._variables.items())]

    def __setitem__(self, source: Any, rules: Any) -> None:
        self._rules[source, frozenset(self._sheet._variables.items())] = rules

    def clear(self) -> None:
        """Other variables (another theme) have entries of their own."""


def console_on(url: str, folder: Path, section: dict[str, Any] | None = None) -> ConsoleApp:
    """Return the application; it looks for sockets and spools in ``folder``. ``section``: its configuration."""
    settings: Any = SimpleNamespace(
        database=url, login="", system="", run_dir=str(folder), state_dir=str(folder), mesh="", console=section,
        managers=(), max_processors=0, max_jobs=0,
    )  # fmt: skip
    app = ConsoleApp(settings)
    app.stylesheet._parse_cache = _Parsed(app.stylesheet)
    return app


@asynccontextmanager
async def opened(
    url: str, folder: Path, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[ConsoleApp, Keyboard]]:
    """Run the application; yield it and a keyboard once it has read the machine from the database."""
    app = console_on(url, folder)
    async with app.run_test(size=size, notifications=True) as pilot:
        keyboard = Keyboard(pilot)
        await until(keyboard, lambda: app.machine.counter >= 0 or app.trouble, "the first picture")
        await keyboard.pause()
        yield app, keyboard


async def until(where: Any, probe: Callable[[], Any], what: str) -> Any:
    """Return the first true value of ``probe``; raise AssertionError on a timeout. ``where`` has the ``app``."""
    deadline, step_s = time.monotonic() + PATIENCE_S, 0.02
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}\n{screen_text(where.app)}")
        await asyncio.sleep(step_s)
        step_s = min(0.1, 1.3 * step_s)  # most probes render the whole screen


def screen_text(app: Any) -> str:
    """Return the current screen as lines of text."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
