"""``?``: all keys of the present screen, generated from its bindings, so that the page is always current."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from console.tui.actions.action import command_line
from console.tui.actions.registry import HEADINGS, of
from console.tui.context import AppContext
from console.tui.screens.base import Dialog, Framed
from console.tui.widgets.inputs import CleanInput

_WIDEST = 104  # columns of the page
_KEYS = 20  # of them for the keys

#: A heading, and (keys, meaning, command line) of each action.
Section = tuple[str, list[tuple[str, str, str]]]


def help_sections(app: AppContext, screen: Framed) -> list[Section]:
    """The actions of a screen: its own first, then its widgets', then the global ones."""
    sections = []
    facts = screen.facts()  # once: thousands of nodes may be chosen
    for place in (*screen.PLACES, "app"):
        rows = [
            (app.keys_of(action) or "(palette)", action.meaning, command_line(action, facts))
            for action in of(place)
            if action.name not in screen.HIDES
        ]
        sections.append((HEADINGS[place], rows))
    return sections


def key_name(app: App[Any], key: str) -> str:
    """``?`` for ``question_mark``, ``ctrl+p``, ``escape``."""
    shown = app.get_key_display(Binding(key, ""))
    return {"esc": "escape", "⏎": "enter", "⇥": "tab", "^": "ctrl+"}.get(shown, shown)


class Help(Dialog[None]):
    """A page of keys and what they do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "Close", show=False),
        Binding("j,down", "scroll_help(1)", "Down", show=False),
        Binding("k,up", "scroll_help(-1)", "Up", show=False),
        Binding("slash,f", "search", "Search", show=False),
    ]
    AUTO_FOCUS = "#help-text"

    def __init__(self, title: str, sections: list[Section]) -> None:
        super().__init__()
        self._title = title
        self._sections = sections
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """The sections, one under the other."""
        with Vertical(id="help") as frame:
            frame.border_title = f"Keys: {self._title}"
            frame.border_subtitle = "/ searches, escape closes"
            yield CleanInput(placeholder="/ searches keys, meanings and commands", compact=True)
            with VerticalScroll(id="help-text"):
                yield Static(self._text())

    @on(Input.Changed)
    def _searched(self) -> None:
        words = self.query_one(Input).value.lower().split()
        self.query_one("#help-text Static", Static).update(self._text(words))

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        self._searched()

    @on(Input.Submitted)
    def _read(self) -> None:
        self.query_one("#help-text").focus()

    def action_search(self) -> None:
        """Move the focus to the search line."""
        self.set_focus(self.query_one(Input))  # at once, for what is typed right after the key

    def _text(self, words: Sequence[str] = ()) -> Content:
        before = min(_KEYS, 4 + max((len(key) for _, rows in self._sections for key, _, _ in rows), default=0))
        room = max(24, min(_WIDEST, self.app.size.width * 95 // 100) - 6 - before)
        lines: list[Content] = []
        for heading, rows in self._sections:
            keys = [row for row in rows if all(word in " ".join(row).lower() for word in words)]
            if not keys:
                continue
            if lines:
                lines.append(Content(""))
            lines.append(Content.styled(heading, "bold $accent"))
            for key, what, command in keys:
                told = textwrap.wrap(what, room) or [""]
                same = textwrap.wrap(command, room)
                if same and len(told) == len(same) == 1 and len(what) + len(command) + 3 <= room:
                    rest, same = [(f"   {command}", "$quiet")], []
                else:
                    rest = []
                lines.append(Content.assemble((f"  {key:<{before - 2}}", "$primary"), told[0], *rest))
                lines += [Content(" " * before + more) for more in told[1:]]
                lines += [Content.styled(" " * before + more, "$quiet") for more in same]
        return Content("\n").join(lines or [Content("  nothing is called so")])

    def action_close(self) -> None:
        """Clear the search; if it is empty, close the page."""
        search = self.query_one(Input)
        if search.has_focus and search.value:
            search.value = ""
            self.query_one("#help-text").focus()
        elif not self._dismissed:
            self._dismissed = True
            self.dismiss()

    def action_scroll_help(self, step: int) -> None:
        """Scroll the page."""
        self.query_one("#help-text").scroll_relative(y=step, animate=False)
