"""Cells in labelled blocks with a cursor: the common part of the map and the grid of ranks."""

from __future__ import annotations

import textwrap
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
from console.tui.map.layout import Layout, Lines, Stretch
from console.tui.terminal.stylesheet import drawn_with

#: Columns between changed cells up to which they are painted with what is between them: a line is drawn as a whole,
#: whatever of it changes, and each region costs more than these columns.
_APART = 16
#: Columns out of sight up to which lines are drawn, so that not each step aside draws all of them again. On the map of
#: all of 10,368 processors, more than half of a line is out of sight.
_BEYOND = 16


class CellGrid(ScrollView, can_focus=True):
    """Draws cells line by line and repaints only changes. A subclass defines the cells."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "cell-grid--label",
        "cell-grid--label-down",
        "cell-grid--label-here",
        "cell-grid--cursor",
        "cell-grid--cursor-blurred",
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("cells")

    cursor = reactive(0, repaint=False)
    #: The message if there are no cells.
    message = reactive("")

    class Moved(Message):
        """The cursor is on another cell, or the cell has changed."""

        def __init__(self, grid: CellGrid, cell: int) -> None:
            super().__init__()
            self.grid = grid
            self.cell = cell

        @property
        def control(self) -> CellGrid:
            """The grid of the cursor."""
            return self.grid

    class Chosen(Message):
        """Enter, or a second click, on a cell."""

        def __init__(self, grid: CellGrid, cell: int) -> None:
            super().__init__()
            self.grid = grid
            self.cell = cell

        @property
        def control(self) -> CellGrid:
            """The grid of the cell."""
            return self.grid

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._layout: Lines = Layout([], 80, 24)
        self._strips: dict[int, Strip] = {}
        self._columns = range(0)  # the columns of the strips
        self._styles: dict[str, Style] = {}
        self._drawn_with: list[object] = []
        self._marked: dict[tuple[Style, str], Style] = {}

    # Defined by subclasses

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many cells there are."""

    @abstractmethod
    def appearance(self, cell: int) -> tuple[str, str]:
        """The text of the cell (at most as long as a tile is wide), and the name of its style."""

    @abstractmethod
    def lay_out(self, width: int, height: int) -> Lines:
        """The positions of the cells in that space."""

    def mark(self, cell: int) -> str:
        """The name of a style over the cell's own; empty for none."""
        del cell
        return ""

    def look(self, cell: int) -> tuple[str, str, str]:
        """Glyph, style and mark together."""
        return (*self.appearance(cell), self.mark(cell))

    def label_style(self, first: int) -> str:
        """The name of the style for the label of the block that begins with that cell (-1: no block)."""
        del first
        return "label"

    # Called by the screen

    def room(self) -> Size:
        """The space for cells."""
        return self.scrollable_content_region.size

    def rebuild(self) -> None:
        """The cells or the space have changed: lay out again."""
        size = self.room()
        self._layout = self.lay_out(size.width, size.height)
        self._strips.clear()
        self.virtual_size = Size(self._layout.width, len(self._layout.lines))
        self._refresh_scrollbars()  # now, or the screen is laid out once more after they have come or gone
        if self.cells:
            self.cursor = min(self.cursor, self.cells - 1)
        self.refresh()
        self.post_message(self.Moved(self, self.cursor))

    def repaint(self, cells: set[int]) -> None:
        """Repaint these cells only."""
        width, height = self._layout.density.tile, self._layout.density.height
        scroll_x, scroll_y = self.scroll_offset
        columns: dict[int, list[int]] = {}  # of the cells, by line
        for cell in cells:
            if cell in self._layout:
                x, y = self._layout.place(cell)
                columns.setdefault(y, []).append(x)
        regions: list[Region] = []
        for y, line in columns.items():
            for part in range(y, y + height):
                self._strips.pop(part, None)
            line.sort()
            begin = line[0]
            for x, after in zip(line, [*line[1:], None], strict=True):
                if after is None or after - x > _APART:
                    regions.append(Region(begin - scroll_x, y - scroll_y, x + width - begin, height))
                    begin = after or 0
        visible = [region for region in regions if -height < region.y < self.size.height]
        if visible:
            self.refresh(*visible)
        if self.cursor in cells:
            self.post_message(self.Moved(self, self.cursor))

    # Cursor

    def action_move(self, where: str) -> None:
        """Move the cursor: left, right, up, down, first, last, page_up, page_down."""
        cell = self.cursor
        if cell not in self._layout or not self.cells:
            return
        last = self.cells - 1
        if where in ("up", "down"):
            cell = self._layout.vertical(cell, 1 if where == "down" else -1)
        elif where in ("page_up", "page_down"):
            for _ in range(max(1, self.size.height - 1)):
                cell = self._layout.vertical(cell, 1 if where == "page_down" else -1)
        else:
            cell = {"left": max(0, cell - 1), "right": min(last, cell + 1), "first": 0, "last": last}[where]
        self.cursor = cell

    def action_choose(self) -> None:
        """Choose the cell under the cursor."""
        if self.cells:
            self.post_message(self.Chosen(self, self.cursor))

    def watch_cursor(self, before: int, after: int) -> None:
        """Repaint both cells and keep the cursor visible."""
        if after not in self._layout:  # it appears with the next rebuild
            return
        self._refresh_line_of(before)
        self._refresh_line_of(after)
        x, y = self._layout.place(after)
        self.scroll_to_region(Region(x, y, self._layout.density.tile, self._layout.density.height), animate=False)
        self.post_message(self.Moved(self, after))

    def cursor_place(self) -> Region:
        """The cursor's cell on the screen, for notes."""
        if self.cursor not in self._layout:
            return Region()
        density = self._layout.density
        corner = self.content_region.offset + self._layout.place(self.cursor) - self.scroll_offset
        return Region(*corner, density.tile, density.height)

    def _refresh_line_of(self, cell: int) -> None:
        if cell in self._layout:
            y, height = self._layout.place(cell)[1], self._layout.density.height
            for line in range(y, y + height):
                self._strips.pop(line, None)
            self.refresh_lines(y, height)

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor; a second click on the same cell chooses it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        cell = self._layout.at(offset.x + self.scroll_offset.x, offset.y + self.scroll_offset.y)
        if cell is not None:
            self.cursor = cell
            if event.chain == 2:
                self.post_message(self.Chosen(self, cell))

    def on_focus(self) -> None:
        self._refresh_line_of(self.cursor)

    def on_blur(self) -> None:
        self._refresh_line_of(self.cursor)

    def on_resize(self) -> None:
        self.rebuild()

    # Drawing

    def notify_style_update(self) -> None:
        """Forget what was drawn if the styles are others: another theme, not only another frame."""
        super().notify_style_update()
        styles = drawn_with(self)
        if styles != self._drawn_with:
            self._drawn_with = styles
            self._styles.clear()
            self._marked.clear()
            self._strips.clear()

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self.get_component_rich_style(f"cell-grid--{name}")
        return style

    @property
    def _base(self) -> Style:
        """The widget's own style, computed once, because it depends on all ancestors."""
        style = self._styles.get("")
        if style is None:
            style = self._styles[""] = self.rich_style
        return style

    def _over(self, style: Style, mark: str) -> Style:
        both = self._marked.get((style, mark))
        if both is None:
            over = self.get_component_rich_style(f"cell-grid--{mark}", partial=True)
            both = self._marked[style, mark] = style + over
        return both

    def render_line(self, y: int) -> Strip:
        """The strip of a visible line, from the cache if nothing has changed."""
        scroll_x, scroll_y = self.scroll_offset
        line = y + scroll_y
        first = scroll_x - scroll_x % _BEYOND
        columns = range(first, first + self.size.width + _BEYOND)
        if columns != self._columns:
            self._columns = columns
            self._strips.clear()
        if not self.cells:
            words = textwrap.wrap(self.message, max(10, self.size.width - 2))
            text = words[y - 1] if 0 < y <= len(words) else ""
            return Strip([Segment(text, self._style("label"))]).crop_extend(0, self.size.width, self._base)
        strip = self._strips.get(line)
        if strip is None:
            if line >= len(self._layout.lines):
                return Strip.blank(self.size.width, self._base)
            strip = self._strips[line] = self._draw(self._layout.lines[line])
        return strip.crop_extend(scroll_x, scroll_x + self.size.width, self._base)

    def _draw(self, line: list[Stretch]) -> Strip:
        blank, drawn = self._base, self._columns
        step, gap = self._layout.density.tile + self._layout.density.gap, self._layout.density.gap
        segments: list[Segment] = []
        x = 0
        for stretch in line:
            if stretch.label_x >= drawn.stop:
                break
            end = stretch.x + max(0, stretch.cells * step - gap)
            if end <= drawn.start:
                continue
            if stretch.label_x > x:
                segments.append(Segment(" " * (stretch.label_x - x), blank))
            if stretch.label:
                segments.append(Segment(stretch.label, self._style(self.label_style(stretch.first))))
            x = stretch.label_x + len(stretch.label)
            segments.append(Segment(" " * (stretch.x - x), blank))
            segments += self._cells(stretch)
            x = end
        return Strip([segment for segment in segments if segment.text], x)

    def _cells(self, stretch: Stretch) -> list[Segment]:
        density, blank = self._layout.density, self._base
        segments: list[Segment] = []
        text, style = "", blank
        cursor, look, styles, wide = self.cursor, self.look, self._styles, density.tile > 1
        for cell in range(stretch.first, stretch.first + stretch.cells):
            glyph, name, mark = look(cell)
            tile_style = styles.get(name) or self._style(name)
            if mark:
                tile_style = self._over(tile_style, mark)
            tile = " " * density.tile if stretch.part else glyph.center(density.tile) if wide else glyph
            if cell == cursor:
                name = "cell-grid--cursor" if self.has_focus else "cell-grid--cursor-blurred"
                tile_style += self.get_component_rich_style(name, partial=True)
                if density.tile >= 3 and not stretch.part:
                    tile = f"[{glyph.center(density.tile - 2)}]"
            if density.gap:
                segments.append(Segment(tile, tile_style))
                segments.append(Segment(" " * density.gap, blank))
            elif tile_style is style:
                text += tile
            else:
                segments.append(Segment(text, style))
                text, style = tile, tile_style
        segments.append(Segment(text, style))
        if density.gap and len(segments) > 1:
            del segments[-2:]  # no gap after the last
        return segments
