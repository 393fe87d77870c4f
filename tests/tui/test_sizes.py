"""Sizes of the terminal that follow one another faster than screens are laid out."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen

from tests.support.console import opened, until
from tests.support.fixed_database import busy_machine

NARROW, WIDE = Size(60, 20), Size(130, 40)
MANY = 50  # far more than two sizes need


@pytest.mark.parametrize("behind", [False, True], ids=["in front", "behind a dialog"])
async def test_two_sizes_in_the_queue_of_a_screen_do_not_follow_each_other_for_ever(
    tmp_path: Path, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was laid out, differed from the one before, and was sent again: neither keys nor signals were handled."""
    laid_out: list[Size | None] = []
    before = Screen._refresh_layout

    def counted(self: Screen[object], size: Size | None = None, scroll: bool = False) -> None:
        laid_out.append(size)
        assert len(laid_out) < MANY, "endless"
        before(self, size, scroll)

    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, tuple(WIDE)) as (app, pilot):  # type: ignore[arg-type]
        screen = app.screen
        if behind:
            await pilot.press("question_mark")
            await until(pilot, lambda: app.screen is not screen, "the help in front")
        monkeypatch.setattr(Screen, "_refresh_layout", counted)
        with app.batch_update():  # a message of a screen's own after each size
            for size in (NARROW, WIDE):
                screen.post_message(Resize(size, size))
                screen.call_later(lambda: None)
            await until(pilot, lambda: not screen.message_queue_size, "a screen at rest")
        assert screen.size == app.size == WIDE


async def test_a_screen_that_comes_back_has_the_size_of_the_terminal(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, tuple(WIDE)) as (app, pilot):  # type: ignore[arg-type]
        screen = app.screen
        await pilot.press("2")
        await until(pilot, lambda: app.screen is not screen, "the table in front")
        await pilot.resize_terminal(*NARROW)
        await until(pilot, lambda: app.screen.size == NARROW and app.screen.has_class("-tiny"), "a small table")
        await pilot.press("m")
        await until(pilot, lambda: screen.size == NARROW and screen.has_class("-tiny"), "the map as small")
        await pilot.resize_terminal(*WIDE)
        await until(pilot, lambda: screen.size == WIDE and screen.has_class("-wide"), "both as wide as before")
