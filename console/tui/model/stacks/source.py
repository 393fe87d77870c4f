"""Source text beside a stack tree: file and line of a call, and other ranks in that file. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from console.tui.format import one_line
from console.tui.model.stacks.rows import Row
from redmesh import idset

_TAB = 4
Piece = tuple[str, str]  # a kind of token ("" for plain text), and the text

#: Kinds with a style of their own, by the beginning of Pygments' names.
_KINDS = (
    ("Token.Comment", "comment"), ("Token.Keyword", "keyword"), ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"), ("Token.Name.Function", "name"), ("Token.Name.Class", "name"),
)  # fmt: skip


class Place(NamedTuple):
    """A line of a file, and a rank that is there."""

    path: str
    line: int
    rank: int


class SourceText(NamedTuple):
    """A file, or the part that was read. ``node``: where it was read; empty for this host."""

    path: str
    first: int  # the number of the first of ``lines``
    lines: list[list[Piece]]
    node: str = ""
    why: str = ""  # the reason if there are no lines


def place(rows: Sequence[Row], at: int) -> Place | None:
    """The place of the call in row ``at``, or of the innermost call around it with a known file."""
    path: tuple[int, ...] = rows[at].path if at < len(rows) else ()
    for row in reversed(rows[: at + 1]):
        if row.path == path[: len(row.path)] and row.file and row.line:
            ranks = idset.read(rows[at].ranks or row.ranks or "0")
            return Place(row.file, row.line, idset.lowest(ranks))
    return None


def standing(tree: Sequence[Mapping[str, Any]], path: str) -> dict[int, str]:
    """The ranks at each line of a file, folded."""
    found: dict[int, int] = {}
    ahead = list(tree)
    while ahead:
        one = ahead.pop()
        if one.get("path") == path and one["line"] and one["ranks"]:
            found[one["line"]] = found.get(one["line"], 0) | idset.read(one["ranks"])
        ahead += one["children"]
    return {line: idset.text(ranks) for line, ranks in found.items()}


def pieces(lines: Sequence[str], path: str) -> list[list[Piece]]:
    """Lines split into tokens by Pygments; plain text for unknown languages. Everything is sanitised."""
    plain = [one_line(line, _TAB) for line in lines]
    # Imported with the first file that is shown.
    from pygments.lexers import get_lexer_for_filename  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [[("", line)] for line in plain]
    found: list[list[Piece]] = [[]]
    for token, text in lexer.get_tokens("\n".join(plain)):
        name = str(token)
        kind = next((kind for begin, kind in _KINDS if name.startswith(begin)), "")
        first, *rest = text.split("\n")
        if first:
            found[-1].append((kind, first))
        for more in rest:
            found.append([(kind, more)] if more else [])
    return found[: len(plain)]
