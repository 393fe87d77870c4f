"""What fills the launch form by a click where the window has room: earlier launches, nodes with free processors."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from console.tui.navigation.presets import Presets, config_directory
from console.tui.screens.launch_form import LaunchScreen
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import busy_machine
from tests.tui.test_palette import click, place


@pytest.mark.parametrize("size", [(200, 60), (120, 60), (200, 30)])
async def test_a_click_fills_the_form(tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    Presets(str(tmp_path), config_directory()).launched(7, {"command": "./heat 3", "size": "5"})
    Presets(str(tmp_path), config_directory()).name("nightly", {"command": "./night", "where": "n1"})
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, size) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: "of 8 free" in screen_text(app), "the nodes")
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        click(app, place(app, "yod -sz 5"))
        await until(pilot, lambda: screen.form() == {"command": "./heat 3", "size": "5"}, "the earlier launch")
        click(app, place(app, "★ nightly"), 2)
        await until(pilot, lambda: screen.form() == {"command": "./night", "where": "n1"}, "the one with a name")
        click(app, place(app, " of 8 free"))
        await until(pilot, lambda: screen.form().get("size") == "6", "the node's free processors")
        assert screen.form()["where"] == "16,19..23"
        await until(pilot, lambda: isinstance(app.focused, Input), "the focus on a field")
        database.end(1)
        await until(pilot, lambda: "n0 " in screen_text(app) and "6 of 8 free" in screen_text(app), "n0's")


async def test_a_small_window_has_the_form_alone(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (80, 24)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: "new launch" in screen_text(app), "the form")
        assert "launches of before" not in screen_text(app)
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "nothing was launched from here before" in screen_text(app), "the lists")
        await until(pilot, lambda: "of 8 free" in screen_text(app), "the nodes")
