"""Tells launches of low priority to end if a request waits for their processors (yod -nice).

One transaction chooses and records them (db/allocation/scheduling/preemption.py). This module tells the nodes' PCTs,
repeatedly until the launcher has ended, so it does not matter which CPA, or how many CPAs, do it.
"""

from collections.abc import Callable

from agents.cpa.operations import Operations
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import finish
from db.allocation.scheduling import preemption
from db.allocation.scheduling.preemption import Nice
from db.allocation.types import Demand
from db.errors import StoreError
from redmesh.text import counted

AGAIN_S = 5.0


class GivingWay:
    """Sends the notices. ``guard`` runs a transaction unless the database is known to be away."""

    def __init__(
        self,
        loop: Loop,
        operations: Operations,
        guard: Callable[[Callable[[], list[Nice]]], list[Nice]],
        journal: Journal,
        grace_s: float,
    ) -> None:
        self._loop, self._operations, self._guard, self._journal = loop, operations, guard, journal
        self._grace_s = grace_s
        self._told: dict[int, tuple[Nice, Demand]] = {}  # by launcher, until it has ended
        self._again = False

    def make_room(self, uid: int, message: Message) -> bool:
        """Have launches of low priority end for the head of a line that found too few processors, if that would
        help. Returns whether any are ending."""
        operations = self._operations
        demand = operations.demand(uid, message)
        choose = operations.choose_for(message)
        ending = self._guard(
            lambda: preemption.make_room(operations.store, operations.machine, demand, self._grace_s, choose)
        )
        for one in ending:
            if one.launcher not in self._told:
                self._told[one.launcher] = one, demand
                self._tell(one, demand)
        self._begin()
        return bool(ending)

    def _begin(self) -> None:
        if self._told and not self._again:
            self._again = True
            self._loop.after(AGAIN_S, self._tell_again)

    def _tell_again(self) -> None:
        self._again = False
        try:
            for launcher, (one, demand) in list(self._told.items()):
                if finish.find_live(self._operations.store, launcher) is None:
                    del self._told[launcher]
                else:
                    self._tell(one, demand)
        except StoreError as error:
            self._journal.write("fault", reason=error.message)
        self._begin()

    def hint(self, uid: int, message: Message) -> str:
        """A hint for a request that does not wait, if launches of low priority would end for it; otherwise empty."""
        operations = self._operations
        demand, choose = operations.demand(uid, message), operations.choose_for(message)
        count = preemption.could(operations.store, operations.machine, demand, choose)
        if not count:
            return ""
        return f"{count} are used by launches of low priority, which end for those who wait: --wait-for-nodes S"

    def _tell(self, one: Nice, demand: Demand) -> None:
        nodes = self._operations.nodes_of(one.processors)
        self._journal.write("preempted", launcher=one.launcher, nodes=[node.name for node in nodes], to=demand.user)
        for node in nodes:
            reason = (
                f"this launch of low priority gives way to {demand.user}, who waits for"
                f" {counted(demand.size, 'processor')}: SIGTERM now, SIGKILL in {self._grace_s:g} s"
            )
            message = {"op": "kill_launch", "launcher": one.launcher, "grace_s": self._grace_s, "reason": reason}
            message["to"] = demand.user
            try:
                caller = Caller(self._loop, connect_now(node.address), "cpa", lambda _caller, _reason: None)
            except (OSError, AgentError):
                continue  # repeated as long as a request waits
            caller.call(message, lambda _reply, _error, caller=caller: self._let_go(caller))  # type: ignore[misc]

    def _let_go(self, caller: Caller) -> None:
        self._loop.after(0, caller.close)  # not from within its own callback
