"""The map and what stands beside it, over a real database that changes."""

import re
import time
from pathlib import Path

from textual.widgets import Static

from console.tui.model.observation import Identity, Observation
from console.tui.screens.base import Page
from console.tui.screens.launch import RunScreen
from console.tui.screens.mesh import MeshScreen
from console.tui.widgets.details import Details
from console.tui.widgets.machine_map import MachineMap
from console.tui.widgets.offers import Choices
from console.tui.widgets.table import TableView
from console.tui.widgets.wrong_line import WrongLine
from tests.support.big_machine import storm
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine


def details(app: object) -> str:
    widget = app.screen.query_one(Details)  # type: ignore[attr-defined]
    return f"{widget.border_title}\n{widget.render()}"


async def test_it_opens_on_the_map_with_legend_launchers_and_details(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "ring" in screen_text(app), "the launchers are shown")
        text = screen_text(app)
        assert isinstance(app.screen, MeshScreen)
        assert "mesh main" in text and "4 nodes, 32 processors" in text
        assert "free 6" in text and "pending 2" in text and "busy 14" in text
        assert "suspect 8" in text and "down 0" in text and "reserved 2" in text
        assert "n0 [a]" in text
        assert "processor 0 · n0:0" in text and "hostname -f" in text
        assert "m Mesh" in text and "q Quit" in text


async def test_the_map_can_be_read_without_colour(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    database.down("n2")
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "#" in screen_text(app), "the map is drawn")
        rows = {}
        for line in screen_text(app).splitlines():
            words = line.replace("│", " ").replace("[", " ").replace("]", " ").split()
            if words and words[0] in ("n0", "n1", "n2", "n3"):
                rows.setdefault(words[0], words[1:9])  # the map comes first
        assert rows["n0"] == list("aaaaaabb")
        assert rows["n1"] == ["b", "b", "+", "+", "d", "d", "d", "d"]
        assert rows["n2"] == ["#"] * 8
        assert rows["n3"] == ["-"] * 8


async def test_cursor_keys_and_hjkl_move_and_the_details_follow(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        grid = app.screen.query_one(MachineMap)
        await until(pilot, lambda: "processor 0" in details(app), "the first processor's details")
        for keys, processor in (
            ("l", 1), ("right", 2), ("j", 10), ("down", 18), ("k", 10), ("h", 9), ("left", 8), ("up", 0),
            ("left", 0), ("w", 8), ("w", 16), ("b", 8), ("G", 31), ("l", 31), ("g", 0),
        ):  # fmt: skip
            await pilot.press(keys)
            await until(pilot, lambda n=processor: grid.cursor == n, f"{processor} after {keys}")
            await until(pilot, lambda n=processor: f"processor {n} " in details(app), f"details of {processor}")
        await pilot.press("j", "j", "l")
        await until(pilot, lambda: "reserved for grace" in details(app), "a reserved processor's details")
        await pilot.press("j")
        await until(pilot, lambda: "no heartbeat for 5 s" in details(app), "why a node is suspect")


async def test_the_map_is_live(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=2, slots=4)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "nothing runs" in screen_text(app), "an empty machine")
        [launcher] = database.put(Row((0, 1, 5), "./solve"))
        await until(pilot, lambda: "solve" in screen_text(app), "the launcher appears")
        assert "free 5" in screen_text(app) and "busy 3" in screen_text(app)
        assert re.search(r"\[ *a *\]", screen_text(app))
        database.end(launcher)
        await until(pilot, lambda: "nothing runs" in screen_text(app), "the launcher is gone")
        assert "free 8" in screen_text(app)


async def test_only_the_cells_that_changed_are_drawn_again(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=64, slots=16)
    async with opened(database.url, tmp_path, size=(120, 40)) as (app, pilot):
        grid = app.screen.query_one(MachineMap)
        await until(pilot, lambda: "1,024 processors" in screen_text(app), "the map")
        await pilot.pause()
        drawn: list[int] = []
        draw = grid.render_line
        grid.render_line = lambda y: drawn.append(y) or draw(y)  # type: ignore[method-assign, func-returns-value]
        database.put(Row((512,), "./one"))
        await until(pilot, lambda: "one" in screen_text(app), "the launcher appears")
        await pilot.pause()
        assert 1 <= len(set(drawn)) <= 2


async def test_the_list_of_launchers_has_details_of_its_own(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("tab", "j", "j", "j")
        await until(pilot, lambda: "launcher 4" in details(app), "the launcher's details")
        assert "job" in details(app) and "4242.pbs" in details(app) and "login1/4711" in details(app)


async def test_enter_on_a_launcher_whose_yod_has_gone_says_so(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run view")
        await until(pilot, lambda: "takes no observers" in screen_text(app), "why there is nothing to see")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen) and not app.runs, "the tab is closed")


async def test_a_free_processor_has_nobody_to_attach_to(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=1)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("a", "enter", "enter")
        assert isinstance(app.screen, MeshScreen) and not app.runs


async def test_the_database_goes_and_comes_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "ring" in screen_text(app), "the launchers are shown")
        away = tmp_path / "away.db"
        database.path.rename(away)
        await until(pilot, lambda: "last read" in screen_text(app), "when it was read last")
        assert "n0" in screen_text(app) and "Traceback" not in screen_text(app)
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: isinstance(app.screen, Page), "why, on a page")
        await pilot.press("1")  # a key of a tab goes there
        await until(pilot, lambda: app.current_mode == "launchers" and len(app.screen_stack) == 1, "the table")
        await pilot.press("m")
        await pilot.press("l", "j")  # the old picture can still be walked over
        away.rename(database.path)
        await until(pilot, lambda: "of 24 free" in screen_text(app), "the picture is fresh again")
        database.put(Row((16,), "./later"))
        await until(pilot, lambda: "later" in screen_text(app), "and live")


async def test_no_database_at_all(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/none.db", tmp_path) as (app, pilot):
        await until(pilot, lambda: "nothing read yet" in screen_text(app), "that there is nothing to see")
        await until(pilot, lambda: "mesh up" in screen_text(app), "what to do about it")
        for key in (*"hjklgGwb", "tab", "enter", "a", "space", *"vcosizyD", "escape", "question_mark", "escape"):
            await pilot.press(key)
        assert "Traceback" not in screen_text(app)


async def test_another_machine_under_the_same_console(tmp_path: Path) -> None:
    """mesh down, mesh up of another size: the database is made anew."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("G")
        await until(pilot, lambda: "processor 31" in details(app), "the last processor")
        database.close()
        for path in tmp_path.glob("mesh.db*"):
            path.unlink()
        FixedDatabase(tmp_path, nodes=2, slots=3)
        await until(pilot, lambda: "2 nodes, 6 processors" in screen_text(app), "the new machine")
        await pilot.press("G", "l", "j")
        assert app.screen.query_one(MachineMap).cursor == 5


async def test_help_has_every_key_of_the_screen_in_front(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, lambda: app.screen.query("#help-text Static"), "the page of keys")
        text = str(app.screen.query_one("#help-text Static", Static).visual)
        for words in (
            "the next cabinet or node",
            "watch the launcher",
            "the launch form",
            "leave; what runs goes on",
            "high contrast",
        ):
            assert words in text
        await pilot.resize_terminal(48, 24)
        await until(pilot, lambda: app.screen.query_one("#help-text Static", Static).virtual_size.width < 48, "narrow")
        page = app.screen.query_one("#help-text Static", Static)
        shown = str(page.visual).split("\n")
        await until(pilot, lambda: len(shown) == page.size.height, "each line on one, wrapped for this width")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "it closes")


async def test_every_action_is_in_the_palette(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: app.machine.launchers, "launchers")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: app.screen.query(Choices), "the palette")
        shown = app.screen.query_one(Choices)
        await until(pilot, lambda: shown.size.height >= 16, "two thirds of 24 lines have entries")
        titles = " ".join(f"{title} {told}" for title, told in shown._rows)
        for title in ("Mesh", "Launch", "Attach 4", "Help", "Theme", "Quit", "Read only", "showmesh --watch"):
            assert title in titles
        await pilot.press(*"Launch", "enter")
        await until(pilot, lambda: app.current_mode == "launch", "the palette's command is done")


async def test_q_quits_at_once_where_nothing_would_be_lost(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running or app._exit, "it quits")


async def test_small_and_large_terminals(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    for size, other in (((40, 12), (240, 70)), ((400, 100), (80, 24))):
        async with opened(database.url, tmp_path, size=size) as (app, pilot):
            await until(pilot, lambda: "mesh main" in screen_text(app), "the map")
            assert re.search("[?] Help +q Quit *$", screen_text(app)), "there is always room for these"
            await pilot.press("n")
            await pilot.resize_terminal(*other)
            await pilot.press("escape")
            await until(pilot, lambda: "ring" in screen_text(app), "the list, after a resize")


async def test_themes_of_textual_can_be_chosen(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("n")
        theirs = sorted(name for name in app.available_themes if not name.startswith("redmesh-"))
        for name in theirs[::6]:  # ours are in test_comfort
            app.theme = name
            await pilot.pause()
        await pilot.press("escape")
        await until(pilot, lambda: "ring" in screen_text(app), "the map, in the last theme")


async def test_a_small_machine_leaves_room_for_what_happens(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    database.down("n2", "power supply")
    async with opened(database.url, tmp_path, (200, 60)) as (app, pilot):
        await until(pilot, lambda: "activity" in screen_text(app), "the activity")
        await until(pilot, lambda: "in use now: " in screen_text(app), "the chart")
        text = screen_text(app)
        lines = {line.split()[1]: line for line in text.splitlines() if "processors in use" in line}
        assert list(lines) == ["n0", "n1", "n2", "n3"]
        assert "8 of 8 processors in use" in lines["n0"] and "6× hostname -f" in lines["n0"]
        assert "power supply" in lines["n2"]
        assert "node_down" in text
        database.end(1)
        await until(pilot, lambda: "2 of 8 processors in use" in screen_text(app), "six of n0 free again")
        await pilot.resize_terminal(200, 14)
        await until(pilot, lambda: "activity" not in screen_text(app), "the map alone")
        await until(pilot, lambda: all(f"n{node} " in screen_text(app) for node in range(4)), "all of the map")
        await pilot.resize_terminal(120, 50)
        await until(pilot, lambda: re.search(r"n2 .* 0/8", screen_text(app)), "room again")
        text = screen_text(app)
        line = next(line for line in text.splitlines() if "n2 " in line and "0/8" in line)
        assert "power supply" in line  # where there is less room, what is worth knowing has it


async def test_a_large_machine_takes_all_the_room(tmp_path: Path) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "11,136 processors" in screen_text(app), "the map")
        await pilot.pause(0.5)
        assert "in use now" not in screen_text(app)
    database.close()


async def test_a_click_on_the_mark_of_problems_lists_them(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        app._health = Observation(["n3 is silent"], time.monotonic(), Identity(app.machine.boot_id), 60.0)
        app.runs_changed.publish(0)
        await until(pilot, lambda: "▲ 1" in screen_text(app), "the mark")
        await pilot._pilot.click(offset=(118, 0))
        await until(pilot, lambda: "n3 is silent" in screen_text(app), "the list")


async def test_what_is_wrong_stands_above_the_map_while_it_is_and_its_key_goes_there(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    database.put(Row(tuple(range(8, 12)), "solve"), Row((0, 1), "other"))
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "solve" in screen_text(app), "the launchers")
        line = app.screen.query_one(WrongLine)
        assert not line.display and "▲" not in screen_text(app)
        database.down("n1")
        await until(pilot, lambda: "n1 down for" in screen_text(app).splitlines()[1], "what is wrong")
        assert "launch 1 has 4 processors there" in screen_text(app).splitlines()[1]
        assert "a ▲1 " in screen_text(app) and "b  2 " in screen_text(app)
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "› node n1" in screen_text(app), "the node")
        database.suspect("n3")
        await until(pilot, lambda: "1 more · !" in screen_text(app).splitlines()[1], "how much more")
        await pilot.press("1")
        await until(pilot, lambda: re.search(r"│▲ +1 +ada", screen_text(app)) is not None, "the table")
        assert "n1 down for" in screen_text(app).splitlines()[1]
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "› node n3" in screen_text(app), "the second")
        await until(pilot, lambda: "2 of 2: n3 suspect" in screen_text(app), "which it is")
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "› node n1" in screen_text(app), "the first again")
        await pilot.press("colon", *"launcher ")
        await until(pilot, lambda: "tab: ▲1  2" in screen_text(app), "the mark among the offers")
        await pilot.press("1")
        await until(pilot, lambda: "to launcher 1, which has 4 processors there" in screen_text(app), "in words")
        await pilot.press("escape")
        for node in ("n1", "n3"):
            database.up(node)
        await until(pilot, lambda: screen_text(app).splitlines()[1].startswith("╭"), "nothing is wrong")
        assert not line.display and "▲" not in screen_text(app)


async def test_enter_on_the_line_of_what_is_wrong_goes_there(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("tab", "tab")
        assert isinstance(app.focused, MachineMap), "while nothing is wrong, there is no line to go to"
        database.down("n2")
        await until(pilot, lambda: "n2 down for" in screen_text(app).splitlines()[1], "what is wrong")
        assert isinstance(app.focused, MachineMap), "the line takes no focus by itself"
        await pilot.press("up", "up", "left")
        assert isinstance(app.focused, MachineMap), "nor from the arrows on the map"
        await pilot.press("tab", "tab")
        assert isinstance(app.focused, WrongLine)
        await until(pilot, lambda: "Go there" in screen_text(app).splitlines()[-1], "what enter does")
        await pilot.press("enter")
        await until(pilot, lambda: "› node n2" in screen_text(app), "the node")
        assert isinstance(app.focused, MachineMap)
        await pilot.press("3", "tab")
        await until(pilot, lambda: isinstance(app.focused, WrongLine), "the line above a table")
        database.up("n2")
        await until(pilot, lambda: isinstance(app.focused, TableView), "the table has the focus when the line goes")


async def test_two_groups_of_nodes_that_are_down_are_two_places(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        for node in ("n0", "n1"):
            database.down(node, "its disk is full")
        for node in ("n2", "n3"):
            database.down(node, "no heartbeat")
        await until(pilot, lambda: "1 more · !" in screen_text(app).splitlines()[1], "both groups")
        grid, seen = app.screen.query_one(MachineMap), []
        for at in (1, 2):
            await pilot.press("exclamation_mark")
            await until(pilot, lambda at=at: f"{at} of 2" in screen_text(app), "which one it is")
            seen.append({app.machine.processors[cell].node for cell in grid.selected_cells})
        assert sorted(map(sorted, seen)) == [[1, 2], [3, 4]]


async def test_the_line_of_what_is_wrong_is_painted_only_after_a_change(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "n3 suspect for" in screen_text(app), "what is wrong")
        found = app.wrongs
        line = app.screen.query_one(WrongLine)
        assert app.wrongs is found and not line.update_wrongs()
        database.end(1)
        await until(pilot, lambda: 1 not in app.machine.launchers, "another launch's end")
        assert app.wrongs == found


async def test_a_mixed_tile_says_what_is_in_it(tmp_path: Path) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        grid = app.screen.query_one(MachineMap)
        await until(pilot, lambda: "mixed" in screen_text(app).splitlines()[-2], "the legend of mixed tiles")
        mixed = next(tile for tile in range(grid.cells) if grid.look(tile)[0] == "%")
        grid.cursor = mixed
        await until(pilot, lambda: " busy" in grid.mixture and grid.mixture.split(",")[0] in details(app), "what it is")
        whole = sum(int(part.split()[0]) for part in grid.mixture.partition(", in")[0].split(", "))
        assert whole == len(grid.under)


async def test_the_list_of_themes_begins_with_those_of_redmesh(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: bool(app.machine.launchers), "the machine")
        await pilot.press("colon", *"theme", "enter")
        await until(pilot, lambda: "themes" in screen_text(app), "the list")
        rows = [line for line in screen_text(app).splitlines() if "redmesh-" in line or "textual-" in line]
        assert [name in row for name, row in zip(("dark", "light", "contrast", "mono"), rows, strict=False)] == [
            True
        ] * 4
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.theme == "redmesh-light", "the theme")


async def test_the_list_of_launchers_says_why_it_is_empty(tmp_path: Path) -> None:
    """It said "nothing runs" also while the database could not be read."""
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: " nothing runs; n launches a program" in screen_text(app), "nothing runs")
        for name in database.names():
            database.down(name) if name.startswith("n") else None
        await until(pilot, lambda: "nothing is up; 6 says what to do" in screen_text(app), "nothing is up")
    database.close()
    database.path.rename(tmp_path / "away.db")
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: "what runs is not known yet" in screen_text(app), "nothing is known")
