"""The debuggers of a launch: each goes to its rank's node, and what it says comes back up. Loaded when one begins."""

from __future__ import annotations

from agents.pct import backtrace
from agents.pct.errors import PctError
from agents.pct.session import DebugSession, Refused
from agents.pct.snapshot import usable
from agents.wire.control import control
from agents.wire.errors import WireError

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from agents.link.loop import Loop
    from agents.pct.ranks import Ranks
    from agents.pct.subtree import Child
    from agents.wire.control import Message

#: Debuggers of one launch on one node at a time.
MOST = 16


class Sessions:
    """For one launch child; ``tell`` speaks to its parent."""

    def __init__(
        self, loop: Loop, node: str, children: List[Child], ranks: Ranks, tell: Callable[[Message], None],
        fetch: Callable[[str, Callable[[str, str], None]], None],
    ) -> None:  # fmt: skip
        self._fetch = fetch  # a tool that the launcher has and this node has not
        self._loop, self._node, self._children, self._ranks, self._tell = loop, node, children, ranks, tell
        self._here: Dict[int, DebugSession] = {}
        self._below: Dict[int, Child] = {}
        self._coming: Dict[int, bool] = {}  # their tools are on the way

    def on_order(self, op: str, message: Message) -> None:
        """``debug`` begins one; the others are for one that is there."""
        number = message["session"]
        if op == "debug":
            self._begin(number, message)
            return
        child, here = self._below.get(number), self._here.get(number)
        if child is not None:
            child.send_raw(control(message))
        elif here is None:  # it has just ended, or waits for its tool
            if op == "debug_leave":
                self._coming.pop(number, None)
        elif op == "debug_type":
            try:
                here.typed(message["data"].encode("latin-1"))
            except UnicodeEncodeError:
                raise WireError("what is typed comes byte by byte") from None
        elif op == "debug_size":
            here.resize(message["rows"], message["columns"])
        elif op == "debug_taken":
            here.taken(message["bytes"])
        else:
            here.leave()

    def _begin(self, number: int, message: Message) -> None:
        wanted = message["rank"]
        for child in self._children:
            if wanted in child.ranks and not child.over:
                self._below[number] = child
                child.send_raw(control(message))
                return
        tool = str(message["command"][0]) if message["command"] else ""
        tools = message.get("tools") or {}
        if tool in tools and not usable(str(tools[tool])) and not backtrace.find(tool):
            self._coming[number] = True
            self._fetch(tool, lambda path, _why: self._arrived(number, dict(message, tools={tool: path})))
            return
        self._begin_here(number, message)

    def _arrived(self, number: int, message: Message) -> None:
        if self._coming.pop(number, False):  # whoever wanted it may have gone meanwhile
            self._begin_here(number, message)

    def _begin_here(self, number: int, message: Message) -> None:
        wanted = message["rank"]
        try:
            if not message["command"]:
                raise Refused("no debugger is named")
            if len(self._here) >= MOST:
                raise Refused(f"{self._node}: {MOST} debuggers are here already")
            rank = self._ranks.by_number.get(wanted)
            if rank is None or rank.status is not None:
                raise Refused(f"{self._node}: rank {wanted} has ended" if rank else f"rank {wanted} is nowhere")
            self._here[number] = DebugSession(
                self._loop, self._node, rank.pid, message,
                lambda data: self._tell({"op": "debug_said", "session": number, "data": data}),
                lambda why: self._ended(number, why),
            )  # fmt: skip
        except PctError as error:
            self._tell({"op": "debug_over", "session": number, "message": error.message, "hint": error.hint})
        except (OSError, ValueError) as error:  # no terminals left; a zero byte in a word
            self._tell({"op": "debug_over", "session": number, "message": f"{self._node}: no debugger: {error}"})

    def _ended(self, number: int, why: str) -> None:
        self._here.pop(number, None)
        self._tell({"op": "debug_over", "session": number, "message": why})

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree has gone, with the debuggers in it."""
        for number in [number for number, below in self._below.items() if below is child]:
            del self._below[number]
            self._tell({"op": "debug_over", "session": number, "message": f"{child.name}: {reason}"})

    def cancel(self) -> None:
        """Everything is being killed."""
        self._coming.clear()
        for session in list(self._here.values()):
            session.leave()
