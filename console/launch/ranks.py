"""The state of a launch's ranks: nodes, exits, and who ended them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.plan import Plan

#: The status of a rank that was lost with its node: it counts as killed.
LOST_STATUS = 128 + 9


class OutOfMemory:
    """A node's report that the kernel killed a rank for lack of memory, in bytes.

    ``had``: what the rank had at most (0: unknown). ``limit``: that of its control group; 0 if the host ran out, which
    has ``host``.
    """

    __slots__ = ("had", "host", "limit")

    def __init__(self, had: int, limit: int, host: int) -> None:
        self.had, self.limit, self.host = had, limit, host


class End:
    """The exit of a rank. ``by_yod``: killed by a signal that yod had sent to end it. ``lost``: lost with its node.

    ``core``: the kernel wrote a core dump. ``memory``: the kernel killed it for lack of memory.
    """

    __slots__ = ("by_yod", "core", "elapsed_s", "lost", "memory", "signal", "status")

    def __init__(
        self,
        status: int,
        signal: int,
        elapsed_s: float,
        *,
        by_yod: bool = False,
        lost: bool = False,
        core: bool = False,
        memory: OutOfMemory | None = None,
    ) -> None:
        self.status, self.signal, self.elapsed_s, self.by_yod, self.lost = status, signal, elapsed_s, by_yod, lost
        self.core, self.memory = core, memory

    @property
    def bad(self) -> bool:
        """True unless the rank exited with 0: also if yod killed it (see ``by_yod``) or its node was lost."""
        return bool(self.status or self.signal or self.lost)

    @property
    def exit_status(self) -> int:
        """The exit status in a shell's form."""
        if self.lost:
            return LOST_STATUS
        return 128 + self.signal if self.signal else self.status

    def as_event(self, rank: int, node: str) -> dict[str, Any]:
        """The ``exit`` event."""
        event = {
            "event": "exit",
            "rank": rank,
            "node": node,
            "status": self.status,
            "signal": self.signal,
            "core": self.core,
            "elapsed_s": round(self.elapsed_s, 6),
            "by_yod": self.by_yod,
        }
        if self.memory is not None:
            memory = self.memory
            event["out_of_memory"] = {"had": memory.had, "limit": memory.limit, "host": memory.host}
        return event


class Ranks:
    """The ranks of a launch. Empty before :meth:`planned`."""

    def __init__(self) -> None:
        self.size = 0
        self.plan: Plan | None = None
        self.pids: list[list[int]] = []  # [pid, node index] by rank; [0, 0] until it is ready
        self.ends: dict[int, End] = {}
        self._out_of_memory: dict[int, OutOfMemory] = {}  # reported before the exit
        self.any_by_yod = False
        self.exit_status = 0  # the highest status of ranks that ended by themselves
        self._ready = 0

    def planned(self, plan: Plan) -> None:
        """Set the placement."""
        self.plan, self.size = plan, plan.size
        self.pids = [[0, 0] for _ in range(plan.size)]

    def are_ready(self, ranks: list[list[int]]) -> None:
        """Record processes that have started and are held: ``[rank, pid, node index]``."""
        for rank, pid, at in ranks:
            if 0 <= rank < self.size and not self.pids[rank][0]:
                self.pids[rank] = [pid, at]
                self._ready += 1

    @property
    def all_ready(self) -> bool:
        return self._ready == self.size > 0

    @property
    def all_ended(self) -> bool:
        return len(self.ends) == self.size > 0

    def ended(self, rank: int, wait_status: int, seconds: float, *, killed: bool) -> End | None:
        """Record the exit of ``rank``; None if it is already known. ``killed``: yod has sent a signal to end it."""
        if rank in self.ends or not 0 <= rank < self.size:
            return None
        number = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else 0
        status = os.WEXITSTATUS(wait_status) if os.WIFEXITED(wait_status) else 0
        core = bool(number) and os.WCOREDUMP(wait_status)
        memory = self._out_of_memory.get(rank) if self._out_of_memory else None
        by_yod = killed and number in (9, 15) and memory is None
        end = End(status, number, float(seconds), by_yod=by_yod, core=core, memory=memory)
        self._note(rank, end)
        return end

    def ran_out(self, rank: int, memory: OutOfMemory) -> None:
        """Record that the kernel killed ``rank`` for lack of memory; its exit follows."""
        if 0 <= rank < self.size:
            self._out_of_memory[rank] = memory

    def lost(self, ranks: list[int]) -> None:
        """Record ranks that were lost with their node."""
        for rank in ranks:
            if rank not in self.ends and 0 <= rank < self.size:
                self._note(rank, End(0, 0, 0.0, lost=True))

    def _note(self, rank: int, end: End) -> None:
        self.ends[rank] = end
        if end.by_yod:
            self.any_by_yod = True
        else:
            self.exit_status = max(self.exit_status, end.exit_status)

    def node_name(self, at: int) -> str:
        """The name of the node of index ``at``."""
        return self.plan.nodes[at].name if self.plan and 0 <= at < len(self.plan.nodes) else f"node {at}"

    def node_of(self, rank: int) -> str:
        """The name of the node that hosts ``rank``."""
        assert self.plan is not None
        return self.plan.nodes[self.plan.node_of[rank]].name

    @property
    def root_name(self) -> str:
        """The name of the node with rank 0; "" before the placement."""
        return self.plan.nodes[0].name if self.plan is not None else ""

    def nodes_not_ready(self) -> list[str]:
        """Names of the nodes whose ranks have not all started."""
        assert self.plan is not None
        return [node.name for node in self.plan.nodes if not all(self.pids[rank][0] for rank in node.ranks)]

    @property
    def node_names(self) -> list[str]:
        """Every node of the launch, in rank order."""
        return [] if self.plan is None else [node.name for node in self.plan.nodes]

    def not_ended_by_node(self) -> list[list[Any]]:
        """``[[node index, ranks], …]`` of the ranks that have not ended."""
        if self.plan is None:
            return []
        found = [
            [at, [rank for rank in node.ranks if rank not in self.ends]] for at, node in enumerate(self.plan.nodes)
        ]
        return [entry for entry in found if entry[1]]

    @property
    def running(self) -> int:
        """The number of ranks that have not ended."""
        return self.size - len(self.ends)

    def lost_line(self, nodes: list[Any], reason: str) -> str:
        """A message about lost nodes."""
        from redmesh.idset import fold_names, fold_ranks

        names = fold_names([self.node_name(at) for at, _ in nodes])
        ranks = sorted(rank for _, some in nodes for rank in some)
        if not names:
            return f"lost: {reason}"
        return f"lost {names} with rank {fold_ranks(ranks)}: {reason}" if ranks else f"lost {names}: {reason}"
