"""Requests to the ranks of a running launch: signals, window sizes, stacks.

Code for rare requests is imported when one arrives.
"""

from __future__ import annotations

from agents.link.lean import signal
from agents.wire.control import control

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from agents.link.loop import Loop
    from agents.pct.debug.service import Inspection
    from agents.pct.launch.tree import Child, Tree
    from agents.pct.launch_child.manager_signals import ManagerSignals
    from agents.pct.ranks.supervisor import LocalRanks
    from agents.wire.control import Message

#: Operations of agents/pct/debug.
_INSPECTION = ("stacks", "source", "debug", "debug_type", "debug_size", "debug_taken", "debug_leave", "tool")
_INSPECTION_SAYS = ("stacks", "source", "debug_said", "debug_over", "want_tool")


class Requests:
    """The requests of one launch child; ``local()`` is this node's part of the launch, ``note`` writes to people."""

    def __init__(
        self, loop: Loop, node: str, tree: Tree, local: Callable[[], Optional[LocalRanks]], note: Callable[[str], None]
    ) -> None:
        self._loop, self._node, self._tree, self._local, self._note = loop, node, tree, local, note
        self._inspection: Optional[Inspection] = None
        self._manager: Optional[ManagerSignals] = None

    def orders(self) -> Dict[str, Callable[[Message], None]]:
        return {"signal": self._signal, "winsize": self._resize, **dict.fromkeys(_INSPECTION, self._inspect)}

    def reports(self) -> Dict[str, Callable[[Child, Message], None]]:
        return dict.fromkeys(_INSPECTION_SAYS, self._on_report)

    def _signal(self, message: Message) -> None:
        wanted, number = message.get("ranks"), int(message["signal"])
        self._tree.send_down(control(message), wanted)
        if self._manager is not None and message.get("relayed"):
            self._manager.relayed(number, wanted)
        else:
            self._send(number, wanted)

    def _send(self, number: int, wanted: Optional[List[int]]) -> None:
        local = self._local()
        if local is not None and 0 < number < signal.NSIG:
            for refused in local.ranks.send_signal(number, wanted):
                self._note(f"{self._node}: signal {number} not sent to {refused}")

    def expect_manager(self, end: Callable[[], None]) -> None:
        """Pass on the signals of a batch system, one of which may be meant to ``end`` the launch here."""
        from agents.pct.launch_child.manager_signals import ManagerSignals  # only in a batch system's job

        def themselves() -> bool:
            local = self._local()
            return local is not None and local.ranks.elsewhere

        self._manager = ManagerSignals(self._loop, self._send, themselves, end)

    def _resize(self, message: Message) -> None:
        self._tree.send_down(control(message))
        local = self._local()
        if local is not None and local.terminal is not None:
            local.terminal.resize(message["rows"], message["columns"])

    def _inspect(self, message: Message) -> None:
        local = self._local()
        if local is None:
            return
        if self._inspection is None:
            from agents.pct.debug.service import Inspection

            tree = self._tree
            self._inspection = Inspection(self._loop, self._node, tree.children, local.ranks, tree.up.tell)
        self._inspection.on_order(message["op"], message)

    def _on_report(self, child: Child, message: Message) -> None:
        if self._inspection is not None:
            self._inspection.on_child_message(child, message["op"], message)

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree is lost."""
        if self._inspection is not None:
            self._inspection.child_lost(child, reason)

    @property
    def plain(self) -> bool:
        """True if no request has left anything behind in this process."""
        return self._inspection is None

    def cancel(self) -> None:
        """Everything is being killed."""
        if self._inspection is not None:
            self._inspection.cancel()
