"""A line to type at the foot of the screen: an expression, a place to go to, a filter, a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from console.tui.widgets.clean_input import CleanInput


class Line(CleanInput):
    """Where it is typed. Enter takes what stands there now, however soon more keys come; those are for what follows."""

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


class Entry(ModalScreen[str | None]):
    """What was typed, or None when it was given up.

    ``told`` answers each letter with a line about what is typed so far, and may act on it; a line that begins with
    ``!`` says that it cannot be taken. ``offers`` are the words it may go on with, the likeliest first.
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
    ) -> None:
        super().__init__()
        self._label, self._told, self._value = label, told, value
        self._offers = offers
        self._placeholder = placeholder
        self._offered: list[str] = []  # what tab goes round through
        self._nth = -1
        self.answered = False

    def compose(self) -> ComposeResult:
        """The line, and what is said about it above."""
        with Vertical(id="entry"):
            yield Static(id="entry-told")
            with Horizontal(id="entry-row"):
                yield Label(Content(self._label), id="entry-label")
                yield Line(self._value, placeholder=self._placeholder, compact=True, select_on_focus=bool(self._value))

    def on_mount(self) -> None:
        """Says what there is to say about the empty line."""
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
            words = f"{words}   tab: {'  '.join(offer.rpartition(' ')[2] for offer in offers)}".strip()
        line = self.query_one("#entry-told", Static)
        line.update(Content(words))
        line.set_class(bad, "-bad")
        return not bad

    def action_complete(self, step: int) -> None:
        """The next, or previous, of the words it may go on with."""
        field = self.query_one(Input)
        if not self._offered and self._offers is not None:
            self._offered, self._nth = list(self._offers(field.value)), -1 if step > 0 else 0
        if self._offered:
            self._nth = (self._nth + step) % len(self._offered)
            field.value = self._offered[self._nth]
            field.cursor_position = len(field.value)

    def submit(self, text: str) -> None:
        """Takes it, where it can be taken."""
        if self._say(text):
            self._end(text)

    def action_give_up(self) -> None:
        """Leaves without an answer."""
        self._end(None)

    def on_click(self, event: events.Click) -> None:
        """A click beside it gives up."""
        if event.widget is self:
            self._end(None)

    def _end(self, answer: str | None) -> None:
        if not self.answered:
            self.answered = True
            self.dismiss(answer)
