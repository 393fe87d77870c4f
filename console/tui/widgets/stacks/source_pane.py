"""A source file with the ranks at its lines."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.model.stacks.source import SourceText
from console.tui.widgets.bars import set_subtitle, set_title
from redmesh.sanitise import clean

_WIDEST_RANKS = 12
_EMPTY = SourceText("", 1, [])


class SourcePane(ScrollView, can_focus=False):
    """Shows a file, scrolled to one line, which is marked; the mouse wheel scrolls it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "source-pane--number",
        "source-pane--here",
        "source-pane--ranks",
        "source-pane--comment",
        "source-pane--keyword",
        "source-pane--string",
        "source-pane--number-literal",
        "source-pane--name",
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = _EMPTY
        self._line = 0
        self._ranks: dict[int, str] = {}
        self._told = ""  # text in place of a file
        self._styles: dict[str, Style] = {}

    def show(self, text: SourceText, line: int, ranks: dict[int, str]) -> None:
        """Show this file, with ``line`` in the middle; ``ranks``: the ranks at each line."""
        if (text, line, ranks) == (self._text, self._line, self._ranks):
            return
        self._text, self._line, self._ranks, self._told = text, line, ranks, ""
        if text.why:
            self.tell(clean(f"{text.path}: {text.why}"))
            return
        widest = max((sum(cell_len(piece) for _, piece in pieces) for pieces in text.lines), default=0)
        self.virtual_size = Size(widest + self._gutter, len(text.lines))
        set_title(self, ending(clean(f"{text.path}:{line}"), self.size.width - 6))
        at = line - text.first
        outside = not 0 <= at < len(text.lines)
        where = f"read on {text.node}" if text.node else ""
        set_subtitle(self, f"the file has only {len(text.lines):,} lines now" if outside else where)
        self.scroll_to(0, max(0, at - self.size.height // 2), animate=False, force=True)
        self.refresh()

    def wait(self) -> None:
        """Say that a file is being read, if nothing is shown yet."""
        if not self._line and not self._told:
            self.tell("reading …")

    def tell(self, text: str) -> None:
        """Show a sentence in place of a file."""
        self._text, self._line, self._ranks, self._told = _EMPTY, 0, {}, text
        self.virtual_size = Size(0, 1)
        set_title(self, "source")
        set_subtitle(self, "")
        self.refresh()

    def on_resize(self) -> None:
        """Keep the marked line in the middle."""
        if self._line:
            at = self._line - self._text.first
            self.scroll_to(0, max(0, at - self.size.height // 2), animate=False, force=True)

    def notify_style_update(self) -> None:
        """Forget the cached styles: the theme has changed."""
        super().notify_style_update()
        self._styles.clear()

    def _look(self, name: str) -> Style:
        if name not in self._styles:
            self._styles[name] = self.get_component_rich_style(f"source-pane--{name}", partial=True)
        return self._styles[name]

    @property
    def _room(self) -> int:
        """Columns for the ranks."""
        return min(_WIDEST_RANKS, max(map(len, self._ranks.values()), default=0))

    @property
    def _gutter(self) -> int:
        return self._room + len(str(self._text.first + len(self._text.lines) - 1)) + 4

    def render_line(self, y: int) -> Strip:
        """Ranks, line number, code; the marked line has a sign and another background."""
        base, row = self.rich_style, y + self.scroll_offset.y
        width = self.size.width
        if self._told:
            start = y * width
            return Strip([Segment(self._told[start : start + width], base + self._look("number"))]).adjust_cell_length(
                width, base
            )
        if not 0 <= row < len(self._text.lines):
            return Strip.blank(width, base)
        number = self._text.first + row
        here = number == self._line
        ground = base + self._look("here") if here else base
        ranks = self._ranks.get(number, "")
        if len(ranks) > _WIDEST_RANKS:
            ranks = ranks[: _WIDEST_RANKS - 1] + "…"
        digits = len(str(self._text.first + len(self._text.lines) - 1))
        gutter = [
            Segment(f"{ranks:>{self._room}} ", ground + self._look("ranks")),
            Segment("▶" if here else " ", ground + self._look("ranks")),
            Segment(f"{number:>{digits}}  ", ground + self._look("number")),
        ]
        code = Strip(
            [
                Segment(text, ground + self._look("number-literal" if kind == "number" else kind) if kind else ground)
                for kind, text in self._text.lines[row]
            ]
        )
        left, room = self.scroll_offset.x, max(0, width - self._gutter)
        cut = code.cell_length > left + room > left
        shown = [*code.crop(left, left + room - cut), *([Segment("…", ground + self._look("number"))] if cut else [])]
        return Strip([*gutter, *shown]).adjust_cell_length(width, ground)


def ending(path: str, width: int) -> str:
    """The end of a path, which is more useful than its beginning; whole names where they fit."""
    if cell_len(path) <= width or width < 8:
        return path
    end = path
    while "/" in end and cell_len(end) + 2 > width:
        end = end.partition("/")[2]
    return f"…/{end}" if cell_len(end) + 2 <= width else "…" + path[1 - width :]
