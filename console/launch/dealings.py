"""What a launcher says to the CPAs and, where none takes it, to the RCA: under its cookie, answered by an event."""

from __future__ import annotations

import time

from console.launch.forming import Event, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from agents.wire.errors import AgentError
    from console.launch.authority import Authority
    from console.launch.cargo import Cargo
    from console.launch.feeder import Feeder
    from console.launch.machine import Launch
    from console.launch.plan import Plan
    from console.launch.registration import Registration
    from console.launch.typed import TypedInput

#: Seconds for which CPAs are asked before a request is given up.
STARTED_S, FINISH_S = 45.0, 3.0
#: Seconds after which a reservation that could not be renewed is renewed again.
RENEW_AGAIN_S = 2.0


class Dealings:
    """The part of an engine that has processors confirmed and given back."""

    _loop: Loop
    _cpa: Authority
    _rca: Registration
    _reply: dict[str, Any]
    _plan: Plan | None
    _feeder: Feeder | TypedInput | None
    _cargo: Cargo | None
    launch: Launch
    _renew_at: float
    _answered: bool

    def _down(self, message: dict[str, Any]) -> None:
        """A message to the tree's root."""
        raise NotImplementedError

    def handle(self, event: Event, *facts: Any) -> None:
        """Give the machine an event and do what it says."""
        raise NotImplementedError

    @property
    def reads(self) -> bool:
        """Whether yod itself has work to do before nodes can go on."""
        return self._cargo is not None and self._cargo.reads

    def _renew(self) -> None:
        """Keep the processors while the launch loads: while its root answers, which it does once it has the load."""
        if not self._answered:
            self._down({"op": "ping"})
            return
        self._renew_at = float("inf")
        self._cpa.ask(self._cookied("loading"), self._renewed, STARTED_S, patient=True)

    def _renewed(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if self.launch.state is not State.LOADING:
            return
        if reply is not None and error is None:
            self._renew_at, self._answered = time.monotonic() + reply["loading_s"] / 3, False
            self._down({"op": "ping", "loading_s": reply["loading_s"]})
        elif error is not None and error.code == "expired":
            root = self._plan.nodes[0].name if self._plan is not None else ""
            self.handle(Event.FAILED, root, *told(error), "launch")
        elif error is None or error.code != "unknown_op":  # a CPA of a former version keeps them for pending_s
            self._renew_at = time.monotonic() + RENEW_AGAIN_S

    def _confirm(self) -> None:
        assert self._plan is not None
        started = self._cookied("started", ranks=self._plan.first_processor, root=self._plan.nodes[0].name)
        self._cpa.ask(started, self._confirmed, STARTED_S, patient=True)

    def _confirmed(self, _reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if error is None:
            self.handle(Event.CONFIRMED)
        else:
            self.handle(Event.UNCONFIRMED, *told(error))

    def _node_failed(self, node: str, reason: str) -> None:
        self._cpa.ask(self._cookied("node_failed", node=node, reason=reason[:200]), lambda *_: None, FINISH_S)
        if self._plan is not None:
            from console.launch.sweeping import tell_failed

            tell_failed(self._loop, self._plan, node, self._reply, reason[:200])

    def _cookied(self, op: str, **members: Any) -> dict[str, Any]:
        return {"op": op, "launcher": self._reply["launcher"], "cookie": self._reply["cookie"], **members}

    def _finish(self, processor_error: bool, reason: str) -> dict[str, Any]:
        status = self.launch.exit_status
        told = self._cookied("finish", exit_status=status, processor_error=processor_error, reason=reason[:200])
        plan = self._plan
        if self.launch.lost_nodes and plan is not None and any(n.address[:1] != "/" for n in plan.nodes):
            told["lost"] = self.launch.lost_nodes  # on this machine the PCTs themselves see to it
        return told

    def _free(
        self,
        processor_error: bool,
        reason: str,
        then: Callable[[dict[str, Any] | None, AgentError | None], None] | None = None,
    ) -> None:
        if self._feeder is not None:
            self._feeder.close()
        self._cpa.ask(self._finish(processor_error, reason), then or self._freed, FINISH_S, patient=True)

    def _freed(self, _reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if error is None or error.code == "expired":  # freed already: the pending time ran out, or a clean-up did it
            self.handle(Event.FREED)
        else:
            self.handle(Event.NOT_FREED, error.message)

    def _hand(self, processor_error: bool, reason: str) -> None:
        self._rca.hand(self._finish(processor_error, reason), self._handed)

    def _handed(self, error: AgentError | None) -> None:
        if error is None:
            self.handle(Event.HANDED)
        else:
            self.handle(Event.NOT_HANDED, error.message)


def told(error: AgentError | None) -> tuple[str, str, int]:
    """Message, hint and exit status of what went wrong."""
    return (error.message, error.hint, error.exit_status) if error is not None else ("no answer", "", 125)
