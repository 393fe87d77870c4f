"""Stacks of many ranks as one prefix tree with the set of ranks at every call. Pure.

Merging is a union at each call, so neither order nor grouping matters: every launch child merges what its subtree
says. On the wire a tree is a flat list, a parent before its children: nested, it would be deeper than a message may be.
"""

from __future__ import annotations

from redmesh import idset

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Tuple

    Call = Tuple[str, str, int, str]  # function, file, line (0: unknown), language
    Tree = Dict[Call, "Node"]

_MAIN = ("main", "<module>", "MAIN__")
#: Calls in what one launch child sends up, and characters of a name: a message holds them. Deeper ones are left out.
MOST, LONGEST = 20000, 200


class Node:
    """A call, as the key of its tree has it: the ranks that stand in it, and what they called from it."""

    __slots__ = ("below", "ranks")

    def __init__(self) -> None:
        self.ranks = 0
        self.below: Tree = {}


def add(tree: Tree, stack: Iterable[Call], ranks: int) -> None:
    """Ranks that stand in ``stack``, which begins with the outermost call."""
    for call in stack:
        node = tree.get(call)
        if node is None:
            node = tree[call] = Node()
        node.ranks |= ranks
        tree = node.below


def merge(into: Tree, other: Tree) -> None:
    """All of ``other`` into the first."""
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
    """The calls of one level: a program's main one first (others begin threads), then by how many ranks they have."""
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
    """The tree as it travels: [index of the parent or -1, function, file, line, language, ranks] of each call.

    Of a tree with more than ``most`` calls the deepest levels are left out, so that no rank goes missing.
    """
    deepest = _deepest(tree, most)
    found: List[List[Any]] = []
    above: List[int] = []  # of each level, the index of the last one
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
    """The inverse of :func:`rows`. ValueError, TypeError or IndexError for what is none."""
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
