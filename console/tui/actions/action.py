"""An action of the console: its key, its meaning, and the command line that does the same."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """A row of this package's tables of actions, from which bindings, footer, help, palette, documentation and
    ``[console.keys]`` are made."""

    name: str  # ``place.what``: its name in the configuration; the place is a screen or a widget
    keys: str  # Textual's names, separated by commas; empty: only in the palette
    label: str  # in the footer and the palette
    meaning: str  # in the help: what it does, in a few words
    do: str  # Textual's action, resolved where the keys are bound
    command: str = ""  # the same in a shell; the screen fills in ``{launcher}`` and the like
    footer: bool = False
    changes: bool = False  # changes the mesh or a launch: not allowed in read-only mode
    priority: bool = False  # handled before the focused widget sees the key
    group: str = ""  # adjacent actions of one group share a place in the footer

    @property
    def place(self) -> str:
        """The screen or widget that binds the keys."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """The name of the Textual action: ``signal`` for ``signal(15)``."""
        return self.do.partition("(")[0]

    @property
    def word(self) -> str:
        """The word to type after the colon: the name without its place."""
        return self.name.partition(".")[2]


class _Open(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return " [RANKS]" if key == "ranks" else key.upper()


def command_line(action: Action, facts: dict[str, str]) -> str:
    """The action's command with known values filled in, unknown ones in capitals. Empty if it has no command.

    ``ranks`` may be missing; it includes the blank before it.
    """
    return action.command.format_map(_Open(facts))
