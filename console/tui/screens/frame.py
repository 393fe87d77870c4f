"""What all screens share: the bar above, the keys below, and how they reach the application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.widget import Widget

from console.tui.actions.registry import changes
from console.tui.painting import PromptScreen
from console.tui.widgets.key_bar import KeyBar
from console.tui.widgets.top_bar import TopBar

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class Framed(PromptScreen):
    """A screen between the bar and the footer."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (64, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    TITLE_FOR_HELP: ClassVar[str] = ""
    #: Where actions of this screen are bound (console/tui/actions): its own place first, then its widgets'.
    PLACES: ClassVar[tuple[str, ...]] = ()

    @property
    def console(self) -> ConsoleApp:
        """The application, by its own type."""
        return cast("ConsoleApp", self.app)

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

    def body(self) -> Iterable[Widget]:
        """What stands between."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Bar, body, footer."""
        yield TopBar()
        yield from self.body()
        yield KeyBar()
