"""Navigation by name and history: ``:``, ``[`` and ``]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from console.tui.context import AppContext
from console.tui.model.expressions import ExpressionError, choose
from console.tui.model.tables import TABLES
from console.tui.navigation.links import ALIASES, KINDS, Link, LinkError, Trail, completions, parse
from console.tui.navigation.presets import Views, config_directory
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Entry
from console.tui.screens.mesh import MeshScreen

if TYPE_CHECKING:
    from console.tui.screens.tables import TableScreen


def _verb(text: str, verbs: Iterable[str]) -> str:
    """The typed action: exact, or the only one with this beginning; empty for a place or an unknown word."""
    word = text.strip()
    try:
        parse(text)
    except LinkError:
        fitting = [name for name in verbs if name.startswith(word)]
        return (
            word
            if word in verbs
            else fitting[0]
            if len(fitting) == 1 and not any(kind.startswith(word) for kind in KINDS)
            else ""
        )
    return ""


class Navigator:
    """Shows places, and records them."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._trail = Trail()
        self._table = "launchers"
        self._views = Views(config_directory())

    @property
    def table(self) -> str:
        """The table that was shown last."""
        return self._table

    def ask(self) -> None:
        """Ask for the name of a place, or of an action of the screen in front."""
        app = self._app
        screen = app.screen
        verbs = {action.word: (action, node) for action, node in reversed(screen.actions_here())} if isinstance(
            screen, Framed) else {}  # fmt: skip

        def offers(text: str) -> list[str]:
            word = text.lstrip()
            fitting = [name for name in sorted(verbs) if word and name.startswith(word)]
            return list(dict.fromkeys([*completions(text, app.machine, self._views.named), *fitting]))

        def told(text: str) -> str:
            if not text.strip():
                return "node NAME, launcher ID, user NAME, events … or an action: drain, theme …"
            if verb := _verb(text, verbs):
                action = verbs[verb][0]
                told = " · ".join(filter(None, (action.meaning, action.command)))
                return told if verb == text.strip() else f"{verb}: {told}"
            try:
                link = parse(text)
                harm = app.harmed.get(int(link.name), "") if link.kind in ("launcher", "run") else ""
                return f"to {link}" + (f", which {harm}" if harm else "")
            except LinkError as error:
                # An incomplete name is not an error yet.
                return (error.hint or error.message) if offers(text) else f"!{error.message}"

        def answered(text: str | None) -> None:
            if not text or not text.strip():
                return
            if verb := _verb(text, verbs):
                action, node = verbs[verb]
                app.run_worker(app.run_action(action.do, node))
            else:
                self._take(text)

        def mark(offer: str) -> str:
            word, _, name = offer.partition(" ")
            numbered = ALIASES.get(word, word) in ("launcher", "launchers", "run") and name.isdigit()
            return "▲" if numbered and int(name) in app.harmed else ""

        app.push_screen(Entry(":", told, offers=offers, mark=mark), answered)

    def _take(self, text: str) -> None:
        try:
            link = parse(text)
        except LinkError as error:
            self._app.notify(error.message, severity="warning", markup=False)
            return
        self.open(link)

    def open(self, link: Link) -> None:
        """Go to a place; show a note if it does not exist."""
        if link.kind in ("save", "forget"):
            self._keep(link)
        elif self._show(link):
            self._trail.visit(link)
        else:
            self._app.notify(f"there is no {link}", severity="warning", markup=False)

    def noticed(self, mode: str) -> None:
        """Record that a tab was shown, but not by this navigator."""
        if mode in TABLES:
            self._table = mode
        if mode in TABLES or mode in ("mesh", "launch"):
            self._trail.visit(Link(mode))
        elif mode.startswith(("run-", "job-")):
            self._trail.visit(Link(mode[:3], mode[4:]))

    def step(self, by: int) -> None:
        """Go back or forward; removed places are skipped."""
        while (link := self._trail.step(by)) is not None:
            if self._show(link):
                return

    def _show(self, link: Link) -> bool:
        app, kind, name = self._app, link.kind, link.name
        if kind in TABLES or kind in ("mesh", "launch"):
            app.show_mode(kind)
            return True
        if kind in ("node", "cabinet"):
            app.show_mode("mesh")
            return self._on_map(lambda screen: screen.go_to(kind, name))
        if kind == "select":
            return self._select(name)
        if kind == "view":
            return self._look(name)
        if kind == "run":
            app.attach(int(name))
            return True
        if kind == "job":
            found = [job.number for job in app.machine.jobs.values() if job.uuid.startswith(name) or job.name == name]
            if len(found) == 1:
                app.open_job(found[0])
            return len(found) == 1
        if kind == "user":
            app.show_mode("launchers")
            return self._on_table(lambda screen: screen.set_filter(f"\\b{re.escape(name)}\\b"))
        if kind in ("launcher", "partition"):
            return self._row(f"{kind}s", int(name))
        if kind == "help":
            app.action_help()
        else:
            app.run_worker(app.action_quit())
        return True

    def _keep(self, link: Link) -> None:
        """Save the view of the table in front, or delete a saved view."""
        table, saves, name = self._table_in_front(), link.kind == "save", link.name
        if saves and table is None:
            told = "what is saved is a table's filter and order: go to one first (1 launchers, 3 nodes …)"
        elif not saves and name not in self._views.named:
            told = f"there is no view {name}"
        else:
            try:
                self._views.name(name, table.as_view() if saves and table else None)
            except OSError as error:
                told = f"views cannot be written: {error.strerror}"
            else:
                told = f"view {name} is saved: :view {name} shows it" if saves else f"view {name} is gone"
                self._app.notify(told, severity="information", markup=False)
                return
        self._app.notify(told, severity="warning", markup=False)

    def _look(self, name: str) -> bool:
        """Show a table in a saved view."""
        view = self._views.named.get(name)
        if view is None or view.table not in TABLES:
            return False
        self._app.show_mode(view.table)
        return self._on_table(lambda screen: screen.look(view))

    def _row(self, table: str, number: int) -> bool:
        """Show a row of a table."""
        there = self._app.machine.launchers if table == "launchers" else self._app.machine.partitions
        if number not in there:
            return False
        self._app.show_mode(table)
        return self._on_table(lambda screen: screen.view.go_to(number))

    def _select(self, expression: str) -> bool:
        try:
            cells = choose(expression, self._app.machine)
        except ExpressionError as error:
            self._app.notify(error.message, severity="warning", markup=False)
            return True
        self.select_on_map(cells)
        return True

    def select_on_map(self, cells: Iterable[int]) -> None:
        """Show the map with these cells selected."""
        self._app.show_mode("mesh")
        chosen = list(cells)
        self._on_map(lambda screen: screen.select(chosen))

    def _on_map(self, work: Callable[[MeshScreen], object]) -> bool:
        screen = self._app.screen
        return bool(work(screen)) if isinstance(screen, MeshScreen) else False

    def _on_table(self, work: Callable[[TableScreen], object]) -> bool:
        table = self._table_in_front()
        if table is not None:
            table.when_mounted(lambda: work(table))
        return table is not None

    def _table_in_front(self) -> TableScreen | None:
        from console.tui.screens.tables import TableScreen  # not at the start, where no table is shown

        return self._app.screen if isinstance(self._app.screen, TableScreen) else None
