"""What a launch child hears: from the processes of its node, and from its children in the tree."""

from __future__ import annotations

import os

from agents.pct import orders, parallel, shared_input
from agents.pct.errors import LoadFailed
from agents.pct.freight import UP_OPS
from agents.pct.launch_states import Event, State
from agents.pct.local import Listener
from agents.wire.control import Message
from agents.wire.errors import WireError

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List, Optional

    from agents.pct.freight import Freight
    from agents.pct.killers import Killers
    from agents.pct.launch_states import Action, LaunchMachine
    from agents.pct.local import Local
    from agents.pct.orders import Orders
    from agents.pct.outputs import Relay
    from agents.pct.parallel import Parallel
    from agents.pct.plan import Load
    from agents.pct.ranks import Rank
    from agents.pct.readiness import Readiness
    from agents.pct.seat import Host
    from agents.pct.shared_input import Sharing
    from agents.pct.subtree import Child
    from agents.pct.upward import Upward


class Hearing(Listener):
    """The part of a launch that makes events of what it hears, and passes on what is for its parent."""

    _host: Host
    _is_root: bool
    _machine: LaunchMachine
    _load: Optional[Load]
    _local: Optional[Local]
    _parallel: Optional[Parallel]
    _relay: Optional[Relay]
    _readiness: Optional[Readiness]
    _freight: Freight
    _orders: Orders
    _sharing: Sharing
    _killers: Killers
    _up: Upward
    _household: Any
    _ready: List[List[int]]
    _unclean: List[List[Any]]
    _failure: Message
    _go: Message
    _held: int
    _processes_gone: bool

    # What Launch (agents/pct/launch.py) has, and this half of it calls: never reached here, declared for the checker.

    @property
    def _launcher(self) -> int:
        raise NotImplementedError

    def _do(self, actions: List[Action]) -> None:
        raise NotImplementedError

    def _handle(self, event: Event) -> None:
        raise NotImplementedError

    def _fail(self, error: LoadFailed, node: str = "") -> None:
        raise NotImplementedError

    def _fail_with(self, message: Message) -> None:
        raise NotImplementedError

    # From this node's processes

    def _on_child_signal(self) -> None:
        if self._local is not None:
            self._local.reap()

    def rank_held(self, rank: Rank) -> None:
        assert self._load is not None
        self._ready.append([rank.number, rank.pid, self._load.place])
        self._held += 1
        if self._readiness is not None:
            self._readiness.moved()
        self._do(self._machine.one_held())

    def begin_failed(self, error: LoadFailed) -> None:
        self._fail(error)

    def rank_ended(self, rank: Rank, seconds: float) -> None:
        if rank.released_at:
            self._up.ended([[rank.number, rank.status, round(seconds, 6)]])
            if self._parallel is not None:
                self._parallel.rank_ended(rank)
        elif self._machine.state in (State.STARTING, State.HELD):
            status = rank.status or 0
            how = f"died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
            why = f"{self._host.node}: rank {rank.number} {how} before it could run"
            # who may kill a rank that stands there is its user, or the kernel for want of memory: no node's fault
            self._fail(LoadFailed(why, "launch", rank=rank.number))

    def rank_closed(self, number: int) -> None:
        self._up.closed([number])

    def noted(self, message: str, **more: Any) -> None:
        self._host.log.write("note", launcher=self._launcher, message=message)
        self._up.tell({"op": "note", "node": self._host.node, "message": message, **more})

    def _noted_once(self, message: str, **more: Any) -> None:
        # what all nodes are told at once, the root tells the launcher
        if self._is_root:
            self.noted(message, **more)
        else:
            self._host.log.write("note", launcher=self._launcher, message=message)

    def tell(self, message: Message) -> None:
        self._up.tell(message)

    def drained(self) -> None:
        self._handle(Event.DRAINED)

    def processes_gone(self) -> None:
        assert self._local is not None
        self._processes_gone = True
        if self._parallel is not None:
            self._parallel.close()
        if self._local.unclean:
            self._unclean += [[self._host.node, pid] for pid in self._local.unclean]
            self._host.log.write("unclean", launcher=self._launcher, pids=self._local.unclean)
        elif self._household is not None:
            self._household.processes_gone()
        self._killers.answer(self._local.killed, bool(self._unclean))

    def swept(self) -> None:
        self._freight.finish(bool(self._go), self._clean_up)

    def _clean_up(self) -> None:
        if self._household is not None:
            self._household.epilog(lambda: self._handle(Event.SWEPT), self.noted)
        else:
            self._handle(Event.SWEPT)

    # From the children

    def _on_child_message(self, child: Child, op: str, message: Message) -> None:
        if child.over:
            return
        if op == "ready":
            child.ready = True
            self._ready += message["ranks"]
            self._do(self._machine.one_held())
        elif op == "failed":
            self._fail_with(message)
        elif op == "exits":
            child.exited.update(entry[0] for entry in message["ranks"])
            self._up.ended(message["ranks"])
            if self._parallel is not None:
                self._parallel.settle()
        elif op == "closed":
            self._behind_output(lambda: self._up.closed(message["ranks"]))
        elif op == "finished":
            child.over = True
            self._sharing.gone(child)
            self._unclean += message.get("unclean", [])
            self._behind_output(lambda: self._do(self._machine.child_over()))
        elif op in UP_OPS:
            self._freight.on_child_message(op, message)
        elif op in orders.UP_OPS:
            self._orders.on_child_message(child, op, message)
        elif op in parallel.UP_OPS:
            if self._parallel is not None:
                self._parallel.on_child_message(child, op, message)
        elif op in shared_input.UP_OPS:
            self._sharing.on_child_message(op, message)
        else:  # lost, note
            for _, ranks in message.get("nodes", ()):
                child.exited.update(ranks)
            self._up.tell(message)

    def _behind_output(self, call: Any) -> None:
        assert self._relay is not None
        self._relay.barrier(call)

    def _on_child_output(self, child: Child, kind: int, payload: bytes) -> None:
        assert self._relay is not None
        if len(payload) < 4:
            raise WireError("an output frame without a rank")
        self._relay.push(kind, int.from_bytes(payload[:4], "big"), memoryview(payload)[4:], child.returns.passed)

    def _on_child_lost(self, child: Child, reason: str, fate: Optional[Message] = None) -> None:
        """A subtree has gone; with ``fate`` its PCT lives, and says how its launch child died."""
        was_ready = self._machine.state
        child.drop()
        self._host.log.write("child lost", launcher=self._launcher, child=child.name, reason=reason)
        if was_ready in (State.STARTING, State.HELD):
            hint, fault = ("", "node") if not fate else (str(fate.get("hint", "")), "launch")
            self._fail(LoadFailed(f"{child.name}: {reason}", fault, hint=hint), child.name)
        elif not self._failure:
            nodes = [[place, [r for r in ranks if r not in child.exited]] for place, ranks in child.nodes]
            self._up.tell({"op": "lost", "nodes": nodes, "reason": f"{child.name}: {reason}"})
        self._orders.child_lost(child, reason)
        if self._parallel is not None:
            self._parallel.child_lost(child, reason)
        self._sharing.gone(child)
        self._behind_output(lambda: self._do(self._machine.child_over()))

    def _local_late(self) -> bool:
        assert self._load is not None
        return self._machine.state is State.STARTING and self._held < len(self._load.ranks)

    def _on_pulse(self, child: Child, back: bool) -> None:
        told = "answers again after" if back else "silent for"
        self._host.log.write("pulse", launcher=self._launcher, child=child.name, told=told, seconds=child.pulse.seconds)
        if not back and self._machine.state in (State.STARTING, State.HELD):
            self._fail(LoadFailed(f"{child.name}: silent for {child.pulse.seconds:.0f} s", "node"), child.name)
        else:
            message = {"op": "silent", "node": child.name, "seconds": child.pulse.seconds}
            self._up.tell(dict(message, back=True) if back else message)
