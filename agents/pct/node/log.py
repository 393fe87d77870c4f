"""A node's log: the PCT and its launch children write to one file, each line naming the node."""

from __future__ import annotations

import os

from agents.link.journal import Journal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List


class Log(Journal):
    """The journal of ``node`` at ``path``."""

    def __init__(self, path: str, node: str) -> None:
        super().__init__(path, "pct")
        self._node = node

    def write(self, event: str, **fields: Any) -> None:
        super().write(event, node=self._node, **fields)


def where(error: BaseException) -> List[str]:
    """Where an error came from, for the log: file, line and function, the outermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames
