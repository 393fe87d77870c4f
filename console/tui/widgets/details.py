"""Details of the processor and its node, or of the launcher, under the cursor."""

from __future__ import annotations

import functools
import textwrap
import time
from collections.abc import Iterable
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.tui.format import amount, clock, elapsed, near_end, several
from console.tui.model.machine import Event, Launcher, Machine, Node, Processor, State
from console.tui.model.tables import drain_text
from console.tui.model.wrong import ranks_of
from console.tui.widgets.bars import set_title
from redmesh.idset import fold_ranks

#: A name, a value, and its mark: ``bad``, ``old`` or none.
Fact = tuple[str, str, str]
_EVENTS = 6


class Details(Widget):
    """Names on the left, values on the right."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"details--name", "details--bad", "details--old", "details--value"}

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._facts: list[Fact] = []
        self._lines: list[Fact] = []  # the facts, wrapped to the width
        self._styles: dict[str, Style] = {}
        self.node: Node | None = None  # the node that they are about: its PCT is asked

    def show_nothing(self) -> None:
        """Empty the details, because there is no machine."""
        self.node = None
        self._draw("details", [])

    def show_event(self, event: Event) -> None:
        """Show the whole text of an event that names no processor."""
        self.node = None
        self._draw(event.kind, [("at", clock(event.at), ""), ("text", event.text, "")])

    def show_cell(self, cell: int, where: str = "", of: int = 1, mixture: str = "") -> None:
        """Show the processor, its node, and what runs there.

        ``of``: how many processors the tile stands for; ``mixture``: their states, if they are not alike.
        """
        machine = self._machine
        if not 0 <= cell < machine.cells:
            self.show_nothing()
            return
        row = machine.processors[cell]
        node = self.node = machine.nodes[machine.node_of(cell)]
        state = State(machine.states[cell])
        facts = [("state", state.name.lower() + (f" for {row.reserved_for}" if row.reserved_for else ""), "")]
        if mixture:
            facts.insert(0, (f"these {of}", mixture, ""))
        if row.launcher is not None and row.launcher in machine.launchers:
            facts += self._of_launcher(machine.launchers[row.launcher], short=True)
        elif row.partition is not None:
            facts.append(("partition", f"{row.partition}, no launcher in it", ""))
        facts += self._of_node(node, row, where, len(machine.node_cells(machine.node_of(cell))))
        more = f" and {of - 1} more" if of > 1 else ""
        self._draw(f"processor {row.id}{more} · {node.name}:{row.slot}", facts)

    def show_launcher(self, number: int) -> None:
        """Show a launcher."""
        self.node = None
        launcher = self._machine.launchers.get(number)
        if launcher is not None:
            facts = self._of_launcher(launcher, short=False)
            facts += self._events(event for event in self._machine.events if event.launcher == number)
            self._draw(f"launcher {number}", facts)

    def _of_node(self, node: Node, row: Processor, where: str, processors: int) -> list[Fact]:
        machine = self._machine
        bad = "bad" if node.state != "up" else ""
        since = f" for {elapsed(machine.now - node.state_at)}" if node.state_at else ""
        facts: list[Fact] = [("node", f"{node.name}, {node.state}{since}", bad)]
        if node.reason:
            facts.append(("reason", node.why, bad))
        if node.drain_at is not None:
            facts.append(("", drain_text(node), ""))
        facts.append(("", f"{several(processors, 'processor')}, {node.role}, pool {row.mode}", ""))
        if where:
            facts.append(("place", where, ""))
        if origin := machine.origins.get(node.name):
            facts.append(("from", origin, ""))
        facts += self._of_probe(node)
        facts += self._of_ranks(node)
        if node.address:
            facts.append(("address", near_end(node.address), ""))
        if node.agent:
            facts.append(("agent", f"{node.agent}, incarnation {node.incarnation}", ""))
        return facts + self._events(event for event in machine.events if event.node == node.name)

    def _of_probe(self, node: Node) -> list[Fact]:
        machine = self._machine
        trouble, found = machine.trouble_of(node), machine.status(node)
        facts: list[Fact] = [("asked", trouble, "bad")] if trouble else []
        if found is None:
            return facts
        told, ago = found.value, found.old(time.monotonic())
        age, mark = (f", {ago}", "old") if ago else ("", "")
        if told.load:
            facts.append(("load", "  ".join(f"{one:.2f}" for one in told.load) + age, mark))
        if told.memory:
            total, available = told.memory
            share = 100 * (total - available) // max(1, total)
            facts.append(("memory", f"{amount(total - available)} of {amount(total)} used, {share}%{age}", mark))
        for launcher, ranks in told.processes.items():
            shown = ", ".join(f"{rank}:{pid}" for rank, pid in ranks[:6]) + (", …" if len(ranks) > 6 else "")
            facts.append(("rank:pid", f"{machine.letter(launcher)} {shown}{age}", mark))
        return facts

    def _of_ranks(self, node: Node) -> list[Fact]:
        """Which ranks of which launchers are on the node; on a node that is down, they were on it."""
        machine = self._machine
        cells = machine.cells_of_node(node.id)
        mine = {machine.processors[cell].id for cell in cells}
        facts: list[Fact] = []
        for number in dict.fromkeys(machine.processors[cell].launcher for cell in cells):
            launcher = machine.launchers.get(number) if number is not None else None
            if launcher is not None and launcher.ranks:
                ranks = [rank for rank, at in enumerate(ranks_of(launcher.ranks)) if at in mine]
                told = f"{machine.letter(launcher.id)} {fold_ranks(ranks)}"
                facts.append(("had ranks", told, "old") if node.state == "down" else ("ranks", told, ""))
        return facts

    def _of_launcher(self, launcher: Launcher, *, short: bool) -> list[Fact]:
        machine = self._machine
        letter = machine.letter(launcher.id)
        lasted = elapsed(launcher.elapsed_s(machine.now))
        facts: list[Fact] = [
            ("launcher", f"{letter} {launcher.id}, {launcher.user}, {launcher.state} {lasted}", ""),
            *([("", "held until it is released", "bad")] if launcher.id in machine.held else []),
            ("command", launcher.command, ""),
            ("size", several(launcher.size, "processor"), ""),
        ]
        return facts if short else facts + self._more_of_launcher(launcher)

    def _more_of_launcher(self, launcher: Launcher) -> list[Fact]:
        machine = self._machine
        where = f"partition {launcher.partition}" + (f", job {launcher.batch_job}" if launcher.batch_job else "")
        ranks = len(ranks_of(launcher.ranks)) if launcher.ranks else 0
        cells = machine.cells_of_launcher(launcher.id)
        nodes = list(dict.fromkeys(machine.nodes[machine.node_of(cell)].name for cell in cells))
        facts: list[Fact] = [("of", where, ""), ("yod", f"{launcher.login}/{launcher.pid}", "")]
        if ranks:
            facts.append(("ranks", several(ranks, "rank"), ""))
        if nodes:
            shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
            facts.append(("nodes", f"{len(nodes)}: {shown}", ""))
        facts.append(("asked", f"{elapsed(machine.now - launcher.created_at)} ago", ""))
        if launcher.started_at:
            waited = launcher.started_at - launcher.created_at
            facts.append(("started", f"{waited:.2f} s after that", ""))
        elif launcher.pending_until:
            left = launcher.pending_until - machine.now
            facts.append(("pending", f"{elapsed(max(0.0, left))} left to begin", "bad" if left < 10 else ""))
        return facts

    def _events(self, found: Iterable[Event]) -> list[Fact]:
        events = list(found)[-_EVENTS:]
        return [
            (
                "events" if i == 0 else "",
                f"{elapsed(self._machine.now - event.at)}: {event.kind} {event.text}".rstrip(),
                "",
            )
            for i, event in enumerate(reversed(events))
        ]

    def _draw(self, title: str, facts: list[Fact]) -> None:
        set_title(self, title)
        if facts != self._facts:
            self._facts = facts
            self._wrap()

    def on_resize(self) -> None:
        self._wrap()

    def _wrap(self) -> None:
        """Wrap the facts to the width. Only changed lines are repainted."""
        room, before = max(12, self.size.width - 12), self._lines
        self._lines = [
            (name if i == 0 else "", piece, mark)
            for name, value, mark in self._facts
            for i, piece in enumerate(_wrapped(value, room))
        ]
        pairs = zip_longest(before, self._lines)
        changed = [Region(0, y, self.size.width, 1) for y, (old, new) in enumerate(pairs) if old != new]
        if changed:
            self.refresh(*changed)

    # Drawing

    def notify_style_update(self) -> None:
        """Forget the cached styles: the theme has changed."""
        super().notify_style_update()
        self._styles.clear()

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            base = self.rich_style
            style = base + self.get_component_rich_style(f"details--{name}", partial=True) if name else base
            self._styles[name] = style
        return style

    def render_line(self, y: int) -> Strip:
        """Draw a line; with a mouse selection, Textual's slower way is used."""
        if self.text_selection is not None:
            return super().render_line(y)
        name, value, mark = self._lines[y] if y < len(self._lines) else ("", "", "")
        segments = [Segment(f"{name:<10}", self._style("name")), Segment(value, self._style(mark or "value"))]
        return Strip(filter(None, segments)).adjust_cell_length(self.size.width, self._style("")).apply_offsets(0, y)

    def render(self) -> Content:
        """The whole text, for selections with the mouse."""
        name_style = self.get_visual_style("details--name", partial=True)
        styles = {
            mark: self.get_visual_style(f"details--{mark or 'value'}", partial=True) for mark in ("", "bad", "old")
        }
        lines = self._lines
        parts = (Content.assemble((f"{name:<10}", name_style), (text, styles[mark])) for name, text, mark in lines)
        return Content("\n").join(parts)


@functools.lru_cache(256)
def _wrapped(value: str, room: int) -> list[str]:
    return textwrap.wrap(value, room) or [""]
