"""What all screens share: the bar above, the keys below, and how they reach the application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from console.tui.actions.action import Action
from console.tui.actions.registry import MOVING, bindings, changes, of
from console.tui.context import AppContext, context
from console.tui.terminal.compositor import PromptScreen
from console.tui.widgets.bars import KeyBar, TopBar, set_subtitle, set_title


class Framed(PromptScreen):
    """A screen between the bar and the footer."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (64, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    TITLE_FOR_HELP: ClassVar[str] = ""
    #: Where actions of this screen are bound (console/tui/actions): its own place first, then its widgets'.
    PLACES: ClassVar[tuple[str, ...]] = ()
    #: Names of actions of these places that this screen has no use for.
    HIDES: ClassVar[frozenset[str]] = frozenset()

    @property
    def console(self) -> AppContext:
        """The application."""
        return context(self)

    def facts(self) -> dict[str, str]:
        """What is known here for the fields of the actions' command lines: ``launcher``, ``nodes`` …"""
        return {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing that changes anything while the console only reads; else as the screen says."""
        if self.console.read_only and changes(self.PLACES[0], action):
            return None
        return self.possible(action, parameters)

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action can be done now: True, None (shown, but dim), or False (hidden)."""
        del action, parameters
        return True

    def actions_here(self) -> list[tuple[Action, DOMNode]]:
        """What can be done here and now, and the screen, widget or application that does it; moving about is left out.

        The focused widget comes before others that bind the same action.
        """
        found: list[tuple[Action, DOMNode]] = []
        nodes = [node for node in (self.focused, self, *self.query("*")) if node is not None and node.display]
        for action in of(*(place for place in self.PLACES if place not in MOVING)):
            node = next((node for node in nodes if _binds(node, action.name)), None)
            if node is not None and action.name not in self.HIDES and node.check_action(action.method, ()):
                found.append((action, node))
        return found + [(action, self.app) for action in of("app")]

    def framed(self, *body: Widget) -> Iterable[Widget]:
        """For ``compose``: the bar, the widgets, the footer."""
        return (TopBar(), *body, KeyBar())


def _binds(node: DOMNode, name: str) -> bool:
    return any(one.id == name for several in node._bindings.key_to_bindings.values() for one in several)


# A page of text over the screen: scrolled by keys, closed by escape.


class Page(ModalScreen[None]):
    """Lines under a title. The text has been cleaned."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("page")

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with Vertical(id="page") as frame:
            set_title(frame, self._title)
            set_subtitle(frame, "escape closes, y copies")
            with VerticalScroll(id="page-text"):
                yield Static(Content("\n".join(self._lines)))

    def action_close(self) -> None:
        """Closes the page, once."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Scrolls the page."""
        self.query_one("#page-text").scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        """All of it into the clipboard."""
        self.app.copy_to_clipboard("\n".join(self._lines))
