"""What all screens share: the bar above, the keys below, and how they reach the application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from console.tui.widgets.top_bar import TopBar

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class Framed(Screen[None]):
    """A screen between the bar and the footer."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (64, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    TITLE_FOR_HELP: ClassVar[str] = ""
    #: Keys that are explained by ``?`` though no binding of the screen itself has them.
    MORE_KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def console(self) -> ConsoleApp:
        """The application, by its own type."""
        return cast("ConsoleApp", self.app)

    def body(self) -> Iterable[Widget]:
        """What stands between."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Bar, body, footer."""
        yield TopBar()
        yield from self.body()
        yield Footer(compact=True, show_command_palette=False)
