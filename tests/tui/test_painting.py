"""What is written to the terminal piece by piece adds up to the screen, whatever changes and in whatever order."""

import random
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual._compositor import LayoutUpdate

from console.tui.app import ConsoleApp
from console.tui.painting import CellsUpdate, PromptScreen
from tests.support.big_machine import BigDatabase, storm
from tests.support.console import Keyboard, opened, screen_text, until


class Terminal:
    """What a terminal shows that was told all updates."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        width, height = app.size
        self.lines = [[" "] * width for _ in range(height)]
        self.slices = 0
        self._display = app._display
        app._display = self.take  # type: ignore[method-assign]
        app.screen.refresh()

    def take(self, screen: Any, update: Any) -> None:
        """An update, as it goes to the terminal."""
        if isinstance(update, LayoutUpdate):
            self.lines = [list("".join(strip.text for strip in line)) for line in update.strips]
        elif isinstance(update, CellsUpdate):
            self.slices += 1
            for x, y, strip in update.pieces:
                assert cell_len(strip.text) == strip.cell_length
                self.lines[y][x : x + strip.cell_length] = strip.text
        elif update is not None:  # Textual's own, of a question in front
            self.lines = [list(strip.text) for strip in screen._compositor.render_strips()]
        self._display(screen, update)

    def differences(self) -> list[tuple[str, str]]:
        """Lines that are not as the screen has them."""
        wanted = [strip.text for strip in self._app.screen._compositor.render_strips()]
        shown = ["".join(line) for line in self.lines]
        return [(one, other) for one, other in zip(shown, wanted, strict=True) if one != other]


def churn(database: BigDatabase, chance: random.Random) -> None:
    """Processors all over the machine change hands."""
    rows = [(chance.choice([None, 1, 2, 3, 5, 8]), one) for one in chance.sample(range(10_368), 200)]

    def work(t: Any) -> None:
        for owner, one in rows:
            t.change(f"UPDATE processor SET launcher = ?, changed = {t.stamp} WHERE id = ?", (owner, one))

    database.store.run(work)


async def still(app: ConsoleApp, keyboard: Keyboard) -> None:
    """Until all that changed has been painted."""

    def done() -> bool:
        screen = app.screen
        waits = isinstance(screen, PromptScreen) and screen._compositor.put_off
        return not (waits or screen._dirty_widgets or screen._compositor._dirty_regions)

    await keyboard.pause(0.6)  # two readings
    await until(keyboard, done, "everything painted")


@pytest.mark.parametrize("size", [(80, 24), (140, 50)])
async def test_pieces_add_up(tmp_path: Path, size: tuple[int, int]) -> None:
    database, chance = storm(tmp_path), random.Random(5)
    async with opened(database.url, tmp_path, size) as (app, keyboard):
        await until(keyboard, lambda: "processor" in screen_text(app), "the details")
        terminal = Terminal(app)
        for keys in ("lljj", "vllv", "T", ["escape"], "w", ["enter"], ["escape"], "?", ["escape"], "z", "Gg", "3", "m"):
            churn(database, chance)
            for key in keys:
                await keyboard.press(key)
                await keyboard.pause(chance.uniform(0.0, 0.05))
            await still(app, keyboard)
            assert terminal.differences() == [], keys
        assert terminal.slices > 50  # much that changes at once is painted in several turns
    database.close()
