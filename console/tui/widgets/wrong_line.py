"""One line of what is wrong with the machine: the worst in words, and how much more there is."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget

from console.tui.actions.registry import ALL, bindings
from console.tui.context import context
from console.tui.model.wrong import Wrong

_ACTION = ALL["app.wrong"]
_BESIDE = 7  # columns for the mark and the blanks
_WIDE = 100  # columns of a window with room for what the key does


class WrongLine(Widget, can_focus=True):
    """Not there while nothing is wrong. Enter or a click goes to that place."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("wrong")
    FOCUS_ON_CLICK = False

    COMPONENT_CLASSES: ClassVar[set[str]] = {"wrong-line--grave", "wrong-line--doubtful", "wrong-line--quiet"}

    def __init__(self) -> None:
        super().__init__()
        self._wrongs: tuple[Wrong, ...] = ()
        self._next: int | None = None
        self.display = False

    def update_wrongs(self) -> bool:
        """Show what is wrong now; returns whether the line appeared or went, so that others have another size."""
        wrongs, coming = context(self).wrongs, context(self).next_wrong
        if (wrongs, coming) == (self._wrongs, self._next):
            return False
        self._wrongs, self._next = wrongs, coming
        if not wrongs and self.has_focus and self.screen.AUTO_FOCUS:
            self.screen.query_one(self.screen.AUTO_FOCUS).focus()
        self.refresh()
        before, self.display = self.display, bool(wrongs)
        return before is not self.display

    def render(self) -> Content:
        """The worst, as much of it as fits; on the right the number of the others and the key."""
        if not self._wrongs:
            return Content("")
        worst, more = self._wrongs[0], len(self._wrongs) - 1
        mark = "wrong-line--grave" if worst.grave else "wrong-line--doubtful"
        key = context(self).keys_of(_ACTION).partition(",")[0]
        does = f"{key} goes {'there' if self._next == 0 else 'to the next'}"
        right = " · ".join(filter(None, (f"{more:,} more" if more else "", does if key else "")))
        width = self.size.width
        if width < _WIDE:
            right = right.removesuffix(does) + (key if key else "")
        room = max(10, width - cell_len(right) - _BESIDE)
        text = worst.within(room)
        gap = max(2, width - 5 - cell_len(text) - cell_len(right))
        return Content.assemble(
            (" ▲ ", self.get_visual_style(mark)),
            f" {text}",
            (" " * gap + right, self.get_visual_style("wrong-line--quiet")),
        )

    async def on_click(self) -> None:
        """Go there."""
        await self.app.run_action("app.wrong(0)")
