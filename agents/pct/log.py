"""A node's log: the PCT and its launch children write to one file, each line naming the node."""

from __future__ import annotations

from agents.link.journal import Journal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any


class Log(Journal):
    """The journal of ``node`` at ``path``."""

    def __init__(self, path: str, node: str) -> None:
        super().__init__(path, "pct")
        self._node = node

    def write(self, event: str, **fields: Any) -> None:
        super().write(event, node=self._node, **fields)
