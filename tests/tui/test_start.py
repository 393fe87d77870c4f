"""What a start of the console does once, and what must not creep in again."""

from pathlib import Path

import pytest
from textual._context import active_app
from textual.css import stylesheet
from textual.geometry import Region

from console.tui.terminal.compositor import CellsCompositor, Piece
from console.tui.widgets.machine_map import MachineMap
from tests.support import console
from tests.support.console import opened, until
from tests.support.fixed_database import busy_machine


async def test_styles_are_read_once_a_theme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = busy_machine(tmp_path)
    seen: list[str] = []
    read = stylesheet.parse

    def noted(scope, css, read_from, **more):  # type: ignore[no-untyped-def]
        if read_from[0].endswith("app.tcss"):
            seen.append(more["variable_tokens"]["primary"][0].value)
        return read(scope, css, read_from, **more)

    monkeypatch.setattr(stylesheet, "parse", noted)
    monkeypatch.setattr(console, "_Parsed", lambda sheet: sheet._parse_cache)  # what other tests have parsed is nothing
    async with opened(database.url, tmp_path) as (app, keyboard):
        for key in "34m":
            await keyboard.press(key)
        assert len(seen) == 1, "every look at a new screen reads them all again"
        app.theme = "redmesh-light"
        await until(keyboard, lambda: len(set(seen)) == 2, "the light theme's colours")
        await keyboard.pause(0.1)
        assert len(seen) == 2
    database.close()


async def test_nothing_is_painted_before_it_may_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = busy_machine(tmp_path)
    hidden: list[bool] = []
    paint = CellsCompositor._paint

    def noted(self: CellsCompositor, regions: list[Region]) -> list[Piece]:
        hidden.append(bool(active_app.get()._batch_count))
        return paint(self, regions)

    monkeypatch.setattr(CellsCompositor, "_paint", noted)
    async with opened(database.url, tmp_path) as (app, keyboard):
        await until(keyboard, lambda: app._shown and hidden, "the first picture is painted")
    assert not any(hidden)
    database.close()


async def test_a_theme_that_was_chosen_on_another_tab_is_everywhere(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, keyboard):
        dark = app.screen.query_one(MachineMap).get_component_styles("cell-grid--free").color
        await keyboard.press("3")
        app.theme = "redmesh-light"
        await until(keyboard, lambda: app.screen.styles.background.hex == "#F7F8FA", "the light theme's background")
        await keyboard.press("m")
        await until(keyboard, lambda: app.screen.styles.background.hex == "#F7F8FA", "it is on the map too")
        assert app.screen.query_one(MachineMap).get_component_styles("cell-grid--free").color != dark
    database.close()
