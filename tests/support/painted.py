"""A minimal terminal emulator: it is fed what the console writes, and holds every cell with its style."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from rich.cells import cell_len
from textual._compositor import CompositorUpdate, LayoutUpdate
from textual._context import visible_screen_stack
from textual.app import App

from console.tui.terminal.compositor import CellsUpdate

Cell = tuple[str, str]
_PARTS = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|\x1b([78])|\x1b\[(\d+)C|(\n)|([ -~]+|[^\x1b\n])")
#: A cell that was not written since the terminal's size changed: a real terminal may show anything there.
UNKNOWN: Cell = ("?", "unknown")


class Painted:
    """The cells of the terminal. Overwriting one half of a wide character clears the other half."""

    def __init__(self, width: int, height: int, width_of: Callable[[str], int] = cell_len) -> None:
        """``width_of``: how wide a character is on this terminal."""
        self.width, self.height = width, height
        self._width_of = width_of
        self._saved = (0, 0, "")
        self.rows = [[UNKNOWN] * width for _ in range(height)]

    def feed(self, stream: str) -> None:
        """Apply what is written to the terminal."""
        x = y = at = 0
        style = ""
        while at < len(stream):
            found = _PARTS.match(stream, at)
            assert found is not None, f"a terminal is not to be told {stream[at : at + 20]!r}"
            at = found.end()
            line, column, look, cursor, right, down, text = found.groups()
            if line:
                y, x = int(line) - 1, int(column) - 1
            elif look is not None:
                style = look if look not in ("", "0") else ""
            elif cursor == "7":
                self._saved = (x, y, style)
            elif cursor == "8":
                x, y, style = self._saved
            elif right:
                x = min(self.width - 1, x + int(right))
            elif down:
                y += 1
            else:
                x = self._put(x, y, text, style)

    def _put(self, x: int, y: int, text: str, style: str) -> int:
        """Write one character of any kind, or several of one column each."""
        cells = (
            [(one, style) for one in text] if text.isascii() else [(text, style), ("", style)][: self._width_of(text)]
        )
        end = x + len(cells)
        if not cells or not 0 <= y < self.height or (end > self.width and not text.isascii()):
            return end
        row = self.rows[y]
        shown = min(end, self.width)
        for column in (x, shown - 1) if x < shown else ():
            self._break(row, column)
        row[x:shown] = cells[: max(0, shown - x)]
        return end

    def _break(self, row: list[Cell], x: int) -> None:
        if row[x][0] == "":
            row[x - 1] = (" ", row[x - 1][1])
        elif x + 1 < self.width and row[x + 1][0] == "":
            row[x + 1] = (" ", row[x + 1][1])

    def text(self, y: int) -> str:
        """Return line ``y`` without styles."""
        return "".join(text for text, _ in self.rows[y])


class Watched:
    """Compares the terminal of a running application with a complete repaint of its screen."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.shown = Painted(*app.size)
        self.slices = 0
        self._display = app._display
        app._display = self._take  # type: ignore[method-assign]
        app.screen.refresh()

    def _take(self, screen: Any, update: Any) -> None:
        if isinstance(update, CompositorUpdate) and not self._app._batch_count:
            if (self.shown.width, self.shown.height) != tuple(self._app.size):
                self.shown = Painted(*self._app.size)
            self.slices += isinstance(update, CellsUpdate)
            self.shown.feed(update.render_segments(self._app.console))
        self._display(screen, update)

    def differences(self) -> list[str]:
        """Return a description of each line that differs from a complete repaint."""
        visible_screen_stack.set(self._app._background_screens)
        screen = self._app.screen
        strips: list[Iterable[Any]] = [[strip] for strip in screen._compositor.render_strips()]
        wanted = Painted(*self._app.size)
        wanted.feed(LayoutUpdate(strips, screen._compositor.size.region).render_segments(self._app.console))
        return [
            f"{y}: shown {self.shown.text(y)!r}, wanted {wanted.text(y)!r}, columns {_columns(one, other)}"
            for y, (one, other) in enumerate(zip(self.shown.rows, wanted.rows, strict=True))
            if one != other
        ]


def _columns(one: list[Cell], other: list[Cell]) -> list[tuple[int, Cell, Cell]]:
    return [(x, a, b) for x, (a, b) in enumerate(zip(one, other, strict=True)) if a != b][:4]
