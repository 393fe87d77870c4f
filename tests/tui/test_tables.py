"""Tables, places by name, and back."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from textual.widgets import Input

from agents.wire import control, frames, messages
from console.tui.format import clock
from console.tui.map.zoom import MACHINE
from console.tui.screens.mesh import MeshScreen
from console.tui.screens.tables import TableScreen
from console.tui.widgets.machine_map import MachineMap
from tests.support.big_machine import racks, storm
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine


async def test_launchers_partitions_nodes_and_events_are_tables(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        for key, words in (
            ("1", ("launchers (4)", "simulate --steps", "4242.pbs", "pending")),
            ("2", ("partitions (4)", "4242.pbs", "interactive", "12,13,14,15")),
            ("3", ("nodes (5)", "suspect", "no heartbeat for 5 s", "login1", "8/8")),
            ("4", ("events", "node_suspect", "n3")),
        ):
            await pilot.press(key)
            await until(pilot, lambda words=words: all(word in screen_text(app) for word in words), f"{words}")


async def test_nodes_of_a_batch_job_say_where_they_come_from_and_when_they_leave(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    ends_at = time.time() + 3600
    job = {"manager": "slurm", "job": "12", "nodes": ["n0", "n1"], "began_at": ends_at - 7200, "ends_at": ends_at}
    (tmp_path / "grown.json").write_text(json.dumps([job]))
    told = f"slurm job 12, until {clock(ends_at)}"
    async with opened(database.url, tmp_path, (160, 40)) as (app, pilot):
        await until(pilot, lambda: told in screen_text(app), "the details of n0")
        await pilot.press("3")
        await until(pilot, lambda: screen_text(app).count(told) == 2, "the table of nodes")
        (tmp_path / "grown.json").write_text("[{}]")
        await pilot.press("m")
        await until(pilot, lambda: told not in screen_text(app), "the details of n0 without it")


async def test_sorting_filtering_and_marking(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: "launchers (4)" in screen_text(app), "the table")
        screen = app.screen
        assert isinstance(screen, TableScreen)
        assert screen.rows.order == [1, 2, 3, 4]
        await pilot.press("s", "s", "s")
        await until(pilot, lambda: screen.rows.order == [3, 2, 4, 1] or screen.rows.order == [3, 4, 2, 1], "by size")
        await pilot.press("r")
        assert screen.rows.order[0] == 1
        await pilot.press("slash", *"!ada")
        await until(pilot, lambda: "launchers (2 of 4) /!ada" in screen_text(app), "while it is typed")
        await pilot.press("enter", "space", "space")
        assert screen.view.marked == {2, 3}
        await pilot.press("escape")
        assert not screen.view.marked
        await pilot.press("escape")
        await until(pilot, lambda: "launchers (4)" in screen_text(app), "no filter")
        await pilot.press("slash", *"n[")
        await until(pilot, lambda: "unterminated" in screen_text(app), "what is wrong with it")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.current_mode == "mesh", "the map")


async def test_a_marked_row_keeps_the_colour_of_a_bad_state(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    database.down("n1")
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("3")
        await until(pilot, lambda: "n1      down" in screen_text(app), "the nodes")
        screen = app.screen
        assert isinstance(screen, TableScreen)

        def colour() -> object:
            cells = (cell for y in range(8) for cell in screen.view.render_line(y) if cell.text.strip() == "down")
            return next(cell.style.color for cell in cells if cell.style)

        before = colour()
        screen.view.mark(set(screen.rows.order))
        assert colour() == before


async def test_the_cursor_stays_on_its_row(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("1", "j", "j")
        screen = app.screen
        assert isinstance(screen, TableScreen)
        await until(pilot, lambda: screen.view.key == 3, "the third")
        database.end(1)
        await until(pilot, lambda: screen.rows.order == [2, 3, 4], "one has ended")
        assert screen.view.key == 3 and screen.view.cursor == 1
        await pilot.press("e")
        await until(pilot, lambda: screen.rows.order == [1, 2, 3, 4], "the ended one too")
        assert "ended" in screen_text(app) and screen.view.key == 3


async def test_places_by_name_and_back(tmp_path: Path) -> None:
    database = racks(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("colon", *"n node0", "tab", "enter")
        await until(pilot, lambda: "rack rack1 › node node001" in screen_text(app), "a node")
        await pilot.press("colon", *"rack rack3", "enter")
        await until(pilot, lambda: "rack rack3" in screen_text(app).splitlines()[2], "a rack")
        await pilot.press("colon", *"launcher 4", "enter")
        await until(pilot, lambda: app.current_mode == "launchers" and app.screen.view.key == 4, "a row")  # type: ignore[attr-defined]
        await pilot.press("colon", *"user mary", "enter")
        await until(pilot, lambda: "/\\bmary\\b" in screen_text(app), "what one user has")
        await pilot.press("colon", *"select down", "enter")
        await until(pilot, lambda: len(app.screen.query_one(MachineMap).selected) == 8, "a selection")
        await pilot.press("escape", *["left_square_bracket"] * 4)
        await until(pilot, lambda: "node node001" in screen_text(app), "where one was first")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "rack rack3" in screen_text(app).splitlines()[2], "and forth again")
        await pilot.press("colon", *"node nowhere", "enter")
        await until(pilot, lambda: any("no node nowhere" in n.message for n in app._notifications), "that it is not")
        await pilot.press("colon", *"weird")
        await until(pilot, lambda: "no view called weird" in screen_text(app), "what is wrong")
        await pilot.press("escape")


async def test_a_view_is_saved_under_a_name_and_shown_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("colon", *"save busy", "enter")
        await until(pilot, lambda: "a table's filter and order" in screen_text(app), "there is none on the map")
        await pilot.press("1", "slash", *"!ada", "enter", "s", "s", "r")
        await until(pilot, lambda: "launchers (2 of 4) /!ada" in screen_text(app), "filtered")
        screen = app.screen
        assert isinstance(screen, TableScreen)
        order, title = screen.rows.order, screen.as_view()
        await pilot.press("colon", *"save busy", "enter")
        await until(pilot, lambda: "view busy is saved" in screen_text(app), "saved")
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("colon", *"view b", "tab", "enter")
        await until(pilot, lambda: "launchers (2 of 4) /!ada" in screen_text(app), "as it was, in another console")
        screen = app.screen
        assert isinstance(screen, TableScreen) and screen.rows.order == order and screen.as_view() == title
        await pilot.press("colon", *"forget busy", "enter", "colon", *"view busy", "enter")
        await until(pilot, lambda: "there is no view busy" in screen_text(app), "forgotten")
        (tmp_path / "config" / "redmesh" / "views.json").write_text('{"x": {"table": 1}, "y": [], "z": 3}')
        await pilot.press("colon", *"view x", "enter")
        await until(pilot, lambda: "there is no view x" in screen_text(app), "nonsense is none")


async def test_from_a_table_to_the_map(tmp_path: Path) -> None:
    database = racks(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("3")
        await until(pilot, lambda: "nodes (97)" in screen_text(app), "the table")
        await pilot.press("slash", *"node05[12]", "enter", "ctrl+a", "M")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "the map")
        assert sorted(app.screen.query_one(MachineMap).selected) == [*range(400, 416)]
        await pilot.press("escape", "3", "escape", "enter")
        await until(pilot, lambda: app.screen.query(MachineMap) and "node node051" in screen_text(app), "its node")
        assert app.screen.query_one(MachineMap).place != MACHINE


async def test_a_table_is_exported_as_csv_and_json(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 30)) as (app, pilot):
        await pilot.press("1", "x")
        for name in ("out.csv", "out.json"):
            if not app.screen.query(Input):
                await pilot.press("x")
            app.screen.query_one(Input).value = str(tmp_path / name)
            await pilot.press("enter")
            await until(pilot, (tmp_path / name).exists, name)
        assert (tmp_path / "out.csv").read_text().splitlines()[2].startswith("2,grace,busy,4,")
        assert [row["user"] for row in json.loads((tmp_path / "out.json").read_text())] == [
            "ada",
            "grace",
            "lin",
            "ada",
        ]
        await pilot.press("x")
        app.screen.query_one(Input).value = str(tmp_path / "out.csv")
        await until(pilot, lambda: "exists already" in screen_text(app), "nothing is overwritten")
        await pilot.press("enter", "escape")


async def test_ten_thousand_rows(tmp_path: Path) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("3")
        await until(pilot, lambda: "nodes (11,137)" in screen_text(app), "all nodes")
        drawn: list[int] = []
        view = app.screen.view  # type: ignore[attr-defined]
        draw = view.render_line
        view.render_line = lambda y: drawn.append(y) or draw(y)
        await pilot.press("G")
        await until(pilot, lambda: view.cursor == 11_136, "the last row")
        await pilot.press("k")
        await pilot.pause(0.2)
        assert len(drawn) < 400  # a screen or a few, never the table


async def test_lists_have_the_programs_name_and_the_mark_of_the_order(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    database.put(Row((0, 1), "/srv/very/long/path/solve --steps 7"))
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("4")
        await until(pilot, lambda: "time ↓ " in screen_text(app), "the column by which the events are sorted")
        await pilot.press("r")
        await until(pilot, lambda: "time ↑ " in screen_text(app), "the other order")
        for keys in (["1"], ["ctrl+p", *"attach"], ["escape", "m"]):
            await pilot.press(*keys)
            await until(pilot, lambda: "solve --steps 7" in screen_text(app), f"the program after {keys}")
            lines = [
                line for line in screen_text(app).split("\n") if "solve --steps 7" in line and "command " not in line
            ]
            assert lines and not [line for line in lines if "/srv" in line], screen_text(app)


async def test_loads_are_shown_while_the_database_cannot_be_read(tmp_path: Path) -> None:
    """The details showed new ones, and the row beside them stayed as it was."""
    database, load = FixedDatabase(tmp_path, nodes=1), [1.5]

    async def pct(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(control.control(messages.hello("pct", "n0")))
        decoder = frames.Decoder()
        while data := await reader.read(65536):
            for asked in (control.decode(payload) for _, payload in decoder.feed(data)):
                if asked["op"] == "status":
                    writer.write(control.control({"re": asked["id"], "load": load}))
        writer.close()

    server = await asyncio.start_unix_server(pct, str(tmp_path / "n0.sock"))
    address = (str(tmp_path / "n0.sock"),)
    database.store.run(lambda t: t.change(f"UPDATE node SET address = ?, changed = {t.stamp}", address))
    async with opened(database.url, tmp_path, (140, 40)) as (app, keyboard):
        await keyboard.press("3")
        await until(keyboard, lambda: screen_text(app).count("1.50") == 2, "the load in the row and in the details")
        database.path.rename(tmp_path / "away.db")
        await until(keyboard, lambda: app.trouble, "the database cannot be read")
        load[0] = 9.25
        await until(keyboard, lambda: screen_text(app).count("9.25") == 2, "the new load in both")
    server.close()
    database.close()


async def test_columns_that_become_wider_are_painted_in_every_row(tmp_path: Path) -> None:
    """Also in rows whose own texts stay as they are (the monkey, seed 102)."""
    database = FixedDatabase(tmp_path, nodes=4, slots=16)
    database.put(*(Row((number,)) for number in range(40)))
    async with opened(database.url, tmp_path, (120, 20)) as (app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: "launchers (40)" in screen_text(app), "the table")
        longer = "UPDATE launcher SET user = 'somebody-else', changed = {} WHERE id = 40"  # out of sight
        database.store.run(lambda t: t.change(longer.format(t.stamp)))
        await until(pilot, lambda: "user          state" in screen_text(app), "a wider column")
        assert screen_text(app).count("ada           busy") > 10
    database.close()


async def test_why_the_database_cannot_be_read_ends_with_an_ellipsis(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path, nodes=1)
    async with opened(database.url, tmp_path) as (app, keyboard):
        await keyboard.press("1")
        database.path.rename(tmp_path / "away.db")
        await until(keyboard, lambda: app.trouble, "the database cannot be read")
        await until(keyboard, lambda: "… ─╯" in screen_text(app), "a mark where it is cut")
    database.close()
