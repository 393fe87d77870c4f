"""Nodes on which launches of a job could not start, and when the job gives up: a state machine without I/O.

A launch fails to start for a reason of its node (it is silent, or taken out of service: yod tries other nodes, and the
owner asks again for as long as the job waits), or for a reason that the node's launch child states: no place for files,
too few descriptors, a file in the way. The second kind of reason is seldom mended by waiting:

1. The job is started on other nodes, at once, without those that have stated a reason. yod itself does so until a node
   starts the launch, or the CPA says that no node is left: a process for each node would take ten times as long.
2. If the CPA says that no node is left, a round is over. After a pause, the next round begins with all nodes.
3. After so many rounds in which every node has stated a reason and no launch has started, the job ends with the
   reasons. Missing room comes back when other programs end, so it gets more rounds.
4. While launches run on other nodes, a node is tried again after a pause that doubles with each failure there.
"""

from __future__ import annotations

from redmesh.idset import fold_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Tuple

    from agents.wire.launch_events import NodeCannotStart

#: Rounds after which a job ends that has never started a launch, and one that has (what it needs was there then, and
#: may be there again) or that lacks only room on some node: with pauses of 1, 2, 4 s and so on up to a minute, these
#: are 7 s and 4 minutes.
ROUNDS, ROUNDS_LATER = 4, 10
#: Seconds after a node's failure after which it is tried again while launches run on others, or wait for others; the
#: pause doubles with each failure there, up to the second value. Never within the first value after any node's failure:
#: trying all nodes of a large mesh takes longer, and the round would never be over.
FORGIVE_S, FORGIVE_MOST_S = 60.0, 960.0
#: The most reasons that are told.
_TOLD = 5


class FailedStarts:
    """The nodes of one job on which no launch could start in this round."""

    def __init__(self) -> None:
        self._starts: Dict[str, NodeCannotStart] = {}
        self._before: Dict[str, NodeCannotStart] = {}  # those of the last round
        self._pauses: Dict[str, Tuple[int, float]] = {}  # node -> failures since a launch started there; the last one
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

    def failed(self, start: NodeCannotStart, now: float) -> float:
        """A launch could not start on a node. Returns the seconds after which it is tried again while others run."""
        times = self._pauses.get(start.node, (0, 0.0))[0] + 1
        self._pauses[start.node], self._last = (times, now), now
        self._starts[start.node] = start
        return _pause_s(times)

    def started(self, nodes: Iterable[str]) -> None:
        """A launch has started on ``nodes``: rounds count from here."""
        self._rounds, self._has_started = 0, True
        self._before.clear()
        for node in nodes:
            self._pauses.pop(node, None)

    def forgive(self, now: float) -> bool:
        """Leave out no node any more whose pause is over; returns whether there were any."""
        if now - self._last < FORGIVE_S:
            return False
        due = [node for node in self._starts if now - self._pauses[node][1] >= _pause_s(self._pauses[node][0])]
        for node in due:
            del self._starts[node]
        return bool(due)

    def end_round(self) -> str:
        """No node is left. Returns why the job ends, or "" if a further round begins."""
        self._rounds += 1
        if self._rounds >= self._most:
            return f"no worker can start ({self._rounds} tries on each node): {_reasons(self._starts)}"
        self._before = dict(self._starts)
        self.clear()
        return ""

    def clear(self) -> None:
        """Leave out no node."""
        self._starts.clear()

    @property
    def _most(self) -> int:
        of_room = any(start.of_room for known in (self._starts, self._before) for start in known.values())
        return ROUNDS_LATER if self._has_started or of_room else ROUNDS

    def why(self, pause_s: float = 0.0) -> str:
        """Why no launch starts, and how often that is tried, the next time in ``pause_s`` seconds; "" if none has
        failed."""
        known = {**self._before, **self._starts}
        if not known:
            return ""
        when = f", in {pause_s:.0f} s" if pause_s else ""
        return f"{_reasons(known)}; try {self._rounds + 1} of {self._most}{when}"


def _pause_s(times: int) -> float:
    return min(FORGIVE_S * 2.0 ** min(times - 1, 10), FORGIVE_MOST_S)


def _reasons(starts: Dict[str, NodeCannotStart]) -> str:
    """The reasons, each with its nodes and with what to do."""
    nodes: Dict[Tuple[str, str], List[str]] = {}
    for node, start in sorted(starts.items(), key=lambda one: (len(one[0]), one[0])):  # n9 before n10
        reason = start.text[len(node) + 2 :] if start.text.startswith(f"{node}: ") else start.text
        nodes.setdefault((reason, start.hint), []).append(node)
    told = [
        f"{fold_names(names)}: {reason}" + (f" ({hint})" if hint else "")
        for (reason, hint), names in list(nodes.items())[:_TOLD]
    ]
    left = sum(map(len, list(nodes.values())[_TOLD:]))
    return "; ".join([*told, f"{left} more nodes for other reasons"] if left else told)
