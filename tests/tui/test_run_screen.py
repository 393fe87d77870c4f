"""The run view: ranks, output by rank, signals, the completion table; the yod at the other end is scripted."""

import asyncio
import json
import os
import random
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from textual import events

from agents.wire import control, frames
from console.launch.events.spool import spool_path
from console.tui.app import ConsoleApp
from console.tui.model.filter import parse_filter
from console.tui.model.launch import Phase
from console.tui.model.machine import Launcher
from console.tui.model.output import STDERR
from console.tui.model.patterns import Pattern
from console.tui.model.tabs import KEPT_S
from console.tui.screens.dialogs import Confirm
from console.tui.screens.launch import RunScreen
from console.tui.screens.mesh import MeshScreen
from console.tui.screens.stacks.stacks import StacksScreen
from console.tui.sources.search import _SLICE
from console.tui.widgets.grids.rank_grid import RankGrid
from console.tui.widgets.launch_summary import Completion
from console.tui.widgets.output import OutputPane
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine
from tests.support.scripted_yod import ScriptedYod


def running(yod: ScriptedYod, size: int = 8) -> None:
    yod.hello("/home/ada/programs/solve --grid 64", size)
    yod.event("allocated", launcher=1, partition=1, nodes=[{"name": "n0", "processors": list(range(size))}])
    yod.started(["n0"] * size)


def signals(yod: ScriptedYod) -> list[Any]:
    return [(message["signal"], message["ranks"]) for message in yod.heard if message["op"] == "signal"]


async def test_a_launch_is_watched_to_its_end(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        assert "solve --grid 64 " in screen_text(app) and "/home/ada" not in screen_text(app)
        yod.output(3, b"hello from three\n")
        await until(pilot, lambda: "  3 │ hello from three" in screen_text(app), "what rank 3 wrote")
        for rank in range(6):
            yod.exit(rank)
        yod.exit(6, status=3)
        yod.exit(7, signal=11)
        ends = ("exit 0 6", "failed 1", "signalled 1")
        await until(pilot, lambda: all(end in screen_text(app) for end in ends), "the ranks' ends")
        yod.event("end", exit_status=139, elapsed_s=2.5)
        yod.hang_up()
        await until(pilot, lambda: "exit status 139" in screen_text(app), "the completion table")
        text = screen_text(app)
        assert "exit 139 (SIGSEGV) after 2.5 s" in text and "✗ 1 solve" in text
        assert "rank 6" in text and "SIGSEGV" in text and "rank 0-5" in text
        await until(pilot, lambda: "TERM" not in screen_text(app), "no signal is offered: nothing is left to take it")
        await pilot.press("t")
        assert isinstance(app.screen, RunScreen)


async def test_keys_work_while_the_history_is_still_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = busy_machine(tmp_path)
    wait = asyncio.Event()
    read = ConsoleApp.history

    async def held(self: ConsoleApp, limit: int) -> list[Launcher]:
        await wait.wait()
        return await read(self, limit)

    monkeypatch.setattr(ConsoleApp, "history", held)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "the launch")
        wait.set()


async def test_signals_go_to_all_ranks_or_to_the_one_that_is_shown(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (140, 70)) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        await pilot.press("u", "y", "U", "y")
        await until(pilot, lambda: len(signals(yod)) == 2, "two signals")
        await pilot.press("shift+tab", "l", "l", "enter")
        await until(pilot, lambda: app.screen.query_one(OutputPane).scope == {2}, "rank 2 alone")
        await pilot.press("u", "y")
        await until(pilot, lambda: len(signals(yod)) == 3, "a third")
        assert signals(yod) == [(10, None), (12, None), (10, [2])]
        await pilot.press("l", "space")  # rank 3 too
        await until(pilot, lambda: app.screen.query_one(OutputPane).scope == {2, 3}, "two ranks")
        await pilot.press("question_mark")
        await until(pilot, lambda: "yod -signal USR1 1 2-3" in screen_text(app), "the same in a shell")
        await pilot.press("escape", "t")
        await until(pilot, lambda: "yod -signal TERM 1 2-3" in screen_text(app), "and in the question")
        await pilot.press("escape", "a", "question_mark")
        await until(pilot, lambda: "yod -signal USR1 1 " in screen_text(app), "all ranks again")
        assert "USR1 1 2" not in screen_text(app)


async def test_signals_that_may_end_a_program_ask_and_enter_is_cancel(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        for key in ("t", "K", "u", "U"):
            for answer in ("enter", "escape", "n", "q"):
                await pilot.press(key)
                await until(pilot, lambda: "all 8 ranks of launcher 1?" in screen_text(app), "the question")
                await pilot.press(answer)
                await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run view again")
        await pilot.pause()
        assert signals(yod) == []
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "the question")
        await pilot.press("y")
        await until(pilot, lambda: signals(yod) == [(15, None)], "TERM is sent")
        await pilot.press("K")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "the question")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: signals(yod) == [(15, None), (9, None)], "KILL is sent")


async def test_keys_typed_ahead_of_a_question_answer_it_once(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "the question")
        question = app.screen
        assert isinstance(question, Confirm)
        question.action_answer(False)
        question.action_answer(True)
        question.action_answer(False)
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the question is gone")
        await pilot.pause(0.1)
        assert signals(yod) == []


async def test_output_of_one_rank_alone(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        for step in range(3):
            for rank in range(8):
                yod.output(rank, b"rank %d step %d\n" % (rank, step))
        yod.output(5, b"trouble\n", STDERR)
        await pilot.press("a")
        await until(pilot, lambda: "trouble" in screen_text(app), "the output")
        await pilot.press("]")
        await until(pilot, lambda: "output of rank 0" in screen_text(app), "rank 0 alone")
        assert "rank 0 step 2" in screen_text(app) and "rank 1" not in screen_text(app)
        for _ in range(5):
            await pilot.press("]")
        await until(pilot, lambda: "output of rank 5" in screen_text(app), "rank 5 alone")
        assert "  5 ┊ trouble" in screen_text(app)
        yod.output(5, b"more of it\n")
        yod.output(4, b"somebody else\n")
        await until(pilot, lambda: "more of it" in screen_text(app), "its new line")
        assert "somebody else" not in screen_text(app)
        await pilot.press("a")
        await until(pilot, lambda: "somebody else" in screen_text(app), "all ranks again")


async def test_scrolling_up_stops_following_and_the_lines_stay_put(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        yod.output(0, b"".join(b"line %d\n" % n for n in range(30_000)))
        await pilot.press("a")
        await until(pilot, lambda: "line 29999" in screen_text(app), "the newest line")
        pane = app.screen.query_one(OutputPane)
        await pilot.press("ctrl+b", "k")
        await until(pilot, lambda: "paused" in screen_text(app), "that it does not follow")
        shown = re.findall(r"line 299\d\d", screen_text(app))
        assert shown and not pane.following
        yod.output(0, b"".join(b"later %d\n" % n for n in range(3_000)))  # enough to drop old lines
        await until(pilot, lambda: app.runs[1].output.end == 33_000, "more output")
        await pilot.pause(0.3)
        assert re.findall(r"line 299\d\d", screen_text(app)) == shown
        await pilot.press("G")
        await until(pilot, lambda: "later 2999" in screen_text(app), "the end again")
        assert pane.following


async def test_a_detached_launch_that_is_over_is_read_from_its_spool(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    path = Path(spool_path(str(tmp_path), 1))
    path.parent.mkdir()
    path.write_bytes(
        control.control({"event": "hello", "at": 1.0, "launcher": 1, "command": "hostname", "size": 1, "user": "ada"})
        + control.control({"event": "started", "at": 1.0, "ranks": [[5, "n0"]]})
        + frames.output(frames.STDOUT, 0, b"node-zero\n")
        + control.control(
            {"event": "exit", "at": 2.0, "rank": 0, "node": "n0", "status": 0, "signal": 0, "elapsed_s": 1.0}
        )
        + control.control({"event": "end", "at": 2.0, "exit_status": 0, "elapsed_s": 1.0})
    )
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: "exit status 0" in screen_text(app), "its end")
        assert "node-zero" in screen_text(app) and "✓ 1 hostname" in screen_text(app)


async def test_one_press_searches_what_is_spooled_and_escape_stops_where_n_goes_on(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    path = Path(spool_path(str(tmp_path), 1))
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(control.control({"event": "hello", "at": 1.0, "launcher": 1, "command": "x", "size": 1}))
        file.write(control.control({"event": "started", "at": 1.0, "ranks": [[5, "n0"]]}))
        file.write(frames.output(frames.STDOUT, 0, b"the needle\n"))
        for part in range(50):
            data = b"".join(b"line %d of part %d\n" % (line, part) for line in range(500))
            file.write(frames.output(frames.STDOUT, 0, data))
        file.write(control.control({"event": "end", "at": 2.0, "exit_status": 0}))
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: "exit status 0" in screen_text(app), "its end")
        screen, pane = app.screen, app.screen.query_one(OutputPane)
        assert isinstance(screen, RunScreen) and app.runs[1].output.first > 2 * _SLICE
        await pilot.press("slash", *"needle", "enter")
        await until(pilot, lambda: pane._hit == 0 and "the needle" in screen_text(app), "the first line, not in memory")
        await pilot.press("G", "slash", *"no such line", "enter")
        await until(pilot, lambda: "no match" in screen_text(app), "that there is none")
        await pilot.press("slash", *"needl.", "enter")
        await until(pilot, lambda: pane._hit == 0, "it is found again")
        await pilot.press("G", "slash", *"n..dle", "enter")
        await until(pilot, lambda: pane._hit == 0, "and again")
        pane.search = Pattern("needle$")
        pane.action_follow()
        pane.find(-1)
        assert pane.searching
        screen.action_back()
        assert not pane.searching and pane.search is not None, "escape ends the search that runs, not the searching"
        await pilot.press("N")
        await until(pilot, lambda: pane._hit == 0, "it went on")
        await pilot.press("G", "slash", *"nee+dle", "enter")
        await until(pilot, lambda: pane._hit == 0, "a search upwards")
        pane.search = Pattern("needle ?$")
        pane.action_follow()
        pane.find(-1, everywhere=True)
        assert pane.searching
        screen.action_back()
        await pilot.press("n")
        await until(
            pilot, lambda: pane._hit == 0, "the next match is where it was going, not in what it looked through"
        )
        await pilot.press("escape", "n")
        await until(pilot, lambda: app.current_mode == "launch", "the second escape ends it all")


async def test_filter_gathering_and_stacks_reach_what_is_spooled_alone(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    path = Path(spool_path(str(tmp_path), 1))
    path.parent.mkdir()
    traceback = b'Traceback (most recent call last):\n  File "heat.py", line 7, in inner\nValueError: boom\n'
    with path.open("wb") as file:
        file.write(control.control({"event": "hello", "at": 1.0, "launcher": 1, "command": "x", "size": 2}))
        file.write(control.control({"event": "started", "at": 1.0, "ranks": [[5, "n0"], [6, "n0"]]}))
        file.write(frames.output(frames.STDERR, 0, traceback))
        for rank in (0, 1):
            file.write(frames.output(frames.STDOUT, rank, b"the needle\n"))
        for part in range(50):
            data = b"".join(b"line %d of part %d\n" % (line, part) for line in range(500))
            file.write(frames.output(frames.STDOUT, 1, b"a" * 60 + b"!\n" + data))
        for rank, status in ((0, 1), (1, 0)):
            file.write(control.control({"event": "exit", "rank": rank, "status": status, "signal": 0, "elapsed_s": 1}))
        file.write(control.control({"event": "end", "at": 2.0, "exit_status": 1}))
    async with opened(database.url, tmp_path) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: "exit status 1" in screen_text(app), "its end")
        pane = app.screen.query_one(OutputPane)
        assert app.runs[1].output.first > 1_000
        await pilot.press("f", *"needle", "enter")
        await until(pilot, lambda: "0 │ the needle" in screen_text(app), "what left memory")
        await pilot.press("equals_sign")
        await until(pilot, lambda: "0-1 │ the needle" in screen_text(app) and not pane.covered, "in one row")
        await pilot.press("equals_sign", "escape", "s")
        await until(pilot, lambda: "inner heat.py:7" in screen_text(app), "the traceback")
        await pilot.press("escape")
        pane.wanted = parse_filter("(a|aa)+$")
        assert pane._sifts is None, "the spool is not read for a filter that was dropped"
        path.unlink()
        await pilot.press("f", *"needle", "enter")
        await until(pilot, lambda: pane.covered.startswith("in the newest 2"), "what was looked at")
        await pilot.press("s")
        await until(pilot, lambda: "no traceback of any rank" in screen_text(app), "that there is none")


async def test_an_endless_expression_ends_by_itself_and_is_named(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, size=(140, 30)) as (app, pilot):
        running(yod)
        yod.output(0, b"a" * 60 + b"!\nthe end\n")
        await watched(yod, app, pilot)
        await until(pilot, lambda: "the end" in screen_text(app), "the output")
        await pilot.press("f", *"(a|aa)+$")
        await until(pilot, lambda: "takes more than" in screen_text(app), "why it does not filter, in the open line")
        assert "the end" in screen_text(app), "nothing is filtered"
        await pilot.press("escape", "f", *"(a|aa)+$", "enter")
        await until(pilot, lambda: "the filter was dropped" in screen_text(app), "the same in a note")
        await pilot.press("slash", *"(a|aa)+$", "enter")
        await until(pilot, lambda: "the search stopped" in screen_text(app), "that it cannot be looked for")
        assert app.screen.query_one(OutputPane).search is None


async def test_an_endless_expression_is_dropped_for_a_line_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that a program waits in was looked at beside the others, and ended the console; and a refused
    expression was tried again for it."""
    database = busy_machine(tmp_path)
    tried: list[str] = []
    search = Pattern.search

    def counted(self: Pattern, text: str) -> bool:
        if "|" in self.words:
            tried.append(text)
        return search(self, text)

    monkeypatch.setattr(Pattern, "search", counted)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, size=(140, 30)) as (app, pilot):
        running(yod)
        yod.output(0, b"the end\n" + b"a" * 60 + b"! name: ")
        await watched(yod, app, pilot)
        await until(pilot, lambda: "! name:" in screen_text(app), "the line without an end")
        app.screen.query_one(OutputPane).wanted = parse_filter("(a|aa)+$")
        await until(pilot, lambda: "the filter was dropped" in screen_text(app), "why it does not filter")
        assert "the end" in screen_text(app) and "! name:" in screen_text(app)
        yod.output(0, b"\n")
        await until(pilot, lambda: app.runs[1].output.end == 2, "the end of the line")
        tried.clear()
        app.screen.query_one(OutputPane).wanted = parse_filter("(a|aa|aaa)+$")
        yod.output(1, b"b" * 40)
        await until(pilot, lambda: app.screen.query_one(OutputPane).wanted == parse_filter(""), "dropped again")
        assert len(tried) == 2, tried
    database.close()


async def test_escape_takes_back_a_filter_that_is_typed(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        yod.output(0, b"alpha\nbeta\n")
        await watched(yod, app, pilot)
        await pilot.press("f", *"alpha", "enter")
        await until(pilot, lambda: "beta" not in screen_text(app), "a filter")
        await pilot.press("f", *"x")
        await until(pilot, lambda: "filtered: x" in screen_text(app), "another one instead, while it is typed")
        await pilot.press("escape")
        await until(pilot, lambda: "filtered: alpha " in screen_text(app), "the first one again")


async def test_yod_goes_in_the_middle_and_the_spool_has_the_rest(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        yod.output(0, b"first\n")
        said = bytes(yod._said)
        path = Path(spool_path(str(tmp_path), 1))
        path.parent.mkdir()
        path.write_bytes(
            said + frames.output(2, 0, b"second\n") + control.control({"event": "end", "at": 2.0, "exit_status": 0})
        )
        await pilot.press("a")
        await until(pilot, lambda: "first" in screen_text(app), "what came before")
        yod.hang_up()
        await until(pilot, lambda: app.runs[1].phase is Phase.ENDED, "the end, from the spool")
        assert [line.text for line in app.runs[1].output.lines(0)] == ["first", "second"]


async def test_a_launch_out_of_sight_is_attached_to_again(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        yod.hang_up()
        await until(pilot, lambda: "out of sight" in screen_text(app), "that it is out of sight")
        await until(pilot, lambda: "Re-attach" in screen_text(app) and "TERM" not in screen_text(app), "the keys")
        await pilot.press("r")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks, again")


async def test_a_peer_that_talks_nonsense_is_left_without_a_traceback(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        yod.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await pilot.press("a")
        await until(pilot, lambda: "no frame begins with byte 72" in screen_text(app), "what was wrong")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MeshScreen), "back on the map")


async def test_a_flood_leaves_the_keys_alive_and_memory_bounded(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        lines = b"".join(
            b"%07d ................................................................\n" % n for n in range(800)
        )
        for _ in range(200):  # 12 MB, 160,000 lines
            yod.output(1, lines)
        await pilot.press("a")
        await until(pilot, lambda: app.screen.query(RankGrid), "the run view")
        grid = app.screen.query_one(RankGrid)
        await pilot.press("b", "shift+tab")
        for step in range(1, 6):
            await pilot.press("l")
            await until(pilot, lambda n=step: grid.cursor == n, "the cursor moves")
        output = app.runs[1].output
        await until(pilot, lambda: output.end == 160_000, "all of it")
        assert len(output) < 23_000


async def test_several_launches_have_a_tab_each(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as one, ScriptedYod(tmp_path, 4) as four:
        running(one)
        four.hello("./ring 4", 4)
        four.started(["n1"] * 4)
        async with opened(database.url, tmp_path) as (app, pilot):
            await pilot.press("a")
            await until(pilot, lambda: "▸ 1 solve" in screen_text(app), "the first tab")
            await pilot.press("m", "tab", "G", "enter")
            await until(pilot, lambda: "▸ 4 ring" in screen_text(app), "the second tab")
            four.output(0, b"from the ring\n")
            await until(pilot, lambda: "from the ring" in screen_text(app), "its output")
            await pilot.press("less_than_sign")
            await until(pilot, lambda: app.current_mode == "run-1", "the first tab again")
            one.output(0, b"from the solver\n")
            four.output(0, b"behind the curtain\n")
            await until(pilot, lambda: "from the solver" in screen_text(app), "its output")
            await pilot.press("greater_than_sign")
            await until(pilot, lambda: "behind the curtain" in screen_text(app), "what came while nobody looked")
            await pilot.press("x")
            await until(pilot, lambda: list(app.runs) == [1], "one tab is closed")


async def test_a_launcher_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    [launcher] = database.put(Row((0,), "secret", "eve"))
    database.store.run(lambda t: t.change(f"UPDATE launcher SET uid = 12345, changed = {t.stamp}"))
    async with opened(database.url, tmp_path) as (app, pilot):
        await until(pilot, lambda: app.machine.launchers, "the launcher")
        real = os.geteuid
        os.geteuid = lambda: 1000
        try:
            app.attach(launcher)
        finally:
            os.geteuid = real
        assert not app.runs


async def watched(yod: ScriptedYod, app: ConsoleApp, pilot: Keyboard) -> None:
    app.attach(yod.launcher)
    await until(pilot, lambda: yod.launcher in app.runs and app.runs[yod.launcher].live, "it is watched")


async def test_output_is_filtered_searched_and_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        for rank in range(8):
            yod.output(rank, b"step 1 of 2\nalpha %d\n" % rank)
        yod.output(3, b"watch out\n", frames.STDERR)
        await watched(yod, app, pilot)
        await until(pilot, lambda: "watch out" in screen_text(app), "the output")
        await pilot.press("f", *"rank:2-3")
        await until(pilot, lambda: "alpha 4" not in screen_text(app), "the filter works while it is typed")
        await pilot.press(*" stream:out [")
        await until(pilot, lambda: "not a regular expression" in screen_text(app), "what is wrong with it")
        await pilot.press("backspace", "backspace", "enter")
        await until(pilot, lambda: "output · filtered" in screen_text(app), "it is kept")
        assert "watch out" not in screen_text(app) and "alpha 3" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "watch out" in screen_text(app), "escape ends the filter")
        await pilot.press("equals_sign")
        await until(pilot, lambda: "0-7 │ step 1 of 2" in screen_text(app), "equal lines are one row")
        await pilot.press("equals_sign", "slash", *"alpha 2", "enter")
        pane = app.screen.query_one(OutputPane)
        await until(pilot, lambda: pane._hit is not None, "it is found")
        assert pane._rows.line(pane._row_of(pane._hit or 0)).text == "alpha 2"
        notes: list[str] = []  # a note is shown for 3 s, which a busy machine can miss
        show = app.notify
        monkeypatch.setattr(app, "notify", lambda told, **words: (notes.append(told), show(told, **words)))
        await pilot.press("n")
        await until(pilot, lambda: notes == ["no more matches below"], "there is one only")
        assert app.current_mode == "run-1", "n is the search's while there is one"
        await pilot.press("escape", "n")
        await until(pilot, lambda: app.current_mode == "launch", "and the form's after it")


async def test_marked_ranks_are_meant(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await watched(yod, app, pilot)
        app.screen.query_one(RankGrid).focus()
        await pilot.press("l", "space", "l", "space")
        await until(pilot, lambda: "output of ranks 1,3" in screen_text(app), "two ranks")
        await pilot.press("u", "y")
        await until(pilot, lambda: signals(yod) == [(10, [1, 3])], "they get the signal")


async def test_a_line_for_the_ranks(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        yod.event("hello", launcher=1, command="cat", size=1, user="ada", state="running", input=True)
        yod.started(["n0"])
        await watched(yod, app, pilot)
        await pilot.press("i", *"yes", "enter", *"no", "enter", "ctrl+d")
        await until(pilot, lambda: {"op": "eof"} in yod.heard, "its end")
        assert [one["data"] for one in yod.heard if one["op"] == "input"] == ["yes\n", "no\n"]


async def test_ranks_that_exit_badly_are_told_while_others_run(tmp_path: Path) -> None:
    def dies(rank: int) -> None:
        text = f"rank {rank} on n0: SIGSEGV (Segmentation fault), 0.5 s"
        end = {"ranks": [rank], "nodes": ["n0"], "status": 0, "signal": 11, "core": False, "text": text}
        yod.exit(rank, signal=11)
        yod.event("bad_exit", launcher=1, ends=[end], running=6, size=8, still="0-1,4-7", stop="yod -signal TERM 1")

    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        dies(2)
        await until(pilot, lambda: "rank 2 on n0: SIGSEGV" in screen_text(app), "the note")
        await until(pilot, lambda: "1 of 8 ranks ended badly" in screen_text(app), "the heading")
        await pilot.press("m")
        await until(pilot, lambda: app.current_mode == "mesh", "another tab")
        dies(3)
        await until(pilot, lambda: "solve (1): rank 3 on n0: SIGSEGV" in screen_text(app), "a message")


async def test_a_held_launch_is_released(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await watched(yod, app, pilot)
        await pilot.press("R")
        assert not any(one["op"] == "release" for one in yod.heard), "it is not held"
        yod.event("held", launcher=1)
        await until(pilot, lambda: "held at the first instruction" in screen_text(app), "that it is held")
        await pilot.press("R")
        await until(pilot, lambda: {"op": "release"} in yod.heard, "it is let go")
        yod.event("released", launcher=1)
        await until(pilot, lambda: "held at the first" not in screen_text(app), "and runs")


async def test_what_is_shown_is_saved(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    target = tmp_path / "saved.txt"
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        for rank in range(8):
            yod.output(rank, b"from %d\n" % rank)
        await watched(yod, app, pilot)
        await until(pilot, lambda: "from 7" in screen_text(app), "the output")
        await pilot.press("w", "ctrl+u")
        await pilot.paste(str(target))
        await pilot.press("enter")
        await until(pilot, target.exists, "the file")
        await until(pilot, lambda: "8 lines in" in screen_text(app), "how much")
        assert target.read_text().splitlines() == [f"{rank}: from {rank}" for rank in range(8)]
        await pilot.press("w", "ctrl+u")
        await pilot.paste(str(target))
        await pilot.press("enter")
        await until(pilot, lambda: "Write over it?" in screen_text(app), "a question")
        target.write_text("mine")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "enter is Cancel")
        assert target.read_text() == "mine"


async def test_the_rank_that_failed_first_is_the_first_row_and_its_stack_opens_with_its_source(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    source = tmp_path / "crash.c"
    source.write_text("/* 1 */\nint main(void) {\n    return *(int *)0; // the fault\n}\n")
    frames_ = [["main", f"{source}:3", "/home/ada/crash", 1], ["_start", "", "/home/ada/crash", 2]]
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 36)) as (app, pilot):
        running(yod, 9)
        await watched(yod, app, pilot)
        yod.event("backtrace", rank=5, node="n0", signal=11, tool="eu-stack", note="", threads=[[7, "", frames_]])
        yod.exit(5, 0, 11)
        for rank in (0, 1, 2, 3, 4, 6, 7, 8):
            yod.exit(rank, 0, 15, by_yod=True)
        yod.event("end", exit_status=139, elapsed_s=1.0)
        await until(pilot, lambda: "enter shows the stacks" in screen_text(app), "the table")
        text = screen_text(app)
        assert "–  ended by yod 8" in text and "◆  first to fail: rank 5" in text and text.count("◆") == 3
        assert text.index("◆  SIGSEGV") < text.index("–  SIGTERM (by yod)")
        app.screen.query_one(Completion).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "▶3" in screen_text(app), "the source line")
        text = screen_text(app)
        assert isinstance(app.screen, StacksScreen) and "main crash.c:3" in text and "// the fault" in text
        await pilot.press("s", "a", "t")  # nothing can be taken again, and nothing is left to take a signal
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "back to the launch")
        app.screen.query_one(Completion).focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.screen.query_one(OutputPane).scope, "the other row has no stacks")
        await pilot.press("s")
        await until(pilot, lambda: "yod -bt keeps the stacks" in screen_text(app), "how to get them")


async def test_a_python_exception_in_a_thread_opens_at_the_users_line(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    source = tmp_path / "solve.py"
    source.write_text("def work():\n    raise ValueError('the cause')\n")
    traceback = (
        f'Traceback (most recent call last):\n  File "{threading.__file__}", line 12, in run\n    run()\n'
        f'  File "{source}", line 2, in work\n    raise\n  File "{json.__file__}", line 1, in loads\nValueError: x\n'
    )
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 36)) as (app, pilot):
        running(yod, 2)
        await watched(yod, app, pilot)
        yod.output(1, traceback.encode(), STDERR)
        yod.exit(1, 1)
        yod.exit(0, 0, 15, by_yod=True)
        yod.event("end", exit_status=1, elapsed_s=1.0)
        await until(pilot, lambda: "enter shows the stacks" in screen_text(app), "the table")
        await pilot.press("s")
        await until(pilot, lambda: "▶2" in screen_text(app), "the source line")
        assert "raise ValueError('the cause')" in screen_text(app)


async def test_nothing_is_changed_while_the_console_only_reads(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await watched(yod, app, pilot)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.read_only, "it only reads")
        await pilot.press("u", "K", "t", "i")
        assert signals(yod) == [] and isinstance(app.screen, RunScreen)
        await pilot.press("ctrl+r", "u", "y")
        await until(pilot, lambda: signals(yod) == [(10, None)], "and acts again")


async def test_the_output_alone_on_the_whole_terminal_by_one_key_and_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 24)) as (app, pilot):
        running(yod)
        yod.output(0, b"".join(b"line %d\n" % number for number in range(100)))
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app) and "line 99" in screen_text(app), "the output")
        assert "Redmesh" in screen_text(app) and "following" in screen_text(app)
        await pilot.press("z")
        await until(pilot, lambda: "Redmesh" not in screen_text(app), "nothing but the output")
        text = screen_text(app)
        assert "running 8" not in text and "line 78" in text and "1 solve" in text and "following" in text
        await pilot.press("g")
        await until(pilot, lambda: "  0 │ line 0" in screen_text(app), "the oldest line")
        await until(pilot, lambda: re.search("paused, 78 more below, G follows", screen_text(app)), "it says so")
        await pilot.press("z")
        await until(pilot, lambda: "Redmesh" in screen_text(app) and "running 8" in screen_text(app), "all again")


async def test_long_lines_and_notes_are_wrapped(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    long = "".join(f"<{number:03}>" for number in range(60))
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        yod.output(0, b"".join(b"line %d\n" % number for number in range(25)) + long.encode() + b"\nlast\n")
        await pilot.press("a")
        await until(pilot, lambda: "last" in screen_text(app) and "running 8" in screen_text(app), "the output")
        assert "<000>" in screen_text(app) and "<059>" not in screen_text(app)
        await pilot.press("W")
        await until(pilot, lambda: "<059>" in screen_text(app), "all of the long line")
        text = screen_text(app)
        shown = re.sub(r"[^<>0-9]", "", "".join(row[6:] for row in text.split("\n") if "<" in row))
        assert shown == long and "last" in text and "line 24" in text
        pane = app.screen.query_one(OutputPane)
        seen = set()
        for _ in range(20):  # every line of the screen can be reached, one at a time
            seen.add(screen_text(app).split("\n")[4])
            await pilot.press("k")
        assert not pane.following and "line 0" in screen_text(app)
        assert len(seen) > 9
        await pilot.press("W", "G")
        await until(pilot, lambda: "<059>" not in screen_text(app) and "last" in screen_text(app), "cut again")
        yod.event("note", node="n1", text="a note of many words " * 8 + "to its end")
        await until(pilot, lambda: "to its end" in screen_text(app), "a note is always wrapped")


async def test_a_launch_that_has_ended_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, looked = [0], [0]
    draw, look = RunScreen._draw, RunScreen._draw_news

    def count_drawn(self: RunScreen) -> None:
        drawn[0] += 1
        draw(self)

    def count_looked(self: RunScreen) -> None:
        looked[0] += 1
        look(self)

    monkeypatch.setattr(RunScreen, "_draw", count_drawn)
    monkeypatch.setattr(RunScreen, "_draw_news", count_looked)
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await watched(yod, app, pilot)
        yod.output(0, b"last words\n")
        yod.event("end", exit_status=0, elapsed_s=2.0)
        await until(pilot, lambda: "last words" in screen_text(app) and "exit 0 after" in screen_text(app), "the end")
        before = looked[0]
        await until(pilot, lambda: looked[0] > before + 3, "three times nothing new")
        settled, before = drawn[0], looked[0]
        await until(pilot, lambda: looked[0] > before + 3, "three times nothing new")
        assert drawn[0] == settled
        await pilot.press("equals_sign")
        await until(pilot, lambda: drawn[0] > settled, "drawn after a key")


@pytest.mark.parametrize("wrap", [True, False], ids=["wrapped output", "a note"])
async def test_wrapped_lines_are_placed_again_for_another_width(tmp_path: Path, wrap: bool) -> None:
    """A wider pane was painted with the positions of the narrow one: IndexError."""
    database = busy_machine(tmp_path)
    long = "".join(f"<{number:03}>" for number in range(100))
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (60, 24)) as (app, pilot):
        running(yod)
        yod.output(0, long.encode() + b"\nlast\n") if wrap else yod.event("note", node="n1", text=long)
        await pilot.press("a", *(["W"] if wrap else []))
        pane = app.screen.query_one(OutputPane)

        def whole() -> bool:
            shown = "".join(row.text[pane._margin :].rstrip() for row in map(pane.render_line, range(pane.size.height)))
            return long in shown.replace("\n", "")

        await until(pilot, whole, "all of the long line")
        for columns, rows in ((130, 24), (60, 40), (200, 60), (61, 20), (160, 24)):
            await pilot.resize_terminal(columns, rows)
            await until(pilot, lambda columns=columns: app.size.width == columns and whole(), f"{columns} columns")
        for key in ("z", "z", "b", "b", "k", "G", "t"):
            await pilot.press(key)
            await until(pilot, whole, key)


async def test_the_ranks_are_folded_where_there_is_no_room_for_them(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (99, 30)) as (app, pilot):
        running(yod, 4)
        await pilot.press("a")
        await until(pilot, lambda: "running 4" in screen_text(app), "all ranks run")
        grid = app.screen.query_one(RankGrid)
        pane = app.screen.query_one(OutputPane)
        assert not grid.region and pane.region.width == 99
        await pilot.press("b")
        await until(pilot, lambda: grid.region.width, "the ranks unfolded")
        assert grid.region.width < 30, "no wider than four ranks need"
        await pilot.press("b")
        await until(pilot, lambda: pane.region.width == 99, "folded again")
        assert "running 4" in screen_text(app)


async def test_n_is_next_in_a_search_alone_and_the_footer_says_so(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (160, 30)) as (app, pilot):
        running(yod)
        yod.output(0, b"".join(b"line %d\n" % number for number in range(100)))
        await pilot.press("a")
        await until(pilot, lambda: "line 99" in screen_text(app), "the output")
        footer = lambda: screen_text(app).split("\n")[-1]  # noqa: E731
        assert "n Launch" in footer() and "match" not in footer()
        await pilot.press("slash", *"line 1", "enter")
        await until(pilot, lambda: "n N Next/previous match" in footer(), "the footer tells of matches")
        assert "n Launch" not in footer() and "search /line 1/" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "n Launch" in footer(), "no search any more")


async def test_running_tabs_stand_first_and_those_that_succeeded_close_by_themselves(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with (
        ScriptedYod(tmp_path, 1) as good, ScriptedYod(tmp_path, 2) as bad, ScriptedYod(tmp_path, 3) as runs,
        ScriptedYod(tmp_path, 4) as searched, opened(database.url, tmp_path, (160, 30)) as (app, pilot),
    ):  # fmt: skip
        for yod, status in ((good, 0), (bad, 3), (runs, None), (searched, 0)):
            running(yod, 1)
            await watched(yod, app, pilot)
            if status is not None:
                yod.exit(0, status)
                yod.event("end", exit_status=status, elapsed_s=1.0)
                await until(pilot, lambda yod=yod: app.runs[yod.launcher].phase is Phase.ENDED, "its end")
        bar = lambda: screen_text(app).split("\n")[0]  # noqa: E731
        await until(pilot, lambda: "▸ 3 solve  ✓ 1 solve  ✗ 2 solve  ✓ 4 solve" in bar(), "the one that runs first")
        await pilot.press("slash", *"x", "enter", "m")
        app.close_finished(0.0)
        app.close_finished(KEPT_S - 1)
        assert len(app.runs) == 4
        app.attach(1)
        await until(pilot, lambda: app.current_mode == "run-1", "it is in front")
        app.close_finished(KEPT_S)
        await pilot.press("m")
        app.close_finished(KEPT_S + 1)
        assert len(app.runs) == 4, "it was looked at"
        app.close_finished(2 * KEPT_S + 1)
        await until(pilot, lambda: "▸ 3 solve  ✗ 2 solve  ✓ 4 solve" in bar(), "failed, running and searched ones stay")
        await pilot.press(">", ">")
        await until(pilot, lambda: app.current_mode == "run-2", "the second tab, as in the bar")


async def test_held_ranks_look_held_everywhere_until_they_are_released(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        running(yod)
        yod.event("held", launcher=1)
        await pilot.press("a")
        await until(pilot, lambda: "held 8" in screen_text(app), "the ranks are held")
        text = screen_text(app)
        assert "held at the first instruction" in text and "[‖]" in text and "‖ 1 solve" in text
        assert "R Release" in text and "d Debug" in text
        await pilot.press("m")
        await until(pilot, lambda: "‖ 1" in screen_text(app), "the list of launchers")
        await until(pilot, lambda: "held until it is released" in screen_text(app), "the details")
        assert screen_text(app).count("‖") >= 8
        yod.event("released", launcher=1)
        await until(pilot, lambda: "‖" not in screen_text(app), "the map shows them running")


def styles(app: ConsoleApp, text: str) -> list[str]:
    """The styles of the segments of the screen that begin with a text."""
    strips = app.screen._compositor.render_strips()
    return [str(one.style) for strip in strips for one in strip if one.text.startswith(text)]


async def test_colours_of_programs_are_kept_where_the_theme_has_colours(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        running(yod)
        await pilot.press("a")
        yod.output(3, b"all \x1b[1;32mPASSED\x1b[0m \x1b[31;41mHIDDEN\x1b[0m\n")
        yod.output(4, b"\x1b[1mcc:\x1b[m \x1b[35mwarning\x1b[m rest\n", STDERR)
        await until(pilot, lambda: "all PASSED HIDDEN" in screen_text(app), "the line")
        assert "3 │ all PASSED HIDDEN" in screen_text(app)
        [passed], [hidden] = styles(app, "PASSED"), styles(app, "HIDDEN")
        assert passed == "bold #57bb64 on #14171c"
        front, _, back = hidden.partition(" on ")
        assert front != back
        await until(pilot, lambda: styles(app, " rest"), "standard error")
        assert styles(app, " rest") == ["#d5dbe3 on #14171c"]  # colours of its own are instead of red
        await pilot.press("slash", *"asse", "enter")
        await until(pilot, lambda: styles(app, "ASSE"), "what is looked for, in one piece")
        assert styles(app, "ASSE")[0].endswith("on #e69f00") and styles(app, "P") and styles(app, "D")
        await pilot.press("escape", "y")
        assert app.clipboard.splitlines()[0] == "all PASSED HIDDEN"
        app.theme = "redmesh-mono"
        await until(pilot, lambda: styles(app, "PASSED") == ["bold #e0e0e0 on #101010"], "no colour in monochrome")
        app.theme = "redmesh-light"
        await until(pilot, lambda: styles(app, "PASSED") == ["bold #146e2d on #f7f8fa"], "the light theme's green")


async def test_programs_have_no_colours_with_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        running(yod)
        app.theme = "redmesh-dark"  # mesh console --theme dark
        await pilot.press("a")
        yod.output(3, b"all \x1b[4;32mPASSED\x1b[0m\n")
        await until(pilot, lambda: styles(app, "PASSED"), "the line")
        [style] = styles(app, "PASSED")
        assert style == styles(app, "all ")[0].replace("#", "underline #", 1)


async def test_only_colours_of_programs_are_painted(tmp_path: Path) -> None:
    """Random pieces of escape sequences, in pieces, wrapped, searched and gathered: no control character is painted."""
    chance = random.Random(11)
    pieces = [b"\x1b", b"\x1b[", b"3", b"8", b";", b":", b"m", b"\x1b[31m", b"\x1b[8m", b"\x1b[5m", b"\x1b[2J",
              b"\x1b]0;t\x07", b"\x1b]8;;http://x\x1b\\", b"\r", b"\n", b"\t", b"\x9b", b"\xff", b"a", "漢".encode(),
              "\u0301".encode(), b"\x1b[K", b"\x07", b"\x1bP$q", b"\x1b(B"]  # fmt: skip
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        running(yod)
        await pilot.press("a")
        pane = app.screen.query_one(OutputPane)
        for turn in range(12):
            for _ in range(60):
                data = b"".join(chance.choices(pieces, k=chance.randrange(1, 30)))
                app.runs[1].output.feed(chance.randrange(8), chance.choice((2, 3)), data)
            pane.wrap, pane.gathered = bool(turn & 1), bool(turn & 2)
            pane.search = Pattern("[a漢]") if turn & 4 else None
            pane.update_output(app.wall_clock())
            await pilot.pause()
            for y in range(pane.size.height):
                for text, style, control in pane.render_line(y):
                    assert not re.search("[\x00-\x1f\x7f-\x9f]", text) and not control, text
                    assert style is None or not (style.blink or style.conceal or style.link)


async def test_a_prompt_is_seen_before_its_line_ends(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "nothing written yet" in screen_text(app), "why nothing is shown")
        yod.output(3, b"reading\nContinue? ")
        await until(pilot, lambda: "  3 │ Continue?" in screen_text(app), "the prompt")
        yod.output(3, b"yes\nfine\n")
        await until(pilot, lambda: "  3 │ fine" in screen_text(app), "what came after it")
        assert screen_text(app).count("Continue?") == 1 and "  3 │ Continue? yes" in screen_text(app)
        await pilot.press("f", *"nowhere", "enter")
        told = "no line passes the filter; f changes it, escape ends it"
        await until(pilot, lambda: told in screen_text(app), "why nothing is shown")


async def test_the_footer_has_no_letters_while_a_line_is_typed(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (160, 30)) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")

        def footer() -> str:
            return screen_text(app).split("\n")[-1]

        await until(pilot, lambda: "/ Search" in footer(), "the keys of the run")
        await pilot.press("f")
        await until(pilot, lambda: "esc Leave" in footer(), "the keys of the line")
        assert "Search" not in footer() and "Quit" not in footer()


async def test_what_is_typed_in_one_burst_with_the_key_of_a_line_is_in_the_line(tmp_path: Path) -> None:
    """Only the key was handled before: ``x`` closed the tab, ``K`` asked whether to kill."""
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        running(yod)
        await pilot.press("a")
        await until(pilot, lambda: "running 8" in screen_text(app), "all ranks run")
        for opener, name in (("f", "filter"), ("slash", "look for")):
            for key in (opener, "x", "K", "q"):
                app.post_message(events.Key(key, key if len(key) == 1 else "/"))
            await until(pilot, lambda name=name: f"{name} xKq" in " ".join(screen_text(app).split()), "the line")
            await pilot.press("escape")
            assert isinstance(app.screen, RunScreen)


async def test_keys_right_behind_enter_in_a_line_have_their_effect(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        yod.event("hello", launcher=1, command="cat", size=1, user="ada", state="running", input=True)
        yod.started(["n0"])
        yod.output(0, b"alpha\nbeta\n")
        await watched(yod, app, pilot)
        pane = app.screen.query_one(OutputPane)
        for key in ("f", *"alpha", "enter", "W", "equals_sign", "i", *"yes", "enter", *"no", "enter", "3"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: len([one for one in yod.heard if one["op"] == "input"]) == 2, "both lines")
        assert [one["data"] for one in yod.heard if one["op"] == "input"] == ["yes\n", "no\n"]
        assert pane.wanted == parse_filter("alpha") and pane.wrap and pane.gathered
        await until(pilot, lambda: "to the ranks 3" in " ".join(screen_text(app).split()), "the next line")


async def test_a_filter_by_node_that_was_set_before_the_ranks_started_shows_them(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path) as (app, pilot):
        yod.hello("solve", 2)
        yod.event("allocated", launcher=1, partition=1, nodes=[{"name": "n0", "processors": [0, 1]}])
        await pilot.press("a", "f", "n", "o", "d", "e", "colon", "n", "0")
        await pilot.press("enter")
        yod.started(["n0", "n1"])
        yod.output(0, b"from the first\n")
        yod.output(1, b"from the second\n")
        await until(pilot, lambda: "from the first" in screen_text(app), "what the rank on n0 wrote")
        assert "from the second" not in screen_text(app)
