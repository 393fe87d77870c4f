"""How three screens look, to the character and the colour. ``pytest tests/tui/test_snapshots.py --snapshot-update``
after a change that was meant, and look at the pictures (``git diff`` shows which)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from agents.wire import control, frames
from console.launch.events.spool import spool_path
from console.tui.model.launch import Phase
from console.tui.model.usage import Usage
from console.tui.widgets.sidebar import Activity
from tests.support.console import console_on, screen_text, until
from tests.support.fixed_database import busy_machine

Compare = Callable[..., bool]
SIZE = (80, 24)


async def settled(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: "ring" in screen_text(pilot.app), "the launchers")
    await pilot.pause(0.2)


def test_mesh(snap_compare: Compare, tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    database.down("n2")

    async def look(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        usage = Usage()
        for busy in (0, 4, 8, 16, 24, 20):
            usage.add(busy, 24)
        usage.add = lambda *_: None  # type: ignore[method-assign]  # time stands still
        app: Any = pilot.app
        app.usage = app.screen.query_one(Activity)._usage = usage
        await pilot.press("l", "j")
        await pilot.pause(1.5)  # a second goes by: it is drawn so

    assert snap_compare(console_on(database.url, tmp_path), terminal_size=SIZE, run_before=look)


def test_launch(snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")  # the form shows the directory
    database = busy_machine(tmp_path)

    async def look(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        await pilot.press("n")
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await pilot.press(*"./solve", "space", *"1e-6", "tab", *"16", "tab", "tab", "right")
        await pilot.pause(0.3)

    assert snap_compare(console_on(database.url, tmp_path), terminal_size=SIZE, run_before=look)


def test_run(snap_compare: Compare, tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    path = Path(spool_path(str(tmp_path), 1))
    path.parent.mkdir()
    event = control.control
    exits = [(rank, 0, 0) for rank in range(10)] + [(10, 3, 0), (11, 0, 11)]
    path.write_bytes(
        event({"event": "hello", "at": 1.0, "launcher": 1, "command": "./solve 1e-6", "size": 12, "user": "ada"})
        + event({"event": "started", "at": 1.0, "ranks": [[900 + rank, f"n{rank // 6}"] for rank in range(12)]})
        + b"".join(frames.output(2, rank, b"rank %d: residual 1e-%d\n" % (rank, rank + 2)) for rank in range(12))
        + frames.output(3, 10, b"no convergence\n")
        + b"".join(
            event({"event": "exit", "at": 2.0, "rank": rank, "node": "n1", "status": status, "signal": signal})
            for rank, status, signal in exits
        )
        + event({"event": "end", "at": 2.0, "exit_status": 139, "elapsed_s": 1.5})
    )

    async def look(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        await pilot.press("a")
        await until(pilot, lambda: pilot.app.runs[1].phase is Phase.ENDED, "the end")  # type: ignore[attr-defined]
        await until(pilot, lambda: "exit status 139" in screen_text(pilot.app), "the table")
        await asyncio.sleep(0.3)
        await pilot.pause()

    assert snap_compare(console_on(database.url, tmp_path), terminal_size=SIZE, run_before=look)
