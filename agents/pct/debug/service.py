"""Stacks of the ranks of a running launch, gathered from the subtree. Imported at the first request."""

from __future__ import annotations

import os

from agents.pct.debug import crash, sources, stack_tree
from agents.pct.debug.collect import Gathering
from agents.pct.debug.snapshot import Snapshot, Tool
from agents.pct.debug.tools import Tools
from agents.wire.control import control
from agents.wire.errors import WireError
from redmesh import idset
from redmesh.byte_text import to_system

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from agents.link.loop import Loop
    from agents.pct.debug.debugger import Sessions
    from agents.pct.launch.tree import Child
    from agents.pct.ranks.ranks import Ranks
    from agents.wire.control import Message

#: Seconds of the remaining time that each level of the tree keeps for itself.
_LEVEL_S = 0.3
_HERE = ""  # the name of this node among the sources
_WHICH = ("all", "native", "python")
#: Limits for lines of a source file: lines of one request, characters of a line, and seconds for reading.
_MOST, _LONGEST, _READ_S = 2000, 300, 3.0


class Inspection:
    """The inspection service of one launch child; ``tell`` sends messages to its parent."""

    def __init__(
        self, loop: Loop, node: str, children: List[Child], ranks: Ranks, tell: Callable[[Message], None]
    ) -> None:
        self._loop, self._node, self._children, self._ranks, self._tell = loop, node, children, ranks, tell
        self._gatherings: Dict[int, Gathering] = {}
        self._snapshots: List[Snapshot] = []
        self._later: List[Callable[[], None]] = []
        self._sessions: Optional[Sessions] = None
        self._tools = Tools(loop, f"{node}-{os.getpid()}", tell)

    def on_order(self, op: str, message: Message) -> None:
        """Handle ``stacks``, ``source``, or an operation of ``debug``."""
        if op == "stacks":
            self._collect(message)
            return
        if op == "tool":
            self._tools.on_piece(message)
            return
        if op == "source":
            self._read_source(message)
            return
        if self._sessions is None:
            from agents.pct.debug.debugger import Sessions

            self._sessions = Sessions(
                self._loop, self._node, self._children, self._ranks, self._tell, self._tools.want
            )  # fmt: skip
        self._sessions.on_order(op, message)

    def _collect(self, message: Message) -> None:
        number, wanted = message["number"], message.get("ranks")
        which, limit_s = message.get("which", "all"), float(message.get("limit_s", 10.0))
        if which not in _WHICH or number in self._gatherings:
            raise WireError(f"stacks: no such request ({which}, {number})")
        try:
            ranks = -1 if wanted is None else idset.read(wanted)
        except ValueError as error:
            raise WireError(f"stacks: {error}") from None
        awaited = {_HERE: 0}
        below = dict(message, limit_s=max(0.0, limit_s - _LEVEL_S))
        for child in self._children:
            theirs = ranks & idset.of(child.ranks - child.exited)
            if theirs and not child.over:
                awaited[child.name] = theirs
                child.send_raw(control(below))
        self._gatherings[number] = Gathering(number, awaited)
        self._loop.after(limit_s, lambda: self._expired(number))
        self._look(number, ranks, str(which), message.get("tools") or {})

    def _look(self, number: int, wanted: int, which: str, tools: Dict[str, str]) -> None:
        living = [[rank.number, rank.pid] for rank in self._ranks.living if wanted >> rank.number & 1]

        if self._snapshots:  # a process has only one tracer at a time
            self._later.append(lambda: self._look(number, wanted, which, tools))
            return

        def told(tree: stack_tree.Tree, missing: List[List[Any]]) -> None:
            if snapshot in self._snapshots:
                self._snapshots.remove(snapshot)
            self._take(number, _HERE, tree, missing, snapshot.sources)
            if self._later and not self._snapshots:
                self._later.pop(0)()

        snapshot = Snapshot(self._loop, self._node, living, which, tools, told, self._tools.want)
        self._snapshots.append(snapshot)

    def on_child_message(self, child: Child, op: str, message: Message) -> None:
        """Handle ``stacks`` from a child, or a debugger's output. Raises WireError for malformed stacks."""
        if op == "want_tool":
            self._tools.wanted_below(child, message["name"])
            return
        if op != "stacks":
            self._tell(message)
            return
        try:
            tree = stack_tree.read(message["calls"])
            self._take(message["number"], child.name, tree, message["missing"], sources.read(message))
        except (ValueError, TypeError, IndexError) as error:
            raise WireError(f"stacks that are not understood: {error}") from None

    def _read_source(self, message: Message) -> None:
        """Read lines of a file on the node of rank ``rank``."""
        for child in self._children:
            if message["rank"] in child.ranks and not child.over:
                child.send_raw(control(message))
                return

        def told(lines: List[str], why: str) -> None:
            found = {"op": "source", "number": message["number"], "node": self._node}
            self._tell({**found, "lines": lines, "why": why})

        _read_lines(self._loop, message["path"], message["first"], message["last"], told)

    def _take(
        self, number: int, source: str, tree: stack_tree.Tree, missing: List[List[Any]], more: sources.Sources
    ) -> None:
        gathering = self._gatherings.get(number)
        if gathering is not None:
            self._finish(number, gathering.take(source, tree, missing, more))

    def _expired(self, number: int) -> None:
        gathering = self._gatherings.get(number)
        if gathering is not None:
            self._finish(number, gathering.expired())

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree is lost."""
        if self._sessions is not None:
            self._sessions.child_lost(child, reason)
        for number, gathering in list(self._gatherings.items()):
            self._finish(number, gathering.lost(child.name, reason))

    def _finish(self, number: int, message: "Message | None") -> None:
        if message is not None:
            del self._gatherings[number]
            self._tell(message)

    def cancel(self) -> None:
        """Stop, because everything is being killed."""
        self._tools.close()
        if self._sessions is not None:
            self._sessions.cancel()
        self._later = []
        for snapshot in self._snapshots:
            snapshot.cancel()
        self._snapshots = []
        for gathering in list(self._gatherings.values()):
            self._finish(gathering.number, gathering.expired())


def _read_lines(loop: Loop, path: str, first: int, last: int, told: Callable[[List[str], str], None]) -> None:
    """Read lines ``first`` to ``last`` (from 1); calls ``told(lines, reason if there are none)``, perhaps at once.

    A separate process reads, so that a file server that does not answer blocks nothing else.
    """
    program = crash.find("sed")
    if not program or not path.startswith("/") or not 1 <= first <= last < first + _MOST:
        told([], "no such lines can be read here")
        return

    def ended(text: str, why: str) -> None:
        bad = why or (text.strip()[-200:].rpartition(": ")[2] if text.startswith(f"{program}: ") else "")
        told([] if bad else [line[:_LONGEST] for line in text.split("\n")[: last - first + 1]], bad)

    try:
        Tool(loop, [program, "-n", f"{first},{last}p;{last}q", "--", to_system(path)], _READ_S, ended)
    except OSError as error:
        told([], str(error.strerror))
