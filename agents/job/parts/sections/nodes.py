"""The nodes that may run sections of a job: tested before the first section, after a failure, and periodically. No
I/O."""

from __future__ import annotations

from enum import Enum

from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Hashable, List, Tuple


#: The most nodes that a cause names.
_TOLD = 5


class Node(Enum):
    """The state of a node."""

    UNTESTED = "untested"
    TESTING = "testing"
    GOOD = "good"
    EXCLUDED = "excluded"


class Event(Enum):
    """An event of a node."""

    TEST = "test"  # a worker there has begun to test it
    LOSE = "lose"  # that worker is lost
    PASS = "pass"
    FAIL = "fail"
    DOUBT = "doubt"  # a section failed there, or its test is too old
    FORGIVE = "forgive"  # it may be tested again


#: All transitions of a node.
TRANSITIONS: Dict[Tuple[Node, Event], Node] = {
    (Node.UNTESTED, Event.TEST): Node.TESTING,
    (Node.UNTESTED, Event.DOUBT): Node.UNTESTED,
    (Node.TESTING, Event.LOSE): Node.UNTESTED,
    (Node.TESTING, Event.PASS): Node.GOOD,
    (Node.TESTING, Event.FAIL): Node.EXCLUDED,
    (Node.TESTING, Event.DOUBT): Node.TESTING,
    (Node.GOOD, Event.DOUBT): Node.UNTESTED,
    (Node.EXCLUDED, Event.DOUBT): Node.EXCLUDED,
    (Node.EXCLUDED, Event.FORGIVE): Node.UNTESTED,
}


class _Known:
    __slots__ = ("reason", "state", "tested_at", "tester")

    def __init__(self) -> None:
        self.state, self.reason, self.tested_at = Node.UNTESTED, "", 0.0
        self.tester: Hashable = None


class SectionNodes:
    """The nodes that a job has used. A node is tested again ``recheck_s`` seconds after its last test; ``now`` is
    monotonic."""

    def __init__(self, recheck_s: float) -> None:
        self._recheck_s = recheck_s
        self._nodes: Dict[str, _Known] = {}

    def state(self, node: str, now: float) -> Node:
        """The state of a node."""
        known = self._nodes.setdefault(node, _Known())
        if known.state is Node.GOOD and now - known.tested_at > self._recheck_s:
            self._go(known, Event.DOUBT)
        return known.state

    def test(self, node: str, tester: Hashable) -> None:
        """``tester`` has begun to test an untested node."""
        known = self._nodes[node]
        self._go(known, Event.TEST)
        known.tester = tester

    def tested(self, node: str, tester: Hashable, reason: str, now: float) -> bool:
        """Record a test's result; ``reason`` is empty for a good node. Returns False for a test that nobody waits
        for."""
        known = self._nodes.get(node)
        if known is None or known.state is not Node.TESTING or known.tester != tester:
            return False
        known.reason, known.tested_at, known.tester = reason, now, None
        self._go(known, Event.FAIL if reason else Event.PASS)
        return True

    def lose(self, tester: Hashable) -> None:
        """A worker is lost: the node that it was testing is untested."""
        for known in self._nodes.values():
            if known.state is Node.TESTING and known.tester == tester:
                self._go(known, Event.LOSE)
                known.tester = None

    def doubt(self, node: str) -> None:
        """A section failed on the node, or a worker there was lost: test it before the next section."""
        self._go(self._nodes.setdefault(node, _Known()), Event.DOUBT)

    def due(self, now: float) -> List[str]:
        """Excluded nodes that may be tested again now; they become untested."""
        found = []
        for node, known in self._nodes.items():
            if known.state is Node.EXCLUDED and now - known.tested_at >= self._recheck_s:
                self._go(known, Event.FORGIVE)
                found.append(node)
        return sorted(found)

    def excluded(self) -> Dict[str, str]:
        """Excluded nodes, each with the reason."""
        return {node: known.reason for node, known in self._nodes.items() if known.state is Node.EXCLUDED}

    def left_out(self) -> str:
        """The excluded nodes with their reasons, for the end of a job's cause; "" if there are none."""
        excluded = sorted(self.excluded().items())
        told = ", ".join(f"{node} ({why})" for node, why in excluded[:_TOLD])
        more = f", and {counted(len(excluded) - _TOLD, 'node')} more" if len(excluded) > _TOLD else ""
        return f"; left out: {told}{more}" if told else ""

    def met(self) -> List[str]:
        """All nodes on which the job had a worker."""
        return sorted(self._nodes)

    @staticmethod
    def _go(known: _Known, event: Event) -> None:
        known.state = TRANSITIONS[known.state, event]
