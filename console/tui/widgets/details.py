"""What is known about the processor, or the launcher, one looks at."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from console.tui.machine import Launcher, Machine, State
from console.tui.widgets.titles import set_title
from console.tui.words import elapsed, several


class Details(Static):
    """Names on the left, values on the right; redrawn when told to."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "details--name",
        "details--bad",
        "details--value",
        *(f"cell-grid--{state.name.lower()}" for state in State),
    }

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._shown: tuple[list[tuple[str, str, str]], int, str] = ([], 0, "")

    def show_cell(self, cell: int) -> None:
        """The processor, its node, and what runs there."""
        machine = self._machine
        if not 0 <= cell < machine.cells:
            self._draw("nothing", [])
            return
        row = machine.processors[cell]
        index = machine.node_of(cell)
        node = machine.nodes[index]
        state = State(machine.states[cell])
        since = f" for {elapsed(machine.now - node.state_at)}" if node.state_at else ""
        rows = [
            ("state", state.name.lower() + (f" for {row.reserved_for}" if row.reserved_for else ""), ""),
            ("node", f"{node.name}, {several(len(machine.node_cells(index)), 'processor')}", ""),
            ("", f"{node.state}{since}", "bad" if node.state != "up" else ""),
        ]
        if node.reason:
            rows.append(("reason", node.reason, "bad" if node.state != "up" else ""))
        rows.append(("pool", row.mode, ""))
        if row.launcher is not None and row.launcher in machine.launchers:
            rows += self._of_launcher(machine.launchers[row.launcher], short=True)
        elif row.partition is not None:
            rows.append(("partition", f"{row.partition}, no launcher in it", ""))
        self._draw(f"processor {row.id} · {node.name}:{row.slot}", rows)

    def show_launcher(self, number: int) -> None:
        """A launcher by itself."""
        launcher = self._machine.launchers.get(number)
        if launcher is not None:
            self._draw(f"launcher {number}", self._of_launcher(launcher, short=False))

    def _of_launcher(self, launcher: Launcher, *, short: bool) -> list[tuple[str, str, str]]:
        machine = self._machine
        letter = machine.letter(launcher.id)
        time = elapsed(launcher.elapsed_s(machine.now))
        where = f"partition {launcher.partition}" + (f", job {launcher.batch_job}" if launcher.batch_job else "")
        rows = [("launcher", f"{letter} {launcher.id}, {launcher.user}, {launcher.state} {time}", "")]
        rows.append(("command", launcher.command, ""))
        rows.append(("size", several(launcher.size, "processor"), ""))
        if not short:
            rows += [("of", where, ""), ("yod", f"{launcher.login}/{launcher.pid}", "")]
        return rows

    def _draw(self, title: str, rows: list[tuple[str, str, str]]) -> None:
        set_title(self, title)
        state = (rows, self.size.width, self.app.theme)
        if state == self._shown:
            return
        self._shown = state
        name_style = self.get_visual_style("details--name", partial=True)
        lines = []
        for name, value, mark in rows:
            style = self.get_visual_style("details--bad" if mark else "details--value", partial=True)
            for piece in textwrap.wrap(value, max(12, self.size.width - 10)) or [""]:
                lines.append(Content.assemble((f"{name:<10}", name_style), (piece, style)))
                name = ""
        self.update(Content("\n").join(lines))
