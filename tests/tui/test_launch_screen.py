"""The launch form: what is filled in, and the yod line that does the same."""

from pathlib import Path

import pytest
from textual.keys import _character_to_key
from textual.widgets import Static

from console.cli.options.parser import parse
from console.cli.yod import command
from console.tui.actions import launch_command
from console.tui.actions.launch_command import FIELDS, Form, LaunchError
from console.tui.navigation.completion import PathSuggester
from console.tui.widgets.inputs import Choice
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase


def line(app: object) -> str:
    return str(app.screen.query_one("#yod-line", Static).visual)  # type: ignore[attr-defined]


async def test_the_line_follows_the_form(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("n", *"hostname", "space", "minus", "f")
        await until(pilot, lambda: line(app) == "yod hostname -f", "the program")
        await pilot.press("tab", "1", "6", "x")  # a letter is not a size
        await until(pilot, lambda: line(app) == "yod -sz 16 hostname -f", "the size")
        await pilot.press("tab", *"n0,n2")
        await pilot.press("tab", "right", "tab", "space", "tab", "l", "tab", "space", "tab", "h", "tab", "space")
        expected = (
            "yod -sz 16 -list n0,n2 -distribution cyclic -batch -input shared --overcommit --hold -bt hostname -f"
        )
        await until(pilot, lambda: line(app) == expected, "the options")
        assert "32 of 32 processors free" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "mesh", "back on the map")
        await pilot.press("n")
        await until(pilot, lambda: app.current_mode == "launch" and line(app) == expected, "the form as it was")


async def test_the_form_selects_the_program_and_goes_back_to_where_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "of the user"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("3")
        await until(pilot, lambda: app.current_mode == "nodes", "the nodes")
        await pilot.press("n", *"first", "tab", "2")
        assert "this one: ~/of the user" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "nodes", "the nodes again")
        await pilot.press("n")
        await until(pilot, lambda: app.current_mode == "launch", "the form")
        await pilot.press(*"second")
        await until(pilot, lambda: line(app) == "yod -sz 2 second", "another program in place of the first")
        await pilot.press("escape", "m", "n", "escape")
        await until(pilot, lambda: app.current_mode == "mesh", "the map")
        app.launch_with({"command": "third", "size": "3"})
        await until(pilot, lambda: line(app) == "yod -sz 3 third", "a form that is filled in")
        await pilot.press("space", "minus", "f")
        await until(pilot, lambda: line(app) == "yod -sz 3 third -f", "what is typed behind it")


async def test_letters_on_an_option_choose_a_word_and_are_no_keys(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path, size=(120, 40)) as (app, pilot):
        await pilot.press("n", *"./heat", "tab", "tab", "tab", *"c")
        await until(pilot, lambda: line(app) == "yod -distribution cyclic ./heat", "the word with that letter")
        choice = app.focused
        assert isinstance(choice, Choice)
        for key in "nmqJab17:?!<>[]DKx/":
            await pilot.press(_character_to_key(key))
            assert app.current_mode == "launch" and app.focused is choice and len(app.screen_stack) == 1, key
        assert line(app) == "yod ./heat", "b is block"
        await pilot.press("l")
        assert line(app) == "yod -distribution cyclic ./heat"


async def test_what_can_not_be_launched_is_told_and_nothing_started(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("n", "enter")
        await until(pilot, lambda: "which program?" in screen_text(app), "that there is no program")
        await pilot.press(*"echo", "space", "quotation_mark", "a", "enter")
        await until(pilot, lambda: "no closing quotation" in screen_text(app), "that a quote is open")
        await pilot.press("quotation_mark", "tab", "0", "enter")
        await until(pilot, lambda: "a whole number from 1" in screen_text(app), "that 0 is not a size")
        assert app.starting == 0 and not app.runs


@pytest.mark.parametrize(
    "form",
    [
        {"command": "hostname"},
        {entry.id: entry.choices[-1][0] if entry.choices else "7" for entry in FIELDS}
        | {"command": "prog -sz 3 --flag 'two words'", "size": "4", "where": "n0,1..3", "other": "-label -verbose"},
        {"command": "-odd name", "behaviour": "interactive"},
    ],
)
def test_yod_understands_every_line_the_form_makes(form: Form) -> None:
    """The same table that yod reads its options by."""
    parsed = parse(command.WORDS, launch_command.arguments(form), stop=True)
    assert parsed.values.get("sz") == (int(form["size"]) if "size" in form else None)
    assert parsed.values.get("distribution") == form.get("distribution")
    for word in ("overcommit", "alloc", "strace", "bt", "time"):
        assert (word in parsed.values) == (len(form) > 9), word
    assert parsed.values.get("interactive", False) == (form.get("behaviour") == "interactive")
    assert parsed.rest[-1] == {"hostname": "hostname", "-odd name": "name"}.get(form["command"], "two words")


async def test_what_yod_says_when_it_can_not_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(LaunchError) as told:
        await launch_command.launch({"command": "/no/such/program"})
    assert "/no/such/program" in told.value.message and told.value.exit_status == 127


async def test_names_and_launches_of_before_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path, size=(120, 40)) as (app, pilot):
        await pilot.press("n", *"./heat", "tab", "4", "tab", "tab", "right", "ctrl+s", *"hot", "enter")
        await until(pilot, lambda: "kept as hot" in screen_text(app), "it is kept")
        assert (tmp_path / "config/redmesh/presets.json").stat().st_mode & 0o777 == 0o600
        app.screen._remember(7, {"command": "ring 1 2", "size": "3"})  # type: ignore[attr-defined]
        await pilot.press("ctrl+l")
        await until(pilot, lambda: line(app) == "yod", "an empty form")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "★ hot" in screen_text(app) and "yod -sz 3 ring 1 2" in screen_text(app), "both")
        await pilot.press(*"ring", "enter")
        await until(pilot, lambda: line(app) == "yod -sz 3 ring 1 2", "the launch of before")
        await pilot.press("ctrl+o", "enter")
        await until(pilot, lambda: line(app) == "yod -sz 4 -distribution cyclic ./heat", "the named one")
        await pilot.press("ctrl+o", "delete", "escape", "ctrl+o")
        await until(pilot, lambda: "ring 1 2" in screen_text(app) and "★" not in screen_text(app), "it is forgotten")


async def test_programs_and_paths_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/heatwave").touch(0o755)
    (tmp_path / "data set").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    suggest = PathSuggester(commands=True).get_suggestion
    assert await suggest("hea") == "heatwave"
    assert await suggest(f"heatwave {tmp_path}/b") == f"heatwave {tmp_path}/bin/"
    assert await suggest("nothing-like") is None and await suggest("heatwave -x") is None
    assert await suggest(f"{tmp_path}/none/") is None
    (tmp_path / "\x1b]0;owned").touch()
    assert await suggest(f"cat {tmp_path}/\x1b") is None
