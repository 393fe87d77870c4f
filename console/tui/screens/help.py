"""``?``: every key of the screen one is in, made from its bindings, so that it cannot be out of date."""

from __future__ import annotations

import textwrap
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from console.tui.actions.action import command_line
from console.tui.actions.registry import HEADINGS, of
from console.tui.context import AppContext
from console.tui.screens.base import Framed

_WIDEST = 104  # columns of the page
_KEYS = 20  # of them for the keys

#: Heading, and (keys, meaning, command line) of each action.
Section = tuple[str, list[tuple[str, str, str]]]


def help_sections(app: AppContext, screen: Framed) -> list[Section]:
    """What can be done on a screen: its own actions first, then its widgets', then what can be done everywhere."""
    sections = []
    for place in (*screen.PLACES, "app"):
        rows = [
            (app.keys_of(action) or "(palette)", action.meaning, command_line(action, screen.facts()))
            for action in of(place)
        ]
        sections.append((HEADINGS[place], rows))
    return sections


def key_name(app: App[Any], key: str) -> str:
    """``?`` for ``question_mark``, ``ctrl+p``, ``escape``."""
    shown = app.get_key_display(Binding(key, ""))
    return {"esc": "escape", "⏎": "enter", "⇥": "tab", "^": "ctrl+"}.get(shown, shown)


class Help(ModalScreen[None]):
    """A page of keys and what they do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "Close", show=False),
        Binding("j,down", "scroll_help(1)", "Down", show=False),
        Binding("k,up", "scroll_help(-1)", "Up", show=False),
    ]

    def __init__(self, title: str, sections: list[Section]) -> None:
        super().__init__()
        self._title = title
        self._sections = sections
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """The sections, one under the other."""
        with Vertical(id="help") as frame:
            frame.border_title = f"Keys: {self._title}"
            frame.border_subtitle = "escape closes"
            with VerticalScroll(id="help-text"):
                yield Static(self._text())

    def _text(self) -> Content:
        room = max(24, min(_WIDEST, self.app.size.width * 95 // 100) - 6 - _KEYS)
        lines: list[Content] = []
        for heading, keys in self._sections:
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
                lines.append(Content.assemble((f"  {key:<{_KEYS - 2}}", "$primary"), told[0], *rest))
                lines += [Content(" " * _KEYS + more) for more in told[1:]]
                lines += [Content.styled(" " * _KEYS + more, "$quiet") for more in same]
        return Content("\n").join(lines)

    def action_close(self) -> None:
        """Closes the page, once."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss()

    def action_scroll_help(self, step: int) -> None:
        """Scrolls the page."""
        self.query_one("#help-text").scroll_relative(y=step, animate=False)
