"""An input line at the bottom of a screen: for a filter, a search text, a file name."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Label

from console.tui.actions.registry import bindings
from redmesh.sanitise import clean

# An input line without control characters, whether its text was typed, pasted or filled in.


class CleanInput(Input):
    """An input line with sanitised contents; Textual's own shows pasted text unchanged.

    Its size does not depend on its text, and it has no scroll bars. Textual lays out the whole screen for each letter.
    """

    virtual_size = Reactive(Size(0, 0))

    def validate_value(self, value: str) -> str:
        """Control characters as pictures."""
        return clean(value)


class _Line(CleanInput):
    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    def __init__(self) -> None:
        # Not selected at the focus, which comes after the first keys of a burst: the next one would replace them.
        super().__init__(compact=True, select_on_focus=False)
        self._later: list[events.Key] | None = None  # typed behind enter, while the answer is not handled yet

    async def _on_key(self, event: events.Key) -> None:
        """Enter takes the present text. Keys behind it wait until the answer is handled: most are keys of the screen.

        As a binding, enter takes effect only after it has come up to the application; keys behind it were typed here.
        """
        if self._later is not None:
            self._later.append(event)
        elif event.key == "enter":
            self._later = []
            await self.action_submit()
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    def answer_handled(self) -> None:
        """Pass on the keys that were typed behind enter."""
        later, self._later = self._later or [], None
        for event in later:
            self.app.post_message(events.Key(event.key, event.character))

    def action_leave(self) -> None:
        """Close the prompt without an answer."""
        parent = self.parent
        if isinstance(parent, Prompt):
            parent.leave()

    def action_end_input(self) -> None:
        """End the input: only standard input has an end."""
        parent = self.parent
        if isinstance(parent, Prompt):
            parent.post_message(Prompt.Ended(parent.kind))


class Prompt(Horizontal):
    """Hidden until it asks. ``kind`` is what it asks for."""

    class Answered(Message):
        """Enter was pressed."""

        def __init__(self, kind: str, value: str) -> None:
            super().__init__()
            self.kind, self.value = kind, value

    class Changed(Message):
        """The answer so far."""

        def __init__(self, kind: str, value: str) -> None:
            super().__init__()
            self.kind, self.value = kind, value

    class Left(Message):
        """The prompt was closed without an answer."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

    class Ended(Message):
        """ctrl+d was pressed: the end of the input."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.kind = ""
        self._line = _Line()
        self._asks = Label()
        self._note = Label(classes="prompt-note")
        self._keeps_open = False

    def compose(self) -> ComposeResult:
        """The prompt's name, the input line, the error."""
        yield self._asks
        yield self._line
        yield self._note

    def ask(
        self,
        kind: str,
        name: str,
        value: str = "",
        placeholder: str = "",
        *,
        keeps_open: bool = False,
        suggester: Suggester | None = None,
    ) -> None:
        """Open the prompt. ``keeps_open``: an answer empties the line instead of closing it."""
        self.kind, self._keeps_open = kind, keeps_open
        self._asks.update(Content(f" {name} "))
        self._line.suggester = suggester
        with self._line.prevent(Input.Changed):
            self._line.value = value
        self._line.placeholder = placeholder
        self._line.select_all()  # what is typed replaces the value
        self.complain("")
        self.add_class("-open")
        self.screen.set_focus(self._line)  # at once: focus() does it later, and keys typed meanwhile are commands

    def complain(self, text: str) -> None:
        """Show an error about the answer so far."""
        self._note.update(Content(text))
        self._note.display = bool(text)

    @property
    def is_open(self) -> bool:
        """True while the prompt is open."""
        return self.has_class("-open")

    def close(self) -> None:
        """Hide the prompt."""
        self.remove_class("-open")
        self.screen.set_focus(None)

    def leave(self) -> None:
        """Close the prompt without an answer."""
        self.close()
        self.post_message(self.Left(self.kind))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(self.kind, event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._keeps_open:
            self._line.value = ""
        self.post_message(self.Answered(self.kind, event.value))
        self.call_later(self.screen.call_later, self._line.answer_handled)  # behind the answer on its way


# A choice of a few words on one line.


class Choice(Widget, can_focus=True):
    """Left, right or space choose, and a letter chooses the next word that begins with it; the chosen word is marked.

    As in a text field, letters mean nothing else: ``q`` would end the console, ``n`` would go to the first field.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice--chosen", "choice--other"}

    BINDINGS: ClassVar[list[BindingType]] = bindings("choice")

    index = reactive(0)

    class Changed(Message):
        """Another word is chosen."""

    def __init__(self, words: tuple[str, ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words = words

    @property
    def value(self) -> str:
        """The chosen word."""
        return self._words[self.index]

    def action_step(self, step: int) -> None:
        """Choose the next word, or the previous one, cyclically."""
        self.index = (self.index + step) % len(self._words)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """True for characters: they are no keys of the screen here."""
        return character is not None and character.isprintable() and key not in self._bindings.key_to_bindings

    def on_key(self, event: events.Key) -> None:
        """Choose the next word that begins with the letter, if there is one."""
        letter = event.character
        if letter is None or not self.check_consume_key(event.key, letter):
            return
        event.stop()
        event.prevent_default()
        count = len(self._words)
        after = ((self.index + step) % count for step in range(1, count + 1))
        self.index = next((at for at in after if self._words[at].startswith(letter.lower())), self.index)

    def watch_index(self) -> None:
        """Announce the new choice."""
        self.post_message(self.Changed())

    def on_click(self, event: events.Click) -> None:
        """Choose the word that was clicked."""
        x = 0
        for index, word in enumerate(self._words):
            x += len(word) + 4
            if event.x < x:
                self.index = index
                return

    def render(self) -> Content:
        """All words; ``●`` before the chosen one and ``○`` before others, so that it is visible without colour."""
        parts = []
        for index, word in enumerate(self._words):
            style = self.get_visual_style("choice--chosen" if index == self.index else "choice--other")
            parts.append(Content.styled(f"{'●' if index == self.index else '○'} {word}", style))
            parts.append(Content("  "))
        return Content("").join(parts)
