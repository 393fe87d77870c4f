"""What belongs to an earlier boot of the mesh, or is older than its interval, is not shown as if it were true now."""

import re
import time
from pathlib import Path

from console.tui.model.machine import NodeStatus
from console.tui.model.observation import Identity, Observation
from console.tui.screens.tables import TableScreen
from console.tui.widgets.details import Details
from console.tui.widgets.machine_map import MachineMap
from db.machine.nodes import NodeSpec, define_machine, node_up
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine
from tests.support.scripted_yod import ScriptedYod
from tests.tui.test_jobs import begin, made


def exchange(database: FixedDatabase) -> None:
    """From now on the numbers of nodes and processors are those of another machine."""
    specs = [NodeSpec(i + 1, f"c{i}", range(i * 8, i * 8 + 8), address=f"/run/x/c{i}.sock") for i in range(4)]
    define_machine(database.store, "main", "b008", "login1", specs)
    for spec in specs:
        node_up(database.store, spec.name, "b008", 1, spec.address, "0.1.0")


async def test_another_machine_takes_over_neither_status_nor_selection_nor_names(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        machine, shown = app.machine, app.screen.query_one(MachineMap)
        await until(pilot, lambda: "n0:0" in screen_text(app), "the first processor")
        machine.statuses[1] = Observation(
            NodeStatus((3.2, 2.1, 1.0), None, {1: [(0, 4711)]}), time.monotonic() - 125.0,
            machine.identity(machine.nodes[machine.node_of(0)]), 15.0,
        )  # fmt: skip
        await until(
            pilot, lambda: re.search(r"3\.20  2\.10  1\.00, \d+:\d\d ago", screen_text(app)), "the load and its age"
        )
        assert "4711" in screen_text(app)
        await pilot.press("space")
        assert shown.selected
        await pilot.press("3", "space")
        assert isinstance(app.screen, TableScreen) and app.screen.view.marked
        exchange(database)
        await until(pilot, lambda: "c0" in screen_text(app), "the other machine")
        assert not app.screen.view.marked
        await pilot.press("4")
        await until(pilot, lambda: "n0 is up" in screen_text(app), "the events")
        for line in screen_text(app).splitlines():
            assert not (" is up" in line and re.search(r"\bc\d .*\bn\d is up", line)), line
        await pilot.press("m")
        await until(pilot, lambda: "c0:0" in screen_text(app), "the first processor of the other machine")
        assert not shown.selected and "4711" not in screen_text(app) and "3.20" not in screen_text(app)


async def test_a_node_that_is_down_has_no_status_and_had_ranks(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 50)) as (app, pilot):
        machine = app.machine
        await until(pilot, lambda: "n0:0" in screen_text(app), "the first processor")
        status = NodeStatus((3.2, 2.1, 1.0), None, {1: [(0, 4711)]})
        machine.statuses[1] = Observation(
            status, time.monotonic(), machine.identity(machine.nodes[machine.node_of(0)]), 3600.0
        )
        await until(pilot, lambda: "4711" in screen_text(app), "the ranks")
        database.down("n0")
        await until(pilot, lambda: "n0, down for" in str(app.screen.query_one(Details).render()), "it is down")
        told = str(app.screen.query_one(Details).render())
        assert "4711" not in told and "3.20" not in told


async def test_an_answer_is_about_the_launch_that_the_question_named(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "n0:0" in screen_text(app), "the first processor")
        await pilot.press("K")
        await until(pilot, lambda: "Kill launcher 1" in screen_text(app), "the question")
        database.end(1)
        [other] = database.put(Row((0, 1), "another"))
        await until(pilot, lambda: other in app.machine.launchers, "another launch on the same processors")
        await pilot.press("y")
        await until(pilot, lambda: "began there after the question" in " ".join(screen_text(app).split()), "the note")
        assert other in app.machine.launchers
        await pilot.press("K")
        await until(pilot, lambda: f"Kill launcher {other}" in screen_text(app), "the question")
        exchange(database)
        await until(pilot, lambda: app.machine.nodes[1].name == "c0", "another machine")
        await pilot.press("y")
        await until(pilot, lambda: "the mesh was started anew" in " ".join(screen_text(app).split()), "the note")


async def test_nothing_is_good_while_nothing_is_up(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "●" in screen_text(app).splitlines()[0], "all is well")
        for node in ("n0", "n1", "n2", "n3"):
            database.down(node, "the mesh was taken down")
        await until(pilot, lambda: "nothing is up" in screen_text(app).splitlines()[0], "nothing is up")
        assert "●" not in screen_text(app).splitlines()[0]


async def test_problems_are_those_of_this_boot(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        app.settings.mesh = "main"
        assert not app.health_known and not app.problems
        of = Identity(app.machine.boot_id)
        app._health = Observation(["n3 is silent"], time.monotonic() - 100.0, of, 60.0)
        app.runs_changed.publish(0)
        await until(pilot, lambda: "▲ 1" in screen_text(app), "the mark")
        await pilot.press("6")
        await until(pilot, lambda: re.search(r"\d:\d\d ago:", screen_text(app)), "their age")
        await pilot.press("escape")
        app._tell("health", "n3 is silent", "warning", "mesh status")
        await until(pilot, lambda: app._notifications, "a note of them")
        note = next(iter(app._notifications))
        note.timeout = 3600.0
        exchange(database)
        await until(pilot, lambda: "●" in screen_text(app).splitlines()[0], "problems of that machine are gone")
        assert not app.health_known
        await until(
            pilot, lambda: note not in app._notifications and "n3 is silent" not in screen_text(app), "so is their note"
        )


async def test_a_cancelled_job_is_not_at_100_percent(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 20)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7")
            await until(pilot, lambda: "jobs (1)" in screen_text(app), "the job")
            await pilot.press("enter")
            begin(state, 3)
            await until(pilot, lambda: re.search(r"\d+%", screen_text(app)), "its progress")
            state.change(1, 20, "cancelled")
            state.finish("cancelled", "mesh cancel")
            await until(pilot, lambda: "mesh cancel" in screen_text(app), "its end")
            head = "\n".join(screen_text(app).splitlines()[1:3])
            assert "0 of 20 tasks done" in head and "20 cancelled" in head and "%" not in head, head
    finally:
        state.close()


async def test_a_tab_is_not_that_of_a_later_launcher_with_its_number(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        yod.hello("./solve", 2)
        yod.started(["n0"] * 2)
        await until(pilot, lambda: "n0:0" in screen_text(app), "the first processor")
        await pilot.press("a")
        await until(pilot, lambda: app.current_mode == "run-1", "its tab")
        before = app.runs[1]
        await pilot.press("m", "a")
        await until(pilot, lambda: app.current_mode == "run-1", "its tab again")
        assert app.runs[1] is before and before.created_at == app.machine.launchers[1].created_at
        # as if the tab were of launcher 1 of a database that was removed since
        before.created_at = 1.0
        await pilot.press("m", "a")
        await until(pilot, lambda: app.current_mode == "run-1" and app.runs[1] is not before, "a tab of its own")
        await until(pilot, lambda: "running" in screen_text(app) and "./solve" in app.runs[1].command, "what it shows")
