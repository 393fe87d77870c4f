"""One thing the console can do: its key, what it means, and the command line that does the same."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """A row of the tables in this room. Bindings, footer, help, palette, docs and ``[console.keys]`` come from it."""

    name: str  # ``place.what``: what the configuration calls it; the place is a screen's or a widget's
    keys: str  # Textual's names, commas between; empty: only in the palette
    label: str  # in the footer and the palette
    meaning: str  # in the help: what it does, in half a line
    do: str  # Textual's action, looked up where the keys are bound
    command: str = ""  # the same in a shell; ``{launcher}`` and the like are filled in by the screen
    footer: bool = False
    changes: bool = False  # acts on the mesh or on a launch: impossible while the console only reads
    priority: bool = False  # before the widget that has the focus sees the key
    group: str = ""  # actions of one group that stand side by side share a place in the footer

    @property
    def place(self) -> str:
        """Where its keys are bound."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """The name of the Textual action alone: ``signal`` for ``signal(15)``."""
        return self.do.partition("(")[0]

    @property
    def word(self) -> str:
        """What is typed behind the colon for it: the name without its place."""
        return self.name.partition(".")[2]


class _Open(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return " [RANKS]" if key == "ranks" else key.upper()


def command_line(action: Action, facts: dict[str, str]) -> str:
    """The action's command with what is known filled in; what is not stands there in capitals. Empty if it has none.

    ``ranks`` is a word that may be missing: it brings the blank before it along.
    """
    return action.command.format_map(_Open(facts))
