"""One node's part of a launch, in a process that stands in for many nodes: the real tree, but no ranks.

The states are those of a launch child (agents/pct/launch_child/states.py); a simulated rank is a number with a timer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.link.sockets import listen
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load, Program, child_load, child_window, read_load, runs
from agents.pct.launch.tree import Child, Upward
from agents.pct.launch_child.states import Action, Event, LaunchMachine, State
from agents.pct.stdio.stdout import Relay
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import COMMON, CONTROL, STDIN, STDOUT
from agents.wire.messages import DOWN, check, hello
from redmesh import idset
from simulated.programs import Behaviour, behaviour

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOAD_S = 10.0
#: Exits are gathered for this long before they are sent, because thousands of ranks may end at the same time.
GATHER_S = 0.02
#: Pids of simulated ranks are above the kernel's largest pid, so that no real process is signalled by mistake.
FIRST_PID = 1 << 22
#: Signals that do not end a simulated rank.
HARMLESS = frozenset((signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP, signal.SIGTSTP))


class Host:
    """What all launches of this process share. ``connect`` opens a connection to this process itself."""

    def __init__(self, loop: Loop, names: frozenset[str], address: str) -> None:
        self.loop, self.names, self.address = loop, names, address
        self.launches: dict[int, set[Launch]] = {}
        self._signs: dict[int, socket.socket] = {}
        self.killed: dict[int, float] = {}
        self.connect: Callable[[], socket.socket] = socket.socket
        self._common: bytes = b""
        self._program: Program | None = None

    def begun(self, launcher: int, launch: Launch) -> None:
        """Add a launch; make a launch child's socket for each launcher, because the keeper looks for these sockets."""
        self.launches.setdefault(launcher, set()).add(launch)
        if launcher not in self._signs:
            sign = self._signs[launcher] = listen(self._sign(launcher))
            self.loop.watch(sign.fileno(), READ, lambda _events: _knocked(sign))

    def ended(self, launcher: int, launch: Launch) -> None:
        """Remove a launch, and its launcher's socket with the last one."""
        here = self.launches.get(launcher, set())
        here.discard(launch)
        if not here and self.launches.pop(launcher, None) is not None:
            sign = self._signs.pop(launcher)
            self.loop.unwatch(sign.fileno())
            sign.close()
            with contextlib.suppress(OSError):
                os.unlink(self._sign(launcher))

    def _sign(self, launcher: int) -> str:
        run, name = os.path.split(self.address.removesuffix(".sock"))
        return f"{run}/launch-{name}-{launcher}.sock"

    def program(self, payload: bytes) -> Program:
        """Parse the common part of a load; consecutive nodes with the same part share the result."""
        from agents.pct.launch.load import read_program

        if self._program is None or payload != self._common:
            self._common, self._program = payload, read_program(payload)
        return self._program


def _knocked(sign: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sign.accept()[0].close()  # the keeper only tests whether the connection is accepted


class Below(Child):
    """A child in the tree; if it is in the same process, the connection is a socket pair without accept."""

    def __init__(self, host: Host, *facts: Any) -> None:
        self._host = host
        super().__init__(host.loop, *facts)

    def _connect(self) -> None:
        if self._address == self._host.address and not self.over:
            self._talk(self._host.connect())
        else:
            super()._connect()


class Launch:
    """A launch on one simulated node."""

    def __init__(self, host: Host, sock: socket.socket, role: str) -> None:
        self._host, self._loop = host, host.loop
        self._machine = LaunchMachine()
        self._message: Message | None = None
        self._common = b""
        self._load: Load | None = None
        self._began_at = 0.0
        self._living: dict[int, Behaviour] = {}
        self._children: list[Below] = []
        self._ready: list[Any] = []
        self._unclean: list[Any] = []
        self._failure: Message = {}
        self._relay: Relay | None = None
        self._deadline = self._loop.after(LOAD_S, lambda: self._handle(Event.EXPIRED))
        self._parent = Link(self._loop, sock, self._on_parent_frame, self._on_parent_end)
        greeting = control(hello("child"))
        self._up = Upward(self._loop, self._parent, greeting, lambda: not self._children, GATHER_S)
        if role == "launcher":
            self._up.send(b"")

    @property
    def node(self) -> str:
        """The node's name; "" before its load."""
        return self._load.name if self._load is not None else ""

    @property
    def state(self) -> str:
        """The name of the state, as in a PCT's status."""
        return self._machine.state.value

    @property
    def ranks(self) -> list[list[int]]:
        """Ranks that have not ended, with their pids."""
        return [[rank, FIRST_PID + rank] for rank in self._living]

    def kill(self) -> int:
        """End the launch; returns how many ranks ended."""
        count = len(self._living)
        self._handle(Event.KILL)
        return count

    # Messages from the parent

    def _on_parent_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind == COMMON:
            self._on_common(payload)
        elif kind == STDIN:
            self._up.send(control({"op": "credit", "bytes": len(payload)}))  # no rank reads it: grant new credit
        elif kind == CONTROL:
            message = decode(payload)
            if self._message is None:
                self._message = message
            else:
                self._on_order(message)

    def _on_order(self, message: Message) -> None:
        try:
            op = check(DOWN, message)
        except AgentError as error:
            raise WireError(error.message) from None
        if op == "credit" and self._relay is not None:
            self._relay.grant(message["bytes"])
        elif op == "go":
            self._handle(Event.GO)
        elif op == "signal":
            self._signal(message)
        elif op == "kill":
            self._handle(Event.KILL)
        elif op == "ping":
            self._up.send(control({"op": "pong"}))
            if self._load is not None and "loading_s" in message:
                self._await_go(message["loading_s"])
                self._pass_on(control(message))
        elif op == "done":
            self._handle(Event.DONE)
        elif op in ("stacks", "debug"):
            self._up.send(control(self._nothing_inside(op, message)))

    def _nothing_inside(self, op: str, message: Message) -> Message:
        # Only the root answers, for all nodes of the launch.
        why = "simulated nodes run no processes"
        if op == "debug":
            return {"op": "debug_over", "session": message["session"], "message": why}
        everybody = message.get("ranks") or idset.text((1 << (self._load.size if self._load else 1)) - 1)
        return {"op": "stacks", "number": message["number"], "calls": [], "missing": [[everybody, "", why]]}

    def _on_parent_end(self, _link: Link, _reason: str) -> None:
        if self._relay is not None:
            self._relay.abandon()
        self._handle(Event.LINK_LOST)

    def _on_common(self, payload: bytes) -> None:
        if self._message is None or self._load is not None:
            raise WireError("the common part of a load comes once, behind it")
        self._common = payload
        try:
            load = self._load = read_load(self._message)
            self._await_go(load.pending_s)
            self._relay = Relay(self._parent, load.window)
            if load.name not in self._host.names:
                raise LoadFailed(f"a load for {load.name} came to a process that does not stand in for it", "launch")
            if load.launcher in self._host.killed:
                raise LoadFailed(f"{load.name}: launcher {load.launcher} has been killed", "launch")
            program = self._host.program(payload)
            for rank in load.ranks:
                segment = program.segment_of(rank)
                self._living[rank] = behaviour(segment.path, segment.argv, load.name)
        except LoadFailed as error:
            self._failure = error.as_failed(self._load.name if self._load is not None else "")
            self._living.clear()
            self._handle(Event.FAILED)
            return
        self._host.begun(load.launcher, self)
        self._do(self._machine.loaded(len(load.ranks), len(runs(load.nodes[1:], load.fanout))))

    def _await_go(self, seconds: float) -> None:
        self._deadline.cancel()
        self._deadline = self._loop.after(seconds, lambda: self._handle(Event.EXPIRED))

    # Ranks

    def _begin(self) -> None:
        assert self._load is not None
        place = self._load.place
        for rank in self._load.ranks:
            self._ready.append([rank, FIRST_PID + rank, place])
            self._do(self._machine.one_held())

    def _run(self) -> None:
        self._deadline.cancel()
        # No program reads the map of all ranks, so an empty one is forwarded.
        self._pass_on(control({"op": "go", "ranks": [], "map": ""}))
        by_time: dict[float, list[int]] = {}
        for rank, what in self._living.items():
            by_time.setdefault(what.seconds, []).append(rank)
        self._began_at = time.monotonic()
        for seconds, ranks in by_time.items():
            self._loop.after(seconds, lambda ranks=ranks: self._end_ranks(ranks))  # type: ignore[misc]
        if not self._living:
            self._loop.after(0, lambda: self._handle(Event.DRAINED))

    def _end_ranks(self, ranks: list[int], status: int | None = None) -> None:
        assert self._relay is not None
        ended = [(rank, self._living.pop(rank)) for rank in ranks if rank in self._living]
        for rank, what in ended:
            if status is None and what.output:
                self._relay.push(STDOUT, rank, what.output, lambda _count: None)
        if ended:
            ran_s = time.monotonic() - self._began_at
            self._up.ended(
                [
                    [rank, what.status, what.seconds] if status is None else [rank, status, min(ran_s, what.seconds)]
                    for rank, what in ended
                ]
            )
            self._relay.barrier(lambda: self._close_ranks([rank for rank, _ in ended]))

    def _close_ranks(self, ranks: list[int]) -> None:
        self._up.closed(ranks)
        if not self._living and self._machine.state is State.RUNNING:
            self._handle(Event.DRAINED)

    def _signal(self, message: Message) -> None:
        wanted, number = message.get("ranks"), message["signal"]
        data = control(message)
        for child in self._children:
            if not child.over and (wanted is None or not child.ranks.isdisjoint(wanted)):
                child.send_raw(data)
        if self._machine.state is State.RUNNING and 0 < number < signal.NSIG and number not in HARMLESS:
            self._end_ranks([rank for rank in self._living if wanted is None or rank in wanted], number)

    # Children

    def child_said(self, child: Child, op: str, message: Message) -> None:
        """Handle a message from a child."""
        if child.over:
            return
        if op == "ready":
            child.ready = True
            self._ready += message["ranks"]
            self._do(self._machine.one_held())
        elif op == "failed":
            self._failure = self._failure or message
            self._handle(Event.FAILED)
        elif op == "exits":
            child.exited.update(entry[0] for entry in message["ranks"])
            self._up.ended(message["ranks"])
        elif op == "closed":
            self._behind(lambda: self._up.closed(message["ranks"]))
        elif op == "finished":
            child.over = True
            self._unclean += message.get("unclean", [])
            self._behind(lambda: self._do(self._machine.child_over()))
        else:
            self._up.send(control(message))

    def _behind(self, call: Callable[[], None]) -> None:
        assert self._relay is not None
        self._relay.barrier(call)

    def child_wrote(self, child: Child, kind: int, payload: bytes) -> None:
        """Forward a rank's output."""
        assert self._relay is not None
        rank = int.from_bytes(payload[:4], "big")
        self._relay.push(kind, rank, memoryview(payload)[4:], child.returns.passed)

    def input_taken(self) -> None:
        """Do nothing: standard input is discarded."""

    def child_lost(self, child: Child, reason: str, death: Message | None = None) -> None:
        """Handle the loss of a subtree: before GO the load fails, later the loss is reported."""
        early = self._machine.state in (State.STARTING, State.HELD)
        child.drop()
        if early:
            self._failure = self._failure or LoadFailed(f"{child.name}: {reason}", "node").as_failed(child.name)
            self._handle(Event.FAILED)
        elif not self._failure:
            nodes = [[place, [rank for rank in ranks if rank not in child.exited]] for place, ranks in child.nodes]
            self._up.send(control({"op": "lost", "nodes": nodes, "reason": f"{child.name}: {reason}"}))
        self._behind(lambda: self._do(self._machine.child_over()))

    # Actions of the state machine

    def _handle(self, event: Event) -> None:
        self._do(self._machine.handle(event))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            _DO[action](self)

    def _start(self) -> None:
        assert self._load is not None and self._message is not None
        load = self._load
        below = runs(load.nodes[1:], load.fanout)
        window = child_window(load.window, len(below))
        for run in below:
            self._children.append(
                Below(
                    self._host, run, child_load(self._message, run, window), self._common, window,
                    self,
                )
            )  # fmt: skip
        self._loop.after(0, self._begin)

    def _report_ready(self) -> None:
        self._up.send(control({"op": "ready", "ranks": self._ready}))
        self._ready = []

    def _report_failed(self) -> None:
        self._up.send(control(self._failure))

    def _pass_on(self, data: bytes) -> None:
        for child in self._children:
            if not child.over:
                child.send_raw(data)

    def _kill_tree(self) -> None:
        for child in self._children:
            if child.over:
                continue
            if child.link is None:
                self.child_lost(child, "killed before it was reached")
            else:
                child.send({"op": "kill"})

    def _sweep(self) -> None:
        self._deadline.cancel()
        if self._machine.state is State.SWEEPING and self._living:
            self._end_ranks(list(self._living), int(signal.SIGKILL))
        self._living.clear()
        # Deferred, because an event must not be handled inside the actions of another one.
        self._loop.after(0, lambda: self._handle(Event.SWEPT))

    def _report_finished(self) -> None:
        self._up.flush(control({"op": "finished", "unclean": self._unclean}))

    def _forward_done(self) -> None:
        self._pass_on(control({"op": "done"}))
        if self._relay is not None:
            self._relay.abandon()

    def _drop_tree(self) -> None:
        for child in self._children:
            if not child.over:
                child.drop()

    def _end(self) -> None:
        self._deadline.cancel()
        self._up.flush()
        for child in self._children:
            # Let data to the child be sent; messages from it are ignored from now on.
            if child.link is not None:
                child.over = True
                child.link.close(flush=True)
        self._parent.close(flush=True)
        if self._load is not None:
            self._host.ended(self._load.launcher, self)


_DO = {
    Action.START: Launch._start,
    Action.REPORT_READY: Launch._report_ready,
    Action.REPORT_FAILED: Launch._report_failed,
    Action.RELEASE: Launch._run,
    Action.KILL_TREE: Launch._kill_tree,
    Action.SWEEP: Launch._sweep,
    Action.REPORT_FINISHED: Launch._report_finished,
    Action.FORWARD_DONE: Launch._forward_done,
    Action.DROP_TREE: Launch._drop_tree,
    Action.END: Launch._end,
}
