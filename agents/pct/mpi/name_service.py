"""Published names of ranks, and values shared by the ranks of a machine. At the tree's root; no I/O."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    Answer = Tuple[int, bool, str]  # rank, found, value

#: The most published names and shared values of a launch.
MOST_NAMES = 100_000


class NameService:
    """Answers questions of ranks; an answer may come later, and to several ranks."""

    def __init__(self) -> None:
        self._services: "Dict[str, str]" = {}
        self._left: "Dict[Tuple[int, str], str]" = {}
        self._waiting: "Dict[Tuple[int, str], List[int]]" = {}

    def ask(self, rank: int, host: int, what: str, name: str, value: str) -> "List[Answer]":
        """The answers that are due now that ``rank`` on machine ``host`` asks; none if it must wait."""
        if what == "publish":
            fresh = name not in self._services and len(self._services) < MOST_NAMES
            if fresh:
                self._services[name] = value
            return [(rank, fresh, "")]
        if what == "unpublish":
            return [(rank, self._services.pop(name, None) is not None, "")]
        if what == "lookup":
            return [(rank, name in self._services, self._services.get(name, ""))]
        key = host, name
        if what == "put_node":
            if len(self._left) >= MOST_NAMES:
                return [(rank, False, "")]
            self._left[key] = value
            return [(rank, True, ""), *((other, True, value) for other in self._waiting.pop(key, ()))]
        if key in self._left:
            return [(rank, True, self._left[key])]
        if what == "await_node":
            self._waiting.setdefault(key, []).append(rank)
            return []
        return [(rank, False, "")]
