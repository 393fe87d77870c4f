"""The report at the end: the completion table, and a line in the usage log."""

from __future__ import annotations

import os

from redmesh.idset import fold_names, fold_ranks
from redmesh.text import size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.ranks import End, Ranks
    from console.launch.states import Launch


_LONGEST = 60  # characters of a folded list


def same_ends(ranks: Ranks, which: Iterable[int]) -> list[list[int]]:
    """The ranks ``which``, grouped by equal exits."""
    alike: dict[tuple[str, bool, bool], list[int]] = {}
    for rank in which:
        end = ranks.ends[rank]
        of_group = end.memory is not None and end.memory.limit > 0
        alike.setdefault((_words(end), end.lost, of_group), []).append(rank)
    return list(alike.values())


def completion_rows(ranks: Ranks, which: Iterable[int] | None = None, *, whole: bool = False) -> list[str]:
    """Return a line for each group of ranks with the same exit: ``rank 0-15 on n0-n3: exit 0, 1.2 s``.

    ``which``: the ranks (None: all that ended). A long list of ranks or nodes is cut off, and its count added, unless
    ``whole``.
    """
    rows = []
    for alike in same_ends(ranks, sorted(ranks.ends) if which is None else which):
        end = ranks.ends[alike[0]]
        nodes = list(dict.fromkeys(ranks.node_of(rank) for rank in alike))
        seconds = "" if end.lost else ", " + _seconds([ranks.ends[rank].elapsed_s for rank in alike])
        who, where = fold_ranks(alike), fold_names(nodes)
        if not whole:
            who, where = cut_short(who, f"{len(alike)} ranks"), cut_short(where, f"{len(nodes)} nodes")
        rows.append(f"rank {who} on {where}: {_words(end)}{_memory([ranks.ends[rank] for rank in alike])}{seconds}")
    return rows


def told_rows(launch: Launch, request: Request) -> list[str]:
    """The lines that yod prints at the end: none if all ranks succeeded and the user did not ask."""
    told = request.stdio.verbose or any(end.bad for end in launch.ranks.ends.values())
    # 141 (SIGPIPE): the reader of standard output has exited; a filter then exits silently.
    if not told or request.stdio.quiet or launch.outcome.exit_status == 141:
        return []
    return completion_rows(launch.ranks, whole=request.stdio.verbose)


def completion_lines(ranks: Ranks) -> list[str]:
    """A line for the exit of every rank: ``rank 3 on n1: exit 0, 1.204 s``."""
    lines = []
    for rank in sorted(ranks.ends):
        end = ranks.ends[rank]
        seconds = "" if end.lost else f", {end.elapsed_s:.3f} s"
        lines.append(f"rank {rank} on {ranks.node_of(rank)}: {_words(end)}{_memory([end])}{seconds}")
    return lines


def cut_short(folded: str, how_many: str) -> str:
    """Cut off a folded list that is too long for a line, and add the count ``how_many``."""
    if len(folded) <= _LONGEST:
        return folded
    return f"{folded[: folded.rindex(',', 0, _LONGEST)]},… ({how_many})"


def _words(end: End) -> str:
    if end.lost:
        return "lost with its node"
    if end.memory is not None:
        return "out of memory, SIGKILL from the kernel" + ("" if end.signal else f" to its child: exit {end.status}")
    if not end.signal:
        return f"exit {end.status}"
    import signal  # already imported in every launch

    from console.launch.options.signal_names import signal_name

    name = signal_name(end.signal)
    text = signal.strsignal(end.signal) if end.signal < signal.NSIG else ""
    if end.core:
        text = f"{text}, core dumped" if text else "core dumped"
    ended = f"{name} ({text})" if text else name
    return f"{ended} from yod" if end.by_yod else ended


def _memory(ends: Sequence[End]) -> str:
    """What ranks that ran out of memory had, and might have; "" for others."""
    found = [end.memory for end in ends if end.memory is not None]
    if not found:
        return ""
    known = [one.had for one in found if one.had]
    had = f"it had {_between(known)}, " if known else ""
    if found[0].limit:
        return f" ({had}its control group may have {_between([one.limit for one in found if one.limit])})"
    return f" ({had}the host has {_between([one.host for one in found])})"


def _between(sizes: Sequence[int]) -> str:
    low, high = size_text(min(sizes)), size_text(max(sizes))
    return low if low == high else f"{low} to {high}"


def _seconds(elapsed: list[float]) -> str:
    low, high = f"{min(elapsed):.1f}", f"{max(elapsed):.1f}"
    return f"{low} s" if low == high else f"{low} to {high} s"


def log_usage(
    path: str, launch: Launch, plan: Plan, request: Request, user: str, begun_at: float, seconds: float
) -> None:
    """Append a launch's line to the log at ``path``."""
    entry = {
        "at": round(begun_at, 3),
        "launcher": launch.launcher,
        "uid": os.getuid(),
        "user": user,
        "nodes": [node.name for node in plan.nodes],
        "processors": sum(len(node.processors) for node in plan.nodes),
        "ranks": plan.size,
        "seconds": round(seconds, 3),
        "exit_status": launch.exit_status,
        "command": request.command,
    }
    append_usage(path, entry)


def append_usage(path: str, entry: dict[str, Any]) -> None:
    """Append a JSON line to the usage log. Failures are ignored, because a log must not fail a job."""
    from agents.wire.control import encode
    from agents.wire.errors import AgentError

    try:
        line = encode(entry) + b"\n"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line)  # a single write, so that lines of several yods never mix
        finally:
            os.close(fd)
    except (OSError, AgentError):
        pass
