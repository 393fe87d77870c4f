"""What the ranks write, drawn from the bounded buffer: only the lines in sight cost anything."""

from __future__ import annotations

import bisect
from typing import ClassVar

from rich.segment import Segment
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.actions.registry import bindings
from console.tui.machine import HUES
from console.tui.output import NOBODY, NOTE, STDERR, Output, Selection


class OutputPane(ScrollView, can_focus=True):
    """Lines of all ranks or of one; follows the end until somebody scrolls up."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "output-pane--stderr",
        "output-pane--note",
        "output-pane--rule",
        *(f"output-pane--rank-{number}" for number in range(HUES)),
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("output")

    following = reactive(True, repaint=False)
    rank: reactive[int | None] = reactive(None, repaint=False)

    class Changed(Message):
        """Following or the filter changed: the title has to say so."""

    def __init__(self, output: Output, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._output = output
        self._selection = Selection(output)
        self._ranks = 1
        self._moving = False
        self._drawn = (-1, -1)

    def update_output(self, size: int) -> None:
        """Draws what arrived since the last call. ``size``: ranks, for the width of their numbers."""
        state = (self._output.end, size)
        if state == self._drawn:
            return
        self._drawn = state
        self._ranks = size
        top = self._top_number()
        self._selection.refresh()
        self._place(top)

    def _top_number(self) -> int | None:
        row = self.scroll_offset.y
        return self._selection.number(row) if 0 <= row < len(self._selection) else None

    def _place(self, top: int | None) -> None:
        """Goes to the end, or keeps the line that stood at the top where it was."""
        self._moving = True
        self.virtual_size = Size(self._margin + self._output.longest, len(self._selection))
        if self.following:
            # forced: the scroll bar, which would have to be there, appears with the next layout only
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
        elif top is not None:
            selection = self._selection
            row = bisect.bisect_left(range(len(selection)), top, key=selection.number)
            self.scroll_to(y=row, animate=False, immediate=True, force=True)
        self._moving = False
        self.refresh()

    @property
    def _margin(self) -> int:
        return max(3, len(str(max(0, self._ranks - 1)))) + 3

    def watch_rank(self, rank: int | None) -> None:
        """Shows one rank's lines alone, or everybody's."""
        top = self._top_number()
        self._selection = Selection(self._output, None if rank is None else lambda line: line.rank in (rank, NOBODY))
        self._selection.refresh()
        self._place(top)
        self.post_message(self.Changed())

    def watch_following(self) -> None:
        """The title says whether we follow."""
        self.post_message(self.Changed())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up stops following, reaching the end takes it up again."""
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:
            self.following = round(new_value) >= self.max_scroll_y

    def action_follow(self) -> None:
        """Goes to the end and stays there."""
        self.following = True
        self._place(None)

    def on_resize(self) -> None:
        self._place(self._top_number())

    def render_line(self, y: int) -> Strip:
        """One visible line: rank, a rule, what it wrote."""
        scroll_x, scroll_y = self.scroll_offset
        row, width, blank = y + scroll_y, self.size.width, self.rich_style
        if row >= len(self._selection):
            return Strip.blank(width, blank)
        try:
            line = self._selection.line(row)
        except IndexError:  # dropped since the last refresh; the next one is under way
            return Strip.blank(width, blank)
        kind = {STDERR: "stderr", NOTE: "note"}.get(line.stream)
        who = "yod" if line.stream == NOTE else str(line.rank)
        hue = "note" if line.stream == NOTE else f"rank-{line.rank % HUES}"
        rule = self.get_component_rich_style("output-pane--rule", partial=True)
        margin = Strip(
            [
                Segment(
                    who.rjust(self._margin - 3),
                    blank + self.get_component_rich_style(f"output-pane--{hue}", partial=True),
                ),
                Segment(" ┊ " if kind else " │ ", blank + rule),
            ]
        )
        style = blank + self.get_component_rich_style(f"output-pane--{kind}", partial=True) if kind else blank
        text = Strip([Segment(line.text, style)])
        room = max(0, width - margin.cell_length)
        return Strip.join([margin, text.crop_extend(scroll_x, scroll_x + room, blank)])
