"""The table of words of each command, shared by parser, help, page and completion."""

from __future__ import annotations

from console.cli.options.parser import Word, parse
from console.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Commands with a page and a table, each in its module of console/cli.
COMMANDS = ("yod", "pingd", "showmesh")


_MODULES = {
    "yod": "console.cli.yod.command",
    "showmesh": "console.cli.showmesh",
    "pingd": "console.cli.pingd.command",
}


class Table:
    """A command's words."""

    __slots__ = ("about", "command", "program", "usage", "words")

    def __init__(self, command: str, usage: str, about: str, words: Sequence[Word]) -> None:
        self.command, self.usage, self.about, self.words = command, usage, about, words
        self.program = " program" in usage  # a program with its own arguments follows the options


def table_of(command: str) -> Table:
    """The table of one of COMMANDS."""
    from importlib import import_module

    module = import_module(_MODULES[command])
    usage = getattr(module, "USAGE", f"{command} [options]")
    return Table(command, usage, module.ABOUT, module.WORDS)


def spellings(table: Table, word: Word) -> list[str]:
    """Everything that the parser accepts for ``word``, shortest first: prefixes, letter, GNU form and its prefixes."""
    forms = [f"-{word.name[:end]}" for end in range(1, len(word.name) + 1)]
    forms += [f"--{long[:end]}" for long in word.longs for end in range(1, len(long) + 1)]
    forms += [f"-{also}" for also in word.also]
    forms += [f"-{word.letter}"] if word.letter else []
    return sorted(
        {form for form in forms if _means(table, form) == word.name},
        key=lambda form: (len(form), form.startswith("--"), form),
    )


def _means(table: Table, form: str) -> str:
    # Ask the parser itself; every word is made a flag, so that no value is needed.
    bare = [word.as_flag() for word in table.words]
    try:
        (name,) = parse(bare, [form], stop=True).values
    except (UsageError, ValueError):
        return ""
    return name
