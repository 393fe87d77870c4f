"""Lists in which a click chooses: in dialogs, and what fills the launch form where the window has room."""

from __future__ import annotations

from itertools import count
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from console.launch.options.lists import fold
from console.tui.actions.launch_command import Form, yod_line
from console.tui.format import fitted
from console.tui.model.machine import Machine
from console.tui.widgets.lines import OneClickList

_BAR = 8  # columns of the bar that shows how much of a node is free


class EarlierLaunches(OneClickList):
    """Launches with a name, then those of the history, the latest first."""

    EMPTY = " nothing was launched from here before"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: dict[int, tuple[str, Form]] = {}

    def show(self, named: dict[str, Form], history: list[tuple[int, Form]]) -> None:
        """Show these."""
        rows = [(f"★ {name}", form) for name, form in sorted(named.items())]
        self._rows = dict(zip(count(), [*rows, *((str(number), form) for number, form in history)]))
        self.set_keys(list(self._rows))

    def form(self, key: int) -> Form:
        """The form of a line; empty if it is gone."""
        return self._rows.get(key, ("", {}))[1]

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """``12345  yod -sz 4 ./solve``."""
        title, form = self._rows[key]
        left = f" {set_cell_size(fitted(title, 12), 12)} "
        return [
            Segment(left, base + self.look("line-list--quiet")),
            Segment(fitted(yod_line(form), max(2, width - cell_len(left))), base),
        ]


class FreeNodes(OneClickList):
    """Nodes with free processors, and how many of theirs are free."""

    EMPTY = " no processor is free now"

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._rows: dict[int, tuple[str, list[int], int]] = {}  # by node: name, free processors, all processors
        self._widest = 0  # columns of the longest name

    def update_nodes(self) -> None:
        """Show the machine's present nodes."""
        machine = self._machine
        rows: dict[int, tuple[str, list[int], int]] = {}
        for index, node in enumerate(machine.nodes):
            cells = machine.node_cells(index)
            free = [machine.processors[cell].id for cell in cells if machine.appearance(cell)[1] == "free"]
            if free:
                rows[node.id] = (node.name, free, len(cells))
        self._rows = rows
        self._widest = max((cell_len(name) for name, _, _ in rows.values()), default=0)
        self.set_keys(list(rows))

    def where(self, key: int) -> tuple[str, int]:
        """What the form's field *Nodes* gets, the node or its free processors, and the size."""
        name, free, most = self._rows.get(key, ("", [], 0))
        return (name if len(free) == most else fold(free)), len(free)

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """``n12  ━━━━────  4 of 8 free``."""
        name, free, most = self._rows[key]
        bar = max(1, len(free) * _BAR // most)
        told = f"  {len(free)} of {most} free"
        room = max(6, min(self._widest, width - _BAR - len(told) - 3))
        left = f" {set_cell_size(fitted(name, room), room)} "
        quiet: Any = base + self.look("line-list--quiet")
        return [Segment(left, base), Segment("━" * bar, base), Segment("─" * (_BAR - bar), quiet), Segment(told, quiet)]


class Choices(OneClickList, can_focus=False):
    """Rows of a title and an explanation, for a dialog whose line of input keeps the focus."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"choices--title"}
    EMPTY = " nothing fits"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[tuple[str, str]] = []
        self._widest = 0  # columns of the titles

    def show(self, rows: list[tuple[str, str]], widest: int) -> None:
        """Show these rows, the cursor on the first; titles take ``widest`` columns."""
        self._rows, self._widest = rows, widest
        self.cursor = 0
        self.set_keys([*range(len(rows))])

    def action_page(self, step: int) -> None:
        """Move the cursor by ``step`` screens."""
        self.action_move(step * max(1, self.size.height - 1))

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """``theme   dark, light, high contrast …``."""
        title, told = self._rows[key]
        width -= self.scrollbar_size_vertical
        left = fitted(f"{set_cell_size(title, max(self._widest, cell_len(title)))}  ", width)
        title_look = base + self.look("choices--title")
        return [Segment(left, title_look), Segment(fitted(told, max(1, width - cell_len(left))), base)]
