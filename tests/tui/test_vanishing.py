"""Launchers, nodes and processors that vanish between a change and the next time something is drawn."""

from __future__ import annotations

import gc
import os
import random
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from textual import events

from console.tui.app import ConsoleApp
from console.tui.screens.base import Page
from console.tui.screens.dialogs import Choosing, Entry
from console.tui.screens.launch_form import LaunchScreen
from db.machine.nodes import NodeSpec, define_machine, node_up
from redmesh.state import StateObject
from tests.support.chance import long, seed
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine
from tests.support.mariadb import Server, private_server
from tests.support.painted import Watched
from tests.support.scripted_yod import ScriptedYod
from tests.tui.test_jobs import begin, made
from tests.tui.test_painting import agrees

SEED = seed("REDMESH_FUZZ_SEED")
#: The database is a MariaDB that is killed and started again, instead of a file that is gone and is there again.
FUZZ_SERVER = bool(os.environ.get("REDMESH_FUZZ_SERVER"))
COMPARED = 40  # what happens between two looks at every cell
FUZZ_S = long(8.0, 300.0)


def redefine(database: FixedDatabase, nodes: int, slots: int) -> None:
    """The machine has other nodes and processors from now on; what ran is gone."""
    specs = [
        NodeSpec(i + 1, f"n{i}", range(i * slots, (i + 1) * slots), address=f"/run/x/n{i}.sock") for i in range(nodes)
    ]
    boot = f"b{time.monotonic_ns()}"
    define_machine(database.store, "main", boot, "login1", specs)
    for spec in specs:
        node_up(database.store, spec.name, boot, 1, spec.address, "0.1.0")


@pytest.mark.parametrize(
    "action",
    ["choose_tab", "health", "help", "go_to", "command_palette", "show('launch')", "show('nodes')", "show('jobs')"],
)
async def test_a_screen_opens_while_the_console_ends(tmp_path: Path, action: str) -> None:
    """Textual mounts none of its widgets then, and what looked for one ended the console (the monkey, seed 101)."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        pilot.app.exit()
        await app.run_action(action)
        await until(pilot, lambda: not app.is_running, "the end")
    assert app.crash_line == ""
    database.close()


@pytest.mark.parametrize("action", ["choose_tab", "health", "help", "go_to", "command_palette"])
async def test_a_dialog_closes_before_it_is_mounted(tmp_path: Path, action: str) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await app.run_action(action)
        app.pop_screen()
        await pilot.pause()
        await pilot.press("?")
        await until(pilot, lambda: "Keys: mesh" in screen_text(app), "the help")
    database.close()


async def test_a_tab_closes_before_it_is_mounted(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        yod.hello("./solve", 2)
        yod.started(["n0"] * 2)
        for action in (None, "choose_tab", "help"):
            app.attach(1)
            if action:
                await app.run_action(action)
            app.close_run(1)
            await until(pilot, lambda: app.current_mode == "mesh" and app.screen.is_mounted, "the map")
    database.close()


async def test_a_key_waits_for_the_screen_that_the_key_before_has_opened(tmp_path: Path) -> None:
    """A launch's tab had no output to leave yet: AttributeError (the monkey, seed 110)."""
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        yod.hello("./solve", 2)
        yod.started(["n0"] * 2)
        with app._context():
            app.attach(1)
            await app.on_event(events.Key("escape", None))
        await until(pilot, lambda: app.current_mode == "mesh", "the map")
    database.close()


async def test_work_that_was_cancelled_before_it_began_leaves_no_warning(tmp_path: Path) -> None:
    """Python's warning stood on the terminal of a console that had ended (the monkey, seed 102)."""
    database = busy_machine(tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
            for text in ("one", "two"):
                app.copy_to_clipboard(text)
            app.exit()
            app.copy_to_clipboard("three")
            await until(pilot, lambda: not app.is_running, "the end")
        gc.collect()
    assert not [one for one in told if "never awaited" in str(one.message)]
    database.close()


async def test_a_launch_ends_while_its_tab_is_shown_and_the_map_comes_back_resized(tmp_path: Path) -> None:
    """The list of launchers was painted before it heard that one had gone: KeyError."""
    database = busy_machine(tmp_path)
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        yod.hello("./solve", 2)
        yod.started(["n0"] * 2)
        await pilot.press("a")
        await until(pilot, lambda: app.current_mode == "run-1", "the run's tab")
        database.end(1)
        await until(pilot, lambda: 1 not in app.machine.launchers, "it is gone")
        await pilot.resize_terminal(120, 40)
        await pilot.press("m")
        await until(pilot, lambda: "launchers (3)" in screen_text(app), "the map without it")


@pytest.mark.parametrize("tab", ["1", "2", "3", "4", "n"])
async def test_the_machine_shrinks_behind_another_tab(tmp_path: Path, tab: str) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("end", "v", "G", tab)  # the cursor, and a range, on what will be gone
        redefine(database, 1, 2)
        await until(pilot, lambda: app.machine.cells == 2, "a smaller machine")
        await pilot.resize_terminal(100, 30)
        app.action_show("mesh")
        await until(pilot, lambda: "1 node, 2 processors" in screen_text(app), "the map of it")
        await pilot.press("end", "space", "enter", "escape")


async def test_the_map_is_asked_before_it_has_heard_of_a_smaller_machine(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, pilot):
        await pilot.press("end")
        shown = app.screen.query_one("#map")
        redefine(database, 1, 2)
        app.machine.apply(await app._reader.read())  # as the reader does; nobody was told yet
        assert app.machine.cells == 2
        assert (shown.cell, shown.under, shown.launcher) == (None, [], None)
        shown._strips.clear()
        for y in range(shown.size.height):
            shown.render_line(y)
        shown.action_move("down")
        shown.action_extend("left")
        shown.repaint({0, 1, 31})
        assert app.screen.target().processors == [] and app.screen.facts() == {}
        shown.rebuild()
        assert shown.cells == 2 and shown.cursor < 2


class Outages:
    """The database goes and comes."""

    def __init__(self, database: FixedDatabase, server: Server | None) -> None:
        self._path, self._server = database.path, server
        self.away = False

    def turn(self) -> str:
        """It goes, or it is there again."""
        self.away = not self.away
        aside = self._path.with_suffix(".away")
        if self._server is not None:
            self._server.kill() if self.away else self._server.start()
        elif self.away:
            self._path.rename(aside)
        else:
            aside.rename(self._path)
        return "the database goes" if self.away else "the database comes"


class Jobs:
    """Jobs that are made, run, end and are purged, in the hands of this process."""

    def __init__(self, folder: Path, choice: random.Random) -> None:
        self._folder, self._choice = folder, choice
        self._jobs: list[StateObject] = []

    def step(self) -> str:
        """One of that."""
        choice = self._choice
        if not self._jobs or (len(self._jobs) < 4 and choice.random() < 0.1):
            self._jobs.append(made(self._folder, f"job{len(self._jobs)}", choice.choice([1, 30, 700, 200_000])))
            begin(self._jobs[-1], 5)
            return "a job begins"
        job = choice.choice(self._jobs)
        if choice.random() < 0.05:
            self._jobs.remove(job)
            job.finish(choice.choice(["done", "failed"]), "tried")
            job.close()
            if choice.random() < 0.5:
                os.unlink(job.path)
                return "a job is purged"
            return "a job ends"
        running = [number for number, _, state, _ in job.ranges() if state == "running"]
        for number in running[: choice.randrange(4)]:
            job.ended(number, 1, choice.choice([0, 0, 3]), started_at=1.0, ended_at=2.0, lines="a\x1b[2Jb 日本\n")
        job.take(choice.randrange(5), "n1")
        job.log("something 漢字 happened", node="n1")
        job.commit()
        return "a job goes on"

    def close(self) -> None:
        """Lets go of them."""
        for job in self._jobs:
            job.close()


def keys_of(app: ConsoleApp) -> list[str]:
    """What may be pressed on the screen in front without starting, ending or writing anything."""
    quits = {"q", "ctrl+q", "ctrl+c", "ctrl+r", "ctrl+z", "ctrl+p"}
    if isinstance(app.screen, LaunchScreen):
        quits |= {"enter", "ctrl+t", "ctrl+y"}
    bound = {key for _, binding, *_ in app.screen.active_bindings.values() for key in [binding.key]}
    return sorted((bound | {"m", "1", "2", "3", "4", "7", "tab", "escape", "up", "down", "x", "enter"}) - quits)


def mouse(choice: random.Random, app: ConsoleApp) -> str:
    """A click, a drag or the wheel somewhere; with shift, now and then."""
    what = choice.choice(("click", "drag", "wheel", "wheel back"))
    at: list[dict[str, Any]] = [
        {"x": choice.randrange(app.size.width), "y": choice.randrange(1, app.size.height - 1)} for _ in range(2)
    ]  # neither the bar nor the footer: they have what ends the console
    more: dict[str, Any] = {"delta_x": 0, "delta_y": 0, "meta": False, "ctrl": False}
    more |= {"shift": choice.random() < 0.2, "button": 1}
    if what.startswith("wheel"):
        kind = events.MouseScrollDown if what == "wheel" else events.MouseScrollUp
        app.post_message(kind(None, **at[0], **more))
        return f"{what} {at[0]}"
    app.post_message(events.MouseDown(None, **at[0], **more))
    end = at[1] if what == "drag" else at[0]
    if what == "drag":
        app.post_message(events.MouseMove(None, **end, **more))
    app.post_message(events.MouseUp(None, **end, **more))
    return f"{what} {at}"


async def meddle(
    choice: random.Random, database: FixedDatabase, outages: Outages, jobs: Jobs, app: ConsoleApp, pilot: Keyboard
) -> str:
    """One thing happens: a key, the mouse, another size or theme, a launch begins or ends, the machine is another."""
    kinds = {"key": 60, "mouse": 25, "resize": 8, "theme": 2, "put": 10, "end": 12, "machine": 2, "down": 3}
    kinds |= {"job": 10, "outage": 8 if outages.away else 1}
    [what] = choice.choices(list(kinds), list(kinds.values()))
    if what == "key":
        key = choice.choice(keys_of(app))
        await app._press_keys([key])
        return f"key {key}"
    if what == "mouse":
        return mouse(choice, app)
    if what == "theme":
        app.theme = f"redmesh-{choice.choice(('dark', 'light', 'contrast', 'mono'))}"
    if what == "resize":
        size = choice.choice([(80, 24), (100, 30), (120, 40), (200, 60), (40, 12), (60, 50)])
        await pilot.resize_terminal(*size)
        return f"resize {size}"
    if what == "job":
        return jobs.step()
    if what == "outage":
        return outages.turn()
    if outages.away:
        return "nothing"
    if what == "put":
        free = [row.id for row in app.machine.processors if row.launcher is None][: choice.randint(1, 6)]
        if free:
            database.put(Row(tuple(free), "./new", state=choice.choice(["busy", "pending"])))
    elif what == "end" and app.machine.launchers:
        database.end(choice.choice(sorted(app.machine.launchers)))
    elif what == "machine":
        redefine(database, choice.randint(1, 6), choice.randint(1, 8))
    elif what == "down":
        database.down(choice.choice(database.names()))  # the console may not have read a change yet
    return what


@pytest.mark.storm
@pytest.mark.timeout(300 + 2 * FUZZ_S)
async def test_random_keys_sizes_launches_and_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody sees a traceback, nor a cell that is not as the screen has it.

    ``REDMESH_FUZZ_SEED=N`` plays the same again; ``REDMESH_FUZZ_SERVER=1``: with a MariaDB that is killed and
    started.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    with capsys.disabled():
        print(f" seed {SEED} ", end="", flush=True)
    choice = random.Random(SEED)
    cleanup = ExitStack()
    server = cleanup.enter_context(private_server()) if FUZZ_SERVER else None
    database = busy_machine(tmp_path, "" if server is None else server.new_database())
    outages, jobs = Outages(database, server), Jobs(tmp_path, choice)
    cleanup.callback(jobs.close)
    done: list[str] = []
    try:
        async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, (100, 30)) as (app, pilot):
            app.read_only = True
            yod.hello("./solve", 6)
            yod.started(["n0"] * 6)
            until_s = time.monotonic() + FUZZ_S
            terminal = Watched(app)
            while (time.monotonic() < until_s or len(done) <= 20) and app._exception is None:
                done.append(await meddle(choice, database, outages, jobs, app, pilot))
                if len(done) % COMPARED == 0:
                    await agrees(app, pilot, terminal, done[-COMPARED:])
                if choice.random() < 0.3:
                    await pilot.pause(choice.choice([0, 0, 0.02, 0.3]))
    except BaseException as error:
        raise AssertionError(f"seed {SEED}, after {done[-30:]}") from error
    finally:
        cleanup.close()
    assert len(done) > 20


async def test_the_mouse_is_pressed_on_a_text_that_was_just_removed(tmp_path: Path) -> None:
    """The layout still has the text, the text has no parent any more: AttributeError in Textual's selection."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "the form")
        await pilot.pause()
        text = next(one for one in app.screen.query("Static, Label") if one.region and one.allow_select)
        parent, place = text.parent, text.region.offset
        text._parent = None
        try:
            for event in (events.MouseDown, events.MouseMove, events.MouseUp):
                app.screen._forward_event(event(None, *place, 0, 0, 1, False, False, False, *place))
            assert app.screen._select_state is None
        finally:
            text._parent = parent


async def test_a_key_for_a_dialog_whose_widgets_are_gone(tmp_path: Path) -> None:
    """NoMatches: a space behind a key that closed the page (the monkey, seed 3718)."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, pilot):
        page, choosing, entry = Page("p", ["text"]), Choosing("c", [("a", "b", 1)]), Entry("e", str)
        for dialog in (page, choosing, entry):
            await app.push_screen(dialog)
        for closed in (entry.action_give_up, choosing.action_close, page.action_close):
            closed()
            await pilot.pause()
        await until(pilot, lambda: not any([*one.query("*")] for one in (page, choosing, entry)), "they are gone")
        page.action_scroll(1)
        choosing.action_move(1)
        choosing.action_page(1)
        choosing.action_forget()
        entry.action_complete(1)
    assert app.crash_line == ""
    database.close()
