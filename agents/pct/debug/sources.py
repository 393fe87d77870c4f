"""Where the source files of a merged tree are, and what a node lacks to say more about it. Pure.

Both travel beside the tree, not in it: neither decides which ranks stand in one call.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

    from agents.pct.debug.stack_tree import Call

#: Functions whose files are told, characters of a path, different things that are lacking: a message holds them.
MOST, LONGEST, MOST_LACKS = 4000, 1000, 50


class Sources:
    """What one node, or a subtree, knows beside its calls. ``lacks``: a text and the nodes that it is true of."""

    __slots__ = ("_paths", "lacks")

    def __init__(self) -> None:
        self._paths: Dict[Tuple[str, str], str] = {}  # of a call's file and function
        self.lacks: Dict[str, Set[str]] = {}

    def add(self, call: Call, path: str) -> None:
        """The file that ``call`` is in, where it is known as a whole."""
        if path.startswith("/") and len(path) <= LONGEST and len(self._paths) < MOST:
            self._paths.setdefault((call[1], call[0]), path)

    def lack(self, text: str, node: str) -> None:
        """Something that is missing on ``node``, with the package that brings it."""
        if text in self.lacks or len(self.lacks) < MOST_LACKS:
            self.lacks.setdefault(text[:LONGEST], set()).add(node)

    def path(self, function: str, file: str) -> str:
        """The file of a call; empty when it is not known."""
        return self._paths.get((file, function), "")

    def merge(self, other: Sources) -> None:
        """All of ``other``; what is known already stays."""
        for (file, function), path in other._paths.items():
            self.add((function, file, 0, ""), path)
        for text, nodes in other.lacks.items():
            for node in nodes:
                self.lack(text, node)

    def as_message(self) -> Dict[str, Any]:
        """``paths``: [path, file as the calls have it, their functions]; ``lacks``: [text, nodes]."""
        grouped: Dict[Tuple[str, str], List[str]] = {}
        for (file, function), path in self._paths.items():
            grouped.setdefault((path, file), []).append(function)
        return {
            "paths": [[path, file, functions] for (path, file), functions in grouped.items()],
            "lacks": [[text, sorted(nodes)] for text, nodes in sorted(self.lacks.items())],
        }


def read(message: Dict[str, Any]) -> Sources:
    """The inverse of :meth:`Sources.as_message`; nothing for a message without them. ValueError, TypeError."""
    found = Sources()
    for path, file, functions in message.get("paths", ()):
        for function in functions:
            found.add((str(function), str(file), 0, ""), str(path))
    for text, nodes in message.get("lacks", ()):
        for node in nodes:
            found.lack(str(text), str(node))
    return found


def machine() -> str:
    """The processor architecture whose programs this node runs, as uname has it."""
    return os.uname().machine
