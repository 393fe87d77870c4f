"""The palette and the mouse: one answer, whatever is clicked and however often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events

from console.tui.app import ConsoleApp
from console.tui.screens.dialogs import Choosing
from console.tui.screens.mesh import MeshScreen
from console.tui.screens.palette import Palette
from console.tui.widgets.offers import Choices
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import busy_machine


def place(app: ConsoleApp, text: str) -> tuple[int, int]:
    """Where a text is on the screen."""
    for y, line in enumerate(screen_text(app).split("\n")):
        if text in line:
            return line.index(text), y
    raise AssertionError(f"no {text!r} in\n{screen_text(app)}")


def click(app: ConsoleApp, at: tuple[int, int], times: int = 1) -> None:
    """Click as fast as a terminal tells it: nothing is handled in between."""
    more: dict[str, Any] = {"x": at[0], "y": at[1], "delta_x": 0, "delta_y": 0, "button": 1}
    more |= {"shift": False, "meta": False, "ctrl": False}
    for _ in range(times):
        app.post_message(events.MouseDown(None, **more))
        app.post_message(events.MouseUp(None, **more))


async def opened_palette(app: ConsoleApp, pilot: Keyboard, words: str) -> Choices:
    """The palette's list, narrowed to one entry."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(app.screen, Palette), "the palette")
    choices = app.screen.query_one(Choices)
    await until(pilot, lambda: len(choices._rows) > 1, "its entries")
    await pilot.press(*words)
    await until(pilot, lambda: len(choices._rows) == 1, "the entry")
    await pilot.pause()
    return choices


async def test_words_of_titles_come_first_and_letters_in_order_last(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await until(pilot, lambda: app.machine.launchers, "launchers")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette), "the palette")
        palette = app.screen
        assert isinstance(palette, Palette)
        titles = [row[0] for row in palette.fitting(["launch"])]
        assert "Launch" in titles and "Mesh: Kill" in titles, "which kills launches"
        named = ["launch" in title.lower() for title in titles]
        assert named == sorted(named, reverse=True)
        assert "Read only" in [row[0] for row in palette.fitting(["rdnly"])]
        assert palette.fitting(["qqq"]) == []
    database.close()


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_double_click_runs_an_entry_once(tmp_path: Path, times: int) -> None:
    """Textual's palette closed the screen below too: ScreenStackError."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        ran: list[int] = []
        app.action_read_only = lambda: ran.append(1)  # type: ignore[method-assign]
        await opened_palette(app, pilot, "read only")
        x, y = place(app, "Read")
        click(app, (x + 1, y), times)
        await until(pilot, lambda: ran, "the entry runs")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "the map")
        await pilot.pause(0.1)
        assert ran == [1] and len(app.screen_stack) == 1


@pytest.mark.parametrize("last", ["escape", "enter", "beside"])
async def test_clicks_while_the_palette_closes(tmp_path: Path, last: str) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await opened_palette(app, pilot, "read only")
        at = place(app, "Read")
        if last == "beside":
            click(app, (1, 27), 2)
        else:
            app.post_message(events.Key(last, None))
            app.post_message(events.Key(last, None))
        click(app, (at[0] + 1, at[1]), 3)
        await until(pilot, lambda: not isinstance(app.screen, Palette), "no palette")
        await pilot.pause(0.1)
        # what comes after the end is for the screen below, which may open another
        assert len(app.screen_stack) == 1 and app._exception is None


async def test_a_row_is_clicked_that_a_letter_has_just_removed(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        app.action_choose_tab()
        await until(pilot, lambda: isinstance(app.screen, Choosing), "the list of tabs")
        await until(pilot, lambda: "events" in screen_text(app), "its rows")
        choices = app.screen.query_one(Choices)
        at = place(app, "events")
        await pilot.press("n", "o", "d", "e", "s")
        await until(pilot, lambda: len(choices._rows) == 1, "one row")
        click(app, at)
        choices.post_message(Choices.Chosen(choices, 4))
        await pilot.pause(0.1)
        assert isinstance(app.screen, Choosing) and app._exception is None
    database.close()


async def test_a_page_down_before_the_list_is_laid_out(tmp_path: Path) -> None:
    """On a busy machine a key came that early: KeyError in Textual's list. A monkey met it."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        with app.batch_update():
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(app.screen, Palette), "the palette")
            await pilot.press("pagedown", "pagedown", "pageup")
        choices = app.screen.query_one(Choices)
        await until(pilot, lambda: choices.size.height > 9, "the layout")
        before = choices.cursor
        await pilot.press("pagedown")
        await until(pilot, lambda: choices.cursor > before + 8, "a page down")
    database.close()
