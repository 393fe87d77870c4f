"""Features for debugging: stacks of dead ranks (``-bt``), and the MPIR table in a file."""

from __future__ import annotations

from console.errors import ConsoleError
from console.launch.attach.mpir import write
from console.launch.events.crashes import Traces
from console.launch.features.feature import Feature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CrashStacks(Feature):
    """Reports the stacks of ranks that died of a fault."""

    def __init__(self) -> None:
        self._traces = Traces()

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """Handle a node's ``backtrace``. Raises ValueError, TypeError or KeyError for an invalid one."""
        if op != "backtrace":
            return
        trace = message["trace"]
        self._traces.add(message["rank"], message["node"], trace)
        event = {"event": "backtrace", "rank": message["rank"], "node": message["node"], "signal": message["signal"]}
        details = {"tool": trace["tool"], "note": trace["note"], "threads": trace["threads"]}
        self.context.stream.emit({**event, **details})

    def last_lines(self) -> list[str]:
        return self._traces.rows()


class ProcessTable(Feature):
    """Writes host, program and process of every rank to a file at GO."""

    def __init__(self, path: str) -> None:
        self._path = path

    def before_go(self) -> None:
        try:
            write(self._path, self.context.processes())
        except ConsoleError as error:
            self.context.front.complain(error.message)  # the launch is not at fault
