"""The line at the top: where one is, what else is open, how the machine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from console.tui.machine import State
from console.tui.run import Phase
from console.tui.words import elapsed

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

_UNUSABLE = (State.DOWN, State.STALE, State.DRAINED, State.SERVICE)
_MARKS = {Phase.ATTACHING: "…", Phase.WAITING: "…", Phase.LOADING: "…", Phase.RUNNING: "▸", Phase.GONE: "?"}


class TopBar(Widget):
    """Tabs that can be clicked, and the state of the machine and of the picture of it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "top-bar--brand",
        "top-bar--tab",
        "top-bar--here",
        "top-bar--good",
        "top-bar--bad",
        "top-bar--quiet",
        "top-bar--bars",
    }

    @property
    def console(self) -> ConsoleApp:
        """The application, by its own type."""
        return cast("ConsoleApp", self.app)

    def on_mount(self) -> None:
        """Follows the machine, the runs and the mode."""
        self.console.machine_changed.subscribe(self, lambda _: self.refresh())
        self.console.runs_changed.subscribe(self, lambda _: self.refresh())
        self.console.mode_change_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> Content:
        """Brand, tabs, and on the right the state."""
        right = self._state()
        left = Content.assemble((" Redmesh ", self.get_visual_style("top-bar--brand")))
        room = self.size.width - left.cell_length - right.cell_length
        tabs = self._tabs()
        here = next((i for i, (name, _) in enumerate(tabs) if name == self.console.current_mode), 0)
        # where there is no room for all, the ones furthest from where one is go first
        while len(tabs) > 1 and sum(len(title) + 2 for _, title in tabs) > room:
            drop = 2 if here > 2 or (here == len(tabs) - 1 and len(tabs) > 3) else len(tabs) - 1
            if tabs[drop][0] == self.console.current_mode:
                break
            del tabs[drop]
            here -= drop < here
        for name, title in tabs:
            style = self.get_visual_style("top-bar--here" if name == self.console.current_mode else "top-bar--tab")
            meta = Style.from_meta({"@click": f"app.show({name!r})"})
            left = left.append(Content.styled(f" {title} ", style + meta))
        gap = max(1, self.size.width - left.cell_length - right.cell_length)
        return left.append(" " * gap).append(right)

    def _tabs(self) -> list[tuple[str, str]]:
        table = self.console.navigator.table
        tabs = [("mesh", "Mesh"), ("launch", "Launch"), (table, table.capitalize())]
        for launcher, run in self.console.runs.items():
            mark = _MARKS.get(run.phase) or ("✗" if run.failed else "✓")
            name = run.name if len(run.name) <= 14 else run.name[:13] + "…"
            tabs.append((f"run-{launcher}", f"{mark} {launcher} {name}".rstrip()))
        return tabs

    def _state(self) -> Content:
        console = self.console
        quiet, bad = self.get_visual_style("top-bar--quiet"), self.get_visual_style("top-bar--bad")
        if console.trouble:
            age = console.picture_age_s()
            text = "no picture yet" if age is None else f"picture is {elapsed(age)} old"
            return Content.assemble((f" {text} ", bad))
        if console.replaying:
            return Content.assemble((f" {console.where_told()} ", self.get_visual_style("top-bar--here")))
        counts = console.machine.counts()
        bars = console.usage.bars(max(0, min(30, (self.size.width - 84) // 2)))
        usable = console.machine.cells - sum(counts[state] for state in _UNUSABLE)
        only = (" read only ", self.get_visual_style("top-bar--bad")) if console.read_only else ("", quiet)
        return Content.assemble(
            only,
            (f" use {bars}  ", self.get_visual_style("top-bar--bars")) if bars else ("", quiet),
            (f"{counts[State.FREE]:,} of {usable:,} free ", quiet),
            ("● ", self.get_visual_style("top-bar--good")),
        )
