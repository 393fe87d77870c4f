"""Keys that need a state which random keys seldom reach: each pressed once where it works."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from console.tui.screens.dialogs import Entry
from console.tui.screens.stacks.stacks import StacksScreen
from console.tui.widgets.grids.rank_grid import RankGrid
from console.tui.widgets.output import OutputPane
from console.tui.widgets.table import TableView
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import busy_machine
from tests.support.scripted_yod import ScriptedYod
from tests.tui.test_jobs import begin, made
from tests.tui.test_run_screen import running, watched
from tests.tui.test_stacks_screen import TREE


async def test_keys_of_stacks(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    sent: list[tuple[int, list[int]]] = []
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        running(yod)
        await watched(yod, app, pilot)
        screen = StacksScreen(app.runs[1], None, lambda _: None, lambda number, ranks, _: sent.append((number, ranks)))
        app.push_screen(screen)
        await until(pilot, lambda: screen._trouble, "that there is nobody to ask")
        screen._told = {"tree": TREE, "ranks": 4, "taken_at": "2026-01-01T10:00:00", "took_s": 0.1, "hints": [],
                        "missing": []}  # fmt: skip
        screen._draw()
        await until(pilot, lambda: "MPI_Barrier" in screen_text(app), "the tree")
        await pilot.press("g", "u", "t", "K", "H", "C")
        assert sent == [(number, [0, 1, 2, 3]) for number in (10, 15, 9, 19, 18)]
        await pilot.press("o")
        await until(pilot, lambda: "poll" in screen_text(app) and "all calls" in screen_text(app), "calls of MPI")
        await pilot.press("Y")
        await until(pilot, lambda: app.clipboard == "0-3", "the ranks are copied")
        await pilot.press("y")
        await until(pilot, lambda: "MPI_Recv" in app.clipboard, "the tree is copied")
        await pilot.press("e")
        await until(pilot, lambda: "again every 2 s" in screen_text(app), "the period")
        await pilot.press("w")
        await until(pilot, lambda: screen._kind != "all" and screen._told is None, "frames of one language")
    database.close()


async def test_keys_of_ranks_and_output(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        running(yod)
        yod.output(0, b"x" * 300 + b"\n")
        await watched(yod, app, pilot)
        pane = app.screen.query_one(OutputPane)
        await until(pilot, lambda: pane.virtual_size.width > 300, "a wide line")
        pane.focus()
        await pilot.press("l", "l")
        await until(pilot, lambda: pane.scroll_offset.x == 2, "to the right")
        await pilot.press("h")
        await until(pilot, lambda: pane.scroll_offset.x == 1, "to the left")
        app.screen.query_one(RankGrid).focus()
        await pilot.press("l", "l", "l", "shift+left")
        await until(pilot, lambda: pane.scope == frozenset({2, 3}), "two ranks")
        await pilot.press("a")
        await until(pilot, lambda: pane.scope is None, "all ranks")
    database.close()


async def test_keys_of_a_job_and_of_nodes(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 5)
    with ExitStack() as owner:
        owner.callback(state.close)
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("3")
            await until(pilot, lambda: app.screen.query(TableView) and "n1" in screen_text(app), "the nodes")
            await pilot.press("j", "D")
            await until(pilot, lambda: isinstance(app.screen, Entry) and "mesh drain n0" in screen_text(app), "why")
            await pilot.press("escape", "7", "enter")
            await until(pilot, lambda: "tasks (5)" in screen_text(app), "the job")
            [number] = begin(state, 1)
            state.ended(number, 1, 1, started_at=1.0, ended_at=2.0, lines="no\n", node="n1")
            state.commit()
            await until(pilot, lambda: "1 failed" in screen_text(app), "a failure")
            told: list[str] = []
            app.notify = lambda message, *, title="", **_: told.append(title)  # type: ignore[assignment,misc]
            await pilot.press("R")
            await until(pilot, lambda: f"mesh retry {state.uuid[:8]}" in told, "it is tried again")
            state.set_meta(held=1)
            state.commit()
            await until(pilot, lambda: app.screen.job.state == "held", "it is held")  # type: ignore[attr-defined]
            await pilot.press("C")
            await until(pilot, lambda: f"mesh release {state.uuid[:8]}" in told, "it is released")
            state.set_meta(held=0)
            state.commit()
            owner.close()
            await until(pilot, lambda: app.screen.job.state == "owner lost", "nobody owns it")  # type: ignore[attr-defined]
            await pilot.press("T")
            await until(pilot, lambda: f"mesh job resume {state.uuid[:8]}" in told, "it goes on")
    database.close()
