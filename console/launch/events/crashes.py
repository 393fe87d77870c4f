"""Stack traces of ranks that died of a fault; identical ones are reported once. No I/O."""

from __future__ import annotations

from redmesh.idset import fold_names, fold_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any


class Trace:
    """A stack, and the ranks that died with it."""

    __slots__ = ("lines", "nodes", "ranks", "tool")

    def __init__(self, tool: str, lines: list[str]) -> None:
        self.tool, self.lines = tool, lines
        self.ranks: list[int] = []
        self.nodes: list[str] = []


class Traces:
    """Every stack trace of a launch."""

    def __init__(self) -> None:
        self._traces: dict[Any, Trace] = {}

    def add(self, rank: int, node: str, trace: dict[str, Any]) -> None:
        """Add a node's ``backtrace``. Raises ValueError, TypeError or KeyError for an invalid one."""
        lines = _lines(trace)
        key = (str(trace["tool"]), *lines)
        one = self._traces.setdefault(key, Trace(str(trace["tool"]), lines))
        one.ranks.append(rank)
        one.nodes.append(node)

    def rows(self, ranks: Collection[int] | None = None) -> list[str]:
        """Lines for the terminal in rank order, not sanitised. ``ranks``: only stacks of these ranks (None: all)."""
        rows = []
        traces = [one for one in self._traces.values() if ranks is None or any(rank in ranks for rank in one.ranks)]
        for trace in sorted(traces, key=lambda one: min(one.ranks)):
            order = sorted(zip(trace.ranks, trace.nodes, strict=True))
            nodes = list(dict.fromkeys(node for _, node in order))
            by = f" (by {trace.tool})" if trace.tool else ""
            rows.append(f"rank {fold_ranks([rank for rank, _ in order])} on {fold_names(nodes)}: stack{by}:")
            rows += [f"  {line}" for line in trace.lines]
        return rows


def _lines(trace: dict[str, Any]) -> list[str]:
    # Addresses, thread ids and process ids differ from rank to rank, so they are omitted if there is a name.
    lines: list[str] = []
    threads = trace["threads"]
    for number, (_tid, name, frames) in enumerate(threads):
        if len(threads) > 1:
            lines.append(f"thread {number}" + (f" ({name})" if name else "") + ":")
        lines += [f"#{at:<2} {_frame(*frame)}" for at, frame in enumerate(frames)]
    if trace["note"]:
        lines.append(str(trace["note"]))
    return lines


def _frame(function: str, where: str, module: str, address: int) -> str:
    name = function or ("?" if module else f"0x{address:x}")
    if where:
        return f"{name} at {where}"
    return f"{name} in {module}" if module else name
