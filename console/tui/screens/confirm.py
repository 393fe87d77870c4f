"""A question before something that cannot be undone. Cancel is what Enter does."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static


class Confirm(ModalScreen[bool]):
    """True when the answer is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,escape,q", "answer(False)", "No", show=False),
        Binding("left,right,h,l,tab", "other", "The other button", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(self, question: str, consequence: str, yes: str) -> None:
        super().__init__()
        self._question = question
        self._consequence = consequence
        self._yes = yes
        self._answered = False

    def compose(self) -> ComposeResult:
        """Question, what follows from it, two buttons."""
        with Vertical(id="dialog"):
            yield Static(Content(self._question), id="question")
            yield Static(Content(self._consequence), id="consequence")
            with Horizontal(id="answers"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(Content(f"{self._yes} (y)"), id="yes", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answers."""
        self.action_answer(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answers; the first answer counts, for keys may have been typed ahead."""
        if not self._answered:
            self._answered = True
            self.dismiss(answer)

    def action_other(self) -> None:
        """Moves to the other button."""
        self.focus_next()
