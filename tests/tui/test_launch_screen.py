"""The launch form: what is filled in, and the yod line that does the same."""

from pathlib import Path

import pytest
from textual.widgets import Static

from console.cli import yod
from console.cli.words import parse
from console.tui import launching
from console.tui.launching import Form, LaunchError
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase


def line(app: object) -> str:
    return str(app.screen.query_one("#yod-line", Static).visual)  # type: ignore[attr-defined]


async def test_the_line_follows_the_form(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("n", *"hostname", "space", "minus", "f")
        await until(pilot, lambda: line(app) == "yod hostname -f", "the program")
        await pilot.press("tab", "1", "6", "x")  # a letter is no size
        await until(pilot, lambda: line(app) == "yod -sz 16 hostname -f", "the size")
        await pilot.press("tab", *"n0,n2")
        await pilot.press("tab", "right", "tab", "space", "tab", "l", "tab", "space")
        expected = "yod -sz 16 -list n0,n2 -batch -distribution cyclic --overcommit -label hostname -f"
        await until(pilot, lambda: line(app) == expected, "the options")
        assert "32 of 32 processors free" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "mesh", "back on the map")
        await pilot.press("n")
        await until(pilot, lambda: app.current_mode == "launch" and line(app) == expected, "the form as it was")


async def test_what_can_not_be_launched_is_told_and_nothing_started(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("n", "enter")
        await until(pilot, lambda: "which program?" in screen_text(app), "that there is no program")
        await pilot.press(*"echo", "space", "quotation_mark", "a", "enter")
        await until(pilot, lambda: "no closing quotation" in screen_text(app), "that a quote is open")
        await pilot.press("quotation_mark", "tab", "0", "enter")
        await until(pilot, lambda: "a whole number from 1" in screen_text(app), "that 0 is no size")
        assert app.starting == 0 and not app.runs


@pytest.mark.parametrize(
    "form",
    [
        Form("hostname"),
        Form("prog -sz 3 --flag 'two words'", "4", "n0,1..3", "cyclic", "batch", True, True),
        Form("-odd name", behaviour="interactive"),
    ],
)
def test_yod_understands_every_line_the_form_makes(form: Form) -> None:
    """The same table that yod reads its options by."""
    parsed = parse(yod.WORDS, launching.arguments(form), stop=True)
    assert parsed.values.get("sz") == (int(form.size) if form.size else None)
    assert parsed.values.get("distribution") == (None if form.distribution == "block" else form.distribution)
    assert bool(parsed.values.get("label")) == form.label
    assert bool(parsed.values.get("overcommit")) == form.overcommit
    assert parsed.rest[-1] == {"hostname": "hostname", "-odd name": "name"}.get(form.command, "two words")


async def test_what_yod_says_when_it_can_not_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(LaunchError) as told:
        await launching.launch(Form("/no/such/program"))
    assert "/no/such/program" in told.value.message and told.value.exit_status == 127
