"""The palette: every action by name, the tabs, and launches to attach to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from textual.dom import DOMNode
from textual.screen import Screen

from console.tui.actions.action import Action, command_line
from console.tui.actions.registry import of
from console.tui.context import AppContext
from console.tui.format import program_words
from console.tui.model.tables import in_order
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Choosing

#: Title, explanation, and what is run.
_Entry = tuple[str, str, Callable[[], Awaitable[object] | None]]


class Palette(Choosing):
    """All entries that are possible now; the result is what is to be run."""

    def __init__(self, console: AppContext, screen: Screen[Any]) -> None:
        super().__init__("actions", [*_entries(console, screen)])

    def fitting(self, words: list[str]) -> list[tuple[str, str, Any]]:
        """The entry of that name, entries that begin so, that have the words in the title, and in the explanation;
        without one of these, entries with the letters in order."""

        def less(row: tuple[str, str, Any]) -> tuple[bool, ...]:
            title = row[0].lower()
            return title != typed, not title.startswith(typed), not all(word in title for word in words)

        typed = " ".join(words)
        found = sorted(super().fitting(words), key=less)
        return found or [row for row in self._rows if in_order("".join(words), row[0])]


def _entries(console: AppContext, screen: Screen[Any]) -> Iterator[_Entry]:
    here = screen.actions_here() if isinstance(screen, Framed) else [(action, screen.app) for action in of("app")]
    facts = screen.facts() if isinstance(screen, Framed) else {}  # once: thousands of nodes may be chosen
    for action, node in here:
        if action.method != "command_palette":
            yield _entry(console, action, screen, node, facts)
    for launcher, run in list(console.runs.items()):
        yield (f"Run {launcher}", " ".join(program_words(run.command)),
               partial(console.action_show, f"run-{launcher}"))  # fmt: skip
    for launcher, row in list(console.machine.launchers.items()):
        if launcher not in console.runs:
            yield f"Attach {launcher}", " ".join(program_words(row.command)), partial(console.attach, launcher)


def _entry(console: AppContext, action: Action, screen: Screen[Any], node: DOMNode, facts: dict[str, str]) -> _Entry:
    title, command, keys = action.label, action.command, console.keys_of(action)
    if isinstance(screen, Framed):
        command = command_line(action, facts)
        if action.place != "app":
            title = f"{screen.TITLE_FOR_HELP.capitalize()}: {title}"
    told = " · ".join(filter(None, (keys, action.meaning, command)))
    return title, told, partial(screen.app.run_action, action.do, default_namespace=node)
