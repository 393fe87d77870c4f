"""``1`` to ``4`` and ``7``: launchers, partitions, nodes, events and jobs as tables."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget

from console.launch.options.lists import fold_nodes
from console.tui.actions import commands
from console.tui.actions.registry import bindings
from console.tui.format import fitted
from console.tui.model.machine import Changed, Event, Node
from console.tui.model.patterns import FilterError
from console.tui.model.tables import (
    EVENTS,
    JOBS,
    LAUNCHERS,
    NODES,
    PARTITIONS,
    TABLES,
    Rows,
    as_csv,
    as_records,
    cells_of,
    launcher_of,
)
from console.tui.navigation.links import Link
from console.tui.navigation.presets import View
from console.tui.screens.base import Framed
from console.tui.screens.commands import CommandDialogs, JobDialogs
from console.tui.screens.dialogs import Entry
from console.tui.sources.node import Probe
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.details import Details
from console.tui.widgets.table import TableView
from console.tui.widgets.wrong_line import WrongLine
from db.errors import StoreError
from redmesh.text import counted

_EMPTY = {
    "launchers": "nothing runs; n launches a program, e shows what has ended",
    "partitions": "there is no partition",
    "nodes": "there is no node",
    "events": "nothing has happened yet",
    "jobs": "no job is queued or runs (mesh submit -- PROGRAM); e shows ended jobs",
}
MOST_ENDED = 10_000
_ENDED_EVERY_S = 2.0
#: Actions for rows, by their methods: hidden while no row is shown.
_OF_ROWS = frozenset(("sort", "reverse", "mark", "mark_all", "attach", "on_map", "copy", "do", "act", "export"))
_ASKED_AT_ONCE = 8  # nodes queried at once; each on another machine needs a TLS connection


class TableScreen(Framed):
    """A table, with details of the row under the cursor."""

    TITLE_FOR_HELP = "table"
    AUTO_FOCUS = "#table"
    BINDINGS: ClassVar[list[BindingType]] = bindings("table")
    PLACES: ClassVar[tuple[str, ...]] = ("table", "rows", "lines", "wrong")
    HORIZONTAL_BREAKPOINTS = [*Framed.HORIZONTAL_BREAKPOINTS, (150, "-broad")]
    DEFAULT_CSS = """
    TableScreen #table-body { height: 1fr; }
    TableScreen #table-details {
        display: none; width: 52; height: 1fr; border: round $edge; padding: 0 1; border-title-style: bold;
        border-title-color: $foreground;
    }
    TableScreen.-broad #table-details { display: block; }
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.table = TABLES[name]
        self._with_ended = False
        self._waiting: list[Callable[[], object]] = []
        self._ended_at, self._reads_later = 0.0, False
        self._counter = -1
        self._second = 0
        self._empty: bool | None = None
        self._boot = ""  # of the mesh, when the rows were shown last

    def compose(self) -> Iterable[Widget]:
        """The table, and beside it the details."""
        self._probe = Probe(self.console.machine)
        self.rows = Rows(self.table, self.console.machine)
        self.view = TableView(self.rows, id="table")
        self.view.empty = _EMPTY[self.table.name]
        self._details = Details(self.console.machine, id="table-details")
        shown = [self.view] if self.table in (PARTITIONS, JOBS) else [self.view, self._details]
        self._wrong = WrongLine()
        self._commands = CommandDialogs(self, self.target)
        return self.framed(self._wrong, Horizontal(*shown, id="table-body"))

    def on_mount(self) -> None:
        """Subscribe to changes of the machine."""
        self.console.machine_changed.subscribe(self, self._machine_changed)
        self._update()
        for work in self._waiting:
            work()
        self._waiting.clear()

    def when_mounted(self, work: Callable[[], object]) -> None:
        """Call ``work`` now, or as soon as the table exists."""
        if self.is_mounted:
            work()
        else:
            self._waiting.append(work)

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was in front."""
        self._counter = -1
        self._update()

    def _machine_changed(self, _: Changed) -> None:
        if self.is_current:
            self._update()

    def _update(self) -> None:
        machine = self.console.machine
        if self._boot != machine.boot_id:
            self._boot, self._counter = machine.boot_id, -1
            if self.table is not JOBS:
                self.view.mark(set())  # the numbers of its rows may be those of others now
        self._wrong.update_wrongs()
        if self.table is LAUNCHERS and self.view.harmed != (harmed := frozenset(self.console.harmed)):
            self.view.harmed = harmed
            self.view.refresh()
        if machine.counter != self._counter and self._with_ended and not self._reads_later:
            self._reads_later = True  # earlier readings may be out of date; in a paused recording none follow
            self.set_timer(_ENDED_EVERY_S, self._read_ended)
        second = int(time.time() if self.table is JOBS else machine.now)
        if machine.counter != self._counter or (second != self._second and self.table is not NODES):
            self._counter, self._second = machine.counter, second
            self.view.update_rows()
        elif second != self._second:  # the same nodes, a second older: to look for changes would take 5 ms of 10,000
            self._second = second
            self.rows.arrange()
            self.view.show_rows()
            if self._with_ended and time.monotonic() - self._ended_at > _ENDED_EVERY_S:
                self._read_ended()
        self._tell_refused()
        self._titles()
        self._show_details()
        self._ask_nodes()

    def _ask_nodes(self) -> None:
        """Query the node of the details, and the nodes in sight for their load, a few at a time."""
        settings = self.console.settings
        if self.console.replaying:
            return
        nodes = [self.rows.row(key) for key in self.view.in_sight] if self.table is NODES else []
        if self._details.node is not None and self._details.node not in nodes:
            nodes.insert(0, self._details.node)
        due = [node for node in nodes if self._probe.due(node, settings.mesh, settings.state_dir)]
        if due:
            self.run_worker(self._ask(due[:_ASKED_AT_ONCE]), group="probe", exclusive=True)

    async def _ask(self, nodes: list[Node]) -> None:
        if await self._probe.ask_all(nodes):
            self.view.update_rows()  # the details show it too, also while the database cannot be read

    def _tell_refused(self) -> None:
        """Report a filter that was dropped because it took too long for new rows."""
        refused, self.rows.refused = self.rows.refused, None
        if refused is not None:
            self.notify(f"the filter was dropped: {refused.message} ({refused.hint})", severity="warning", markup=False)

    def _titles(self) -> None:
        rows = self.rows
        shown = f"{len(rows.order):,}" if len(rows.order) == rows.total else f"{len(rows.order):,} of {rows.total:,}"
        told = f" /{rows.filter}" if rows.filter else ""
        set_title(self.view, f"{self.table.name} ({shown}){told}")
        marked = f"{len(self.view.marked):,} marked · " if self.view.marked else ""
        by = f"{marked}sorted by {self.table.columns[rows.sort].name} {'↓' if rows.reverse else '↑'}"
        trouble = fitted(self.console.trouble, max(10, self.view.size.width - 4))
        set_subtitle(self.view, trouble or by)
        if self._empty is not (empty := not rows.order):
            self._empty = empty
            self.refresh_bindings()

    def _show_details(self) -> None:
        key = self.view.key
        if not self._details.is_mounted or not self._details.display:
            return
        row = None if key is None else self.rows.row(key)
        launcher = None if row is None else launcher_of(self.table, row)
        if launcher is not None and launcher in self.console.machine.launchers:
            self._details.show_launcher(launcher)
            return
        cells = [] if row is None else cells_of(self.table, row, self.console.machine)
        if cells:
            self._details.show_cell(cells[0])
        elif isinstance(row, Event):
            self._details.show_event(row)
        else:
            self._details.show_nothing()

    @on(TableView.Moved)
    def _moved(self) -> None:
        self._titles()
        self._show_details()

    # View

    def action_filter(self) -> None:
        """Ask for a filter, applied while it is typed."""
        before = self.rows.filter

        def told(text: str) -> str:
            try:
                if text != self.rows.filter:
                    self.set_filter(text)
            except FilterError as error:
                return f"!{error.message}"
            shown = f"{len(self.rows.order):,} of {self.rows.total:,}"
            return f"{shown}   regular expression; !text: without it; ~abc: letters in order"

        def answered(text: str | None) -> None:
            if text is None and before != self.rows.filter:
                self.set_filter(before)
            self.rows.refused = None  # the line has said so

        self.app.push_screen(Entry("/", told, value=before), answered)

    def set_filter(self, text: str) -> None:
        """Apply a filter. Raises FilterError; after TooSlowError there is none."""
        self.rows.set_filter(text)
        self.rows.arrange()
        self.view.show_rows()
        self._titles()
        if self.rows.refused is not None:
            raise self.rows.refused

    def as_view(self) -> View:
        """The present view."""
        rows = self.rows
        return View(self.table.name, rows.filter, self.table.columns[rows.sort].name, rows.reverse, self._with_ended)

    def look(self, view: View) -> None:
        """Apply a view, as far as it is still valid."""
        names = [column.name for column in self.table.columns]
        with contextlib.suppress(FilterError):
            self.set_filter(view.filter)
        self.rows.reverse = view.reverse
        if view.ended != self._with_ended and self.possible("ended", ()):
            self.action_ended()
        self.rows.sort = names.index(view.sort) if view.sort in names else self.rows.sort
        self._again()

    @on(TableView.HeadClicked)
    def _head_clicked(self, event: TableView.HeadClicked) -> None:
        if event.column == self.rows.sort:
            self.action_reverse()
        else:
            self._sort_by(event.column)

    def action_sort(self, step: int) -> None:
        """Sort by the next column."""
        self._sort_by((self.rows.sort + step) % len(self.table.columns))

    def _sort_by(self, column: int) -> None:
        self.rows.sort = column
        self._arrange()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.rows.reverse = not self.rows.reverse
        self._arrange()

    def _arrange(self) -> None:
        self.rows.arrange()
        self.view.show_rows()
        self.view.refresh()  # the mark of the order stands in the heading
        self._titles()

    def _again(self) -> None:
        self.rows.refresh()
        self._arrange()

    def action_ended(self) -> None:
        """Show or hide ended rows."""
        self._with_ended = not self._with_ended
        self.rows.extra = []
        if self._with_ended:
            self._read_ended()
        self._again()

    def _read_ended(self) -> None:
        """Read ended launchers, which are only in the database."""
        self._ended_at, self._reads_later = time.monotonic(), False
        if not self._with_ended:
            return

        async def read() -> None:
            try:
                ended = await self.console.history(MOST_ENDED)
            except StoreError as error:
                self.notify(error.message, severity="error", markup=False)
                return
            known = dict(self.rows.extra)
            # An equal row stays the same object, to keep its cached data.
            self.rows.extra = [(row.id, known[row.id] if known.get(row.id) == row else row) for row in ended]
            self._again()

        self.run_worker(read, group="ended", exclusive=True)  # type: ignore[arg-type]

    # Marks

    def action_mark(self) -> None:
        """Mark or unmark the row, and go to the next."""
        if self.view.key is not None:
            self.view.mark(self.view.marked ^ {self.view.key})
            self.view.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all shown rows, or none."""
        every = set(self.rows.order)
        self.view.mark(set() if self.view.marked == every else every)

    def action_out(self) -> None:
        """Remove all marks; else the filter; else go to the map."""
        if self.view.marked:
            self.view.mark(set())
        elif self.rows.filter:
            self.set_filter("")
        else:
            self.console.action_show("mesh")

    # Commands

    def action_do(self, name: str) -> None:
        """Ask for confirmation, then run the command."""
        self._commands.do(name)

    def target(self) -> commands.Target:
        """The target of the marked rows."""
        machine = self.console.machine
        cells = {c for key in self.view.chosen for c in cells_of(self.table, self.rows.row(key), machine)}
        return commands.target(machine, sorted(cells))

    def facts(self) -> dict[str, str]:
        """Values for the command lines in help and palette."""
        if not self.is_mounted or self.view.key is None:
            return {}
        found = self.target()
        facts = {"nodes": commands.shortened(found.node_list), "processors": commands.shortened(found.processor_list)}
        launcher = launcher_of(self.table, self.rows.row(self.view.key))
        facts["launcher"] = "" if launcher is None else str(launcher)
        return {key: value for key, value in facts.items() if value}

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that this table does not have, and what needs rows while it has none."""
        if not self.is_mounted:
            return True
        if action in _OF_ROWS and not self.rows.order:
            return False
        verb = parameters[0] if action == "do" and parameters else ""
        if action == "ended":
            return self.table in (LAUNCHERS, JOBS)
        if action == "attach":
            return self.table in (LAUNCHERS, EVENTS)
        if verb in ("drain", "resume"):
            return self.table is NODES
        return True

    def action_copy(self) -> None:
        """Copy the names or numbers of the marked rows as a list for commands."""
        rows = [self.rows.row(key) for key in self.view.chosen]
        if self.table is NODES:
            text = fold_nodes([row.name for row in rows])
        elif self.table is EVENTS:
            text = "\n".join(" ".join(filter(None, self.rows.texts(key))) for key in self.view.chosen)
        else:
            text = ",".join(getattr(row, "uuid", str(row.id)) for row in rows)
        self._commands.copy(text)

    def action_attach(self) -> None:
        """Open the tab of the row's launcher."""
        launcher = None if self.view.key is None else launcher_of(self.table, self.rows.row(self.view.key))
        if launcher is not None:
            self.console.attach(launcher)

    def action_on_map(self) -> None:
        """Select the rows' processors on the map."""
        machine = self.console.machine
        cells = {c for key in self.view.chosen for c in cells_of(self.table, self.rows.row(key), machine)}
        if cells:
            self.console.navigator.select_on_map(cells)
        else:
            self.notify("that has no processors now", severity="warning", markup=False)

    @on(TableView.Chosen)
    def _chosen(self) -> None:
        key = self.view.key
        if key is None:
            return
        row = self.rows.row(key)
        if self.table is JOBS:
            self.console.open_job(key)
        elif self.table is NODES:
            self.console.navigator.open(Link("node", row.name))
        elif self.table is PARTITIONS:
            self.action_on_map()
        elif launcher_of(self.table, row) is not None:
            self.action_attach()
        elif row.node:
            self.console.navigator.open(Link("node", row.node))

    # Export

    def action_export(self) -> None:
        """Ask for the name of a new file, and write the shown rows to it."""

        def told(path: str) -> str:
            if not path.strip():
                return "a file's name; .json for everything that is known, else CSV"
            full = os.path.expanduser(path.strip())
            return (
                f"!{full} exists already"
                if os.path.lexists(full)
                else f"{counted(len(self.rows.order), 'row', form=',')} into {full}"
            )

        def answered(path: str | None) -> None:
            if path and path.strip():
                self.export(os.path.expanduser(path.strip()))

        self.app.push_screen(Entry("export to", told, value=f"{self.table.name}.csv"), answered)

    def export(self, path: str) -> None:
        """Write the shown rows (or only marked ones) to a new file."""
        keys = self.view.chosen if self.view.marked else self.rows.order
        if path.endswith(".json"):
            text = json.dumps(as_records(self.rows, keys), indent=1) + "\n"
        else:
            text = as_csv(self.rows, keys)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"{counted(len(keys), 'row', form=',')} in {path}", markup=False)


#: Actions for processors do not apply to jobs.
_OF_NODES = frozenset(f"table.{name}" for name in ("attach", "map", "drain", "resume", "term", "kill"))


class JobsScreen(TableScreen, inherit_bindings=False):
    """Jobs of tasks and of sections of this user on this host."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("jobs"), *(one for one in bindings("table") if isinstance(one, Binding) and one.id not in _OF_NODES)
    ]  # fmt: skip
    HIDES = _OF_NODES
    PLACES = ("jobs", "table", "rows", "lines", "wrong")

    def __init__(self) -> None:
        super().__init__("jobs")
        self._dialogs = JobDialogs(self, lambda: [self.rows.row(key) for key in self.view.chosen])

    def on_mount(self) -> None:
        """Subscribe to changes of jobs."""
        self.console.jobs_changed.subscribe(self, lambda _: self.on_screen_resume() if self.is_current else None)

    def action_ended(self) -> None:
        """Show or hide ended jobs."""
        self._with_ended = not self._with_ended
        self.on_screen_resume()

    def _read_ended(self) -> None:
        """Do nothing: the model has ended jobs already, and the database only has ended launchers."""

    def _update(self) -> None:
        ended = [(number, job) for number, job in self.console.machine.jobs.items() if not job.live]
        self.rows.extra = ended if self._with_ended else []
        super()._update()

    def facts(self) -> dict[str, str]:
        """Values for the command lines in help and palette."""
        return {} if not self.is_mounted or self.view.key is None else {"job": self.rows.row(self.view.key).id}

    def action_act(self, name: str) -> None:
        """Hold, release, retry or cancel the marked jobs, or the one under the cursor."""
        self._dialogs.do(name)
