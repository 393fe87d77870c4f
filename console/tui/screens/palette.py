"""The command palette: every action by name, the tabs, and the launches one could attach to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from console.tui.actions.action import Action, command_line
from console.tui.actions.registry import HEADINGS, of
from console.tui.context import AppContext, context
from console.tui.screens.base import Framed


class _Entry(NamedTuple):
    title: str
    help: str
    run: Callable[[], Any]


class ActionCommands(Provider):
    """What can be done now. Actions that are impossible here and now are left out."""

    @property
    def _console(self) -> AppContext:
        return context(self.screen)

    async def discover(self) -> Hits:
        """Everything, as it stands."""
        for entry in self._entries():
            yield DiscoveryHit(Content(entry.title), entry.run, text=entry.title, help=Content(entry.help).markup)

    async def search(self, query: str) -> Hits:
        """What matches, fuzzily."""
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
        if isinstance(screen, Framed):
            for place in screen.PLACES[:1]:
                for action in of(place):
                    if screen.check_action(_name(action), ()):
                        yield self._entry(action, screen)
        for action in of("app"):
            if _name(action) != "command_palette":
                yield self._entry(action, screen)
        for launcher, run in list(console.runs.items()):
            yield _Entry(f"Run {launcher}", run.command, partial(console.action_show, f"run-{launcher}"))
        for launcher, row in list(console.machine.launchers.items()):
            if launcher not in console.runs:
                yield _Entry(f"Attach {launcher}", row.command, partial(console.attach, launcher))

    def _entry(self, action: Action, screen: Any) -> _Entry:
        framed = isinstance(screen, Framed)
        title = action.label
        if framed and action.place != "app":
            title = f"{screen.TITLE_FOR_HELP.capitalize()}: {action.label}"
        keys = self._console.keys_of(action)
        command = command_line(action, screen.facts()) if framed else action.command
        told = " · ".join(filter(None, (action.meaning, keys and f"key {keys}", command)))
        namespace = screen if action.place in HEADINGS and action.place != "app" else self.app
        return _Entry(title, told, partial(self.app.run_action, action.do, default_namespace=namespace))


def _name(action: Action) -> str:
    return action.do.partition("(")[0]
