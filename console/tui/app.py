"""The console application. It hosts no launch and holds no data that could be lost."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console, RenderableType
from textual.binding import Binding, BindingType
from textual.filter import Monochrome
from textual.notifications import Notification, SeverityLevel
from textual.screen import Screen
from textual.signal import Signal
from textual.worker import WorkerFailed

from console.errors import ConsoleError
from console.tui.actions import commands
from console.tui.actions.action import Action
from console.tui.actions.registry import bindings
from console.tui.config import Session, preferences
from console.tui.format import elapsed, program_words
from console.tui.model.health import problems
from console.tui.model.jobs import Job, job_of
from console.tui.model.launch import Phase, Run
from console.tui.model.machine import Changed, Launcher, Machine, State
from console.tui.model.news import Ended, Ends, News, ended
from console.tui.model.observation import Identity, Observation
from console.tui.model.tables import TABLES
from console.tui.model.tabs import Finished, Tab, in_order
from console.tui.model.usage import Usage
from console.tui.model.wrong import Round, Wrong, Wrongs
from console.tui.navigation.links import Link
from console.tui.screens.base import Framed, Page
from console.tui.screens.dialogs import Choosing, Confirm
from console.tui.screens.help import Help, help_sections, key_name
from console.tui.screens.mesh import MeshScreen
from console.tui.screens.navigator import Navigator
from console.tui.sources.database import MachineReader
from console.tui.sources.grown import GrownNodes
from console.tui.terminal import compositor, crash, hangup, notes, removed, sizes, typed, widths, workers
from console.tui.terminal.clipboard import MOST, by_tmux, sequence
from console.tui.terminal.compositor import PromptApp
from console.tui.terminal.stylesheet import ReadOnce
from console.tui.terminal.suspend import TOOLS, can_stop, continued, lend
from console.tui.terminal.themes import MONO, NAMES, THEMES, TOLD, borrowed
from db.errors import StoreError
from redmesh.sanitise import clean
from redmesh.text import counted

if TYPE_CHECKING:
    from textual.driver import Driver

    from console.jobs.waiting import Lines
    from console.settings import Settings
    from console.tui.actions.launch_command import Form
    from console.tui.sources.jobs import JobsReader
    from console.tui.sources.launch import Watch

SERVED = "TEXTUAL_DRIVER"  # a variable of mesh serve: a browser is the terminal
READ_HZ = 4
_HISTORY = 30  # earlier launches that are read when one ends
_HEALTH_EVERY_S = 20.0  # each check runs ``mesh status`` in a separate process
_HEALTH_OLD_S = 3 * _HEALTH_EVERY_S
_FINISHED_EVERY_S = 15.0  # between two looks after tabs of finished launches
_SETTLED_S = 3.0  # after a change of nodes, until the next check
_NOTE_S = 8.0  # how long a note about launches, jobs or problems is in sight
_PROBLEMS = 3  # problems that a note lists; of more, it gives the number
_UNPAINTED_S = 0.3  # the longest time without a picture at the start
#: New objects between two garbage collections. With Python's default of 700, output of 50,000 lines a second causes
#: seventy collections a second. They find nothing, and took a fifth of the time, up to 140 ms each, while keys waited.
_COLLECT_EVERY = 20_000


# Screens other than the map are imported when they are first shown: they are a tenth of the start-up time.


def _launch_form() -> Screen[Any]:
    from console.tui.screens.launch_form import LaunchScreen

    return LaunchScreen()


def _table(name: str) -> Screen[Any]:
    from console.tui.screens.tables import TableScreen

    return TableScreen(name)


def _jobs_table() -> Screen[Any]:
    from console.tui.screens.tables import JobsScreen

    return JobsScreen()


def _run_screen(watch: Watch) -> Screen[Any]:
    from console.tui.screens.launch import RunScreen

    return RunScreen(watch)


def _in_use(screen: Screen[Any]) -> bool:
    return isinstance(screen, Framed) and screen.in_use


compositor.mend()
notes.mend()
removed.mend()
sizes.mend()
typed.mend()
widths.mend()
workers.mend()


class ConsoleApp(PromptApp):
    """Modes: ``mesh``, ``launch``, and ``run-N`` for each watched launch."""

    TITLE = "Redmesh"
    DEFAULT_MODE = "mesh"  # switching to it from another mode draws everything twice
    CSS_PATH = Path(__file__).with_name("app.tcss")
    MODES = {
        "mesh": MeshScreen,
        "launch": _launch_form,
        **{name: partial(_table, name) for name in TABLES},
        "jobs": _jobs_table,
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("app"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, system=True),
    ]

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.machine = Machine()
        self.runs: dict[int, Run] = {}
        self._health: Observation[list[str]] | None = None  # the problems found by mesh status
        self._wrongs = Wrongs(self.machine)
        self._wrong_round = Round()
        self._notes = notes.Notes(self)
        self._ends: dict[str, Ends] = {}  # what the notes of ended launches and jobs report
        self._health_told: list[str] = []  # what the note of problems reports
        self._reading_s = 0.0
        self._leaving: hangup.Leaving | None = None
        self._nodes_changed = asyncio.Event()  # a node came or went: look after health sooner
        self._shown = False  # the first screen may be painted
        self._complete = False  # what is begun after the first reading has begun
        self.trouble = ""  # why the picture is out of date; empty if it is current
        self.crash_line = ""  # the line that is printed after a crash
        self._crash_told = False
        self.read_only = False
        self.guard: crash.TerminalGuard | None = None
        self.replaying = False  # a recording is shown, so nothing can be changed
        self.starting = 0  # launches whose yod has not answered yet; if the console quits now, they are lost
        self.machine_changed: Signal[Changed] = Signal(self, "machine changed")
        self.runs_changed: Signal[int] = Signal(self, "runs changed")
        self.jobs_changed: Signal[set[str]] = Signal(self, "jobs changed")
        self.jobs: dict[int, str] = {}  # jobs with a tab: number and UUID
        self.navigator = Navigator(self)
        self._watches: dict[int, Watch] = {}
        self._finished = Finished()
        self._read_at: float | None = None
        self._reader: Any = MachineReader(settings)
        for theme in THEMES:
            self.register_theme(theme)
        self._grown = GrownNodes(settings.state_dir)
        self.usage = Usage()
        self._news = News()
        self._gone: set[int] = set()  # launchers whose end has not been reported yet
        self._history_read = False
        self.preferences = preferences(settings.console)
        self.read_only = self.preferences.read_only
        self.session = Session(settings.state_dir)
        self.first_start = self.session.fresh  # this user has not used the console before
        self._monochrome = Monochrome(enabled=False)
        self._filters.append(self._monochrome)
        self.set_keymap(dict(self.preferences.keys))
        typed.MEANT.update(key.strip() for keys in self.preferences.keys.values() for key in keys.split(","))
        self.theme = f"redmesh-{self._first_theme()}"
        self.stylesheet = ReadOnce(self.get_css_variables())

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver, which also counts interrupts and can be stopped where the terminal is not a browser."""
        base = super().get_driver_class()
        return base if SERVED in os.environ else continued(hangup.interruptible(base, self._interrupted))

    def _interrupted(self) -> None:
        if self._leaving is not None:
            self._leaving.interrupted()

    def action_suspend_process(self) -> None:
        """^Z: back to the shell, if there is one."""
        if can_stop():
            super().action_suspend_process()
        else:
            self.notify("^Z needs a shell that runs mesh console itself; q leaves, and what runs goes on", timeout=5)

    def action_help_quit(self) -> None:
        """^C: the next one ends the console."""
        self.notify("^C again leaves; what runs goes on", timeout=3)

    def _first_theme(self) -> str:
        if self.no_color:
            return "mono"
        return self.preferences.theme or self.session.theme() or NAMES[0]

    def watch_theme(self, theme: str) -> None:
        """In the monochrome theme, also remove the colours of launchers and ranks, which are the same in all themes."""
        self._monochrome.enabled = theme == MONO.name

    def search_themes(self) -> None:
        """Choose a theme: Redmesh's own first, then Textual's."""
        own = {theme.name: told for theme, told in zip(THEMES, TOLD, strict=True)}
        names = [*own, *sorted(self.available_themes.keys() - own)]
        rows = [(name, own.get(name, "") + (" (now)" if name == self.theme else ""), name) for name in names]

        def chosen(name: str | None) -> None:
            if name is not None:
                self.theme = name

        self.push_screen(Choosing("themes", rows), chosen)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy to the terminal's clipboard, also from inside tmux and over SSH; text that is too long is refused,
        not cut off."""
        size = len(text.encode())
        if size > MOST:
            self.notify(f"{size:,} bytes are too much to copy: save them instead", severity="warning", markup=False)
            return
        self._clipboard = text
        self.run_worker(self._copy(text), group="copying", exclusive=True)

    async def _copy(self, text: str) -> None:
        done = bool(os.environ.get("TMUX")) and await asyncio.to_thread(by_tmux, text)
        if not done and self._driver is not None:
            self._driver.write(sequence(text, os.environ))
        self.notify(
            f"{counted(len(text.splitlines()), 'line', form=',')} copied" if "\n" in text else "copied", timeout=2
        )

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a note. One with the same words replaces the one before."""
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self._notes.tell(f"{severity} {title} {message}", Notification(message, title, severity, seconds, markup))

    def _tell(self, kind: str, message: str, severity: SeverityLevel, title: str = "") -> None:
        """Show a note in place of the one before of its kind."""
        self._notes.tell(kind, Notification(message, title, severity, _NOTE_S))

    def _tell_end(self, noun: str, ends: list[Ended]) -> None:
        """Show a note about ended launches or jobs, together with those that are in sight, and ring the bell."""
        if self.preferences.notes:
            if not self._notes.in_sight(noun):
                self._ends[noun] = Ends(noun)
            told = self._ends[noun]
            told.add(ends)
            self._tell(noun, told.text, "error" if told.bad else "information")
        if self.preferences.bell:
            self.bell()

    def on_descendant_focus(self) -> None:
        """Notes give way to the cursor, also when it moves."""
        if self._notifications:
            self.call_after_refresh(notes.place, self)

    on_cell_grid_moved = on_line_list_moved = on_table_view_moved = on_descendant_focus

    def _unnotify(self, notification: Notification, refresh: bool = True) -> None:
        """A note that goes makes room for older ones."""
        notes.expire(notification)
        super()._unnotify(notification, refresh=True)

    def _check_resize(self) -> None:
        super()._check_resize()
        self._refresh_notifications()  # another window has room for more notes, or for fewer

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The variables of the console's style sheet for Textual's own themes."""
        return borrowed(self.current_theme)

    def on_mount(self) -> None:
        """Begin to read; the map is open. Nothing is painted until it has something to show, or the reading is slow."""
        self._begin_batch()
        self.set_timer(_UNPAINTED_S, self._show_map)
        if self.preferences.restore and not self.replaying:
            self._restore(self.session.launchers())
        self._leaving = hangup.watch(self, self._before_hangup, self.guard)
        # fg after ^Z: the terminal's second screen is empty, and Textual paints what changes alone
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh(layout=True))
        self._reading = self.run_worker(self._read_machine(), name="machine", exit_on_error=True)
        self.set_interval(_FINISHED_EVERY_S, lambda: self.close_finished(time.monotonic()))

    def _restore(self, launchers: list[int]) -> None:
        """Open the tabs of these launches again, as far as their output is still there."""
        if launchers:
            from console.launch.events.spool import spool_path

            for launcher in launchers:
                if os.path.exists(spool_path(self.settings.state_dir, launcher)):
                    self.attach(launcher, show=False)

    def _show_map(self) -> None:
        if not self._shown:
            self._shown = True
            self._end_batch()
            self.screen.refresh(repaint=False, layout=True)  # all of it is still unpainted

    def _begin_the_rest(self) -> None:
        """After the first reading, begin what its picture does not need."""
        if not self._complete:
            self._complete = True
            self.screen.call_next(self._show_map)  # after what the reading has changed on the screen
            self.call_after_refresh(self._follow_jobs_and_health)

    def _follow_jobs_and_health(self) -> None:
        if not self.replaying:
            self._jobs_reader.start()
        if not self.replaying and self.settings.mesh:
            self.run_worker(self._look_after_health(), name="health")

    def on_unmount(self) -> None:
        """Release everything; running launches are not affected."""
        self.keep_session()
        for watch in self._watches.values():
            watch.close()
        self._reading.cancel()  # otherwise it could query a closed reader
        self._reader.close()
        if "_jobs_reader" in self.__dict__:
            self._jobs_reader.close()

    # The machine

    async def _read_machine(self) -> None:
        """Read the machine repeatedly: each picture goes to the model, and the changes to the widgets."""
        shown = (0, "")
        while True:
            before, began = self.trouble, time.monotonic()
            try:
                picture = await self._reader.read()
                self._reading_s = 0.0 if picture.whole else time.monotonic() - began  # reading everything may take long
            except (StoreError, ConsoleError) as error:
                self.trouble = clean(f"{error.message} ({error.hint})" if error.hint else error.message)
                self.machine_changed.publish(Changed(False, set(), False))
                self._begin_the_rest()
                if self.trouble != before:
                    self.notify(self.trouble, severity="error", markup=False, timeout=8)
                await asyncio.sleep(1.0)
                continue
            self.trouble = ""
            read_at, self._read_at = self._read_at, time.monotonic()
            unchanged = picture.counter == self.machine.counter and not picture.whole
            missed = int(self._read_at - read_at) if before and read_at is not None and not self.replaying else 0
            if picture.nodes and self._complete:
                self._nodes_changed.set()
            self.machine.origins = self._grown.read()
            boot_id = self.machine.boot_id
            changed = self.machine.apply(picture)
            if boot_id not in ("", self.machine.boot_id):
                self._notes.remove("health")  # its problems were those of another machine
            self._identify_runs()
            self._gone.update(picture.ended)
            if not unchanged:
                self._jobs_reader.read_line()
            # Publish once a second even if nothing has changed, because widgets show elapsed times; and when the text
            # of a recording's position changes: at half the speed a second lasts two.
            now = (int(picture.now), self.where_told())
            if not unchanged or before or now != shown:
                if now[0] != shown[0]:
                    counts = self.machine.counts()
                    out = counts[State.DOWN] + counts[State.SUSPECT]
                    busy = counts[State.BUSY] + counts[State.PENDING]
                    self.usage.add(busy, self.machine.cells - out, picture.boot_id, missed)
                shown = now
                self.machine_changed.publish(changed)
            # The history comes after the machine: keys work on what was read, however long the history takes.
            due = changed.launchers or self._gone or picture.whole or not self._history_read
            if due and await self._tell_launches():
                self.machine_changed.publish(Changed(False, set(), False))
            self._begin_the_rest()
            if not gc.isenabled():
                gc.freeze()  # what exists now is kept until the console ends: never examine it
                gc.set_threshold(_COLLECT_EVERY)
                gc.enable()
            await asyncio.sleep(1 / READ_HZ)

    def _identify_runs(self) -> None:
        """Keep when the launchers of live tabs were created: a new database counts launchers from 1 again."""
        for number, run in self.runs.items():
            known = self.machine.launchers.get(number)
            if known is not None and run.created_at is None and run.live:
                run.created_at = known.created_at

    def _has_tab(self, row: Launcher) -> bool:
        """True if this launcher has a tab, rather than an earlier one of the same number."""
        run = self.runs.get(row.id)
        return run is not None and run.created_at in (None, row.created_at)

    async def _tell_launches(self) -> bool:
        """Turn starts and ends of launches into events, and ends of the user's own into a note; the ends of the first
        history are old, and need none. Return whether there are new events."""
        fresh = self._news.begun(self.machine.launchers.values())
        first = not self._history_read
        if self._gone or first:
            gone, self._gone = self._gone, set()
            try:
                rows = await self.history(len(gone) + _HISTORY)
            except (StoreError, ConsoleError):
                self._gone |= gone  # the next reading reports the database's problem
            else:
                self._history_read = True
                fresh += self._news.begun(rows)  # also launches that started and ended between two readings
                gone_now = self._news.ended(rows)
                fresh += [event for _, event in gone_now]
                mine = (row for row, _ in gone_now if row.uid == os.geteuid() and not self._has_tab(row))
                own = [row for row in mine if not job_of(row.command)]  # a job's workers: the job reports its own end
                if own and not first and not self.replaying:
                    self._tell_end("launch", [ended(row) for row in own])  # launches with a tab report their own
        if fresh:
            self.machine.tell(self._news.events, fresh)
        return bool(fresh)

    @cached_property
    def _jobs_reader(self) -> JobsReader:
        from console.tui.sources.jobs import JobsReader  # imported after the first picture of the machine

        reader = JobsReader(self.settings.state_dir, self.jobs_changed.publish, self._tell_ended_jobs, self._read_lines)
        self.machine.jobs = reader.jobs
        return reader

    def _read_lines(self) -> Lines | None:
        from console.jobs.waiting import read_lines  # needed only while jobs run

        return read_lines(self.settings)

    def _tell_ended_jobs(self, ended: list[Job]) -> None:
        """Show a note about ended jobs of the user, except the one on the screen."""
        for job in ended:
            if self.current_mode == f"job-{job.id}":
                continue
            told = f"job {job.id} {job.name}".rstrip() + f": {job.state}" + (f", {job.why}" if job.why else "")
            self._tell_end("job", [Ended(job.id, told, job.state != "done")])

    async def _look_after_health(self) -> None:
        """Run ``mesh status`` repeatedly; a note reports new problems, at the first time only how many there are."""
        first = True
        while True:
            of = Identity(self.machine.boot_id)
            try:
                found = problems(await commands.answer(["mesh", "status", "--json"]), self._reading_s)
            except (commands.ActionError, OSError) as error:
                found = [f"mesh status: {clean(str(error))}"]
            if of.mesh != self.machine.boot_id:
                await asyncio.sleep(_SETTLED_S)
                continue  # that was another boot of the mesh, or the time of its start
            before = self.problems
            self._health = Observation(found, time.monotonic(), of, _HEALTH_OLD_S)
            new = [line for line in found if line not in before]
            if new:
                if not self._notes.in_sight("health"):
                    self._health_told = []
                self._health_told = [line for line in self._health_told if line in found] + new
                several = counted(len(self._health_told), "problem")
                listed = f"{several}; 6 lists {'it' if len(self._health_told) == 1 else 'them'}"
                told = listed if first or len(self._health_told) > _PROBLEMS else "\n".join(self._health_told)
                self._tell("health", told, "warning", "mesh status")
            first = False
            if found != before:
                self.runs_changed.publish(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nodes_changed.wait(), _HEALTH_EVERY_S)
                await asyncio.sleep(_SETTLED_S)
            self._nodes_changed.clear()

    def action_health(self) -> None:
        """Show a page with the problems, and when they were looked for if that is long ago."""
        page = self.problems or [
            "everything is as it should be" if self.health_known else "mesh status has not ended yet"
        ]
        old = self._health.old(time.monotonic()) if self._health is not None and self.health_known else ""
        self.push_screen(Page("mesh status", [*([f"{old}:"] if old else []), *page]))

    @property
    def problems(self) -> list[str]:
        """The problems that mesh status has found in this boot of the mesh."""
        return self._health.value if self._health is not None and self.health_known else []

    @property
    def health_known(self) -> bool:
        """Whether mesh status was asked in this boot of the mesh, or is never asked."""
        if not self.settings.mesh or self.replaying:
            return True
        return self._health is not None and self._health.of == Identity(self.machine.boot_id)

    @property
    def wrongs(self) -> tuple[Wrong, ...]:
        """What is wrong with the machine, the worst first."""
        return self._wrongs.now(self.trouble, self.problems, self.runs)

    @property
    def harmed(self) -> Mapping[int, str]:
        """Live launchers on nodes that are down: what became of their ranks."""
        return self._wrongs.launchers if self.wrongs else {}

    @property
    def next_wrong(self) -> int | None:
        """The index in ``wrongs`` of what ``action_wrong`` goes to; None if nothing is wrong."""
        return self._wrong_round.coming(self.wrongs)

    def action_wrong(self, index: int | None = None) -> None:
        """Go to a thing that is wrong; without ``index`` to the worst, and to the next one each further time."""
        found = self.wrongs
        at = self.next_wrong if index is None else index
        if at is None or at >= len(found):
            self.notify("nothing is wrong", timeout=2)
            return
        wrong = found[at]
        self._wrong_round.visit(wrong, found)
        if len(found) > 1:
            self._tell("wrong", f"{at + 1} of {len(found)}: {wrong.text}", "information")
        if wrong.kind == "health":
            self.push_screen(Page("what is wrong", [wrong.text]))
        else:
            self.navigator.open(Link(wrong.kind, wrong.name))

    def where_told(self) -> str:
        """The position in a recording; empty for a live database."""
        return ""

    def picture_age_s(self) -> float | None:
        """Seconds since the last reading of the database; None if there was none."""
        return None if self._read_at is None else time.monotonic() - self._read_at

    def wall_clock(self) -> float:
        """The present time, for comparison with events of launches."""
        return time.time()

    # Launches

    def attach(self, launcher: int, *, command: str = "", size: int = 0, show: bool = True) -> None:
        """Open the launch's tab, and attach if that was not done; ``show``: switch to it."""
        known = self.machine.launchers.get(launcher)
        if launcher in self.runs and known is not None and not self._has_tab(known):
            self.close_run(launcher)
        if launcher not in self.runs:
            job = self._jobs_reader.by_id(job_of(known.command)) if known else None
            if job is not None and show:
                self.open_job(job.number)  # the job's workers write no output that a launch tab could show
                return
            if known is not None and known.uid != os.geteuid() and os.geteuid() != 0:
                self.notify(
                    f"launcher {launcher} belongs to {known.user}: only its user can attach to it",
                    severity="warning",
                    markup=False,
                )
                return
            from console.tui.sources.launch import Watch

            run = Run(launcher, command or (known.command if known else ""), size)
            run.created_at = known.created_at if known else None
            self.runs[launcher] = run
            self._watches[launcher] = Watch(run, self.settings.run_dir, self.settings.state_dir)
            self.add_mode(f"run-{launcher}", partial(_run_screen, self._watches[launcher]))
            self.follow(self._watches[launcher])
            self.keep_session()
        if show:
            self.action_show(f"run-{launcher}")

    def open_job(self, number: int) -> None:
        """Open the job's tab and switch to it."""
        job = self.machine.jobs.get(number)
        if job is None:
            return
        if number not in self.jobs:
            from console.tui.screens.job import JobScreen  # rarely needed at the start

            self.jobs[number] = job.uuid
            self.add_mode(f"job-{job.id}", partial(JobScreen, self._jobs_reader, number))
        self.action_show(f"job-{job.id}")

    def close_job(self, number: int) -> None:
        """Close a job's tab; the job continues."""
        uuid = self.jobs.pop(number, "")
        if uuid:
            if self.current_mode == f"job-{uuid[:8]}":
                self.action_show("jobs")
            self.remove_mode(f"job-{uuid[:8]}")

    def keep_session(self) -> None:
        """Save the open tabs for the next time."""
        name = self.theme.removeprefix("redmesh-")
        self.session.keep(name if name in NAMES else "", list(self.runs))

    def _before_hangup(self) -> None:
        self.keep_session()
        if self.guard is not None:
            self.guard.stand_down()

    def launch_with(self, form: Form) -> None:
        """Open the launch form with these values."""
        from console.tui.screens.launch_form import LaunchScreen

        self.action_show("launch")

        def fill() -> None:
            if isinstance(self.screen, LaunchScreen):
                self.screen.fill(form)

        self.call_after_refresh(fill)

    def launch_on(self, where: str, size: int) -> None:
        """Open the launch form with these processors filled in."""
        from console.tui.screens.launch_form import LaunchScreen

        self.action_show("launch")

        def fill() -> None:
            if isinstance(self.screen, LaunchScreen):
                self.screen.fill_in(where, size)

        self.call_after_refresh(fill)

    def debug_rank(self, launcher: int, rank: int) -> None:
        """Ask the user for a tool, then give the terminal to ``mesh debug`` until it ends."""
        if not self.may_change():
            return

        def chosen(tool: str | None) -> None:
            if tool is not None:
                self.notify(told, severity="error", markup=False) if (
                    told := lend(self, launcher, rank, tool)
                ) else None

        rows = [(tool, does, tool) for tool, does in TOOLS.items()]
        self.push_screen(Choosing(f"mesh debug {launcher} {rank} …", rows), chosen)

    def follow(self, watch: Watch) -> None:
        """Feed a launch's model from its yod until the stream ends."""
        launcher = watch.run.launcher
        work = watch.follow(lambda: self._run_changed(watch))
        self.run_worker(work, group=f"run-{launcher}", exclusive=True)

    def _run_changed(self, watch: Watch) -> None:
        run = watch.run
        self._show_held()
        self.runs_changed.publish(run.launcher)
        self._tell_bad_exit(watch)
        if run.phase is Phase.ENDED and watch.saw_it_run and self.current_mode != f"run-{run.launcher}":
            watch.saw_it_run = False
            took = f" after {elapsed(run.elapsed_s)}" if run.elapsed_s else ""
            told = f"{run.name or 'launcher'} ({run.launcher}): {run.how}{took}"
            self._tell_end("launch", [Ended(str(run.launcher), told, run.failed)])

    def _show_held(self) -> None:
        """Mark held launches on the map, because the database does not know them."""
        cells = self.machine.hold(frozenset(number for number, one in self.runs.items() if one.held and one.live))
        if cells:
            self.machine_changed.publish(Changed(False, cells, True))

    def _tell_bad_exit(self, watch: Watch) -> None:
        """Report failed ranks of a launch that is not on the screen."""
        run, told = watch.run, watch.bad_exits_told
        watch.bad_exits_told = run.bad_exits
        if run.bad_exits > told and run.live and watch.saw_it_run and self.current_mode != f"run-{run.launcher}":
            more = f" (the last of {run.bad_exits:,})" if run.bad_exits > 1 else ""
            words = f"{run.name or 'launcher'} ({run.launcher}): {run.last_bad_exit}{more}"
            self._tell(f"bad exit {run.launcher}", words, "error")

    def close_run(self, launcher: int) -> None:
        """Close a launch's tab; the launch continues."""
        if launcher not in self.runs:
            return
        self.workers.cancel_group(self, f"run-{launcher}")
        self._watches.pop(launcher).close()
        del self.runs[launcher]
        self._show_held()
        if self.current_mode == f"run-{launcher}":
            self.switch_mode("mesh")
        self.remove_mode(f"run-{launcher}")
        self.keep_session()
        self.runs_changed.publish(launcher)
        # the tab's screen, with up to 16 Mi characters of output, is in a reference cycle: collect it now
        self.set_timer(1.0, lambda: bool(gc.collect()))

    def close_finished(self, now: float) -> None:
        """Close tabs of launches and jobs that succeeded and have not been looked at for a while. ``now`` is
        monotonic."""
        stacks = self._screen_stacks.items()
        used = {mode for mode, screens in stacks if len(screens) > 1 or (screens and _in_use(screens[0]))}
        for mode in self._finished.due(self.open_tabs, used | {self.current_mode}, now):
            if mode.startswith("run-"):
                self.close_run(int(mode[4:]))
            else:
                self.close_job(next(number for number, uuid in self.jobs.items() if mode == f"job-{uuid[:8]}"))

    def _handle_exception(self, error: Exception) -> None:
        """An internal error: write a report with the traceback, and show the user one line (Textual would print
        everything)."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error  # Pilot raises it
            self._exception_event.set()
        cause = error.error if isinstance(error, WorkerFailed) else error
        what = crash.fault(clean("".join(traceback.format_exception_only(cause)).strip().rpartition("\n")[2]))
        self._crash(what, lambda: crash.write_report(self.settings.state_dir, what, cause))

    def panic(self, *renderables: RenderableType) -> None:
        """Like ``_handle_exception``, for errors that Textual would print: an error in the thread that reads keys."""
        self._return_code = 1
        page = Console(file=StringIO(), width=200, color_system=None)
        page.print(*renderables)
        text = page.file.getvalue()  # type: ignore[attr-defined]
        what = crash.fault(clean(text.strip().rpartition("\n")[2]))
        self._crash(what, lambda: crash.write_text(self.settings.state_dir, what, text))

    def _crash(self, what: str, write: Callable[[], str]) -> None:
        """End the application. ``write`` writes a report and returns where it is; only the first error is reported."""
        if not self.crash_line:
            self.crash_line = crash.told(what, write())
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        """Print the line about the crash, unbroken even if it contains a long path."""
        if self.crash_line and not self._crash_told:
            self._crash_told = True
            print(self.crash_line, file=sys.stderr, flush=True)

    # Actions

    @property
    def open_tabs(self) -> list[Tab]:
        """The tabs of launches and jobs, as they stand in the bar: running ones first."""
        runs = (
            Tab(
                f"run-{launcher}",
                run.phase is not Phase.ENDED and not run.last_seen,
                run.phase is Phase.ENDED and not run.failed,
            )
            for launcher, run in self.runs.items()
        )
        jobs = (Tab(f"job-{job.id}", job.live, job.state == "done") for job in self.open_jobs)
        return in_order([*runs, *jobs])

    def _tabs(self) -> list[str]:
        return ["mesh", "launch", *TABLES, *(tab.mode for tab in self.open_tabs)]

    def action_show(self, mode: str) -> None:
        """Switch to a tab."""
        if mode in self._tabs():
            self.switch_mode(mode)
            self.navigator.noticed(mode)

    def show_mode(self, mode: str) -> None:
        """Show a tab without recording it: the navigator records more than the tab."""
        if mode != self.current_mode:
            self.switch_mode(mode)

    def action_go_to(self) -> None:
        """Ask for a place."""
        self.navigator.ask()

    def action_trail(self, step: int) -> None:
        """Go back or forward in the history of places."""
        self.navigator.step(step)

    async def history(self, limit: int) -> list[Launcher]:
        """Ended launchers. Raises StoreError."""
        found: list[Launcher] = await self._reader.history(limit)
        return found

    def action_tab(self, step: int) -> None:
        """Switch to the next or previous tab, leaving out tables and the launch form, in which ``<`` is a letter."""
        tabs = [tab for tab in self._tabs() if tab != "launch" and tab not in TABLES]
        here = tabs.index(self.current_mode) if self.current_mode in tabs else 0
        self.action_show(tabs[(here + step) % len(tabs)])

    def keys_of(self, action: Action) -> str:
        """The action's keys in readable form, as configured; empty if it has none."""
        keys = self._keymap.get(action.name) or action.keys
        return ", ".join(dict.fromkeys(key_name(self, key.strip()) for key in keys.split(",") if key.strip()))

    def action_choose_tab(self) -> None:
        """Choose from all tabs, including those that do not fit into the bar."""
        rows: list[tuple[str, str, str]] = [(mode, "", mode) for mode in ("mesh", "launch", *TABLES)]
        told = {f"run-{one}": (str(one), run.shown) for one, run in self.runs.items()}
        for job in self.open_jobs:
            told[f"job-{job.id}"] = (job.id, job.name or " ".join(program_words(job.command)))
        rows += [(*told[tab.mode], tab.mode) for tab in self.open_tabs]
        self.push_screen(Choosing("tabs", rows), lambda mode: self.action_show(mode) if mode else None)

    @property
    def open_jobs(self) -> list[Job]:
        """Jobs with a tab."""
        return [self.machine.jobs[number] for number in self.jobs if number in self.machine.jobs]

    def action_command_palette(self) -> None:
        """Open the palette."""
        from console.tui.screens.palette import Palette  # not at the start

        def chosen(run: Callable[[], object] | None) -> None:
            if run is not None:
                self.call_later(run)

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(self, self.screen), chosen)

    def action_help(self) -> None:
        """Show every key of the screen in front."""
        screen = self.screen
        if isinstance(screen, Framed):
            self.push_screen(Help(screen.TITLE_FOR_HELP, help_sections(self, screen)))

    def action_read_only(self) -> None:
        """Switch read-only mode on or off."""
        self.read_only = not self.read_only
        self.notify("read only: nothing is changed from here" if self.read_only else "changes are possible again")
        self.screen.refresh_bindings()
        self.runs_changed.publish(0)

    def may_change(self) -> bool:
        """True if the console may change anything; otherwise show a note that it only reads."""
        if self.read_only:
            self.notify("the console only reads now", severity="warning", markup=False)
        return not self.read_only

    async def action_quit(self) -> None:
        """Quit. Ask first only while a launch is being started, because only that launch would be lost."""
        if not self.starting:
            self.exit()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.exit()

        question = "A launch is being started. Quit all the same?"
        self.push_screen(Confirm(question, "It may begin or not, and nobody will be told.", "Quit"), answered)


def run(
    settings: Settings,
    *,
    read_only: bool = False,
    theme: str = "",
    make: Callable[[Settings], ConsoleApp] = ConsoleApp,
) -> int:
    """``mesh console``: run until the user quits; returns the exit status. ``make``: another application class."""
    served = SERVED in os.environ
    if not served and (not sys.__stderr__ or not sys.__stderr__.isatty()):  # Textual draws on standard error
        raise ConsoleError(
            "the console needs a terminal", "it draws on standard error: leave that alone", exit_status=2
        )
    if theme and theme not in NAMES:
        raise ConsoleError(f"no theme is called {theme!r}", f"there are {', '.join(NAMES)}", exit_status=2)
    guard = None if served else crash.TerminalGuard(settings.state_dir)
    try:
        return _run(make(settings), guard, read_only=read_only, theme=theme)
    finally:
        if guard is not None:
            guard.stand_down()


def _run(app: ConsoleApp, guard: crash.TerminalGuard | None, *, read_only: bool, theme: str) -> int:
    app.guard = guard
    app.read_only = app.read_only or read_only
    if theme:
        app.theme = f"redmesh-{theme}"
    try:
        app.run()
    except ConsoleError:
        raise
    except (Exception, KeyboardInterrupt) as error:  # outside of Textual's own handling
        if guard is not None:
            guard.put_back()
        if isinstance(error, KeyboardInterrupt):
            status = 130
        else:
            what = crash.fault(clean("".join(traceback.format_exception_only(error)).strip()))
            line = crash.told(what, crash.write_report(app.settings.state_dir, what, error))
            print(line, file=sys.__stderr__, flush=True)
            status = 1
        if guard is not None:
            guard.stand_down()
        os._exit(status)  # a thread of Textual may be waiting for keys for ever
    if app.crash_line and guard is not None:
        crash.discard_typed(0)
    return app.return_code or 0
