"""Nodes on which launches of a job could not start, and when the job gives up: a state machine without I/O.

A launch fails to start for a reason of its node (it is silent, or taken out of service: yod tries other nodes, and the
owner asks again for as long as the job waits), or for a reason that the node's launch child states: no place for files,
too few descriptors, a file in the way. The second kind of reason is seldom mended by waiting:

1. The job is started on other nodes, at once, without those that have stated a reason.
2. If the CPA says that no node is left, a round is over. After a pause, the next round begins with all nodes.
3. After so many rounds in which every node has stated a reason and no launch has started, the job ends with the
   reasons.
"""

from __future__ import annotations

from redmesh.idset import fold_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Iterable, List, NamedTuple

    class FailedStart(NamedTuple):
        """The reason why a launch could not start on a node, as the node states it, and what to do about it."""

        node: str
        reason: str
        hint: str

else:
    from collections import namedtuple

    FailedStart = namedtuple("FailedStart", "node reason hint")

#: Rounds after which a job ends that has never started a launch, and one that has: what it needs was there then, and
#: may be there again (with pauses of 1, 2, 4 s and so on up to a minute, these are 7 s and 4 minutes).
ROUNDS, ROUNDS_LATER = 4, 10
#: Seconds after the last of these failures after which nodes are tried again while launches run on others, or wait for
#: others. Not after the first: trying all nodes of a large mesh takes longer, and the round would never be over.
FORGIVE_S = 60.0


class FailedStarts:
    """The nodes of one job on which no launch could start in this round."""

    def __init__(self) -> None:
        self._starts: Dict[str, FailedStart] = {}
        self._last = 0.0
        self._rounds = 0
        self._has_started = False

    @property
    def nodes(self) -> List[str]:
        """The nodes to leave out."""
        return sorted(self._starts)

    @property
    def rounds(self) -> int:
        """The rounds that are over since a launch has started."""
        return self._rounds

    def failed(self, starts: Iterable[FailedStart], left_out: Collection[str], now: float) -> bool:
        """A launch could not start. Returns whether to ask again at once: not if its request left these nodes out, in
        vain. Requests that were made before a node's first failure still name it."""
        helps = False
        for start in starts:
            self._starts[start.node], self._last = start, now
            helps = helps or start.node not in left_out
        return helps

    def started(self) -> None:
        """A launch has started: rounds count from here."""
        self._rounds, self._has_started = 0, True

    def forgive(self, now: float) -> bool:
        """Leave out no node if the last of them failed long ago; returns whether there were any."""
        if not self._starts or now - self._last < FORGIVE_S:
            return False
        self.clear()
        return True

    def end_round(self) -> str:
        """No node is left. Returns why the job ends, or "" if a further round begins."""
        self._rounds += 1
        if self._rounds >= (ROUNDS_LATER if self._has_started else ROUNDS):
            return self._why()
        self.clear()
        return ""

    def clear(self) -> None:
        """Leave out no node."""
        self._starts.clear()

    def _why(self) -> str:
        """The reasons, each with its nodes and with what to do."""
        nodes: Dict[str, List[str]] = {}
        hints: Dict[str, str] = {}
        for node, start in sorted(self._starts.items()):
            reason = start.reason[len(node) + 2 :] if start.reason.startswith(f"{node}: ") else start.reason
            nodes.setdefault(reason, []).append(node)
            hints[reason] = start.hint
        told = [
            f"{fold_names(names)}: {reason}" + (f" ({hints[reason]})" if hints[reason] else "")
            for reason, names in nodes.items()
        ]
        return f"no worker can start ({self._rounds} tries on each node): {'; '.join(told)}"
