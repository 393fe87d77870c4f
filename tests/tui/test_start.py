"""What a start of the console does once, and what must not creep in again."""

from pathlib import Path

import pytest
from textual.css import stylesheet

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
