"""Notes: how much of the window they cover, and which of them are in sight."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets._toast import Toast

from console.tui.app import ConsoleApp
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import busy_machine

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
        assert len(covered(app)) == size[1] // 6
        await pilot.resize_terminal(size[0] + 20, size[1] + 12)
        await until(pilot, lambda: len(covered(app)) == (size[1] + 12) // 6, "more room in a larger window")
        await pilot.resize_terminal(*size)
        await until(pilot, lambda: len(covered(app)) == size[1] // 6, "less room again")
        assert "note 29" in screen_text(app)
        app.notify(LONG, markup=False, timeout=600)
        await until(pilot, lambda: "word0 word1" in screen_text(app), "the beginning of a long note")
        assert len(covered(app)) <= size[1] // 6
        assert ("word119" in screen_text(app)) != ("…" in notes_text(app))
        list(app.screen.query(Toast))[-1]._expire()
        await until(pilot, lambda: "note 29" in screen_text(app), "the one before it")


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
