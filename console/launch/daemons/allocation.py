"""The processors of a launch: requested, reserved while it loads, confirmed at its start, freed at its end."""

from __future__ import annotations

import os
import time

from console.launch.daemons.cpa import ALLOCATE_S
from console.launch.states import Event, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.wire.errors import AgentError
    from console.launch.daemons.cpa import Authority
    from console.launch.daemons.rca import Registration
    from console.launch.plan import Plan
    from console.launch.states import Launch

    Then = Callable[[dict[str, Any] | None, AgentError | None], None]

#: Seconds for which CPAs are asked to record the start, and the end.
STARTED_S, FINISH_S = 45.0, 3.0
#: How often a waiting request is repeated because its reservation expired before the grant arrived.
LAPSES = 3
#: Seconds after which a failed renewal is repeated.
RENEW_AGAIN_S = 2.0
_NEVER = float("inf")


class Daemons:
    """yod's connections to its mesh: directories, the session with the RCA, connections to CPAs.

    ``in_job``: the mesh is that of a batch system's job.
    """

    __slots__ = ("cpa", "in_job", "rca", "run_dir", "state_dir")

    def __init__(self, run_dir: str, state_dir: str, rca: Registration, cpa: Authority, in_job: bool = False) -> None:
        self.in_job = in_job
        self.run_dir, self.state_dir, self.rca, self.cpa = run_dir, state_dir, rca, cpa


class Allocation:
    """The processors of ``launch``. ``asked``: the first request. ``handle``: gets events. ``reply``: the grant."""

    def __init__(self, daemons: Daemons, asked: dict[str, Any], launch: Launch, handle: Callable[..., None]) -> None:
        self._daemons, self._asked, self._launch, self._handle = daemons, asked, launch, handle
        self.reply: dict[str, Any] = {}
        self.lapses_at = 0.0  # monotonic; not later than the expiry of the reservation
        self._renew_at = _NEVER  # when to renew the reservation of a loading launch
        self._lapses = 0  # how often a grant expired before it arrived

    def cookied(self, op: str, **members: Any) -> dict[str, Any]:
        """A request to a CPA with the launch's cookie."""
        return {"op": op, "launcher": self.reply["launcher"], "cookie": self.reply["cookie"], **members}

    # Request

    def granted(self, reply: dict[str, Any], last_look: float) -> None:
        """Record a grant. ``last_look``: when this process last checked for an answer (monotonic)."""
        self.reply = reply
        # The grant was made after the request was sent, and after the last check for an answer. It may be much older
        # than now, because this process may have been stopped (^Z) since.
        self.lapses_at = max(self._daemons.cpa.asked_at, last_look) + reply["pending_s"]
        self._renew_at = time.monotonic() + reply["pending_s"] / 3
        self._daemons.rca.launcher(reply["launcher"])

    def lapsed(self, error: AgentError | None, wait_s: float) -> bool:
        """True if the request must be repeated with another key, because its reservation expired before the grant
        arrived. This happens if the database is away for longer than a reservation."""
        if error is None or error.code != "expired" or not wait_s or self._lapses == LAPSES:
            return False
        if self._launch.state is not State.ALLOCATING:
            return False
        self._lapses += 1
        return True

    def ask_again(self, wait_s: float, then: Then) -> None:
        """Request other processors; ``wait_s``: the least time to wait for them."""
        again = dict(self._asked, key=os.urandom(16).hex(), wait_s=max(wait_s, self._asked["wait_s"]))
        if avoided := self._launch.tries.avoided:
            excluded = self._asked.get("exclude") or {}
            again["exclude"] = {**excluded, "nodes": [*excluded.get("nodes", ()), *avoided]}
        self._daemons.cpa.ask(again, then, ALLOCATE_S + again["wait_s"], patient=again["wait_s"] > 0)

    # Reservation

    def is_due(self, now: float) -> bool:
        """True if the reservation of a loading launch must be renewed."""
        return self._launch.state is State.LOADING and now >= self._renew_at

    def renew(self, renewed: Callable[[float], None]) -> None:
        """Renew the reservation; ``renewed`` gets its new length in seconds."""
        self._renew_at = _NEVER

        def answered(reply: dict[str, Any] | None, error: AgentError | None) -> None:
            if self._launch.state is not State.LOADING:
                return
            if reply is not None and error is None:
                self._renew_at = time.monotonic() + reply["loading_s"] / 3
                renewed(reply["loading_s"])
            elif error is not None and error.code == "expired":
                self._handle(Event.FAILED, self._launch.ranks.root_name, *told(error), "launch")
            elif error is None or error.code != "unknown_op":  # a CPA of an older version does not know the request
                self._renew_at = time.monotonic() + RENEW_AGAIN_S

        self._daemons.cpa.ask(self.cookied("loading"), answered, STARTED_S, patient=True)

    # Confirmation

    def confirm(self, plan: Plan, confirmed: Callable[[], None]) -> None:
        """Tell a CPA that every process is held; ``confirmed`` is called when it has recorded that."""
        started = self.cookied("started", ranks=plan.first_processor, root=plan.nodes[0].name)

        def answered(_reply: dict[str, Any] | None, error: AgentError | None) -> None:
            if error is not None:
                self._handle(Event.UNCONFIRMED, *told(error))
            else:
                confirmed()

        self._daemons.cpa.ask(started, answered, STARTED_S, patient=True)

    def report_node(self, node: str, reason: str) -> None:
        """Report to a CPA that a load failed because of a node."""
        self._daemons.cpa.ask(self.cookied("node_failed", node=node, reason=reason), lambda *_: None, FINISH_S)

    # Release

    def _finish(self, processor_error: bool, reason: str) -> dict[str, Any]:
        launch = self._launch
        status = launch.exit_status
        finish = self.cookied("finish", exit_status=status, processor_error=processor_error, reason=reason[:200])
        if launch.outcome.lost_nodes and launch.ranks.plan is not None:
            finish["lost"] = launch.outcome.lost_nodes  # their processors are free when the nodes are clean
        return finish

    def free(self, processor_error: bool, reason: str, then: Then | None = None) -> None:
        """Free the processors."""
        finish = self._finish(processor_error, reason)
        self._daemons.cpa.ask(finish, then or self._freed, FINISH_S, patient=True)

    def _freed(self, _reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if error is None or error.code == "expired":  # already freed: the reservation expired, or a clean-up freed them
            self._handle(Event.FREED)
        else:
            self._handle(Event.NOT_FREED, error.message)

    def hand(self, processor_error: bool, reason: str) -> None:
        """Send *finish* to the RCA, because no CPA accepted it."""

        def handed(error: AgentError | None) -> None:
            if error is None:
                self._handle(Event.HANDED)
            else:
                self._handle(Event.NOT_HANDED, error.message)

        self._daemons.rca.hand(self._finish(processor_error, reason), handed)


def told(error: AgentError | None) -> tuple[str, str, int]:
    """Message, hint and exit status of an error."""
    return (error.message, error.hint, error.exit_status) if error is not None else ("no answer", "", 125)
