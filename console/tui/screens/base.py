"""The common parts of all screens: the bar above, the keys below, and access to the application."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Offset
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from console.tui.actions.action import Action
from console.tui.actions.registry import MOVING, bindings, changes, of
from console.tui.context import AppContext, context
from console.tui.terminal.compositor import OverPrompt, PromptScreen
from console.tui.terminal.removed import without_removed
from console.tui.widgets.bars import KeyBar, TopBar, set_subtitle, set_title

ResultT = TypeVar("ResultT")


class Framed(PromptScreen):
    """A screen with the top bar and the key bar."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (64, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    TITLE_FOR_HELP: ClassVar[str] = ""
    #: Places whose actions are bound on this screen (console/tui/actions): its own first, then its widgets'.
    PLACES: ClassVar[tuple[str, ...]] = ()
    #: Names of actions of these places that this screen does not use.
    HIDES: ClassVar[frozenset[str]] = frozenset()

    @property
    def console(self) -> AppContext:
        """The application."""
        return context(self)

    def facts(self) -> dict[str, str]:
        """Known values for the actions' command lines: ``launcher``, ``nodes`` …"""
        return {}

    @property
    def in_use(self) -> bool:
        """True if the user has set something up here: its tab does not close by itself."""
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In read-only mode, disable actions that change anything; otherwise ask the screen."""
        if self.console.read_only and changes(self.PLACES[0], action):
            return None
        return self.possible(action, parameters)

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action is possible now: True, None (shown dimmed), or False (hidden)."""
        del action, parameters
        return True

    def actions_here(self) -> list[tuple[Action, DOMNode]]:
        """The possible actions, each with the screen, widget or application that runs it, without cursor movements.

        The focused widget has priority over others that bind the same action.
        """
        found: list[tuple[Action, DOMNode]] = []
        nodes = [node for node in (self.focused, self, *self.query("*")) if node is not None and node.display]
        for action in of(*(place for place in self.PLACES if place not in MOVING)):
            node = next((node for node in nodes if _binds(node, action.name)), None)
            if node is not None and action.name not in self.HIDES and node.check_action(action.method, ()):
                found.append((action, node))
        return found + [(action, self.app) for action in of("app")]

    def framed(self, *body: Widget) -> Iterable[Widget]:
        """For ``compose``: the top bar, the widgets, the key bar."""
        self.take_breakpoints()
        return (TopBar(), *body, KeyBar())


def _binds(node: DOMNode, name: str) -> bool:
    return any(one.id == name for several in node._bindings.key_to_bindings.values() for one in several)


class Dialog(OverPrompt, ModalScreen[ResultT]):
    """A screen over the present one."""

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """The widget at a position, where a text selection begins."""
        return without_removed(self, super().get_widget_and_offset_at(x, y))


# A page of text over the screen: scrolled by keys, closed by escape.


class Page(Dialog[None]):
    """A titled page of lines, already sanitised; some may have colours."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("page")

    def __init__(self, title: str, lines: Sequence[str | Content]) -> None:
        super().__init__()
        self._title = title
        self._lines = [Content(line) if isinstance(line, str) else line for line in lines]
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with Vertical(id="page") as frame:
            set_title(frame, self._title)
            set_subtitle(frame, "escape closes, y copies")
            with VerticalScroll(id="page-text"):
                yield Static(Content("\n").join(self._lines))

    def on_key(self, event: events.Key) -> None:
        """A key of the application, as one of a tab, closes the page and has its effect."""
        keys = (key for node, bound in self._binding_chain if node is self.app for key in bound.key_to_bindings)
        if event.key in keys and not self._dismissed:
            event.stop()
            self.action_close()
            self.app.post_message(events.Key(event.key, event.character))

    def action_close(self) -> None:
        """Close the page; a second call does nothing."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss()

    async def action_wrong(self) -> None:
        """Close the page; go to the next thing that is wrong."""
        self.action_close()
        await self.app.run_action("app.wrong")

    def action_scroll(self, lines: int) -> None:
        """Scroll the page, unless it has closed and its text is gone."""
        if not self._dismissed:
            self.query_one("#page-text").scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        """Copy all of it to the clipboard."""
        self.app.copy_to_clipboard("\n".join(line.plain for line in self._lines))
