"""A list over the screen from which one thing is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from console.tui.actions.registry import bindings
from console.tui.widgets.clean_input import CleanInput
from console.tui.widgets.titles import set_subtitle, set_title


class Choosing(ModalScreen[Any]):
    """Rows of title, explanation and value; typing narrows them. The value of the chosen one, or None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("choosing")
    AUTO_FOCUS = "Input"

    def __init__(
        self, title: str, rows: list[tuple[str, str, Any]], forget: Callable[[str], bool] | None = None
    ) -> None:
        """``forget``: drops the row of a title for good, where it can (``delete``)."""
        super().__init__()
        self._title = title
        self._rows = rows
        self._shown = rows
        self._forget = forget
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """A line to type into, the rows."""
        with Vertical(id="choosing") as frame:
            set_title(frame, self._title)
            set_subtitle(frame, "enter takes it, escape closes" + (", delete forgets" if self._forget else ""))
            yield CleanInput(placeholder="type to narrow the list", compact=True)
            yield OptionList()

    def on_mount(self) -> None:
        """Shows all rows."""
        self._show("")

    def _show(self, words: str) -> None:
        wanted = words.lower().split()
        self._shown = [row for row in self._rows if all(word in f"{row[0]} {row[1]}".lower() for word in wanted)]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            Option(Content.assemble((f"{title:<12} ", "$accent"), told)) for title, told, _ in self._shown
        )
        if self._shown:
            options.highlighted = 0

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._show(event.value)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._choose(self.query_one(OptionList).highlighted)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option_index)

    def _choose(self, index: int | None) -> None:
        if index is not None and not self._dismissed and index < len(self._shown):
            self._dismissed = True
            self.dismiss(self._shown[index][2])

    def action_move(self, step: int) -> None:
        """The next row, or the one before, while the line keeps the focus."""
        options = self.query_one(OptionList)
        if self._shown:
            options.highlighted = ((options.highlighted or 0) + step) % len(self._shown)

    def action_forget(self) -> None:
        """Drops the row for good."""
        index = self.query_one(OptionList).highlighted
        if self._forget is None or index is None or index >= len(self._shown):
            return
        row = self._shown[index]
        if self._forget(row[0]):
            self._rows.remove(row)
            self._show(self.query_one(Input).value)

    def action_close(self) -> None:
        """Takes nothing."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss(None)
