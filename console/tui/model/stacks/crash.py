"""The stacks of ranks that died, as one tree: from ``yod -bt``, and from the tracebacks that Python printed. No I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.pct.debug import stack_tree
from agents.pct.debug.parsers import Frame, Thread, native, system
from agents.pct.debug.sources import Sources
from console.launch.attach import stacks
from console.tui.model.output import STDERR, Line
from redmesh import idset
from redmesh.idset import fold_ranks

if TYPE_CHECKING:
    from agents.pct.debug.stack_tree import Call, Tree

_FRAME = re.compile(r'  File "(.+)", line (\d{1,9})(?:,? in (.+))?$')
_PREFIX = re.compile(r"\[rank\d+\]: ?")  # PyTorch puts it before each line
_OLDEST_FIRST = "Traceback (most recent call last):"
_NEWEST_FIRST = re.compile(r"Current thread 0x[0-9a-f]+.* \(most recent call first\):$")  # of faulthandler
#: A traceback with more lines of standard error after it was handled: the rank died of something else.
_LAST_WORDS = 60
_DEEPEST = 200  # calls of a stack that are shown, the innermost ones


class Died(NamedTuple):
    """What is known about ranks that died. ``told`` has the form of :func:`console.launch.attach.stacks.take`."""

    ranks: frozenset[int]
    told: dict[str, Any]


class Crashes:
    """The stacks that a launch's nodes read when its ranks died (``yod -bt``)."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.sources = Sources()
        self.notes: dict[tuple[str, str], int] = {}  # the ranks with each node and note
        self._tree: Tree = {}
        self._faults: dict[int, tuple[Call, ...]] = {}  # the thread at fault
        self._same: dict[tuple[Call, ...], tuple[Call, ...]] = {}  # most ranks die alike: each stack is kept once

    def add(self, rank: int, event: Mapping[str, Any]) -> None:
        """Add a node's ``backtrace``. Raises ValueError, TypeError or KeyError for an invalid one."""
        found = []
        for tid, name, frames in event["threads"]:
            innermost = frames[:_DEEPEST]
            read = [Frame(str(f), str(where), str(module), int(address)) for f, where, module, address in innermost]
            found.append(tuple(self._calls(Thread(int(tid), read, str(name)))))
        self.ranks.add(rank)
        for calls in found:
            stack_tree.add(self._tree, calls, 1 << rank)
        if found:
            self._faults[rank] = self._same.setdefault(found[0], found[0])
        if event["note"]:
            key = (str(event["node"]), str(event["note"]))
            self.notes[key] = self.notes.get(key, 0) | 1 << rank

    def _calls(self, thread: Thread) -> list[Call]:
        if not any(frame.address for frame in thread.frames):  # py-spy's
            frames = [(frame.function, *_split(frame.where)) for frame in reversed(thread.frames)]
            return _python_calls(frames, self.sources)
        # Lines of the system's libraries and of the interpreter are not the user's, and their sources are not here.
        frames_in = [frame._replace(where="") if system(frame.module) else frame for frame in thread.frames]
        return native(thread._replace(frames=frames_in), {}, {}, self.sources)

    def tree(self, ranks: int) -> Tree:
        """The calls of these ranks."""
        return _only(self._tree, ranks)

    def fault(self, rank: int) -> tuple[Call, ...]:
        """The calls of the thread that died, outermost first; empty if unknown."""
        return self._faults.get(rank, ())


def died(
    crashes: Crashes, lines: Sequence[Line], ranks: frozenset[int], *, first: int, launcher: int, at: float
) -> Died | None:
    """The stacks of ``ranks`` at their ends; None if none is known.

    ``lines``: the launch's output, in which tracebacks are looked for. ``first``: the rank whose stack is first in the
    tree. ``at``: when the first of them died.
    """
    asked = idset.of(ranks)
    tree = crashes.tree(asked)
    sources = Sources()
    sources.merge(crashes.sources)
    printed = {rank: _python_calls(frames, sources) for rank, frames in tracebacks(lines, ranks).items()}
    for rank, calls in printed.items():
        stack_tree.add(tree, calls, 1 << rank)
    known = (crashes.ranks & ranks) | printed.keys()
    if not known:
        return None
    first = first if first in known else min(known)
    noted = asked & ~idset.of(printed)  # notes say that Python's calls are missing; there they are
    missing = [
        (idset.text(those & noted), node, note) for (node, note), those in crashes.notes.items() if those & noted
    ]
    nested = stacks.nested(stack_tree.rows(tree), sources.path)
    _put_first(nested, printed.get(first) or crashes.fault(first))
    lacks = []
    if printed:
        whose = "rank" if len(printed) == 1 else "ranks"
        lacks.append(f"{whose} {fold_ranks(sorted(printed))}: Python's calls are from the traceback on standard error")
    told = stacks.told(launcher, len(known), at, 0.0, missing, nested, lacks)
    return Died(frozenset(known), told)


def tracebacks(lines: Iterable[Line], ranks: frozenset[int]) -> dict[int, list[tuple[str, str, int]]]:
    """The last traceback of each rank, if its standard error ended with one: function, file and line of the calls,
    outermost first."""
    written: dict[int, list[str]] = {}
    for line in lines:
        if line.stream == STDERR and line.rank in ranks:
            written.setdefault(line.rank, []).append(_PREFIX.sub("", line.text, count=1))
    found = {}
    for rank, texts in written.items():
        if calls := _last_traceback(texts):
            found[rank] = calls
    return found


def _last_traceback(texts: list[str]) -> list[tuple[str, str, int]]:
    for at in range(len(texts) - 1, -1, -1):
        oldest_first = texts[at] == _OLDEST_FIRST
        if not (oldest_first or _NEWEST_FIRST.match(texts[at])):
            continue
        calls, end = [], at + 1
        while end < len(texts) and texts[end].startswith(" "):
            if frame := _FRAME.match(texts[end]):
                calls.append((frame[3] or "<module>", frame[1], int(frame[2])))
            end += 1
        if len(texts) - end > _LAST_WORDS:
            return []
        return (calls if oldest_first else calls[::-1])[-_DEEPEST:]
    return []


def _python_calls(frames: Iterable[tuple[str, str, int]], sources: Sources) -> list[Call]:
    calls: list[Call] = []
    for function, path, line in frames:
        call = (function, os.path.basename(path), line, "python")
        sources.add(call, path)
        calls.append(call)
    return calls


def _split(where: str) -> tuple[str, int]:
    file, _, line = where.rpartition(":")
    return file, int(line)


def _only(tree: Tree, ranks: int) -> Tree:
    found: Tree = {}
    ahead = [(tree, found)]
    while ahead:
        all_calls, kept = ahead.pop()
        for call, node in all_calls.items():
            if node.ranks & ranks:
                own = kept[call] = stack_tree.Node()
                own.ranks = node.ranks & ranks
                ahead.append((node.below, own.below))
    return found


def _put_first(tree: list[dict[str, Any]], calls: Sequence[Call]) -> None:
    """Put the branch of a stack before all others."""
    for function, file, line, language in calls:
        for at, one in enumerate(tree):
            if (one["function"], one["file"], one["line"], one["language"]) == (function, file, line, language):
                tree.insert(0, tree.pop(at))
                tree = one["children"]
                break
        else:
            return
