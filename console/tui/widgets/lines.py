"""A list of one-line items with a cursor, drawn line by line, so that thousands are cheap."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.actions.registry import bindings


class LineList(ScrollView, can_focus=True):
    """Items by index; a subclass draws them. The cursor stays on its item (``key``) when others are added or
    removed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-list--cursor",
        "line-list--cursor-blurred",
        "line-list--quiet",
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("lines")

    cursor = reactive(0, repaint=False)
    EMPTY = ""
    #: Lines below the last item, after an empty one; left out if not all of them fit.
    below: tuple[str, ...] = ()

    class Chosen(Message):
        """Enter, or a second click, on an item."""

        def __init__(self, line_list: LineList, key: int) -> None:
            super().__init__()
            self.line_list = line_list
            self.key = key

        @property
        def control(self) -> LineList:
            """The list."""
            return self.line_list

    class Moved(Message):
        """The cursor is on another item; ``key`` is None if there is none."""

        def __init__(self, line_list: LineList, key: int | None) -> None:
            super().__init__()
            self.line_list = line_list
            self.key = key

        @property
        def control(self) -> LineList:
            """The list."""
            return self.line_list

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys: list[int] = []
        self._styles: dict[str, Style] = {}
        self._shown: dict[int, list[Segment]] = {}  # by row, as last drawn

    @abstractmethod
    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """The item's line, at most ``width`` columns."""

    def look(self, name: str) -> Style:
        """The style of a component class, computed once for each theme."""
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self.get_component_rich_style(name, partial=True) if name else self.rich_style
        return style

    def notify_style_update(self) -> None:
        """Forget the cached styles: the theme has changed."""
        super().notify_style_update()
        self._styles.clear()

    @property
    def selected(self) -> int | None:
        """The key under the cursor."""
        return self._keys[self.cursor] if 0 <= self.cursor < len(self._keys) else None

    def set_keys(self, keys: list[int]) -> None:
        """Show these items in this order; unchanged lines are not repainted."""
        before = self.selected
        self._keys = keys
        self.virtual_size = Size(0, len(keys))
        row = keys.index(before) if before in keys else min(self.cursor, max(0, len(keys) - 1))
        self.set_reactive(LineList.cursor, row)
        top = self.scroll_offset.y
        for row in range(top, top + self.size.height):
            if self._shown.get(row) != self._line(row):
                self.refresh_line(row)
        if self.selected != before:
            self.post_message(self.Moved(self, self.selected))

    def action_move(self, step: int) -> None:
        """Move the cursor by ``step`` items."""
        if self._keys:
            self.cursor = max(0, min(len(self._keys) - 1, self.cursor + step))

    def action_choose(self) -> None:
        """Choose the item under the cursor."""
        if self.selected is not None:
            self.post_message(self.Chosen(self, self.selected))

    def watch_cursor(self, before: int, after: int) -> None:
        """Repaint both lines."""
        self.refresh_line(before)
        self.refresh_line(after)
        self.scroll_to_region(Region(0, after, 1, 1), animate=False)
        self.post_message(self.Moved(self, self.selected))

    def cursor_place(self) -> Region:
        """The cursor's line on the screen, for notes."""
        x, y, width, _ = self.content_region
        return Region(x, y + self.cursor - self.scroll_offset.y, width, 1)

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second click chooses."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        row = offset.y + self.scroll_offset.y
        if row < len(self._keys):
            self.cursor = row
            if event.chain == 2:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a visible item."""
        row = y + self.scroll_offset.y
        segments = self._shown[row] = self._line(row)
        return Strip(filter(None, segments)).adjust_cell_length(self.size.width, segments[-1].style)

    def _line(self, row: int) -> list[Segment]:
        base = self.look("")
        if row >= len(self._keys):
            text = self.EMPTY if row == 0 else self._below(row)
            return [Segment(text, base + self.look("line-list--quiet")) if text else Segment("", base)]
        if row == self.cursor:
            base = base + self.look("line-list--cursor" if self.has_focus else "line-list--cursor-blurred")
        return [*self.draw(self._keys[row], self.size.width, base), Segment("", base)]

    def _below(self, row: int) -> str:
        begin = max(1, len(self._keys)) + 1
        fits = begin + len(self.below) <= self.size.height
        return self.below[row - begin] if fits and begin <= row < begin + len(self.below) else ""


class OneClickList(LineList):
    """A list in which the first click chooses."""

    def on_click(self, event: events.Click) -> None:
        """Choose the line under the mouse."""
        offset = event.get_content_offset(self)
        row = -1 if offset is None else offset.y + self.scroll_offset.y
        if 0 <= row < len(self._keys):
            self.post_message(self.Chosen(self, self._keys[row]))
