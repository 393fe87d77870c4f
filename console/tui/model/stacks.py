"""A merged stack tree as rows for the screen. Pure; everything in it passes the sanitiser here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redmesh import idset
from redmesh.sanitise import clean

_INSIDE = re.compile(r"P?MPI_[A-Z]")  # what is called below is the library's business
Path = tuple[int, ...]


class Row(NamedTuple):
    """A call, and the ranks that are in it."""

    path: Path  # where it stands in the tree: the same for the same tree
    depth: int
    ranks: str  # folded; empty: nobody any more
    size: int
    call: str
    where: str
    came: str  # ranks that were not in it the time before
    left: str
    closed: bool  # it has calls below that are not shown


def rows(tree: Sequence[Mapping[str, Any]], *, whole: bool, closed: frozenset[Path] = frozenset()) -> list[Row]:
    """The tree, depth first. ``whole``: also what stands inside MPI; ``closed``: branches that are folded."""
    found: list[Row] = []
    ahead: list[tuple[Path, Mapping[str, Any]]] = [((at,), one) for at, one in _backwards(tree)]
    while ahead:
        path, one = ahead.pop()
        function = clean(str(one["function"]))
        below = one["children"]
        inside = not whole and one["language"] == "c" and _INSIDE.match(function) is not None
        shut = bool(below) and (path in closed or inside)
        ranks = clean(str(one["ranks"]))
        came, left = clean(str(one.get("came", ""))), clean(str(one.get("left", "")))
        found.append(Row(path, len(path) - 1, ranks, _count(ranks), function, _where(one), came, left, shut))
        if not shut:
            ahead += [((*path, at), each) for at, each in _backwards(below)]
    return found


def _backwards(tree: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    return list(enumerate(tree))[::-1]


def _where(one: Mapping[str, Any]) -> str:
    file = clean(str(one["file"]))
    if one["line"]:
        return f"{file}:{one['line']}"
    return f"in {file}" if file else ""


def _count(ranks: str) -> int:
    return len(members(ranks))


def members(ranks: str) -> frozenset[int]:
    """The ranks of a set as it travels; empty for what is none."""
    try:
        found = idset.read(ranks) if ranks else 0
    except ValueError:
        return frozenset()
    return frozenset(at for at, bit in enumerate(reversed(bin(found)[2:])) if bit == "1")


def remarks(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Hints and missing ranks, as (kind, text)."""
    found = [("hint", clean(str(hint["text"]))) for hint in told["hints"]]
    for one in told["missing"]:
        on = f" on {clean(str(one['node']))}" if one["node"] else ""
        found.append(("missing", f"rank {clean(str(one['ranks']))}{on}: {clean(str(one['why']))}"))
    return found


def as_text(lines: Sequence[Row]) -> str:
    """For the clipboard: as ``mesh stacks`` prints it."""
    return "\n".join("  " * row.depth + f"[{row.ranks}] {row.call} {row.where}".rstrip() for row in lines)
