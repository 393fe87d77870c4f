"""Jobs in the console, from state objects that a real owner's code wrote. Nothing is asked while nothing happens."""

import json
from pathlib import Path
from typing import Any

from agents.job.description import META, Description
from console.tui.screens.job import JobScreen
from console.tui.widgets.grids.task_grid import TaskGrid
from db.allocation.waiting_requests import Wait, drop, enqueue
from db.store.store import open_store
from redmesh.state import RUNNING, StateObject, job_path, new_uuid
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import busy_machine


def made(folder: Path, name: str, tasks: int, **more: Any) -> StateObject:
    """The object of a job whose owner is this process."""
    described = Description(["./solve", "{}"], "/")
    described.name = name
    uuid = new_uuid()
    told = {"uuid": uuid, "kind": "tasks", "user": "ada", "host": "login1", META: described.dump(), **more}
    (folder / "jobs").mkdir(mode=0o700, exist_ok=True)
    state = StateObject.create(
        job_path(str(folder / "jobs"), uuid), {**told, "command": json.dumps(described.command)}, durable=False
    )
    state.add_array(1, tasks)
    state.commit()
    return state


def begin(state: StateObject, count: int) -> list[int]:
    state.set_state(RUNNING)
    state.set_meta(begun_at=1.0)
    taken = [task.number for task in state.take(count, "n1")]
    state.commit()
    return taken


async def test_a_job_is_followed_and_its_tasks_are_cells(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 30)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7")
            await until(pilot, lambda: "jobs (1)" in screen_text(app) and "0 of 30" in screen_text(app), "the job")
            await pilot.press("enter")
            await until(pilot, lambda: "tasks (30)" in screen_text(app), "its tasks")
            screen = app.screen
            assert isinstance(screen, JobScreen)
            for number in begin(state, 3):
                lines = f"\x1b[31mtask {number} ends\n"
                state.ended(number, 1, number % 2, started_at=1.0, ended_at=2.0, lines=lines, node="n1")
            state.log("looking at n1 again", node="n1")
            state.commit()
            # the heading has the count before the task's row is read
            told = ("2 failed", "task 3 ends")
            await until(pilot, lambda: all(one in screen_text(app) for one in told), "what failed")
            text = screen_text(app)
            assert "exit 1 on n1: task 3 ends" in text and "␛" not in text and "1 of 30 tasks done" in text, text
            await pilot.press("f")
            grid = app.screen.query_one(TaskGrid)
            await until(pilot, lambda: grid.cursor == 2, "the next failure")
            await until(pilot, lambda: "task 3" in screen_text(app), "beside the map")
            await pilot.press("enter")
            await until(pilot, lambda: "what became of it" in screen_text(app), "all of the task")
            await pilot.press("escape", "o")
            await until(pilot, lambda: "looking at n1 again" in screen_text(app), "the log")
            readings: list[int] = []
            read = screen._reading.read
            screen._reading.read = lambda: (readings.append(1), read())  # type: ignore[assignment,method-assign]
            await pilot.pause(1.5)
            assert not readings, "nothing happened, and the object was read"
            await pilot.press("escape", "x")
            assert app.current_mode == "jobs"
    finally:
        state.close()


async def test_calls_that_come_later_are_cells_with_a_number(tmp_path: Path) -> None:
    """Of an Executor's job only the first tasks were shown, and later failures had no number."""
    database = busy_machine(tmp_path)
    state = made(tmp_path, "calls", 20)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7", "enter")
            await until(pilot, lambda: "tasks (20)" in screen_text(app), "the first tasks")
            begin(state, 15)
            await until(pilot, lambda: "running 15" in screen_text(app), "they run")
            state.add_array(21, 2000)
            state.commit()
            await until(pilot, lambda: "tasks (2,000)" in screen_text(app), "the others")
            state.take(100, "n2")
            state.ended(103, 1, 1, started_at=1.0, ended_at=2.0, lines="ValueError: no\n")
            state.add_array(2001, 2001)
            state.commit()
            told = ("tasks (2,001)", "103  exit 1 on n2: ValueError: no", "waiting 1,886", "running 114")
            await until(pilot, lambda: all(one in screen_text(app) for one in told), "a failure among them")
            await pilot.press("f")
            grid = app.screen.query_one(TaskGrid)
            first, last = grid.members(grid.cursor)
            assert first <= 102 <= last, (first, last)
    finally:
        state.close()


async def test_why_a_job_waits(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 30)
    state.set_meta(yods=json.dumps([[4242, 17]]))
    (tmp_path / "keeper.json").write_text("{}")  # no managers and no limits
    begin(state, 1)
    wait = Wait("a" * 32, None, 1000, "ada", "login", 4242, 17, 1, {"command": "yodwork"}, 3600.0)
    first = wait._replace(request_key="b" * 32, pid=4243)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7")
            await until(pilot, lambda: "jobs (1)" in screen_text(app), "the job")
            with open_store(database.url) as store:
                login = store.read("SELECT name FROM node WHERE role = 'login'")[0][0]
                for one in (first, wait):
                    enqueue(store, one._replace(login=login))
                await until(pilot, lambda: "running (1 request in front)" in screen_text(app), "why it waits")
                await pilot.press("enter")
                await until(pilot, lambda: "running (1 request in front)" in screen_text(app), "also in its tab")
                drop(store, first.request_key)
                await until(pilot, lambda: "running (more when free)" in screen_text(app), "its turn comes")
                drop(store, wait.request_key)
                await until(pilot, lambda: "(more when" not in screen_text(app), "it waits no longer")
    finally:
        state.close()


async def test_keys_hold_and_cancel_by_the_commands(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 5)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7")
            await until(pilot, lambda: "jobs (1)" in screen_text(app), "the job")
            await pilot.press("K")
            await until(pilot, lambda: f"mesh cancel {state.uuid[:8]}" in screen_text(app), "the question")
            assert "Keep it" in screen_text(app) and "Cancel it (y)" in screen_text(app), "two buttons were Cancel"
            await pilot.press("n", "C")
            await until(pilot, lambda: "Release: the job is not held" in screen_text(app), "why not")
            await pilot.press("question_mark")
            await until(pilot, lambda: "mesh hold" in screen_text(app), "the help")
            assert "drain" not in screen_text(app)
            await pilot.press("escape", "ctrl+r", "K")
            assert app.read_only and "Cancel job" not in screen_text(app)
    finally:
        state.close()


async def test_a_job_comes_and_goes(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await pilot.press("J")
        await until(pilot, lambda: "no job is queued or runs" in screen_text(app), "none")
        assert "Filter" in screen_text(app) and "Hold" not in screen_text(app) and "Sort" not in screen_text(app)
        state = made(tmp_path, "late", 3)
        await until(pilot, lambda: "late" in screen_text(app) and "Hold" in screen_text(app), "it came")
        await pilot.press("colon", *"job late", "enter")
        await until(pilot, lambda: "tasks (3)" in screen_text(app), "by its name")
        state.finish("cancelled", "mesh cancel")
        state.close()
        await until(pilot, lambda: "cancelled" in screen_text(app), "its end")
        for file in (tmp_path / "jobs").iterdir():
            file.unlink()
        await until(pilot, lambda: not app.machine.jobs, "it is gone")
        await pilot.press("K", "escape", "e")
        await until(pilot, lambda: app.current_mode == "jobs", "the table")


async def test_launches_that_end_never_get_among_the_ended_jobs(tmp_path: Path) -> None:
    """The table of jobs read ended launchers as rows of its own when the machine changed: AttributeError."""
    database = busy_machine(tmp_path)
    state = made(tmp_path, "over", 2)
    state.finish("done", "")
    state.close()
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("7", "e")
        await until(pilot, lambda: "jobs (1)" in screen_text(app) and "over" in screen_text(app), "the ended job")
        database.end(1)
        await until(pilot, lambda: 1 not in app.machine.launchers, "a launch ended")
        await pilot.pause(2.5)  # ended launchers are read at most every 2 s
        assert "jobs (1)" in screen_text(app)


async def test_an_object_with_a_value_that_no_owner_writes_is_named(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 30)
    try:
        async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
            await pilot.press("7")
            await until(pilot, lambda: "jobs (1)" in screen_text(app), "the job")
            await pilot.press("enter")
            await until(pilot, lambda: "tasks (30)" in screen_text(app), "its tasks")
            begin(state, 3)
            state.log("a line")
            state._db.execute("UPDATE log SET at = 'soon'")
            state.commit()
            await until(pilot, lambda: "the job cannot be read" in screen_text(app), "what is wrong")
            assert isinstance(app.screen, JobScreen)
    finally:
        state.close()


async def test_the_last_lines_of_a_task_have_its_colours_and_a_narrow_window_tells_all_counts(tmp_path: Path) -> None:
    """Escape sequences were shown as text, and the failed tasks were cut off where the window ended."""
    database = busy_machine(tmp_path)
    state = made(tmp_path, "sweep", 240)
    numbers = begin(state, 60)
    for number in numbers[:40]:
        lines = f"part {number}\n 10 %\r\x1b[1;31m84 %\x1b[0m of it"
        state.ended(number, 1, 1 if number == 30 else 0, started_at=1.0, ended_at=2.0, lines=lines, node="n1")
    state.commit()
    state.close()
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("7")
        await until(pilot, lambda: "owner lost" in screen_text(app), "the job")
        assert "T Resume" in screen_text(app).split("\n")[-1]
        await pilot.press("enter")
        await until(pilot, lambda: "✗ 1" in screen_text(app), "all counts")
        text = screen_text(app)
        assert "exit 1 on n1: 84 % of it" in text and " left" not in text and "T Resume" in text, text
        await pilot.press("f")
        await until(pilot, lambda: "task 30" in screen_text(app), "the failed task")
        for words in ("task 30", "what became of it"):  # beside the map, and on the page of the task, which covers it
            await until(pilot, lambda seen=words: seen in screen_text(app) and "part 30" in screen_text(app), words)  # type: ignore[misc]
            segments = [segment for strip in app.screen._compositor.render_strips() for segment in strip]
            looks = [segment.style for segment in segments if segment.text == "84 %"]
            assert looks and all(look and look.bold and look.color for look in looks)
            await pilot.press("enter")
        assert "␛" not in screen_text(app) and "10 %" not in screen_text(app)
