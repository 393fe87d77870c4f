"""Dialogs: an input line at the bottom of the screen, a list to choose from, a question before irreversible actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from console.tui.actions.registry import bindings
from console.tui.screens.base import Dialog
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.inputs import CleanInput
from console.tui.widgets.lines import LineList
from console.tui.widgets.offers import Choices

_WIDEST_TITLE = 32  # columns of a list's titles; longer ones stand alone in having their explanation further right


class Line(CleanInput):
    """The input line. Enter takes its present text; keys typed after it go to the screen below."""

    async def _on_key(self, event: events.Key) -> None:
        screen = self.screen
        if isinstance(screen, Entry) and (screen.answered or event.key == "enter"):
            event.stop()
            event.prevent_default()
            if screen.answered:
                self.app.simulate_key(event.key)
            else:
                screen.submit(self.value)
            return
        await super()._on_key(event)


class Entry(Dialog[str | None]):
    """The dialog of an input line; the result is the text, or None if the user gave up.

    After each change ``told`` gets the text so far, may act on it, and returns a line about it, which is shown; a line
    that begins with ``!`` means that the text is invalid. ``offers`` returns continuations, the most likely first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "give_up", "Give up", show=False, priority=True),
        Binding("tab", "complete(1)", "Complete", show=False, priority=True),
        Binding("shift+tab", "complete(-1)", "Complete", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Entry { align: left bottom; background: transparent; }
    Entry #entry { height: auto; width: 100%; background: $bar; padding: 0 1; }
    Entry #entry-row { height: 1; }
    Entry #entry-label { width: auto; color: $accent; text-style: bold; padding-right: 1; }
    Entry Input { width: 1fr; background: $panel; }
    Entry #entry-told { height: 1; color: $quiet; }
    Entry #entry-told.-bad { color: $error; }
    """

    def __init__(
        self,
        label: str,
        told: Callable[[str], str],
        *,
        value: str = "",
        offers: Callable[[str], Sequence[str]] | None = None,
        placeholder: str = "",
        mark: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``mark``: what is shown in front of an offer."""
        super().__init__()
        self._mark = mark
        self._label, self._told, self._value = label, told, value
        self._offers = offers
        self._placeholder = placeholder
        self._offered: list[str] = []  # the words that tab cycles through
        self._nth = -1
        self.answered = False

    def compose(self) -> ComposeResult:
        """The input line, and above it what ``told`` answers."""
        with Vertical(id="entry"):
            yield Static(id="entry-told")
            with Horizontal(id="entry-row"):
                yield Label(Content(self._label), id="entry-label")
                yield Line(self._value, placeholder=self._placeholder, compact=True, select_on_focus=bool(self._value))

    def on_mount(self) -> None:
        """Show the answer for the initial text."""
        self.query_one(Input).cursor_blink = False
        self._say(self._value)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if not (self._offered and event.value == self._offered[self._nth]):
            self._offered, self._nth = [], -1
        self._say(event.value)

    def _say(self, text: str) -> bool:
        told = self._told(text)
        bad = told.startswith("!")
        offers = [] if self._offers is None or bad else list(self._offers(text))[:12]
        words = told.removeprefix("!")
        if offers:
            shown = "  ".join(self._mark(offer) + offer.rpartition(" ")[2] for offer in offers)
            words = f"{words}   tab: {shown}".strip()
        line = self.query_one("#entry-told", Static)
        line.update(Content(words), layout=False)  # it has one line, as wide as the screen
        line.set_class(bad, "-bad")
        return not bad

    def action_complete(self, step: int) -> None:
        """Take the next, or previous, continuation."""
        if self.answered:
            return
        field = self.query_one(Input)
        if not self._offered and self._offers is not None:
            self._offered, self._nth = list(self._offers(field.value)), -1 if step > 0 else 0
        if self._offered:
            self._nth = (self._nth + step) % len(self._offered)
            field.value = self._offered[self._nth]
            field.cursor_position = len(field.value)

    def submit(self, text: str) -> None:
        """Take the text if that is possible."""
        if self._say(text):
            self._end(text)

    def action_give_up(self) -> None:
        """Close without a result."""
        self._end(None)

    def on_click(self, event: events.Click) -> None:
        """A click outside the dialog closes it."""
        if event.widget is self:
            self._end(None)

    def _end(self, answer: str | None) -> None:
        if not self.answered:
            self.answered = True
            self.dismiss(answer)


# A list from which one item is chosen.


class Choosing(Dialog[Any]):
    """Rows of title, explanation and value; typing filters them. The result is the chosen value, or None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("choosing")
    AUTO_FOCUS = "Input"

    def __init__(
        self, title: str, rows: list[tuple[str, str, Any]], forget: Callable[[str], bool] | None = None
    ) -> None:
        """``forget``: deletes the row of a title permanently, if possible (``delete``)."""
        super().__init__()
        self._title = title
        self._rows = rows
        self._shown = rows
        self._forget = forget
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """The input line, and the rows."""
        with Vertical(id="choosing") as frame:
            set_title(frame, self._title)
            set_subtitle(frame, "enter takes it, escape closes" + (", delete forgets" if self._forget else ""))
            yield CleanInput(placeholder="type to narrow the list", compact=True)
            yield Choices()

    def on_mount(self) -> None:
        """Show all rows."""
        self._show("")

    def fitting(self, words: list[str]) -> list[tuple[str, str, Any]]:
        """The rows that have all these words."""
        return [row for row in self._rows if all(word in f"{row[0]} {row[1]}".lower() for word in words)]

    def _show(self, words: str) -> None:
        self._shown = self.fitting(words.lower().split())
        widest = min(_WIDEST_TITLE, max((cell_len(title) for title, told, _ in self._rows if told), default=0))
        self.query_one(Choices).show([(title, told) for title, told, _ in self._shown], widest)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._show(event.value)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._choose(self.query_one(Choices).selected)

    @on(LineList.Chosen)
    def _clicked(self, event: LineList.Chosen) -> None:
        self._choose(event.key)

    def _choose(self, index: int | None) -> None:
        if index is not None and not self._dismissed and index < len(self._shown):
            self._dismissed = True
            self.dismiss(self._shown[index][2])

    def action_move(self, step: int) -> None:
        """Move to the next or previous row, cyclically; the line keeps the focus."""
        if self._shown and not self._dismissed:
            choices = self.query_one(Choices)
            choices.cursor = (choices.cursor + step) % len(self._shown)

    def action_page(self, step: int) -> None:
        """Move by a screen."""
        if not self._dismissed:
            self.query_one(Choices).action_page(step)

    def action_forget(self) -> None:
        """Delete the row permanently."""
        if self._dismissed:
            return
        index = self.query_one(Choices).selected
        if self._forget is None or index is None or index >= len(self._shown):
            return
        row = self._shown[index]
        if self._forget(row[0]):
            self._rows.remove(row)
            self._show(self.query_one(Input).value)

    def action_close(self) -> None:
        """Close without a result."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss(None)


# A question before an irreversible action. Enter cancels.


class Confirm(Dialog[bool]):
    """Asks the question; the result is True if the answer is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,escape,q", "answer(False)", "No", show=False),
        Binding("left,right,h,l,tab", "other", "The other button", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(self, question: str, consequence: str, yes: str, no: str = "Cancel") -> None:
        super().__init__()
        self._question = question
        self._consequence = consequence
        self._yes, self._no = yes, no
        self._answered = False

    def compose(self) -> ComposeResult:
        """Question, consequence, two buttons."""
        with Vertical(id="dialog"):
            yield Static(Content(self._question), id="question")
            yield Static(Content(self._consequence), id="consequence")
            with Horizontal(id="answers"):
                yield Button(self._no, id="cancel", compact=True)
                yield Button(Content(f"{self._yes} (y)"), id="yes", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer yes or no, by the button."""
        self.action_answer(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answer; only the first answer counts, because keys may have been typed ahead."""
        if not self._answered:
            self._answered = True
            self.dismiss(answer)

    def action_other(self) -> None:
        """Move to the other button."""
        self.focus_next()
