"""Notes: how much of the window they cover, and which of them are in sight."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets._toast import Toast

from console.tui.app import ConsoleApp
from console.tui.model.news import Ended
from console.tui.terminal.notes import _cursor
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine

LONG = " ".join(f"word{number}" for number in range(120))


def covered(app: ConsoleApp) -> set[int]:
    """The lines of the window that have something of a note."""
    painted = app.screen._compositor.visible_widgets
    regions = [note.region for note in app.screen.query(Toast) if note in painted]
    return {y for region in regions for y in range(region.y, region.bottom)}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 12)])
async def test_notes_cover_a_sixth_of_the_window_and_the_newest_is_in_sight(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, size) as (app, pilot):
        app.notify("found", title="mesh status", timeout=600)
        await until(pilot, lambda: "mesh status" in screen_text(app), "a note with a title")
        for number in range(30):
            app.notify(f"note {number}", markup=False, timeout=600)
        await until(pilot, lambda: "note 29" in screen_text(app), "the newest note")
        assert len(covered(app)) == 2
        app.notify("failed", severity="error", timeout=600)
        for number in range(30, 40):
            app.notify(f"note {number}", markup=False, timeout=600)
        await until(pilot, lambda: "note 39" in screen_text(app), "the newest note")
        assert len(covered(app)) == 2 and "failed" in notes_text(app)
        await pilot.resize_terminal(size[0] + 20, size[1] + 12)
        await pilot.resize_terminal(*size)
        await until(pilot, lambda: len(covered(app)) == 2, "the same two")
        assert "note 39" in screen_text(app)
        app.notify(LONG, markup=False, timeout=600)
        await until(pilot, lambda: "word0 word1" in screen_text(app), "the beginning of a long note")
        assert len(covered(app)) <= size[1] // 6
        assert ("word119" in screen_text(app)) != ("…" in notes_text(app))
        list(app.screen.query(Toast))[-1]._expire()
        await until(pilot, lambda: "note 39" in screen_text(app), "the one before it")


def notes_text(app: ConsoleApp) -> str:
    """What is written on the lines that notes cover."""
    lines = screen_text(app).split("\n")
    return "\n".join(lines[y] for y in sorted(covered(app)))


async def test_a_long_note_wraps(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (80, 24)) as (app, pilot):
        app.notify(" ".join(f"word{number}" for number in range(20)), markup=False, timeout=600)
        await until(pilot, lambda: "word19" in screen_text(app), "the end of the note")
        assert 2 <= len(covered(app)) <= 4


async def test_equal_notes_are_one(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (80, 24)) as (app, pilot):
        for _ in range(8):
            app.notify("copied", timeout=600)
        await until(pilot, lambda: "copied" in screen_text(app), "the note")
        assert len(app._notifications) == 1 and notes_text(app).count("copied") == 1


async def test_ends_of_launches_are_one_note_and_a_failed_one_is_named(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (80, 24)) as (app, pilot):
        await until(pilot, lambda: bool(app.machine.launchers), "the machine")
        for number in range(12):
            app._tell_end(
                "launch", [Ended(str(number), f"launcher {number}, true: exit {number % 6 // 5}", number in (5, 11))]
            )
            await pilot.pause()
        await until(pilot, lambda: "12 launches ended, 2 failed: 5, 11" in screen_text(app), "their number")
        assert len(app._notifications) == 1 and "launcher 11, true: exit 1" in notes_text(app)
        list(app.screen.query(Toast))[-1]._expire()
        await until(pilot, lambda: not covered(app), "it was clicked away")
        app._tell_end("launch", [Ended("13", "launcher 13, true: exit 0", False)])
        await until(pilot, lambda: "launcher 13, true: exit 0" in screen_text(app), "a new note, which counts anew")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_notes_never_cover_the_cursor_nor_the_head(tmp_path: Path, size: tuple[int, int]) -> None:
    database = FixedDatabase(tmp_path, nodes=90, slots=1)
    database.put(*(Row((number,), "sleep 1000") for number in range(80)))
    async with opened(database.url, tmp_path, size) as (app, pilot):
        await until(pilot, lambda: len(app.machine.launchers) == 80, "the machine")
        app.notify("\n".join(["a note that is as high as it may be"] * 20), timeout=600)
        await until(pilot, lambda: bool(covered(app)), "the note")
        for keys in (("1",), ("end",), ("up",), ("pageup",), ("3", "end"), ("m", "tab", "end"), ("up", "up"), ("tab",)):
            await pilot.press(*keys)
            await until(pilot, lambda: bool(covered(app)), "it stays")
            await until(pilot, lambda: not cursor_is_covered(app), f"the cursor is free after {keys}")
            assert min(covered(app)) > 4


def cursor_is_covered(app: ConsoleApp) -> bool:
    """Whether a note overlaps the cursor of the widget that has the focus."""
    cursor = _cursor(app.screen)
    painted = app.screen._compositor.visible_widgets
    return cursor is not None and any(
        note.region.overlaps(cursor) for note in app.screen.query(Toast) if note in painted
    )
