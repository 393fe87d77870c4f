"""The room that a small machine's map leaves: use over time, nodes, events."""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.tui.activity import LEAST, Line, lines
from console.tui.machine import HUES, Machine
from console.tui.usage import Usage
from console.tui.widgets.titles import set_title

_EDGES = 2


class Activity(Widget):
    """Draws :mod:`console.tui.activity`; only lines that change are painted again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "activity--quiet",
        "activity--bad",
        "activity--bars",
        "launcher-list--pending",
        *(f"launcher-list--hue-{number}" for number in range(HUES)),
    }

    def __init__(self, machine: Machine, usage: Usage, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine, self._usage = machine, usage
        self._lines: list[Line] = []
        self._styles: dict[str, Style] = {}

    def take_room(self, height: int) -> None:
        """So many lines are left below the map; too few are left empty."""
        self.display = height >= LEAST + _EDGES
        self.styles.height = max(1, height)

    def update_activity(self) -> None:
        """Tells what is so now."""
        if not self.display:
            return
        set_title(self, "lately")
        width, height = self.size
        before = self._lines
        self._lines = lines(self._machine, self._usage, width, height)
        pairs = zip_longest(before, self._lines)
        changed = [Region(0, y, width, 1) for y, (old, new) in enumerate(pairs) if old != new]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        self.update_activity()

    def notify_style_update(self) -> None:
        """Another theme: every style is out of date."""
        super().notify_style_update()
        self._styles.clear()

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            base = self.rich_style
            group = "launcher-list" if name.startswith(("hue", "pending")) else "activity"
            over = self.get_component_rich_style(f"{group}--{name}", partial=True) if name else Style.null()
            style = self._styles[name] = base + over
        return style

    def render_line(self, y: int) -> Strip:
        """One line of it."""
        line = self._lines[y] if y < len(self._lines) else []
        segments = [Segment(text, self._style(style)) for text, style in line]
        return Strip(segments).adjust_cell_length(self.size.width, self._style(""))
