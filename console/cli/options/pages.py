"""Keeps the pages of docs/ consistent with the tables of words.

A page has its command's table between ``<!-- words -->`` and ``<!-- end of words -->``, or the text of ``--help`` in a
fence that begins with ``usage: COMMAND``; everything else is written by hand. ``python -m console.cli.options.pages
docs`` updates these parts, and a test checks that they are current.
"""

from __future__ import annotations

import sys

from console.cli.options.parser import help_text
from console.cli.options.tables import COMMANDS, Table, spellings, table_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BEGIN, END = "<!-- words -->\n", "<!-- end of words -->\n"


def words_part(table: Table) -> str:
    """The words by group in Markdown: word, shortest form, other forms, meaning."""
    lines: list[str] = []
    for group in dict.fromkeys(word.group for word in table.words):
        lines += [f"### {group}", "", "| word | at least | long | meaning |", "|---|---|---|---|"]
        for word in table.words:
            if word.group == group:
                value = "" if word.kind == "flag" else " " + (word.metavar or word.kind.upper())
                shortest = spellings(table, word)[0]
                longs = ", ".join(f"`--{long}`" for long in word.longs)
                cells = (f"`-{word.name}{value}`", f"`{shortest}`", longs, _cell(word.help))
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def updated(page: str, table: Table) -> str:
    """Return ``page`` with updated parts. Raises ValueError if the page has no part to update."""
    found = False
    start, end = page.find(BEGIN), page.find(END)
    if 0 <= start < end:
        page = page[: start + len(BEGIN)] + "\n" + words_part(table) + page[end:]
        found = True
    fence = page.find(f"```\nusage: {table.command} ")
    if fence >= 0:
        close = page.index("\n```", fence + 4)
        page = page[: fence + 4] + help_text(table.usage, table.about, table.words).rstrip("\n") + page[close:]
        found = True
    if not found:
        raise ValueError(f"the page of {table.command} holds neither its table of words nor its help")
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """``pages DIRECTORY``: update the parts of every page."""
    from pathlib import Path

    given = list(sys.argv[1:] if arguments is None else arguments)
    folder: Path = Path(given[0] if given else "docs")
    for command in COMMANDS:
        path = folder / f"{command}.md"
        before = path.read_text()
        after = updated(before, table_of(command))
        if after != before:
            path.write_text(after)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
