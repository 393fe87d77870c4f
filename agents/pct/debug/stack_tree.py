"""Stacks of many ranks as one prefix tree, with the set of ranks at every call. No I/O.

Merging is a union at each call, so neither order nor grouping matters: every launch child merges the trees of its
subtree. On the wire a tree is a flat list, a parent before its children, because a nested one would exceed a message's
depth limit.
"""

from __future__ import annotations

from redmesh import idset

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Tuple

    Call = Tuple[str, str, int, str]  # function, file, line (0: unknown), language
    Tree = Dict[Call, "Node"]

_MAIN = ("main", "<module>", "MAIN__")
#: The most calls in one message, and characters of a name. Deeper calls are left out.
MOST, LONGEST = 20000, 200


class Node:
    """A call: the ranks in it, and the calls made from it."""

    __slots__ = ("below", "ranks")

    def __init__(self) -> None:
        self.ranks = 0
        self.below: Tree = {}


def add(tree: Tree, stack: Iterable[Call], ranks: int) -> None:
    """Add ``ranks`` with the stack ``stack``, which begins with the outermost call."""
    for call in stack:
        node = tree.get(call)
        if node is None:
            node = tree[call] = Node()
        node.ranks |= ranks
        tree = node.below


def merge(into: Tree, other: Tree) -> None:
    """Merge ``other`` into ``into``."""
    ahead = [(into, other)]
    while ahead:
        mine, theirs = ahead.pop()
        for call, node in theirs.items():
            own = mine.get(call)
            if own is None:
                own = mine[call] = Node()
            own.ranks |= node.ranks
            if node.below:
                ahead.append((own.below, node.below))


def ordered(tree: Tree) -> List[Tuple[Call, Node]]:
    """The calls of one level: a program's main first (others begin threads), then by number of ranks."""
    return sorted(tree.items(), key=_place)


def _place(item: Tuple[Call, Node]) -> Tuple[Any, ...]:
    call, node = item
    return call[0] not in _MAIN, -idset.count(node.ranks), idset.lowest(node.ranks), call


def walk(tree: Tree) -> Iterator[Tuple[int, Call, Node]]:
    """Every call with its depth, parents first, in order."""
    ahead = [(0, call, node) for call, node in reversed(ordered(tree))]
    while ahead:
        depth, call, node = ahead.pop()
        yield depth, call, node
        ahead += [(depth + 1, below, each) for below, each in reversed(ordered(node.below))]


def rows(tree: Tree, most: int = MOST) -> List[List[Any]]:
    """The tree for a message: [index of the parent or -1, function, file, line, language, ranks] for each call.

    If there are more than ``most`` calls, the deepest levels are left out, so that no rank is missing.
    """
    deepest = _deepest(tree, most)
    found: List[List[Any]] = []
    above: List[int] = []  # for each level, the index of its last call
    for depth, (function, file, line, language), node in walk(tree):
        if depth > deepest:
            continue
        del above[depth:]
        parent = above[-1] if above else -1
        above.append(len(found))
        found.append([parent, function[:LONGEST], file[:LONGEST], line, language, idset.text(node.ranks)])
    return found


def _deepest(tree: Tree, most: int) -> int:
    level, depth, calls = [tree], 0, 0
    while level:
        calls += sum(len(one) for one in level)
        if calls > most and depth:
            return depth - 1
        level = [node.below for one in level for node in one.values() if node.below]
        depth += 1
    return depth


def read(received: List[List[Any]]) -> Tree:
    """Parse the result of :func:`rows`. Raises ValueError, TypeError or IndexError."""
    tree: Tree = {}
    nodes: List[Node] = []
    for parent, function, file, line, language, ranks in received:
        if not -1 <= parent < len(nodes):
            raise ValueError("a call before the one that made it")
        level = tree if parent < 0 else nodes[parent].below
        call = (str(function), str(file), int(line), str(language))
        node = level.get(call)
        if node is None:
            node = level[call] = Node()
        node.ranks |= idset.read(ranks)
        nodes.append(node)
    return tree
