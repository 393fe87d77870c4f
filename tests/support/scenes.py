"""Scenes: every screen of the console on fixed content, without a mesh, for pictures and for a look at each cell.

``tests/tui/test_contrast.py`` looks at them in every theme; ``python -m tests.support.screenshots --look FOLDER`` makes
pictures of them.
"""

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents.job.description import META, Description
from agents.wire import control, frames
from console.launch.events.spool import spool_path
from console.tui.screens.base import Page
from console.tui.widgets.launch_summary import Completion
from console.tui.widgets.output import OutputPane
from redmesh.state import RUNNING, StateObject, job_path, new_uuid
from tests.support.big_machine import racks, storm
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, busy_machine

#: What is to be done with the picture of a screen that has this name.
Write = Callable[[Any, str], Awaitable[None]]
Scene = Callable[[Any, Keyboard, Write], Awaitable[None]]


async def play(folder: Path, size: tuple[int, int], theme: str, write: Write, scenes: "Scenes | None" = None) -> None:
    """Play scenes, by default all, in one size and theme; ``folder`` is an empty one for databases and jobs."""
    for make, scene in scenes or SCENES:
        place = folder / scene.__name__.strip("_")
        place.mkdir()
        database = make(place)
        try:
            async with opened(database.url, place, size) as (app, keyboard):
                app.theme = f"redmesh-{theme}"
                await keyboard.pause(0.1)
                await scene(app, keyboard, write)
        finally:
            database.close()


async def _big(app: Any, keyboard: Keyboard, write: Write) -> None:
    await until(keyboard, lambda: app.machine.cells > 10_000, "the machine")
    await keyboard.pause(0.3)
    await write(app, "big-map")
    await keyboard.press("enter")
    await keyboard.pause(0.3)
    await write(app, "big-cabinet")
    await keyboard.press("escape", "c", "c")
    await keyboard.press("e", *"user=ada & busy")
    await keyboard.pause(0.2)
    await write(app, "big-expression")
    await keyboard.press("escape", "tab", "j")
    await keyboard.pause(0.2)
    await write(app, "big-launcher")
    await keyboard.press("3")
    await keyboard.pause(0.3)
    await write(app, "big-nodes")


async def _racks(app: Any, keyboard: Keyboard, write: Write) -> None:
    await keyboard.pause(0.3)
    await write(app, "racks")
    await keyboard.press("c", "D")
    await keyboard.pause(0.2)
    await write(app, "drain")
    await keyboard.press("escape", "colon", *"n node0")
    await keyboard.pause(0.2)
    await write(app, "go-to")
    await keyboard.press("escape", "3", "slash", *"node05")
    await keyboard.pause(0.2)
    await write(app, "nodes-filter")
    await keyboard.press("enter", "space", "space")
    await keyboard.pause(0.2)
    await write(app, "nodes-marked")


async def _busy(app: Any, keyboard: Keyboard, write: Write) -> None:
    await write(app, "details")
    await keyboard.press("5")
    await keyboard.pause(0.2)
    await write(app, "tabs")
    await keyboard.press("escape")
    app.push_screen(Page("mesh status", ["the database login1:3306 answers slowly: 840 ms"]))
    await keyboard.pause(0.2)
    await write(app, "health")
    await keyboard.press("escape", "exclamation_mark")
    await keyboard.pause(0.2)
    await write(app, "wrong")
    await keyboard.press("escape", "ctrl+r")
    app.notify("launch 7 (simulate) has ended: exit 139 (SIGSEGV)", severity="error", timeout=60)
    await keyboard.pause(0.3)
    await write(app, "notes")
    app.clear_notifications()
    await keyboard.press("ctrl+r", "2")
    await keyboard.pause(0.2)
    await write(app, "partitions")
    await keyboard.press("1", "e")
    await keyboard.pause(0.3)
    await write(app, "launchers-ended")
    await keyboard.press("x")
    await keyboard.pause(0.2)
    await write(app, "export")
    await keyboard.press("escape", "4")
    await keyboard.pause(0.2)
    await write(app, "events")
    await keyboard.press("7")
    await keyboard.pause(0.3)
    await write(app, "jobs-none")
    await keyboard.press("n")
    await keyboard.pause(0.3)
    await write(app, "form-empty")
    await keyboard.press(*"./solve", "tab", *"999", "enter")
    await keyboard.pause(0.5)
    await write(app, "form-wrong")
    await keyboard.press("ctrl+l", "ctrl+o")
    await keyboard.pause(0.3)
    await write(app, "form-before")
    await keyboard.press("escape", "escape", "m", "question_mark")
    await keyboard.pause(0.3)
    await write(app, "help")
    await keyboard.press("escape", "ctrl+p")
    await keyboard.pause(0.5)
    await write(app, "palette")


async def _away(app: Any, keyboard: Keyboard, write: Write) -> None:
    path = Path(app.settings.state_dir, "mesh.db")
    path.rename(path.with_name("away.db"))
    await until(keyboard, lambda: app.trouble, "the database cannot be read")
    await keyboard.pause(0.3)
    await write(app, "away")
    app.clear_notifications()
    await keyboard.press("1")
    await keyboard.pause(0.2)
    await write(app, "away-launchers")


async def _never_read(app: Any, keyboard: Keyboard, write: Write) -> None:
    await keyboard.pause(0.3)
    await write(app, "never-read")


def _missing(folder: Path) -> FixedDatabase:
    database = FixedDatabase(folder)
    database.path.rename(folder / "away.db")
    return database


async def _nothing_up(app: Any, keyboard: Keyboard, write: Write) -> None:
    await until(keyboard, lambda: "nothing is up" in screen_text(app), "that nothing is up")
    await keyboard.pause(0.2)
    await write(app, "nothing-up")
    for key, name in (("1", "launchers-none"), ("4", "events-down")):
        await keyboard.press(key)
        await keyboard.pause(0.2)
        await write(app, name)


async def _run(app: Any, keyboard: Keyboard, write: Write) -> None:
    await keyboard.press("a")
    await until(keyboard, lambda: "exit 139" in screen_text(app), "the end")
    await keyboard.pause(0.3)
    await write(app, "run-failed")
    app.screen.query_one(Completion).focus()
    await keyboard.press("j")
    await keyboard.pause(0.2)
    await write(app, "run-completion")
    app.screen.query_one(OutputPane).focus()
    await keyboard.press("slash", *"step 9")
    await keyboard.pause(0.2)
    await write(app, "run-prompt")
    await keyboard.press("enter")
    await keyboard.pause(0.3)
    await write(app, "run-search")
    await keyboard.press("escape", "f", *"rank:0-3 stream:err")
    await keyboard.pause(0.2)
    await write(app, "run-filter-prompt")
    await keyboard.press("enter")
    await keyboard.pause(0.2)
    await write(app, "run-filter")
    await keyboard.press("escape", "ctrl+t", "equals_sign")
    await keyboard.pause(0.2)
    await write(app, "run-gathered")
    await keyboard.press("w")
    await keyboard.pause(0.2)
    await write(app, "run-save")
    await keyboard.press("escape", "z")
    await keyboard.pause(0.2)
    await write(app, "run-full")


async def _jobs(app: Any, keyboard: Keyboard, write: Write) -> None:
    await keyboard.press("7")
    await until(keyboard, lambda: "jobs (3)" in screen_text(app), "the jobs")
    await keyboard.pause(0.3)
    await write(app, "jobs")
    await keyboard.press("slash", *"sweep", "enter", "enter")
    await until(keyboard, lambda: "it wrote last" in screen_text(app), "the tasks")
    await keyboard.press("f")
    await keyboard.pause(0.5)
    await write(app, "job")
    await keyboard.press("enter")
    await keyboard.pause(0.5)
    await write(app, "job-task")
    await keyboard.press("escape", "K")
    await keyboard.pause(0.3)
    await write(app, "job-cancel")
    await keyboard.press("escape", "o")
    await keyboard.pause(0.3)
    await write(app, "job-log")


def _down(folder: Path) -> FixedDatabase:
    database = FixedDatabase(folder)
    for name in database.names():
        if name.startswith("n"):
            database.down(name)
    return database


def _launched(folder: Path) -> FixedDatabase:
    """A machine with a launch that has failed; its events are in the spool."""
    database = busy_machine(folder)
    database.down("n2")
    path = Path(spool_path(str(folder), 1))
    path.parent.mkdir()
    event = control.control
    exits = [(rank, 0, 0) for rank in range(10)] + [(10, 3, 0), (11, 0, 11)]
    path.write_bytes(
        event({"event": "hello", "at": 1.0, "launcher": 1, "command": "./solve 1e-6", "size": 12, "user": "ada"})
        + event({"event": "started", "at": 1.0, "ranks": [[900 + rank, f"n{rank // 6}"] for rank in range(12)]})
        + b"".join(
            frames.output(2, rank, b"step %d: residual 1e-%d on rank %d\n" % (step, rank + 2, rank))
            for step in range(12)
            for rank in range(12)
        )
        + frames.output(
            2,
            3,
            b"".join(b"\x1b[%dmcolour %d\x1b[0m \x1b[%dm bright\x1b[0m " % (30 + n, n, 90 + n) for n in range(8))
            + b"\n",
        )
        + frames.output(2, 4, b" ".join(b"\x1b[%dmon %d\x1b[0m" % (40 + n, n) for n in range(8)) + b"\n")
        + frames.output(3, 10, b"no convergence\n")
        + b"".join(
            event(
                {"event": "exit", "at": 2.0, "rank": rank, "node": f"n{rank // 6}", "status": status, "signal": signal}
            )
            for rank, status, signal in exits
        )
        + event({"event": "end", "at": 2.0, "exit_status": 139, "elapsed_s": 1.5})
    )
    return database


def _with_jobs(folder: Path) -> FixedDatabase:
    """A machine with three jobs, one of which has tasks in every state."""
    for name, tasks, running, ended in (("sweep", 240, 60, 40), ("train", 12, 0, 0), ("blast", 30_000, 2_000, 900)):
        state = _job(folder, name, tasks)
        if running:
            state.set_state(RUNNING)
            state.set_meta(begun_at=time.time() - 600)
            for at, task in enumerate(state.take(running, "n1")[:ended]):
                lines = f"\x1b[31mtask {task.number} ends\x1b[0m\nreading part {at}: \x1b[1;33m84 %\x1b[0m\n"
                state.ended(task.number, 1, int(at % 4 == 3), started_at=time.time() - 90, ended_at=time.time() - 5,
                            lines=lines, node="n1")  # fmt: skip
            state.log("looking at n1 again", node="n1")
        state.commit()
        state.close()
    return busy_machine(folder)


def _job(folder: Path, name: str, tasks: int) -> StateObject:
    described = Description(["./solve", "--case", "{}"], "/home/ada")
    described.name = name
    uuid = new_uuid()
    told = {"uuid": uuid, "kind": "tasks", "user": "ada", "host": "login1", META: described.dump()}
    (folder / "jobs").mkdir(mode=0o700, exist_ok=True)
    path = job_path(str(folder / "jobs"), uuid)
    state = StateObject.create(path, {**told, "command": json.dumps(described.command)}, durable=False)
    state.add_array(1, tasks)
    return state


Scenes = tuple[tuple[Callable[[Path], FixedDatabase], Scene], ...]
SMALL: Scenes = (
    (racks, _racks), (busy_machine, _busy), (_down, _nothing_up), (busy_machine, _away), (_missing, _never_read),
    (_launched, _run), (_with_jobs, _jobs),
)  # fmt: skip
#: With the 10,368 processors, which take as long as all others.
SCENES: Scenes = ((storm, _big), *SMALL)
