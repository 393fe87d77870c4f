"""A merged stack tree as rows for the screen. No I/O; everything is sanitised here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redmesh import idset
from redmesh.idset import fold_names
from redmesh.sanitise import clean

_INSIDE = re.compile(r"P?MPI_[A-Z]")  # calls below it are internal to the library
Path = tuple[int, ...]

#: First functions of threads that do not run a program's main function.
_THREAD_ENTRIES = frozenset(("clone", "__clone", "clone3", "__clone3", "start_thread", "thread_start", "_bootstrap",
                             "_bootstrap_inner", "pythread_wrapper"))  # fmt: skip
#: Helper threads of libraries, by a call's function or file.
_HELPERS = tuple((name, re.compile(pattern)) for name, pattern in (
    ("PMIx", r"libpmix|^pmix_|^PMIx_|^progress_engine$"),
    ("UCX", r"libuc[stp]\b|^uc[stp]_"),
    ("MPI", r"libmpi|libopen-(pal|rte)|libmpich|libfabric|^opal_|^prte_|^MPI[DR]_"),
    ("BLAS", r"libopenblas|libmkl|libblis|^blas_thread|^exec_blas"),
    ("Python", r"^faulthandler_thread|tqdm/_monitor\.py"),
))  # fmt: skip


#: Files that are not the user's: the standard library, installed packages, Redmesh's own program on a node.
_LIBRARY = re.compile(r"/lib(64)?/python[\d.]+t?/|/(site|dist)-packages/|/python\d+\.zip/|/redmesh[^/]*\.pyz/")

HELPERS = "helpers"  # the language of the branch for helper threads


class Row(NamedTuple):
    """A call, and its ranks."""

    path: Path  # its position in the tree, equal for equal trees
    depth: int
    ranks: str  # folded; empty: no rank any more
    size: int
    call: str
    where: str
    came: str  # ranks that were not in this call in the earlier stacks
    left: str  # ranks that have left it since
    closed: bool  # it has hidden calls below
    helpers: bool = False  # the line that contains the folded helper threads
    file: str = ""  # the full path of the source file, if known; not displayed
    line: int = 0


def rows(tree: Sequence[Mapping[str, Any]], *, whole: bool, closed: frozenset[Path] = frozenset()) -> list[Row]:
    """The tree, depth first. ``whole``: including calls inside MPI. ``closed``: the branches that the user folded; for
    the line of helper threads, which is folded at first, it means unfolded."""
    found: list[Row] = []
    threads, helpers = _apart(tree)
    ahead: list[tuple[Path, Mapping[str, Any]]] = [((at,), one) for at, one in _backwards([*threads, *helpers])]
    while ahead:
        path, one = ahead.pop()
        function = clean(str(one["function"]))
        below = one["children"]
        inside = not whole and one["language"] == "c" and _INSIDE.match(function) is not None
        folds = (path in closed) != (one["language"] == HELPERS)
        shut = bool(below) and (folds or inside)
        ranks = clean(str(one["ranks"]))
        came, left = clean(str(one.get("came", ""))), clean(str(one.get("left", "")))
        found.append(
            Row(
                path,
                len(path) - 1,
                ranks,
                _count(ranks),
                function,
                _where(one),
                came,
                left,
                shut,
                one["language"] == HELPERS,
                str(one.get("path", "")),
                int(one["line"]),
            )
        )
        if not shut:
            ahead += [((*path, at), each) for at, each in _backwards(below)]
    return found


def _apart(tree: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The program's threads, and one branch for helper threads of libraries."""
    threads: list[Mapping[str, Any]] = []
    helpers: dict[str, list[Mapping[str, Any]]] = {}
    for root in tree:
        own = _without_helpers(root, helpers)
        if own is not None:
            threads.append(own)
    if not helpers or not threads:  # without other threads there is nothing to separate
        return list(tree), []
    calls = [one for group in helpers.values() for one in group]
    ranks = 0
    for one in calls:
        ranks |= _set(str(one["ranks"]))
    told = f"helper threads of {', '.join(sorted(helpers))}"
    return threads, [{"function": told, "file": "", "line": 0, "language": HELPERS, "ranks": idset.text(ranks),
                      "children": calls}]  # fmt: skip


def _without_helpers(call: Mapping[str, Any], helpers: dict[str, list[Mapping[str, Any]]]) -> Mapping[str, Any] | None:
    """Move a library's helper threads from ``call`` to ``helpers``; returns the rest, None if nothing remains."""
    owner = next((name for name, pattern in _HELPERS if any(map(pattern.search, (call["function"], call["file"])))), "")
    if owner:
        helpers.setdefault(owner, []).append(call)
        return None
    if call["function"] not in _THREAD_ENTRIES or not call["children"]:
        return call
    below = [own for one in call["children"] if (own := _without_helpers(one, helpers)) is not None]
    return {**call, "children": below} if below else None


def _backwards(tree: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    return list(enumerate(tree))[::-1]


def _where(one: Mapping[str, Any]) -> str:
    file = clean(str(one["file"]))
    if one["line"]:
        return f"{file}:{one['line']}"
    return f"in {file}" if file else ""


def _count(ranks: str) -> int:
    return len(members(ranks))


def _set(ranks: str) -> int:
    try:
        return idset.read(ranks) if ranks else 0
    except ValueError:
        return 0


def members(ranks: str) -> frozenset[int]:
    """The ranks of a set in wire form; empty if it is invalid."""
    found = _set(ranks)
    return frozenset(at for at, bit in enumerate(reversed(bin(found)[2:])) if bit == "1")


def outlier(lines: Sequence[Row], hints: Sequence[Mapping[str, Any]]) -> int:
    """The row to look at first: the innermost source line of the fewest ranks named in hints, or of any; a line in a
    file of the user's own if there is one."""
    spoken = frozenset[int]().union(*(members(str(hint["ranks"])) for hint in hints))
    spoken = spoken or frozenset[int]().union(*(members(row.ranks) for row in lines))
    eligible = [row.line > 0 and not row.helpers and bool(members(row.ranks) & spoken) for row in lines]
    own = [there and of_user(row) for there, row in zip(eligible, lines, strict=True)]
    best, fewest = 0, 0
    for at, row in enumerate(lines):
        ranks = members(row.ranks)
        if not (own if any(own) else eligible)[at]:
            continue
        inner = lines[best].path == row.path[: len(lines[best].path)] and len(ranks) == fewest
        if not fewest or len(ranks) < fewest or inner:
            best, fewest = at, len(ranks)
    return best


def of_user(row: Row) -> bool:
    """True for a call in a file of the user's own: not in a library, nor in Redmesh."""
    return bool(row.line) and row.file.startswith("/") and _LIBRARY.search(row.file) is None


def innermost(lines: Sequence[Row]) -> int:
    """The innermost call of the first stack that is in a file of the user's; otherwise the innermost with a line."""
    chain = 1
    while chain < len(lines) and lines[chain].depth > lines[chain - 1].depth:
        chain += 1
    placed = [at for at, row in enumerate(lines[:chain]) if row.line]
    return max([at for at in placed if of_user(lines[at])] or placed or [0])


def remarks(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Hints and missing ranks, as (kind, text)."""
    found = [("hint", clean(str(hint["text"]))) for hint in told["hints"]]
    same: dict[str, list[Mapping[str, Any]]] = {}
    for one in told["missing"]:
        same.setdefault(str(one["why"]), []).append(one)
    for why, those in same.items():
        ranks = 0
        for one in those:
            ranks |= _set(str(one["ranks"]))
        nodes = fold_names(sorted({clean(str(one["node"])) for one in those if one["node"]}))
        on = f" on {nodes}" if nodes else ""
        found.append(("missing", f"rank {idset.text(ranks)}{on}: {clean(why)}"))
    found += [("missing", clean(str(text))) for text in told.get("lacks", ())]
    return found


def as_text(lines: Sequence[Row]) -> str:
    """The tree as text for the clipboard, as printed by ``mesh stacks``."""
    return "\n".join("  " * row.depth + f"[{row.ranks}] {row.call} {row.where}".rstrip() for row in lines)
