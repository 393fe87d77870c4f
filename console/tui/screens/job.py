"""A job: its tasks or sections as cells, failures, its log, and its commands."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from console.errors import ConsoleError
from console.jobs.rows import rate_text, waiting_text
from console.tui.actions.registry import bindings
from console.tui.format import clock, elapsed, several
from console.tui.model.jobs import WORDS, Job, Task, TaskState
from console.tui.model.output import Line as OutputLine
from console.tui.model.sgr import PLAIN, cut
from console.tui.screens.base import Framed, Page
from console.tui.screens.commands import JobDialogs
from console.tui.sources.jobs import JobReading, JobsReader
from console.tui.terminal.colours import style_of
from console.tui.terminal.themes import MONO
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.grids.grid import CellGrid
from console.tui.widgets.grids.task_grid import TASK_GLYPHS, TASK_STYLES, JobLines, TaskGrid
from console.tui.widgets.lines import LineList
from redmesh.sanitise import clean
from redmesh.state import StateError
from redmesh.state_reader import exit_text

_TAIL = 12  # last lines of a task beside the map
_BAR = 30
_STATES = {"running": "$success", "done": "$success", "failed": "$error", "cancelled": "$error"}


class JobScreen(Framed):
    """The tab of a job."""

    TITLE_FOR_HELP = "job"
    AUTO_FOCUS = "#tasks"
    BINDINGS: ClassVar[list[BindingType]] = bindings("job")
    PLACES = ("job", "cells", "lines")

    def __init__(self, reader: JobsReader, number: int) -> None:
        super().__init__()
        self._reader, self._number = reader, number
        self._job = reader.jobs[number]
        self._reading = JobReading(self._job)
        self._busy = self._again = False
        self._shows_log: bool | None = None  # the user's choice; None: failures if there are any
        self._lines_shown: object = None

    def compose(self) -> Iterable[Widget]:
        """Two lines about the job, its tasks, the selected task, failures or log."""
        self._head = Static(id="job-head")
        self._grid = TaskGrid(self._reading.tasks, id="tasks")
        self._grid.message = "reading …"
        self._known = Static(id="task-text")
        self._side = VerticalScroll(self._known, id="task-side", can_focus=False)
        self._lines = JobLines(id="job-lines")
        self._dialogs = JobDialogs(self, lambda: [self.job])
        return self.framed(
            self._head, Vertical(Horizontal(self._grid, self._side, id="job-body"), self._lines, id="job-all")
        )

    def on_mount(self) -> None:
        """Subscribe to changes of jobs and of the machine, and read the job."""
        self.console.jobs_changed.subscribe(self, self._jobs_changed)
        self.console.machine_changed.subscribe(self, lambda _: self._show_head())
        self._refresh()

    def on_screen_resume(self) -> None:
        """Read what has changed while another screen was in front."""
        self._refresh()

    @property
    def job(self) -> Job:
        """The job as last read."""
        self._job = self._reader.jobs.get(self._number, self._job)
        return self._job

    def facts(self) -> dict[str, str]:
        """Values for the command lines in help and palette."""
        return {"job": self.job.id}

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action is possible now."""
        if action == "act" and parameters:
            return True if self._dialogs.makes_sense(str(parameters[0]), self.job) else None
        if action == "next_failure":
            return True if self.job.failed else None
        return True

    # Reading

    def _jobs_changed(self, uuids: set[str]) -> None:
        if self.job.uuid in uuids and self.is_current:
            self._refresh()

    def _refresh(self) -> None:
        """Read changes; if there are new ones meanwhile, read again."""
        self._show_head()
        self.refresh_bindings()
        self._again = True
        if not self._busy:
            self._busy = True
            self.run_worker(self._read(), group="job")

    async def _read(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    await self._reader.work(self._reading.read)
                except (ConsoleError, StateError, sqlite3.Error) as error:
                    trouble = clean(f"the job cannot be read: {getattr(error, 'message', error)}")
                    if trouble != self._grid.message:  # a grid with tasks does not show its message
                        self.notify(trouble, severity="error", markup=False, timeout=30)
                    self._grid.message = trouble
                    continue
                self._grid.message = f"the job has no {self.job.noun}s yet"
                self._grid.update_tasks(self._reading.changed)
                self._show_head()
                self._show_lines()
                self._show_titles()
                await self._read_task()
        finally:
            self._busy = False

    async def _read_task(self) -> None:
        """Read the task under the cursor."""
        grid = self._grid
        if not grid.cells or grid.per > 1:
            self._known.update(self._several())
            return
        try:
            task = await self._reader.work(self._reading.task, grid.members(grid.cursor)[0])
        except (ConsoleError, StateError, sqlite3.Error):
            return
        if task is not None:
            self._known.update(Content("\n").join(self._about(task)))

    # Display

    def _show_head(self) -> None:
        job, now = self.job, time.time()
        style = _STATES.get(job.state, "$warning")
        first = Content.assemble(
            (f" {job.id} ", "bold reverse"), " ", (job.name or job.command or "…", "bold"),
            "  ", (job.state, style), (waiting_text(job.waits, job.running), "$warning"),
            (f": {job.why}" if job.why else "", "$error"),
        )  # fmt: skip
        room = max(20, self._head.content_size.width)
        if job.name and job.name != job.command.partition(" ")[0] and first.cell_length + 2 + len(job.command) <= room:
            first = first.append(Content.styled(f"  {job.command}", "$quiet"))
        done, words = job.share, WORDS[job.sections]
        bar = _BAR if room >= 100 else _BAR // 3
        filled = int(done * bar)
        parts = [f"{job.finished:,} of {several(job.tasks, job.noun)} {words[TaskState.DONE]}"]
        left = job.left_s(now)
        dropped = job.over - job.finished - job.failed
        parts += [f"{dropped:,} {words[TaskState.CANCELLED]}"] if dropped and not job.live else []
        parts += [f"{elapsed(left)} left"] if left is not None and job.running else []
        parts += [f"{job.running:,} running"] if job.running else []
        parts += [rate_text(job.rate(now))] if job.over else []
        if job.begun_at:
            took = elapsed(max(0.0, job.ended_at - job.paced[0] if job.ended_at else now - job.begun_at))
            parts.append(f"took {took}" if job.ended_at else f"for {took}")
        percent = f" {done:4.0%}" if job.live or job.state == "done" else ""  # of others the words say what was done
        second = Content.assemble(
            " ", ("█" * filled, style), ("░" * (bar - filled), "$quiet"), percent,
            (f"  {job.failed:,} failed" if job.failed else "", "$error bold"),
        )  # fmt: skip
        for fact, look in [*((part, "") for part in parts), *((part, "$quiet") for part in self._more_facts(job))]:
            more = second.append(Content.styled(f"  {fact}", look))
            second = more if more.cell_length <= room else second
        self._head.update(first.truncate(room, ellipsis=True).append("\n").append(second))

    def _more_facts(self, job: Job) -> list[str]:
        out = self._reading.excluded
        told = [f"left out: {', '.join(out)}"] if out else []
        if job.owner:
            told.append(f"owner {job.owner}")
        return [*told, f"submitted {clock(job.created_at)}"]

    def _show_titles(self) -> None:
        grid, tasks = self._grid, self._reading.tasks
        set_title(grid, f"{self.job.noun}s ({len(tasks):,})" + (" › some" if grid.zoomed else ""))
        words = WORDS[self.job.sections]
        counts = [(state, count) for state in TaskState if (count := tasks.count(state))]
        told = " · ".join(f"{TASK_GLYPHS[state]} {words[state]} {count:,}" for state, count in counts)
        each = f" · a tile is {grid.per:,} · enter opens one" if grid.per > 1 else ""
        glyphs = "  ".join(f"{TASK_GLYPHS[state]} {count:,}" for state, count in counts)  # what failed comes last
        room = grid.size.width - 2
        set_subtitle(grid, next((text for text in (told + each, told) if cell_len(text) <= room), glyphs))

    @property
    def _logs(self) -> bool:
        return not self._reading.failures if self._shows_log is None else self._shows_log

    def _show_lines(self) -> None:
        lines = self._reading.log if self._logs else self._reading.failures
        shown = (self._logs, len(lines), lines[-1:], lines[:1])
        if shown == self._lines_shown:
            return
        at_end = self._lines.cursor >= self._lines.virtual_size.height - 1
        self._lines_shown = shown
        self._lines.EMPTY = " the log is empty" if self._logs else " nothing has failed"
        self._lines.show(lines, end=self._logs and at_end)
        name, other = ("log", "failures") if self._logs else ("failures", "log")
        set_title(self._lines, f"{name} ({len(lines):,})")
        set_subtitle(self._lines, f"o shows the {other}")

    def _several(self) -> Content:
        grid, tasks = self._grid, self._reading.tasks
        if not grid.cells:
            return Content("")
        first, last = grid.members(grid.cursor)
        lines = [Content.styled(f"{self.job.noun}s {tasks.name(first)} to {tasks.name(last)}", "bold"), Content("")]
        for state in TaskState:
            if count := tasks.count(state, first, last):
                lines.append(Content(f"{TASK_GLYPHS[state]} {WORDS[self.job.sections][state]:<10}{count:>9,}"))
        return Content("\n").join(lines)

    def _about(self, task: Task) -> list[Content]:
        place = self._reading.tasks.place(task.number)
        name = str(task.number) if place is None else self._reading.tasks.name(place)
        state = WORDS[self.job.sections][TaskState[task.state.upper()]]
        if task.state == "running" and self.job.sections:
            state = "sent" if task.progress is None else f"running, {task.progress:.0%}"
        look = self._grid.get_visual_style(f"cell-grid--{TASK_STYLES[TaskState[task.state.upper()]]}")
        told = [Content.assemble((f"{self.job.noun} {name}", "bold"), "  ", (f" {state} ", look))]
        facts = [
            ("node", task.node), ("try", str(task.attempt or "")),
            ("began", clock(task.started_at) if task.started_at else ""), ("took", self._took(task)),
            ("exit", exit_text(task.exit)), ("input", task.input),
        ]  # fmt: skip
        told += [Content.assemble((f"{key:<7}", "$quiet"), text) for key, text in facts if text]
        if task.lines:
            told += [Content(""), Content.styled("it wrote last", "$quiet"), *self._in_colours(task.lines[-_TAIL:])]
        return told

    def _in_colours(self, lines: list[OutputLine]) -> list[Content]:
        """A program's lines in its own colours, as far as they can be read in this theme."""
        app = self.app
        colours = not app.no_color and app.theme != MONO.name
        told = []
        for line in lines:
            styled = [
                (text, Style.from_rich_style(style_of(
                    look, self.rich_style, dark=app.current_theme.dark, colours=colours
                )) if look != PLAIN else "")
                for text, look in cut(line.text, line.changes, 0, len(line.text))
            ]  # fmt: skip
            told.append(Content.assemble(*styled))
        return told

    @staticmethod
    def _took(task: Task) -> str:
        if not task.started_at:
            return ""
        seconds = max(0.0, (task.ended_at or time.time()) - task.started_at)
        return f"{seconds:.1f} s" if seconds < 60 else elapsed(seconds)

    # Navigation

    @on(CellGrid.Moved)
    def _moved(self) -> None:
        if self._reading.tasks:
            self.run_worker(self._read_task(), group="task", exclusive=True)

    @on(CellGrid.Chosen)
    def _chosen(self, event: CellGrid.Chosen) -> None:
        if self._grid.per > 1:
            self._grid.zoom(event.cell)
            self._show_titles()
        else:
            self.run_worker(self._show_page(self._grid.members(event.cell)[0]), group="page", exclusive=True)

    @on(LineList.Chosen)
    def _line_chosen(self, event: LineList.Chosen) -> None:
        line = self._lines.line(event.key)
        if line is not None and line.place is not None:
            self._grid.go_to(line.place)
            self.run_worker(self._show_page(line.place), group="page", exclusive=True)

    async def _show_page(self, place: int) -> None:
        """Show everything about one task: its history, and all kept last lines."""
        try:
            task = await self._reader.work(lambda: self._reading.task(place, past=True))
        except (ConsoleError, StateError, sqlite3.Error) as error:
            self.notify(clean(str(getattr(error, "message", error))), severity="error", markup=False)
            return
        if task is None:
            return
        lines: list[str | Content] = list(self._about(task._replace(lines=[])))
        lines += ["", "what became of it"]
        for at, state, node, cause in task.history:
            lines.append("  ".join(filter(None, (f"  {clock(at)}", f"{state:<9}", node, cause))))
        lines += ["", "its last lines:", *(self._in_colours(task.lines) or [Content("  none is kept")])]
        self.app.push_screen(Page(f"{self.job.noun} {self._reading.tasks.name(place)} of job {self.job.id}", lines))

    def action_next_failure(self) -> None:
        """Move the cursor to the next failed task, from the last to the first."""
        grid, states = self._grid, self._reading.tasks.states
        if not grid.cells:
            return
        here, wanted = grid.members(grid.cursor)[1], bytes((TaskState.FAILED,))
        found = states.find(wanted, here + 1)
        if found < 0:
            found = states.find(wanted)
        if found >= 0:
            grid.focus()
            grid.go_to(found)

    def action_other_lines(self) -> None:
        """Show the log, or the failures."""
        self._shows_log = not self._logs
        self._show_lines()

    def action_act(self, name: str) -> None:
        """Hold, release, retry or cancel the job."""
        self._dialogs.do(name)

    def action_copy(self) -> None:
        """Copy the job's UUID."""
        self.app.copy_to_clipboard(self.job.uuid)

    def action_close(self) -> None:
        """Close the tab; the job continues."""
        self.console.close_job(self._number)

    def action_back(self) -> None:
        """Show all tasks again; then go to the table of jobs."""
        if self._grid.zoomed:
            self._grid.zoom(None)
            self._show_titles()
        else:
            self.console.action_show("jobs")
