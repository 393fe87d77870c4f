"""A table drawn line by line: ten thousand rows cost no more than the visible ones."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.actions.registry import bindings
from console.tui.model.tables import Rows
from console.tui.terminal.stylesheet import drawn_with

_GAP = 2
_ABOVE = 1  # the line with the columns' names

#: Words in a state column that are highlighted, with the style's name.
MARKS = {"down": "bad", "drained": "bad", "suspect": "warn", "draining": "warn", "pending": "warn", "yes": "bad"}


class TableView(ScrollView, can_focus=True):
    """The rows of a :class:`Rows`, a cursor that stays on its row, and marks."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--head", "table--sorted", "table--cursor", "table--cursor-blurred", "table--marked", "table--bad",
        "table--warn", "table--quiet",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("lines"), *bindings("rows")]
    DEFAULT_CSS = """
    TableView {
        border: round $edge; border-title-color: $foreground; border-title-style: bold; border-subtitle-color: $quiet;
        background: $background; scrollbar-size: 1 1; scrollbar-color: $edge; scrollbar-background: $background;
        overflow-x: hidden; overflow-y: auto; height: 1fr; width: 1fr;
    }
    TableView:focus { border: round $accent; border-title-color: $accent; }
    TableView .table--head { color: $quiet; background: $bar; text-style: bold; }
    TableView .table--sorted { color: $accent; background: $bar; text-style: bold; }
    TableView .table--cursor { background: $select; text-style: bold; }
    TableView .table--cursor-blurred { background: $panel; }
    TableView .table--marked { color: $accent; text-style: bold; }
    TableView .table--bad { color: $error; text-style: bold; }
    TableView .table--warn { color: $warning; }
    TableView .table--quiet { color: $quiet; }
    """

    cursor = reactive(0, repaint=False)
    #: Without a layout and a repaint: with a filter, each letter gives another number of rows.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    class Moved(Message):
        """The cursor is on another row, or the marks have changed."""

    class Chosen(Message):
        """Enter, or a second click."""

    class HeadClicked(Message):
        """A click on a column's name."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    def __init__(self, rows: Rows, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows = rows
        self.marked: set[int] = set()
        self.harmed: frozenset[int] = frozenset()  # rows with a mark in front: launchers that lost a node
        self.empty = ""
        self._key: int | None = None  # the row under the cursor, whatever is added or removed
        self._from: int | None = None  # the key of the row at which a range begins
        self._before: set[int] = set()  # the marks before the range
        self._drags = False
        self._strips: dict[tuple[int, bool, bool], tuple[tuple[str, ...], Strip]] = {}
        self._widths: list[int] = []
        self._drawn_with: list[object] = []
        self._styles: dict[str, Style] = {}

    # Called by the screen

    def update_rows(self) -> None:
        """Apply the machine's changes."""
        self.rows.refresh()
        self.show_rows()

    def show_rows(self) -> None:
        """Show the rows as they are arranged now."""
        rows = self.rows
        widths = rows.widths(max(10, self.scrollable_content_region.width - 2))
        if widths != self._widths:
            self._widths = widths
            self._strips.clear()
            self.refresh()  # also the lines whose texts have not changed
        there = set(rows.order)
        self.marked &= there
        size = Size(0, len(rows.order) + _ABOVE)
        if size != self.virtual_size:
            self.virtual_size = size
        before = self._key
        row = rows.order.index(before) if before in there else min(self.cursor, max(0, len(rows.order) - 1))
        self.set_reactive(TableView.cursor, row)
        self._key = self.key
        self._refresh_changed()
        if self._key != before:
            self.post_message(self.Moved())

    def watch_virtual_size(self, size: Size) -> None:
        """Tell the scroll bar; if it comes or goes, Textual lays out the screen."""
        self._scroll_update(size)

    def _refresh_changed(self) -> None:
        """Repaint visible lines whose text has changed."""
        top, height = self.scroll_offset.y, self.size.height
        drawn = [self._texts(y + top - _ABOVE) for y in range(_ABOVE, height)]
        old: list[tuple[int | None, tuple[str, ...]]] = getattr(self, "_drawn", [])
        changed = [y + _ABOVE for y in range(len(drawn)) if y >= len(old) or old[y] != drawn[y]]
        self._drawn = drawn
        if len(changed) > height // 2:
            self.refresh()
            return
        for y in changed:
            self.refresh(Region(0, y, self.size.width, 1))

    def _texts(self, index: int) -> tuple[int | None, tuple[str, ...]]:
        order = self.rows.order
        if not 0 <= index < len(order):
            return None, ()
        return order[index], tuple(self.rows.texts(order[index]))

    @property
    def key(self) -> int | None:
        """The id of the row under the cursor."""
        order = self.rows.order
        return order[self.cursor] if 0 <= self.cursor < len(order) else None

    @property
    def in_sight(self) -> list[int]:
        """The visible rows."""
        top = self.scroll_offset.y
        return self.rows.order[top : top + max(0, self.size.height - _ABOVE)]

    @property
    def chosen(self) -> list[int]:
        """The marked rows in order; without marks the one under the cursor."""
        if self.marked:
            return [key for key in self.rows.order if key in self.marked]
        return [] if self.key is None else [self.key]

    def go_to(self, key: int) -> bool:
        """Move the cursor to a row; False if it is not shown."""
        if key not in self.rows.order:
            return False
        self.cursor = self.rows.order.index(key)
        return True

    def mark(self, keys: set[int]) -> None:
        """Mark exactly these rows."""
        changed, self.marked = self.marked ^ keys, keys
        for y, key in enumerate(self.in_sight, _ABOVE):
            if key in changed:
                self.refresh(Region(0, y, self.size.width, 1))
        self.post_message(self.Moved())

    # Cursor

    def action_move(self, step: int) -> None:
        """Move the cursor by ``step`` rows."""
        if self.rows.order:
            self.cursor = max(0, min(len(self.rows.order) - 1, self.cursor + step))

    def action_page(self, step: int) -> None:
        """Move the cursor by ``step`` screens."""
        self.action_move(step * max(1, self.size.height - 2))

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self.key is not None:
            self.post_message(self.Chosen())

    def watch_cursor(self, before: int, after: int) -> None:
        """Repaint both rows and keep the cursor visible."""
        self._key = self.key
        for row in (before, after):
            y = row + _ABOVE - self.scroll_offset.y
            if 0 < y < self.size.height:
                self.refresh(Region(0, y, self.size.width, 1))
        top, height = self.scroll_offset.y, self.size.height - _ABOVE
        if after < top:
            self.scroll_to(y=after, animate=False, force=True, immediate=True)
        elif after >= top + height:
            self.scroll_to(y=after - height + 1, animate=False, force=True, immediate=True)
        self.post_message(self.Moved())

    def cursor_place(self) -> Region:
        """The cursor's row on the screen, for notes."""
        x, y, width, _ = self.content_region
        return Region(x, y + _ABOVE + self.cursor - self.scroll_offset.y, width, 1)

    # Ranges

    def action_extend(self, step: int) -> None:
        """Move the cursor, and mark the rows on the way."""
        self._begin_range()
        self.action_move(step)
        self._mark_range()

    def _begin_range(self) -> None:
        """Start a range here, unless an unfinished one continues."""
        order = self.rows.order
        if self._from is None or self._from not in order or self.marked != self._before | self._range():
            self._from, self._before = self.key, set(self.marked)

    def _range(self) -> set[int]:
        order = self.rows.order
        if self._from is None or self._from not in order:
            return set()
        begin = order.index(self._from)
        return set(order[min(begin, self.cursor) : max(begin, self.cursor) + 1])

    def _mark_range(self) -> None:
        self.mark(self._before | self._range())

    def _row_at(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        if offset is None or offset.y < _ABOVE:
            return None
        row = offset.y - _ABOVE + self.scroll_offset.y
        return row if row < len(self.rows.order) else None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """With shift: mark the rows up to here. Otherwise: the start of a possible drag."""
        row = self._row_at(event)
        if row is None or event.button != 1:
            return
        if event.shift:
            self._begin_range()
            self.cursor = row
            self._mark_range()
        else:
            self._from = None
            self.cursor = row
        self._drags = True

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A drag marks the rows it passes."""
        row = self._row_at(event)
        if event.button != 1 or not self._drags or row is None or row == self.cursor:
            return
        self._begin_range()
        self.cursor = row
        self._mark_range()

    def on_mouse_up(self) -> None:
        """The drag has ended; shift and a click extend it."""
        self._drags = False

    def on_click(self, event: events.Click) -> None:
        """On a name: sort. On a row: move the cursor; a second click chooses."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            at = 2
            for column, width in enumerate(self._widths):
                at += width + _GAP if width else 0
                if width and offset.x < at:
                    self.post_message(self.HeadClicked(column))
                    return
            return
        row = offset.y - _ABOVE + self.scroll_offset.y
        if row < len(self.rows.order):
            self.cursor = row
            if event.chain == 2:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self._drawn = []
        self.update_rows()

    # Drawing

    def notify_style_update(self) -> None:
        """Forget the cached lines if the styles are others: another theme, not only another frame."""
        super().notify_style_update()
        styles = drawn_with(self)
        if styles != self._drawn_with:
            self._drawn_with = styles
            self._styles.clear()
            self._strips.clear()

    def _look(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self.get_component_rich_style(f"table--{name}", partial=True) if name else self.rich_style
            self._styles[name] = style
        return style

    def render_line(self, y: int) -> Strip:
        """The names of the columns, then the rows in sight."""
        width, base = self.size.width, self._look("")
        if y == 0:
            return self._head(base).crop_extend(0, width, base)
        index = y - _ABOVE + self.scroll_offset.y
        order = self.rows.order
        if index >= len(order):
            text = f"  {self.empty}" if index == 0 else ""
            return Strip([Segment(text, base + self._look("quiet"))]).crop_extend(0, width, base)
        key = order[index]
        return self._row(key, index == self.cursor, base).crop_extend(0, width, base)

    def _head(self, base: Style) -> Strip:
        rows, segments = self.rows, [Segment("  ", self._look("head"))]
        for i, column in enumerate(rows.table.columns):
            width = self._widths[i] if i < len(self._widths) else 0
            if not width:
                continue
            arrow = ("↓" if rows.reverse else "↑") if i == rows.sort else ""
            names = (f"{column.name} {arrow}", f"{column.name}{arrow}") if arrow else ()
            name = next((one for one in names if cell_len(one) <= width), column.name)
            text = name.rjust(width) if column.right else name.ljust(width)
            style = self._look("sorted" if i == rows.sort else "head")
            segments += [Segment(text, style), Segment(" " * _GAP, self._look("head"))]
        segments.append(Segment(" " * self.size.width, self._look("head")))
        return Strip(segments)

    def _row(self, key: int, here: bool, base: Style) -> Strip:
        rows = self.rows
        texts = tuple(rows.texts(key))
        marked = key in self.marked
        kept = self._strips.get((key, key in self.harmed, marked)) if not here else None
        if kept is not None and kept[0] == texts:
            return kept[1]
        if here:
            base = base + self._look("cursor" if self.has_focus else "cursor-blurred")
        front = ("● ", "marked") if marked else ("▲ ", "bad") if key in self.harmed else ("  ", "")
        segments = [Segment(front[0], base + self._look(front[1]) if front[1] else base)]
        for column, width, text in zip(rows.table.columns, self._widths, texts, strict=True):
            if not width:
                continue
            state = MARKS.get(text) if column.most else None
            look = state or ("marked" if marked else "")  # a state has its colour in a marked row, too
            style = base + self._look(look) if look else base
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1) + "…"
            text = text.rjust(width) if column.right else set_cell_size(text, width)
            segments += [Segment(text, style), Segment(" " * _GAP, base)]
        segments.append(Segment(" " * self.size.width, base))
        strip = Strip(segments)
        if not here:
            if len(self._strips) > 2_000:
                self._strips.clear()
            self._strips[key, key in self.harmed, marked] = (texts, strip)
        return strip
