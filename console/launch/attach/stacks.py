"""Requests the stacks of a running launch from its yod, as one tree (for ``mesh stacks``, the console, redmesh).

The tree consists of nested objects: ``{"function", "file", "line", "language", "ranks", "children"}``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

from agents.link.client import Client, Unreachable
from agents.pct.debug import sources, stack_tree
from agents.wire.errors import AgentError, WireError
from console.errors import ConsoleError, UsageError
from console.launch.attach.client import reach_launch
from console.launch.attach.deadlocks import hints
from console.launch.daemons.connect import yod_socket
from redmesh import idset
from redmesh.idset import fold_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIMIT_S = 10.0
_SOURCE_S = 5.0
_LATER_S = 5.0  # for yod's answer, beyond the tree's own limit


def read_ranks(text: str) -> int:
    """Parse ``0-3,7`` or ``0..3,7`` as a set of ranks. Raises UsageError."""
    try:
        ranks = idset.read(text.replace("..", "-").replace(" ", ""))
    except ValueError:
        ranks = 0
    if not ranks:
        raise UsageError(f"no ranks: {text!r}", "write them like 0-3,7")
    return ranks


def take(
    run_dir: str, launcher: int, *, ranks: str | None = None, which: str = "all", limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """The stacks of ``ranks`` (None: all) as one object. ``which``: all, native or python.

    ``limit_s`` is the time limit for the nodes; ranks that were not read in time are listed as missing. Raises
    ConsoleError if the launch is unreachable (only its owner can reach it) or refuses.
    """
    wanted = -1 if ranks is None else read_ranks(ranks)
    request: dict[str, Any] = {"op": "stacks", "which": which, "limit_s": limit_s, "tools": tools()}
    if ranks is not None:
        request["ranks"] = idset.text(wanted)
    event = _ask(run_dir, launcher, request, limit_s)
    if event["event"] == "refused":
        raise ConsoleError(str(event["text"]))
    try:
        return as_told(event, wanted)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ConsoleError(f"launcher {launcher}: stacks that are not understood: {error}") from None


def tools() -> dict[str, str]:
    """Tools of this machine that nodes may lack: name → path, and ``machine`` → their architecture.

    They are searched beside this interpreter and on PATH.
    """
    found = os.path.join(os.path.dirname(sys.executable), "py-spy")
    path = found if os.access(found, os.X_OK) else shutil.which("py-spy")
    return {"py-spy": os.path.realpath(path), "machine": os.uname().machine} if path else {}


def source(run_dir: str, launcher: int, rank: int, path: str, first: int, last: int) -> tuple[str, list[str]]:
    """The node of ``rank``, and lines ``first`` to ``last`` (from 1) of a file there. Raises ConsoleError."""
    request = {"op": "source", "rank": rank, "path": path, "first": first, "last": last}
    event = _ask(run_dir, launcher, request, _SOURCE_S)
    if event["event"] == "refused" or event["why"]:
        raise ConsoleError(str(event.get("text") or event["why"]))
    return str(event["node"]), [str(line) for line in event["lines"]]


def _ask(run_dir: str, launcher: int, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    reach = reach_launch(run_dir, launcher)
    if reach is not None:
        reach.close()
    try:
        with Client(yod_socket(run_dir, launcher), "observer", limit_s + _LATER_S) as client:
            client.tell(request)
            while True:
                event = client.receive()
                if event.get("event") in (request["op"], "refused"):
                    return event
    except (Unreachable, WireError) as error:
        raise ConsoleError(
            f"launcher {launcher} gave no {request['op']}: {error.message}", "it may have ended meanwhile"
        ) from None
    except AgentError as error:
        raise ConsoleError(error.message, error.hint) from None


def as_told(event: dict[str, Any], wanted: int = -1) -> dict[str, Any]:
    """Convert a yod's event ``stacks`` to the object for programs. Raises KeyError, TypeError, ValueError or
    IndexError."""
    tree = stack_tree.read(event["calls"])
    more = sources.read(event)
    size = int(event["ranks"])
    everybody = (1 << size) - 1
    asked = wanted & everybody
    missing = [{"ranks": str(ranks), "node": str(node), "why": str(why)} for ranks, node, why in event["missing"]]
    there = in_tree(tree)
    for one in missing:
        there |= idset.read(one["ranks"])
    if asked & ~there:
        missing.append({"ranks": idset.text(asked & ~there), "node": "", "why": "it has ended"})
    lacks = [f"{fold_names(sorted(nodes))}: {text}" for text, nodes in sorted(more.lacks.items())]
    calls = nested(event["calls"], more.path)
    found = told(
        int(event["launcher"]), size, float(event["taken_at"]), float(event["took_s"]),
        [(one["ranks"], one["node"], one["why"]) for one in missing], calls, lacks,
    )  # fmt: skip
    found["hints"] = hints(tree, everybody, missing, asked=asked)
    return found


def told(
    launcher: int,
    ranks: int,
    at: float,
    took_s: float,
    missing: list[tuple[str, str, str]],
    tree: list[dict[str, Any]],
    lacks: list[str],
) -> dict[str, Any]:
    """The object for programs. ``missing``: ranks, node and reason; ``tree``: as from :func:`nested`; without hints."""
    return {
        "launcher": launcher,
        "ranks": ranks,
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z",
        "took_s": took_s,
        "missing": [{"ranks": which, "node": node, "why": why} for which, node, why in missing],
        "tree": tree,
        "lacks": lacks,
        "hints": [],
    }


def in_tree(tree: stack_tree.Tree) -> int:
    """All ranks in the tree."""
    found = 0
    for node in tree.values():
        found |= node.ranks
    return found


def nested(calls: list[list[Any]], path: Callable[[str, str], str] = lambda *_: "") -> list[dict[str, Any]]:
    """Convert the flat wire format to nested objects in the same order. ``path(function, file)`` gives the full
    path."""
    roots: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for parent, function, file, line, language, ranks in calls:
        one = {
            "function": function, "file": file, "line": line, "language": language, "ranks": ranks,
            "path": path(function, file) if line else "", "children": [],
        }  # fmt: skip
        (roots if parent < 0 else made[parent]["children"]).append(one)
        made.append(one)
    return roots


def flat(tree: list[dict[str, Any]]) -> list[list[Any]]:
    """Convert nested objects to the flat format."""
    calls: list[list[Any]] = []
    ahead = [(-1, one) for one in reversed(tree)]
    while ahead:
        parent, one = ahead.pop()
        ahead += [(len(calls), below) for below in reversed(one["children"])]
        calls.append([parent, one["function"], one["file"], one["line"], one["language"], one["ranks"]])
    return calls


def difference(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``after`` with ``came`` (ranks that entered the call since ``before``) and ``left`` for each call.

    Calls that have no ranks any more are included with empty ``ranks``.
    """
    paths: dict[tuple[str, str], str] = {}
    ahead = [*before, *after]
    while ahead:
        one = ahead.pop()
        paths.setdefault((one["function"], one["file"]), one.get("path", ""))
        ahead += one["children"]
    old, new = stack_tree.read(flat(before)), stack_tree.read(flat(after))
    return _compared(old, new, lambda function, file: paths.get((function, file), ""))


def _compared(old: stack_tree.Tree, new: stack_tree.Tree, path: Callable[[str, str], str]) -> list[dict[str, Any]]:
    every: stack_tree.Tree = {}
    stack_tree.merge(every, new)
    stack_tree.merge(every, old)
    found = []
    for call, _ in stack_tree.ordered(every):
        was, now = old.get(call, stack_tree.Node()), new.get(call, stack_tree.Node())
        function, file, line, language = call
        found.append({
            "function": function, "file": file, "line": line, "language": language,
            "ranks": idset.text(now.ranks), "came": idset.text(now.ranks & ~was.ranks),
            "left": idset.text(was.ranks & ~now.ranks), "path": path(function, file) if line else "",
            "children": _compared(was.below, now.below, path),
        })  # fmt: skip
    return found
