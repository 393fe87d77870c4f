"""The command palette: every action by name, the tabs, and launches to attach to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode

from console.tui.actions.action import Action, command_line
from console.tui.actions.registry import of
from console.tui.context import AppContext, context
from console.tui.screens.base import Framed


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
        for action, node in here:
            if action.method != "command_palette":
                yield self._entry(action, screen, node)
        for launcher, run in list(console.runs.items()):
            yield _Entry(f"Run {launcher}", run.command, partial(console.action_show, f"run-{launcher}"))
        for launcher, row in list(console.machine.launchers.items()):
            if launcher not in console.runs:
                yield _Entry(f"Attach {launcher}", row.command, partial(console.attach, launcher))

    def _entry(self, action: Action, screen: Any, node: DOMNode) -> _Entry:
        framed = isinstance(screen, Framed)
        title = action.label
        if framed and action.place != "app":
            title = f"{screen.TITLE_FOR_HELP.capitalize()}: {action.label}"
        keys = self._console.keys_of(action)
        command = command_line(action, screen.facts()) if framed else action.command
        told = " · ".join(filter(None, (action.meaning, keys and f"key {keys}", command)))
        return _Entry(title, told, partial(self.app.run_action, action.do, default_namespace=node))
