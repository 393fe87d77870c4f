"""The command palette: every action by name, the tabs, and launches to attach to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from textual import events, on
from textual._widget_navigation import Direction
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.command import (
    Command,
    CommandInput,
    CommandList,
    CommandPalette,
    DiscoveryHit,
    Hit,
    Hits,
    Provider,
    SearchIcon,
)
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Offset
from textual.widget import Widget
from textual.widgets import Input, LoadingIndicator, OptionList

from console.tui.actions.action import Action, command_line
from console.tui.actions.registry import of
from console.tui.context import AppContext, context
from console.tui.format import program_words
from console.tui.screens.base import Framed
from console.tui.terminal.compositor import OverPrompt
from console.tui.terminal.removed import can_page, ignore_removed_option, without_removed


class Commands(CommandList, can_focus=False):
    """The palette's list, which changes with each typed letter."""

    def _move_page(self, direction: Direction) -> None:
        if can_page(self):
            super()._move_page(direction)

    async def _on_click(self, event: events.Click) -> None:
        ignore_removed_option(self, event)


class Palette(OverPrompt, CommandPalette):
    """Textual's command palette, which takes one answer.

    Textual's own took a second click on an entry as a second answer: it left the screen below too and ran the entry
    twice, or failed because its list was empty by then.
    """

    def __init__(self) -> None:
        super().__init__(id="--command-palette")
        self._answered = False

    def compose(self) -> ComposeResult:
        """As Textual's, with a list of our own."""
        with Vertical(id="--container"):
            with Horizontal(id="--input"):
                yield SearchIcon()
                yield CommandInput(placeholder="Search for commands…", select_on_focus=False)
            with Vertical(id="--results"):
                yield Commands()
                yield LoadingIndicator()

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """The widget at a position, where a text selection begins."""
        return without_removed(self, super().get_widget_and_offset_at(x, y))

    def _watch__list_visible(self) -> None:
        """Show nothing once the palette has closed: Textual's search (8.2.8) goes on, and looks for removed widgets."""
        if self.query(CommandList):
            super()._watch__list_visible()

    def _watch__show_busy(self) -> None:  # type: ignore[override]
        """As Textual's, for the same reason; not a coroutine, which nobody would await after the end of the palette."""
        if self.query(CommandList):
            self.query_one(LoadingIndicator).set_class(self._show_busy, "--visible")
            self.query_one(CommandList).set_class(self._show_busy, "--populating")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        event.prevent_default()
        if not self._answered and isinstance(event.option, Command):
            self._cancel_gather_commands()
            self.app.post_message(CommandPalette.Closed(option_selected=True))
            self.app.delay_update()
            self.dismiss()
            self.app.call_later(event.option.hit.command)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if self._answered:
            event.prevent_default()

    def _on_click(self, event: events.Click) -> None:  # type: ignore[override]
        if self._answered:
            event.prevent_default()

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close; a second call does nothing."""
        if self._answered:
            return AwaitComplete()
        self._answered = True
        return super().dismiss(result)


class _Entry(NamedTuple):
    title: str
    help: str
    run: Callable[[], Any]


class ActionCommands(Provider):
    """The actions that are possible now."""

    @property
    def _console(self) -> AppContext:
        return context(self.screen)

    async def discover(self) -> Hits:
        """All entries, before anything is typed."""
        for entry in self._entries():
            yield DiscoveryHit(Content(entry.title), entry.run, text=entry.title, help=Content(entry.help).markup)

    async def search(self, query: str) -> Hits:
        """The entries that match the typed letters approximately."""
        matcher = self.matcher(query)
        for entry in self._entries():
            score = matcher.match(entry.title)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(entry.title), entry.run, text=entry.title, help=Content(entry.help).markup
                )

    def _entries(self) -> Iterator[_Entry]:
        console = self._console
        screen = self.screen
        here = screen.actions_here() if isinstance(screen, Framed) else [(action, self.app) for action in of("app")]
        facts = screen.facts() if isinstance(screen, Framed) else {}  # once: thousands of nodes may be chosen
        for action, node in here:
            if action.method != "command_palette":
                yield self._entry(action, screen, node, facts)
        for launcher, run in list(console.runs.items()):
            yield _Entry(
                f"Run {launcher}", " ".join(program_words(run.command)), partial(console.action_show, f"run-{launcher}")
            )
        for launcher, row in list(console.machine.launchers.items()):
            if launcher not in console.runs:
                told = " ".join(program_words(row.command))
                yield _Entry(f"Attach {launcher}", told, partial(console.attach, launcher))

    def _entry(self, action: Action, screen: Any, node: DOMNode, facts: dict[str, str]) -> _Entry:
        framed = isinstance(screen, Framed)
        title = action.label
        if framed and action.place != "app":
            title = f"{screen.TITLE_FOR_HELP.capitalize()}: {action.label}"
        keys = self._console.keys_of(action)
        command = command_line(action, facts) if framed else action.command
        told = " · ".join(filter(None, (action.meaning, keys and f"key {keys}", command)))
        return _Entry(title, told, partial(self.app.run_action, action.do, default_namespace=node))
