"""The map's zoom, selection and actions, over machines with a structure."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from console.tui.actions import commands
from console.tui.map.zoom import MACHINE
from console.tui.model.machine import HUES
from console.tui.screens.dialogs import Confirm, Entry
from console.tui.screens.mesh import MeshScreen
from console.tui.widgets.machine_map import MachineMap
from tests.support.big_machine import racks, storm
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import Row, busy_machine


def grid(app: Any) -> MachineMap:
    mesh = next(screen for screen in app.screen_stack if isinstance(screen, MeshScreen))  # a question may be in front
    return mesh.query_one(MachineMap)


def chosen(app: Any) -> list[int]:
    return sorted(grid(app).selected)


async def test_red_storm_on_eighty_columns(tmp_path: Path) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "11,136 processors · z shows each" in screen_text(app), "the whole machine")
        text = screen_text(app)
        assert all(f"r{row}  0" in text for row in range(4)) and "service 768" in text and "down 2" in text
        assert "#" in text  # two of eleven thousand, and yet they are seen
        await pilot.press("enter")
        await until(pilot, lambda: "cabinet c2-0" in screen_text(app) and "cage 2" in screen_text(app), "a cabinet")
        assert len(grid(app)._chart.members) == 96
        await pilot.press("enter")
        await until(pilot, lambda: "node c2-0c0s0n0" in screen_text(app), "a node")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: grid(app).place == MACHINE, "the machine again")
        assert app.machine.processors[grid(app).cell].id == 0
        await pilot.press("w")
        assert app.machine.processors[grid(app).cell].id == 96  # the next cabinet
        await pilot.press("z")
        await until(pilot, lambda: not grid(app).merged, "every processor a cell")
        assert app.machine.processors[grid(app).cell].id == 96


async def test_a_colour_is_not_looked_for_again_and_again_where_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (340, 104)) as (app, pilot):
        await until(pilot, lambda: "service 768" in screen_text(app), "the whole machine")
        asked: list[int] = []
        monkeypatch.setattr(app.machine, "hue", lambda launcher: 0)
        monkeypatch.setattr(app.machine, "recolour", lambda launcher, avoid: set(asked.append(launcher) or ()))
        for _ in range(3):
            grid(app).repaint(set(range(app.machine.cells)))
        assert asked and len(asked) == len(set(asked))
        app.machine.launchers.popitem()  # its colour is free now
        before = len(asked)
        grid(app).repaint(set(range(app.machine.cells)))
        assert len(asked) > before


async def test_the_cursor_stays_on_its_processor_wherever_one_zooms(tmp_path: Path) -> None:
    database = racks(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("w", "w", "l")
        processor = app.machine.processors[grid(app).cell].id
        for key in ("enter", "enter", "escape", "escape", "z", "z"):
            await pilot.press(key)
            assert processor in {app.machine.processors[cell].id for cell in grid(app).under}, key


async def test_processors_are_selected_by_key_and_expression(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        for keys, processors in (
            (["space"], [0]),
            (["l", "space"], [0, 1]),
            (["space"], [0]),
            (["escape"], []),
            (["v", "l", "l", "j"], [*range(1, 12)]),
            (["v", "l"], [*range(1, 12)]),
            (["escape", "g", "shift+right", "shift+right"], [0, 1, 2]),
            (["escape", "escape", "c"], [*range(8)]),
            (["c"], []),
            (["o"], [*range(6)]),
            (["escape", "s"], [*range(10), *range(12, 16)]),
            (["i"], [10, 11, *range(16, 32)]),
            (["escape"], []),
        ):
            await pilot.press(*keys)
            await until(pilot, lambda wanted=processors: chosen(app) == wanted, f"{processors} after {keys}")
        assert grid(app).place == MACHINE


async def test_selecting_by_an_expression_while_it_is_typed(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("e", *"n[0-1]")
        await until(pilot, lambda: "16 processors on 2 nodes selected" in screen_text(app), "what is typed so far")
        await pilot.press(*" & busy")
        await until(pilot, lambda: chosen(app) == [*range(10), *range(12, 16)], "narrower")
        await pilot.press("x")
        await until(pilot, lambda: "called busyx" in screen_text(app), "what is wrong")
        await pilot.press("enter")
        assert isinstance(app.screen, Entry)  # what cannot be read is not taken
        await pilot.press("backspace", "enter")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "taken")
        assert chosen(app) == [*range(10), *range(12, 16)]
        await pilot.press("e", *"free", "escape")
        await until(pilot, lambda: chosen(app) == [*range(10), *range(12, 16)], "given up: as it was")


async def test_clicks_and_drags(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("l")
        mouse = pilot._pilot
        place = grid(app)._chart.place(3)
        await mouse.click(MachineMap, offset=(place[0] + 2, place[1] + 1))
        await until(pilot, lambda: grid(app).cursor == 3, "a click moves")
        place = grid(app)._chart.place(5)
        await mouse.click(MachineMap, offset=(place[0] + 2, place[1] + 1), shift=True)
        await until(pilot, lambda: chosen(app) == [3, 4, 5], "with shift it selects up to there")


@pytest.mark.parametrize(
    ("key", "question", "command"),
    [
        ("X", "Reset n[0-1]?", "pingd -reset -list 'n[0-1]'"),
        ("K", "Kill launchers 1 (ada: hostname -f), 2", "pingd -kill -list 0..15"),
        ("T", "Send TERM to launchers 1", "pingd -interrupt -list 0..15"),
        ("U", "Unreserve processors 0..15?", "pingd -unreserve -list 0..15"),
    ],
)
async def test_what_destroys_asks_and_shows_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, question: str, command: str
) -> None:
    ran: list[str] = []

    async def run(words: list[str]) -> str:
        ran.append(commands.line(words))
        return "it is done"

    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        monkeypatch.setattr(commands, "run", run)
        await pilot.press("e", *"n[0-1]", "enter", key)
        await until(pilot, lambda: isinstance(app.screen, Confirm), "a question")
        asked = " ".join(str(widget.render()) for widget in app.screen.query("#question, #consequence"))
        assert question in asked and command in asked
        await pilot.press("enter")  # Cancel
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "nothing is done")
        assert not ran
        await pilot.press(key, "y")
        await until(pilot, lambda: ran == [command], "it is done")


async def test_draining_asks_why(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await pilot.press("e", *"n[0-1]", "enter", "D", *"bad fan", "enter")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "a question")
        await until(pilot, lambda: "mesh drain 'n[0-1]' --reason 'bad fan'" in screen_text(app), "the command")


async def test_reserving_asks_for_whom(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await pilot.press("space", "B", *"gr", "tab", "enter")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "a question")
        await until(pilot, lambda: "pingd -reserve grace -list 0" in screen_text(app), "the command, completed")


async def test_there_is_nothing_to_kill_where_nothing_runs(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("G", "K")
        await until(pilot, lambda: any("nothing runs there" in n.message for n in app._notifications), "why not")
        assert isinstance(app.screen, MeshScreen)


async def test_nothing_is_done_in_a_console_that_only_reads(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("ctrl+r", "c", "D", "K", "X", "H")
        assert isinstance(app.screen, MeshScreen) and chosen(app) == list(range(8))


async def test_a_selection_fills_in_the_launch_form(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("e", *"0..3", "enter", "H")
        await until(pilot, lambda: app.current_mode == "launch" and "0..3" in screen_text(app), "the form, filled in")


async def test_the_selection_is_copied(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("e", *"free", "enter", "y")
        await until(pilot, lambda: app.clipboard == "n2", "the nodes")
        await pilot.press("Y")
        await until(pilot, lambda: app.clipboard == "16,19..23", "the processors")


async def test_a_selection_outlives_its_machine_only_where_it_can(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("e", *"0..31", "enter")
        database.close()
        for path in tmp_path.glob("mesh.db*"):
            path.unlink()
        from tests.support.fixed_database import FixedDatabase

        FixedDatabase(tmp_path, nodes=2, slots=3)
        await until(pilot, lambda: chosen(app) == [0, 1, 2, 3, 4, 5], "what is still there")


async def test_two_hundred_launches_at_once(tmp_path: Path) -> None:
    database = storm(tmp_path, busy=0.0)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        database.put(*(Row(tuple(range(i * 16, i * 16 + 16)), f"./job{i}") for i in range(200)))
        await until(pilot, lambda: "launchers (200)" in screen_text(app), "all of them")
        await pilot.press("1", "G")
        await until(pilot, lambda: "job199" in screen_text(app), "the last one in the table")


async def test_launches_are_told_apart_without_colours(tmp_path: Path) -> None:
    """Three of the colours were one grey, and two others another."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        app.theme = "redmesh-mono"
        await until(pilot, lambda: app.has_class("-theme-redmesh-mono"), "the theme")
        await pilot.pause(0.1)
        for widget, group in (("#map", "cell-grid"), ("#launchers", "launcher-list")):
            looks = [
                app.screen.query_one(widget).get_component_styles(f"{group}--hue-{number}") for number in range(HUES)
            ]
            greys = sorted(look.background.brightness for look in looks)
            assert all(b - a > 0.05 for a, b in pairwise(greys)), greys  # families: tests/unit/tui/test_colours.py
            assert all(abs(look.color.brightness - look.background.brightness) > 0.4 for look in looks)
        styles: dict[str, set[Any]] = {}
        for strip in app.screen._compositor.render_strips():
            for text, style, _ in strip:
                if text.strip() in ("a", "b", "d") and style is not None and style.bgcolor is not None:
                    styles.setdefault(text.strip(), set()).add(style.bgcolor.triplet)
        assert not styles["a"] & styles["b"] and not styles["b"] & styles["d"]
