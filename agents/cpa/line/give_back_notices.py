"""Asks running jobs for processors that a request waits for; each is given back after the task at hand.

``giving_back.find`` (db/allocation/scheduling) decides it anew whenever the first request of a line finds too few
processors. This module tells the jobs, by a node of one of their launches: what the node's launch child is told goes
up to yod, and from there to the owner of the job. A job that was told is not told again until something changes. Where
the answer depends on time (a job keeps for a while what it has got back), it is looked for again when that has passed.
"""

from collections.abc import Callable

from agents.cpa.operations import Operations
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop, Timer
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import finish
from db.allocation.scheduling import giving_back
from db.allocation.scheduling.giving_back import Answer, JobKey, Keep
from db.allocation.types import Demand
from db.errors import StoreError

#: Seconds until a notice is repeated that reached no launch of its job, which may just be starting; and how often.
AGAIN_S, TIMES = 1.0, 5
#: Jobs of which the last notice is remembered, and requests that are looked at again.
MOST = 4096
#: Seconds until the database is asked again that was away.
AWAY_S = 5.0


class GivingBack:
    """Sends the notices. ``guard`` runs a transaction unless the database is known to be away."""

    def __init__(
        self,
        loop: Loop,
        operations: Operations,
        guard: Callable[[Callable[[], Answer]], Answer],
        journal: Journal,
    ) -> None:
        self._loop, self._operations, self._guard, self._journal = loop, operations, guard, journal
        self._told: dict[JobKey, tuple[str, Keep]] = {}  # the last notice of each job, and for which request it was
        self._later: dict[str, Timer] = {}  # when to look at a request again

    def make_room(self, uid: int, message: Message) -> None:
        """Ask jobs for what the head of a line lacks."""
        operations = self._operations
        demand, choose = operations.demand(uid, message), operations.choose_for(message)
        answer = self._guard(lambda: giving_back.find(operations.store, operations.machine, demand, choose))
        if answer.again_s is not None:
            self._look_again(answer.again_s, demand.request_key, uid, message)
        for one in answer.keeps:
            if self._told.get(one.job) == (demand.request_key, one):
                continue
            if len(self._told) >= MOST:
                self._told.clear()
            self._told[one.job] = demand.request_key, one
            self._journal.write("gives_back", job=one.job.digits, uid=one.job.uid, keep=one.keep, to=demand.user)
            self._tell(one, demand, list(one.launchers), TIMES)

    def _look_again(self, pause_s: float, key: str, uid: int, message: Message) -> None:
        if key in self._later:
            self._later.pop(key).cancel()
        elif len(self._later) >= MOST:
            return  # any later change of the line asks

        def look() -> None:
            del self._later[key]
            try:
                self.make_room(uid, message)
            except (StoreError, AgentError) as error:
                self._journal.write("fault", reason=error.message)
                self._look_again(AWAY_S, key, uid, message)

        self._later[key] = self._loop.after(pause_s, look)

    def _tell(self, one: Keep, demand: Demand, left: list[int], times: int) -> None:
        """Tell one of the launchers ``left``, or the next one if it cannot be reached."""
        if self._told.get(one.job) != (demand.request_key, one):
            return  # it is asked for something else since
        message: Message = {
            "op": "give_back", "key": demand.request_key, "launchers": one.launchers, "keep": one.keep,
            "to": demand.user, "pause": bool(demand.grows),
        }  # fmt: skip
        while left:
            launcher = left.pop(0)
            try:
                live = finish.find_live(self._operations.store, launcher)
                if live is None or live.state != "busy":
                    continue
                node = self._operations.nodes_of(live.processors)[0]
                caller = Caller(self._loop, connect_now(node.address), "cpa", lambda _caller, _reason: None)
            except (OSError, AgentError, StoreError):
                continue

            def answered(reply: Message | None, _error: AgentError | None, caller: Caller = caller) -> None:
                self._loop.after(0, caller.close)  # not from within its own callback
                if reply is None or not reply.get("told"):
                    self._tell(one, demand, left, times)

            caller.call({**message, "launcher": launcher}, answered)
            return
        if times:
            self._loop.after(AGAIN_S, lambda: self._tell(one, demand, list(one.launchers), times - 1))
        else:
            self._told.pop(one.job, None)  # the next change of the line asks again
