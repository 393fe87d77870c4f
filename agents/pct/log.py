"""A node's log: the PCT and its launch children write to one file, each line naming the node."""

from typing import Any

from agents.link.journal import Journal


class Log(Journal):
    """The journal of ``node`` at ``path``."""

    def __init__(self, path: str, node: str) -> None:
        super().__init__(path, "pct")
        self._node = node

    def write(self, event: str, **fields: Any) -> None:
        super().write(event, node=self._node, **fields)
