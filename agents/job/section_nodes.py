"""Which nodes get sections of one job: tested before the first one, again after a failure, and every so often. Pure."""

from __future__ import annotations

from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Hashable, List, Tuple


class Node(Enum):
    """What is known of a node."""

    UNTESTED = "untested"
    TESTING = "testing"
    GOOD = "good"
    EXCLUDED = "excluded"


class Event(Enum):
    """What may happen to a node."""

    TEST = "test"  # a worker there has begun to test it
    LOSE = "lose"  # that worker is lost
    PASS = "pass"
    FAIL = "fail"
    DOUBT = "doubt"  # a section failed there, or its test is too long ago
    FORGIVE = "forgive"  # it may be looked at again


#: The only table of what may become of a node.
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
    """The nodes that one job has met. A node is tested again ``recheck_s`` seconds after its last test; ``now`` is a
    monotonic clock's."""

    def __init__(self, recheck_s: float) -> None:
        self._recheck_s = recheck_s
        self._nodes: Dict[str, _Known] = {}

    def state(self, node: str, now: float) -> Node:
        """What is known of a node now."""
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
        """The test's result, ``reason`` empty for a good node. False for a test that nobody waits for."""
        known = self._nodes.get(node)
        if known is None or known.state is not Node.TESTING or known.tester != tester:
            return False
        known.reason, known.tested_at, known.tester = reason, now, None
        self._go(known, Event.FAIL if reason else Event.PASS)
        return True

    def lose(self, tester: Hashable) -> None:
        """A worker is lost: what it tested is not tested."""
        for known in self._nodes.values():
            if known.state is Node.TESTING and known.tester == tester:
                self._go(known, Event.LOSE)
                known.tester = None

    def doubt(self, node: str) -> None:
        """A section failed on the node, or a worker there was lost: it is tested again before the next section."""
        self._go(self._nodes.setdefault(node, _Known()), Event.DOUBT)

    def due(self, now: float) -> List[str]:
        """Excluded nodes whose time has come; they are untested from now on."""
        found = []
        for node, known in self._nodes.items():
            if known.state is Node.EXCLUDED and now - known.tested_at >= self._recheck_s:
                self._go(known, Event.FORGIVE)
                found.append(node)
        return sorted(found)

    def excluded(self) -> Dict[str, str]:
        """Excluded nodes, each with the reason."""
        return {node: known.reason for node, known in self._nodes.items() if known.state is Node.EXCLUDED}

    def met(self) -> List[str]:
        """Every node on which the job had a worker."""
        return sorted(self._nodes)

    @staticmethod
    def _go(known: _Known, event: Event) -> None:
        known.state = TRANSITIONS[known.state, event]
