"""Keys of one's own, themes, the session, copying, notes about what ended, many launches, small and large terminals."""

import re
from pathlib import Path

import pytest
from textual import events
from textual.geometry import Offset
from textual.widget import Widget
from textual.widgets import Static

from agents.wire import control
from console.launch.events.spool import spool_path
from console.tui.app import ConsoleApp
from console.tui.model.launch import Phase
from console.tui.widgets.grids.rank_grid import RankGrid
from console.tui.widgets.machine_map import MachineMap
from console.tui.widgets.table import TableView
from tests.support.console import Keyboard, console_on, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine
from tests.support.scripted_yod import ScriptedYod


async def test_keys_of_ones_own(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    app = console_on(database.url, tmp_path, {"keys": {"app.launch": "ctrl+n", "app.help": "f1"}})
    async with app.run_test(size=(120, 40)) as pilot:
        keys = Keyboard(pilot)
        await until(keys, lambda: "^n Launch" in screen_text(app) and "f1 Help" in screen_text(app), "the footer")
        await keys.press("n")
        assert app.current_mode == "mesh"
        await keys.press("f1")
        await until(keys, lambda: app.screen.query("#help-text Static"), "help")
        assert "^n" in str(app.screen.query_one("#help-text Static", Static).visual)
        await keys.press("escape", "ctrl+n")
        await until(keys, lambda: app.current_mode == "launch", "the form")


def colours(app: ConsoleApp) -> int:
    """How many colours the screen has."""
    styles = [style for strip in app.screen._compositor.render_strips() for _, style, _ in strip]
    return len({style.color.triplet for style in styles if style and style.color and style.color.triplet})


async def test_every_theme_draws_every_screen(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    app = console_on(database.url, tmp_path, {"theme": "mono"})
    async with app.run_test(size=(80, 24)) as pilot:
        keys = Keyboard(pilot)
        for theme in ("mono", "dark", "light", "contrast"):
            await until(keys, lambda: "ring" in screen_text(app), "the map")
            assert app.theme == f"redmesh-{theme}" and colours(app) > 2
            await keys.press("n")
            await until(keys, lambda: "new launch" in screen_text(app), "the form")
            assert colours(app) > 2, theme
            await keys.press("escape")
            app.theme = {"mono": "redmesh-dark", "dark": "redmesh-light"}.get(theme, "redmesh-contrast")


async def test_tabs_and_theme_are_there_again(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    spool = Path(spool_path(str(tmp_path), 1))
    spool.parent.mkdir()
    spool.write_bytes(
        control.control({"event": "hello", "at": 1.0, "launcher": 1, "command": "./solve", "size": 1, "user": "ada"})
        + control.control({"event": "end", "at": 2.0, "exit_status": 0, "elapsed_s": 1.0})
    )
    async with opened(database.url, tmp_path) as (app, pilot):
        app.attach(1)
        app.attach(4)  # of which nothing is left by then
        app.theme = "redmesh-light"
        await until(pilot, lambda: app.runs[1].phase is Phase.ENDED, "its end")
    async with opened(database.url, tmp_path) as (app, pilot):
        assert list(app.runs) == [1] and app.theme == "redmesh-light" and app.current_mode == "mesh"
        await until(pilot, lambda: "✓ 1 solve" in screen_text(app), "its tab")


async def test_an_end_that_nobody_looks_at_is_told(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        yod.hello("./solve", 1)
        yod.started(["n0"])
        app.attach(1)
        await until(pilot, lambda: app.runs[1].phase is Phase.RUNNING, "it runs")
        await pilot.press("m")
        yod.exit(0, 3)
        yod.event("end", exit_status=3, elapsed_s=7.0)
        await until(pilot, lambda: "solve (1): exit 3 after 7s" in screen_text(app), "the note")


async def test_copying_is_bounded(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        app.copy_to_clipboard("x" * 80_000)
        await until(pilot, lambda: "too much to copy" in screen_text(app), "that it is too much")
        app.copy_to_clipboard("one")
        assert app.clipboard == "one"


async def test_two_hundred_launches_at_once(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=16, slots=16)
    async with opened(database.url, tmp_path, size=(120, 40)) as (app, pilot):
        for number in range(200):
            database.put(Row((number,), f"./job {number}"))
        await until(pilot, lambda: "launchers (200)" in screen_text(app), "all of them")
        for number in range(1, 201):
            app.attach(number, show=False)
        await until(pilot, lambda: all(run.phase is Phase.GONE for run in app.runs.values()), "none takes observers")
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: app.current_mode == "run-1", "the first tab")
        await pilot.press("less_than_sign", "less_than_sign")
        await until(pilot, lambda: "200 job" in screen_text(app), "the last one's tab is in sight")


async def test_a_run_loses_nothing_when_the_terminal_changes(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, size=(120, 40)) as (app, pilot):
        yod.hello("./solve", 8)
        yod.started(["n0"] * 8)
        yod.output(3, b"".join(b"line %d\n" % number for number in range(500)))
        app.attach(1)
        await until(pilot, lambda: "line 499" in screen_text(app), "the output")
        await pilot.press("f", *"rank:3 9$", "enter")
        await until(pilot, lambda: "line 498" not in screen_text(app), "filtered")
        for size in (40, 12), (80, 24), (300, 80):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: "line 499" in screen_text(app), f"its end, {size}")
            await pilot.press("s")
            await pilot.press("escape")
            await pilot.resize_terminal(120, 40)
            await until(pilot, lambda: "line 489" in screen_text(app) and "filtered" in screen_text(app), "as before")


async def test_tabs_without_room_are_counted_and_can_be_chosen(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, keys):
        for launcher in range(1, 9):
            app.attach(launcher, command=f"./program{launcher}", show=False)
        await until(keys, lambda: re.search(r"\+[1-8] ▾", screen_text(app)), "a mark for those that have no room")
        await keys.press("5", *"program8", "enter")
        await until(keys, lambda: app.current_mode == "run-8", "the last one is in front")


async def test_the_footer_fills_its_line_with_what_is_possible(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, keys):
        footer = lambda: screen_text(app).split("\n")[-1]  # noqa: E731
        await until(keys, lambda: "q Quit" in footer(), "the footer")
        assert "Select state" not in footer()
        await keys.resize_terminal(240, 50)
        await until(keys, lambda: "s Select state" in footer(), "more of it")
        assert footer().rstrip().endswith("q Quit") and "Invert" not in footer(), "nothing is selected"


async def test_the_page_of_keys_is_searched(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, keyboard):
        await keyboard.press("question_mark")
        await until(keyboard, lambda: "Keys: " in screen_text(app), "the page")
        await keyboard.press("slash", *"pingd kill")
        shown = screen_text(app)
        assert "pingd -kill" in shown and "zoom out" not in shown
        await keyboard.press(*"xyz")
        assert "nothing is called so" in screen_text(app)
        await keyboard.press("escape")
        assert "zoom out" in screen_text(app), "first the search is cleared"
        await keyboard.press("escape")
        await until(keyboard, lambda: "Keys: " not in screen_text(app), "the page is closed")
    database.close()


async def test_colon_does_every_action_of_the_screen_in_front(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keys):
        await keys.press("colon", *"inv")
        assert "select all that are not" not in screen_text(app), "nothing is selected: it is impossible"
        await keys.press("escape", "space", "colon", *"inv")
        assert "invert: select all that are not" in screen_text(app)
        selected = app.screen_stack[0].query_one(MachineMap)
        await keys.press("tab", "enter")
        await until(keys, lambda: len(selected.selected) == app.machine.cells - 1, "the others are selected")
        await keys.press("colon", *"zoom-in", "enter")
        await until(keys, lambda: selected.place.kind != "machine", "an action of the map, not of the screen")
        await keys.press("colon", *"launchers", "enter")
        await until(keys, lambda: app.current_mode == "launchers", "a name that is a place is a place")
        await keys.press("colon", *"mark-all", "enter")
        await until(keys, lambda: " marked" in screen_text(app), "an action of the table")
        await keys.press("colon", *"read-only", "enter")
        await until(keys, lambda: app.read_only, "an action of every screen")
        await keys.press("colon", *"drain")
        assert "nothing new starts" not in screen_text(app), "the console only reads"


async def drag(app: ConsoleApp, keys: Keyboard, widget: Widget, begin: Offset, end: Offset) -> None:
    """Presses the button at one place of a widget, moves to another, and lets go, as a terminal tells it."""
    corner = widget.content_region.offset
    for kind, at in ((events.MouseDown, begin), (events.MouseMove, end), (events.MouseUp, end)):
        x, y = corner + at
        app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y))
    await keys.pause()


async def test_drag_shift_click_and_shift_arrows_mark_rows(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, keys):
        await keys.press("1")
        await until(keys, lambda: "launchers (4)" in screen_text(app), "the table")
        view = app.screen.query_one(TableView)
        await drag(app, keys, view, Offset(5, 1), Offset(5, 3))
        await until(keys, lambda: view.marked == {1, 2, 3}, "a drag")
        await keys.press("escape", "home", "shift+down")
        assert view.marked == {1, 2}
        await keys.press("shift+down", "shift+up")
        assert view.marked == {1, 2}, "back again: less of it"
        await keys.press("escape")
        at = view.content_region.offset
        await keys._pilot.click(offset=(at.x + 5, at.y + 2))
        await keys._pilot.click(offset=(at.x + 5, at.y + 4), shift=True)
        await until(keys, lambda: view.marked == {2, 3, 4}, "shift and a click")
        await keys._pilot.click(offset=(at.x + 5, at.y + 1), shift=True)
        await until(keys, lambda: view.marked == {1, 2}, "the same range, to its other side")
        await keys.press("space")
        assert view.marked == {2}
        await keys._pilot.click(offset=(at.x + 5, at.y + 4), shift=True)
        await until(keys, lambda: view.marked == {2, 3, 4}, "what was marked by hand stays")


async def test_drag_shift_click_and_shift_arrows_mark_ranks(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, keys):
        yod.hello("./solve", 8)
        yod.started(["n0"] * 8)
        app.attach(1)
        await until(keys, lambda: app.current_mode == "run-1" and app.screen.query(RankGrid), "its tab")
        grid = app.screen.query_one(RankGrid)
        await until(keys, lambda: "running 8" in screen_text(app) and grid.cells == 8 and grid.region, "the ranks")
        await keys.pause()
        places = [Offset(*grid._layout.place(rank)) for rank in range(8)]
        await drag(app, keys, grid, places[1], places[3])
        await until(keys, lambda: grid._scope == {1, 2, 3}, "a drag")
        at = grid.content_region.offset + places[5]
        await keys._pilot.click(offset=at, shift=True)
        await until(keys, lambda: grid._scope == {1, 2, 3, 4, 5}, "shift and a click go on with it")
        await keys.press("a")
        assert grid._scope is None
        grid.focus()
        await keys.press("home", "shift+right", "shift+right")
        await until(keys, lambda: grid._scope == {0, 1, 2}, "shift and arrows")


async def test_the_wheel_scrolls_tables(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=40, slots=1)
    for number in range(40):
        database.put(Row((number,), f"./job {number}"))
        database.down(f"n{number}")
    async with opened(database.url, tmp_path, (100, 24)) as (app, keys):
        for tab in ("launchers", "nodes", "events"):
            await keys.press({"launchers": "1", "nodes": "3", "events": "4"}[tab])
            await until(keys, lambda tab=tab: app.current_mode == tab and app.screen.query(TableView), f"the {tab}")  # type: ignore[misc]
            await keys.pause()
            view = app.screen.query_one(TableView)
            await until(keys, lambda view=view: view.max_scroll_y > 0, "more than fits")  # type: ignore[misc]
            x, y = view.content_region.offset + Offset(5, 5)
            app.post_message(events.MouseScrollDown(None, x, y, 0, 0, 0, False, False, False, screen_x=x, screen_y=y))
            await until(keys, lambda view=view: view.scroll_y > 0, "it moved")  # type: ignore[misc]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_first_start_says_in_five_lines_what_to_do(tmp_path: Path, size: tuple[int, int]) -> None:
    database = busy_machine(tmp_path)
    app = console_on(database.url, tmp_path, {"keys": {"app.launch": "ctrl+n"}})
    async with app.run_test(size=size) as pilot:
        keys = Keyboard(pilot)
        await until(keys, lambda: "ring" in screen_text(app), "the map")
        for line in (
            "^n    launch a program",
            "enter zoom in, then",
            "1     to 7: tables",
            "?     every key",
        ):
            assert f" {line}" in screen_text(app) or size[1] == 24, line  # four launchers leave no room at 80×24
    async with opened(database.url, tmp_path, size) as (app, keys):
        await until(keys, lambda: "ring" in screen_text(app), "the map")
        assert "launch a program" not in screen_text(app), "the second time"
        for launcher in range(1, 5):
            database.end(launcher)
        await until(keys, lambda: "nothing runs" in screen_text(app), "nothing runs")
        assert ":     any place or action" in screen_text(app), "where nothing runs there is room for it"
