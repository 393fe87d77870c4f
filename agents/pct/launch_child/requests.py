"""What comes down the tree to the ranks of a launch that runs: signals, a window's size, questions where they stand.

What few launches are ever asked is loaded when one is.
"""

from __future__ import annotations

from agents.link.lean import signal
from agents.pct.launch.tree import tell_all
from agents.wire.control import control

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from agents.link.loop import Loop
    from agents.pct.debug.service import Inspection
    from agents.pct.launch.tree import Child
    from agents.pct.ranks.supervisor import Local
    from agents.wire.control import Message

DOWN_OPS = ("signal", "winsize", "stacks", "debug", "debug_type", "debug_size", "debug_taken", "debug_leave", "tool")
UP_OPS = ("stacks", "debug_said", "debug_over", "want_tool")


class Requests:
    """For one launch child; ``local()`` is this node's part of the launch, ``tell`` speaks to the parent."""

    def __init__(
        self, loop: Loop, node: str, children: List[Child], local: Callable[[], Optional[Local]],
        tell: Callable[[Message], None], note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._loop, self._node, self._children, self._local = loop, node, children, local
        self._tell, self._note = tell, note
        self._inspection: Optional[Inspection] = None

    def on_order(self, op: str, message: Message) -> None:
        """One of ``DOWN_OPS``."""
        local = self._local()
        if op == "signal":
            self._signal(local, message)
        elif op == "winsize":
            tell_all(self._children, control(message))
            if local is not None and local.terminal is not None:
                local.terminal.resize(message["rows"], message["columns"])
        elif local is not None:
            if self._inspection is None:
                from agents.pct.debug.service import Inspection

                self._inspection = Inspection(self._loop, self._node, self._children, local.ranks, self._tell)
            self._inspection.on_order(op, message)

    def _signal(self, local: Optional[Local], message: Message) -> None:
        wanted = message.get("ranks")
        tell_all(self._children, control(message), wanted)
        if local is not None and 0 < message["signal"] < signal.NSIG:
            for refused in local.ranks.send_signal(message["signal"], wanted):
                self._note(f"{self._node}: signal {message['signal']} not sent to {refused}")

    def on_child_message(self, child: Child, op: str, message: Message) -> None:
        """One of ``UP_OPS``."""
        if self._inspection is not None:
            self._inspection.on_child_message(child, op, message)

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree has gone."""
        if self._inspection is not None:
            self._inspection.child_lost(child, reason)

    @property
    def plain(self) -> bool:
        """Whether nothing was ever asked that leaves something behind in this process."""
        return self._inspection is None

    def cancel(self) -> None:
        """Everything is being killed."""
        if self._inspection is not None:
            self._inspection.cancel()
