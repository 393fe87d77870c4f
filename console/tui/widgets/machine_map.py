"""The map: every processor a cell, node by node."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from console.tui.actions.registry import bindings
from console.tui.layout import Block
from console.tui.machine import HUES, Machine, State
from console.tui.widgets.cell_grid import CellGrid


class MachineMap(CellGrid):
    """All processors with a cursor. Draws :class:`Machine`; never changes it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"cell-grid--{state.name.lower()}" for state in State),
        *(f"cell-grid--hue-{number}" for number in range(HUES)),
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("map")

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._processor: int | None = None  # what the cursor stays on when the machine changes its shape

    @property
    def cells(self) -> int:
        """How many processors there are."""
        return self._machine.cells

    def blocks(self) -> list[Block]:
        """A block for each node."""
        return self._machine.blocks()

    def appearance(self, cell: int) -> tuple[str, str]:
        """Glyph and style of a processor."""
        return self._machine.appearance(cell)

    def label_style(self, first: int) -> str:
        """Nodes out of service stand out, and the one under the cursor."""
        node = self._machine.node_of(first)
        if self._machine.nodes[node].out_of_service:
            return "label-down"
        return "label-here" if node == self._machine.node_of(self.cursor) else "label"

    def rebuild(self) -> None:
        """Keeps the cursor on its processor through a change of shape."""
        if self._processor is not None:
            cell = self._machine.cell_of(self._processor)
            if cell is not None:
                self.set_reactive(MachineMap.cursor, cell)
        super().rebuild()

    def watch_cursor(self, before: int, after: int) -> None:
        """The label of the node left behind is drawn again too."""
        super().watch_cursor(before, after)
        if after < self.cells:
            self._processor = self._machine.processors[after].id
            for cell in (before, after):
                if cell < self.cells:
                    self._refresh_line_of(self._machine.node_cells(self._machine.node_of(cell))[0])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Attaching needs a launcher under the cursor."""
        del parameters
        if action == "choose":
            return True if self.launcher is not None else None
        return True

    @property
    def launcher(self) -> int | None:
        """Who has the processor under the cursor."""
        return self._machine.processors[self.cursor].launcher if self.cursor < self.cells else None

    def action_node(self, step: int) -> None:
        """Moves to the next or the previous node."""
        if self.cells:
            self.cursor = self._machine.neighbour_node(self.cursor, step)
