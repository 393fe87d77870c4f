"""The source files of a merged tree, and what a node lacks for better stacks. No I/O.

Both travel beside the tree, not in it, because they do not determine which ranks are in one call.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

    from agents.pct.debug.stack_tree import Call

#: Limits for one message: functions with known files, characters of a path, different things that are missing.
MOST, LONGEST, MOST_LACKS = 4000, 1000, 50


class Sources:
    """Source files and missing packages of a node, or of a subtree. ``lacks``: a text -> the nodes it applies to."""

    __slots__ = ("_paths", "lacks")

    def __init__(self) -> None:
        self._paths: Dict[Tuple[str, str], str] = {}  # (file, function) of a call -> path
        self.lacks: Dict[str, Set[str]] = {}

    def add(self, call: Call, path: str) -> None:
        """Record the file of ``call``, if its full path is known."""
        if path.startswith("/") and len(path) <= LONGEST and len(self._paths) < MOST:
            self._paths.setdefault((call[1], call[0]), path)

    def lack(self, text: str, node: str) -> None:
        """Record something that ``node`` lacks, with the package that provides it."""
        if text in self.lacks or len(self.lacks) < MOST_LACKS:
            self.lacks.setdefault(text[:LONGEST], set()).add(node)

    def path(self, function: str, file: str) -> str:
        """The file of a call; empty if unknown."""
        return self._paths.get((file, function), "")

    def merge(self, other: Sources) -> None:
        """Merge ``other``; known entries are kept."""
        for (file, function), path in other._paths.items():
            self.add((function, file, 0, ""), path)
        for text, nodes in other.lacks.items():
            for node in nodes:
                self.lack(text, node)

    def as_message(self) -> Dict[str, Any]:
        """``paths``: [path, file as in the calls, their functions]; ``lacks``: [text, nodes]."""
        grouped: Dict[Tuple[str, str], List[str]] = {}
        for (file, function), path in self._paths.items():
            grouped.setdefault((path, file), []).append(function)
        return {
            "paths": [[path, file, functions] for (path, file), functions in grouped.items()],
            "lacks": [[text, sorted(nodes)] for text, nodes in sorted(self.lacks.items())],
        }


def read(message: Dict[str, Any]) -> Sources:
    """Parse :meth:`Sources.as_message`; empty for a message without sources. Raises ValueError or TypeError."""
    found = Sources()
    for path, file, functions in message.get("paths", ()):
        for function in functions:
            found.add((str(function), str(file), 0, ""), str(path))
    for text, nodes in message.get("lacks", ()):
        for node in nodes:
            found.lack(str(text), str(node))
    return found


def machine() -> str:
    """The processor architecture of this node, as in uname."""
    return os.uname().machine
