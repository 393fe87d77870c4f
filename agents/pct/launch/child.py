"""The launch child: one process for one launch on one node, between its parent and its ranks.

What to do is decided in agents/pct/launch/states.py; this does it. Forked by the PCT with the accepted connection,
it outlives the PCT, and leaves by ``os._exit``.
"""

from __future__ import annotations

import gc
import os
import time

from agents.link.lean import signal, socket
from agents.link.link import Link
from agents.link.loop import Loop
from agents.linux import processes
from agents.pct.errors import FAULT, LoadFailed
from agents.pct.launch import requests
from agents.pct.launch.endpoint import LaunchEndpoint, NodeContext
from agents.pct.launch.liveness import Readiness, Watch
from agents.pct.launch.load import Load, child_load, child_window, rank_map, read_load, read_program, runs
from agents.pct.launch.payload import DOWN_OPS, UP_OPS, Payload
from agents.pct.launch.requests import Requests
from agents.pct.launch.states import Action, Event, LaunchMachine, State
from agents.pct.launch.termination import KillTimer
from agents.pct.launch.tree import Child, Upward, tell_all
from agents.pct.mpi import server
from agents.pct.mpi.server import Parallel, Tree, choose_master
from agents.pct.node.log import where
from agents.pct.ranks.process_tracking import FIRST_LOOK_S, LOOK_S, Record, now
from agents.pct.ranks.supervisor import Listener, Local
from agents.pct.stdio import shared_stdin
from agents.pct.stdio.shared_stdin import Sharing
from agents.pct.stdio.stdin import Inputs
from agents.pct.stdio.stdout import Relay
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, Refusal, WireError
from agents.wire.frames import COMMON, CONTROL, STDIN
from agents.wire.messages import DOWN, check, hello

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List, NoReturn, Optional

    from agents.link.server import Session
    from agents.pct.launch.endpoint import NodeContext
    from agents.pct.launch.liveness import Readiness
    from agents.pct.launch.load import Load, Program
    from agents.pct.launch.options import RunOptions
    from agents.pct.launch.payload import Payload
    from agents.pct.launch.requests import Requests
    from agents.pct.launch.states import Action, LaunchMachine
    from agents.pct.launch.termination import KillTimer
    from agents.pct.launch.tree import Child, Upward
    from agents.pct.mpi.server import Parallel
    from agents.pct.ranks.ranks import Rank
    from agents.pct.ranks.supervisor import Local
    from agents.pct.remote.listener import Pass
    from agents.pct.stdio.shared_stdin import Sharing
    from agents.pct.stdio.stdout import Relay


# What a launch child hears: from the processes of its node, and from its children in the tree.


class Hearing(Listener):
    """The part of a launch that makes events of what it hears, and passes on what is for its parent."""

    _host: NodeContext
    _is_root: bool
    _machine: LaunchMachine
    _load: Optional[Load]
    _local: Optional[Local]
    _parallel: Optional[Parallel]
    _relay: Optional[Relay]
    _readiness: Optional[Readiness]
    _freight: Payload
    _orders: Requests
    _sharing: Sharing
    _killers: KillTimer
    _up: Upward
    _household: Any
    _ready: List[List[int]]
    _unclean: List[List[Any]]
    _failure: Message
    _go: Message
    _held: int
    _processes_gone: bool

    # What Launch (agents/pct/launch/child.py) has, and this half of it calls: never reached here, declared for the
    # checker.

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
        elif op in requests.UP_OPS:
            self._orders.on_child_message(child, op, message)
        elif op in server.UP_OPS:
            if self._parallel is not None:
                self._parallel.on_child_message(child, op, message)
        elif op in shared_stdin.UP_OPS:
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
        assert self._load is not None and self._local is not None
        if self._local.ranks.slow_to_begin:
            return False  # the load has a deadline of its own
        return self._machine.state is State.STARTING and self._held < len(self._load.ranks)

    def _on_pulse(self, child: Child, back: bool) -> None:
        told = "answers again after" if back else "silent for"
        self._host.log.write("pulse", launcher=self._launcher, child=child.name, told=told, seconds=child.pulse.seconds)
        if not back and self._machine.state in (State.STARTING, State.HELD):
            self._fail(LoadFailed(f"{child.name}: silent for {child.pulse.seconds:.0f} s", "node"), child.name)
        else:
            message = {"op": "silent", "node": child.name, "seconds": child.pulse.seconds}
            self._up.tell(dict(message, back=True) if back else message)


#: Seconds for the load to arrive, to leave after a kill.
LOAD_S, LEAVE_S = 10.0, 2.0
_TERMINATED = 128 + signal.SIGTERM


class Launch(Hearing):
    """One launch on this node."""

    def __init__(self, host: NodeContext, sock: socket.socket, role: str, let_in: Optional[Pass] = None) -> None:
        self._host, self._is_root, self._let_in = host, role == "launcher", let_in
        self._machine = LaunchMachine()
        self._loop = Loop()
        self._loop.on_signal(signal.SIGCHLD, self._on_child_signal)
        self._loop.on_signal(signal.SIGTERM, self._on_terminate)
        self._began = time.monotonic()
        self._message: Optional[Message] = None
        self._common = b""
        self._load: Optional[Load] = None
        self._local: Optional[Local] = None
        self._parallel: Optional[Parallel] = None
        self._relay: Optional[Relay] = None
        self._children: List[Child] = []
        self._inputs = Inputs(lambda count: self._up.tell({"op": "credit", "bytes": count}))
        self._ready: List[List[int]] = []
        self._held = 0
        self._readiness: Optional[Readiness] = None
        self._lost: List[str] = []
        self._unclean: List[List[Any]] = []
        self._failure: Message = {}
        self._go: Message = {}
        self._seat: Optional[LaunchEndpoint] = None
        self._household: Any = None  # in system mode (agents/pct/multiuser/system_mode.py)
        self._record: Optional[Record] = None
        self._first_fork = 0
        self._held_until = self._loading_s = 0.0  # without GO
        self._run = host.run  # where files of the launch are that its ranks see
        self._killers = KillTimer(self._loop, self._terminate, self._noted_once)
        self._logs_steps = self._processes_gone = self._finished = self._over = False
        self._deadline = self._loop.after(LOAD_S, lambda: self._handle(Event.EXPIRED))
        self._parent = Link(self._loop, sock, self._on_parent_frame, self._on_parent_end)
        self._up = Upward(self._loop, self._parent, control(hello("child", host.node)), self._no_more_ends)
        self._sharing = Sharing(self._inputs, self._children, self._up.tell)
        self._freight = Payload(
            self._loop, host.run, host.node, self._is_root, self._children, self._up.send, self._fail
        )  # fmt: skip
        self._orders = Requests(
            self._loop, host.node, self._children, lambda: self._local, self._up.tell, self.noted
        )  # fmt: skip
        if self._is_root:
            self._up.send(b"")

    def run(self) -> None:
        """Serve until the launch is over; returns when this process may serve another, else leaves it."""
        try:
            while not self._over:
                self._loop.run_once(None)
        except Exception as error:  # a bug must not leave ranks behind
            self._confess(error)
            if self._local is not None:
                self._local.sweep()
            self._leave(FAULT)

    def _confess(self, error: Exception) -> None:
        # its PCT tells whoever loses the link to us
        from agents.pct.node.deaths import leave_words

        self._host.log.write("internal", launcher=self._launcher, error=repr(error), where=where(error))
        as_root = (self._seat.as_root if self._seat is not None else None) or (lambda work: work())
        try:
            as_root(lambda: leave_words(self._host.run, self._host.node, self._launcher, error, where(error)))
        except OSError:
            pass  # then it is told without its words

    @property
    def _launcher(self) -> int:
        return self._load.launcher if self._load is not None else 0

    def _handle(self, event: Event) -> None:
        before = self._machine.state
        self._do(self._machine.handle(event))
        if event is Event.EXPIRED and self._machine.state is not before:
            self._host.log.write("expired", launcher=self._launcher, state=before.value)

    def _do(self, actions: List[Action]) -> None:
        for action in actions:
            if self._logs_steps:
                self._host.log.write(
                    "step", launcher=self._launcher, step=action.value, state=self._machine.state.value,
                    ms=round((time.monotonic() - self._began) * 1000, 2),
                )  # fmt: skip
            _DO[action](self)

    # From the parent

    def _on_parent_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind == STDIN:
            self._inputs.feed(payload)
        elif kind == COMMON:
            self._on_common(payload)
        elif kind == CONTROL:
            message = decode(payload)
            if self._message is None:
                self._message = message
            else:
                self._on_order(message)
        else:
            self._freight.on_frame(kind, payload)

    def _on_order(self, message: Message) -> None:
        try:
            op = check(DOWN, message)
        except AgentError as error:
            raise WireError(error.message) from None
        if op == "credit" and self._relay is not None:
            self._relay.grant(message["bytes"])
        elif op == "go":
            self._go = message
            self._handle(Event.GO)
        elif op == "kill":
            self._handle(Event.KILL)
        elif op == "eof":
            self._inputs.end()
        elif op in shared_stdin.DOWN_OPS:
            if self._local is not None:
                self._sharing.on_order(op, message, self._local.pids)
        elif op == "ping":
            self._up.tell({"op": "pong"})
            if message.get("starved"):
                self._freight.starve()
            if "loading_s" in message:
                self._renew(message)
        elif op == "done":
            self._handle(Event.DONE)
        elif op in requests.DOWN_OPS:
            self._orders.on_order(op, message)
        elif op in DOWN_OPS:
            self._freight.on_order(op, message)
        elif self._parallel is not None and op in server.DOWN_OPS:
            self._parallel.on_order(op, message)

    def _on_parent_end(self, _link: Link, reason: str) -> None:
        if self._machine.state in (State.HELD, State.RUNNING, State.STARTING):
            self._host.log.write("parent lost", launcher=self._launcher, reason=reason)
        self._forget_parent()
        self._handle(Event.LINK_LOST)

    def _forget_parent(self) -> None:
        if self._relay is not None:
            self._relay.abandon()
        self._freight.abandon()

    def _on_common(self, payload: bytes) -> None:
        if self._message is None or self._load is not None:
            raise WireError("the common part of a load comes once, behind it")
        self._common = payload
        try:
            load = self._load = read_load(self._message)
            load.mesh = self._host.mesh  # the node's own word: its PCT looks for processes that carry it
            self._await_go(load.pending_s)
            self._relay = Relay(self._parent, load.window)
            self._seat = LaunchEndpoint(self._loop, self._host, load, self._on_request)
            self._seat.check_alive()
            self._check_reserved(load)
            if self._let_in is not None:
                self._check_papers(self._let_in, load)
            if self._host.system is not None:
                self._enter_household(self._let_in, load)
            program = read_program(payload)
            for rank in load.ranks:
                program.segment_of(rank)
            if program.subgroups or "gpus" in load.nodes[0]:
                from agents.pct.launch.rank_environment import prepare

                prepare(load, program, self._host.gpus, self._host.log)
            manner = self._read_manner(load, program) if program.manner else None
            self._freight.loaded(load, program)
            if program.parallel:
                self._go_parallel(load, program)
        except LoadFailed as error:
            self._fail(error)
            return
        self._local = Local(
            self._loop, load, program, self._seat.map_path, self._relay, self._inputs, self, manner
        )  # fmt: skip
        self._do(self._machine.loaded(len(load.ranks), len(runs(load.nodes[1:], load.fanout))))

    def _check_reserved(self, load: Load) -> None:
        """LoadFailed when the processors may be another launch's by now: a node that was stopped starts nothing."""
        # where the launcher is on this machine, its monotonic clock is ours; one that is ahead of us is no such clock
        lapses_at = self._let_in.lapses_at if self._let_in is not None else load.lapses_at
        late = time.monotonic() - lapses_at
        if lapses_at and late > 0:
            why = f"the reservation of launcher {load.launcher} lapsed {late:.1f} s before its load was read"
            raise LoadFailed(f"{load.name}: {why}", "launch", hint="no process was started; start the launch again")

    def _await_go(self, seconds: float) -> None:
        """Wait so long for GO from now on."""
        self._held_until = time.monotonic() + seconds
        self._loading_s = seconds
        self._deadline.cancel()
        self._deadline = self._loop.after(seconds, self._expire)

    def _renew(self, message: Message) -> None:
        if self._load is not None and self._machine.state in (State.STARTING, State.HELD):
            self._await_go(message["loading_s"])
            tell_all(self._children, control({"op": "ping", "loading_s": message["loading_s"]}))

    def _check_papers(self, let_in: Pass, load: Load) -> None:
        from agents.pct.remote.load_check import check_load

        assert self._message is not None
        try:
            self._freight.members = check_load(let_in, self._host.node, load, self._message, self._common)
        except Refusal as refusal:
            self._host.log.write("refused", reason=refusal.reason, launcher=load.launcher, message=refusal.message)
            raise LoadFailed(f"{self._host.node}: {refusal.message}", "launch") from None

    def _enter_household(self, let_in: Optional[Pass], load: Load) -> None:
        from agents.link import trust
        from agents.pct.multiuser.system_mode import UserDirectory

        assert self._seat is not None
        if let_in is None:
            raise LoadFailed(f"{load.name}: in system mode a launch comes with a credential", "launch")
        trust.ours().hold()
        household = UserDirectory(self._host, self._loop, load, let_in.credential.uid)
        # before it settles: what fails then has files in RUN to remove, which the user may not
        self._seat.as_root = processes.as_root = household.user.as_root
        household.settle()
        self._household = household
        self._run = self._freight.run = household.run
        self._seat.map_path = f"{self._run}/ranks"

    def _go_parallel(self, load: Load, program: Program) -> None:
        if self._is_root and self._message is not None and load.master is None:
            load.master = choose_master(str(load.nodes[0]["address"]), load.launcher)
            self._message = dict(self._message, master=load.master)
        running = lambda: self._machine.state is State.RUNNING  # noqa: E731
        tree = Tree(self._children, self._is_root, self._up.flush, self.noted, running)
        self._parallel = program.pmi = Parallel(self._loop, load, program, tree, self._run)

    def _read_manner(self, load: Load, program: Program) -> RunOptions:
        from agents.pct.launch.options import RunOptions

        manner = RunOptions(program.manner, load, program)
        self._logs_steps = manner.log
        return manner

    def _expire(self) -> None:
        # No node's fault: a program of gigabytes, or a launcher that its user has stopped.
        if self._load is not None and self._machine.state in (State.STARTING, State.HELD):
            why = f"{self._loading_s:g} s were over, for which processors are held, before every process could run"
            self._up.tell(LoadFailed(f"{self._host.node}: {why}", "launch").as_failed(self._host.node))
        self._handle(Event.EXPIRED)

    def _fail(self, error: LoadFailed, node: str = "") -> None:
        self._fail_with(error.as_failed(node or self._host.node))

    def _fail_with(self, message: Message) -> None:
        if not self._failure:
            self._failure = message
        self._handle(Event.FAILED)

    # To the parent

    def _no_more_ends(self) -> bool:
        return self._local is not None and not self._local.ranks.living and self._machine.open_children <= 0

    # What the machine asks for

    def _start(self) -> None:
        assert self._load is not None and self._local is not None and self._message is not None
        load = self._load
        below = runs(load.nodes[1:], load.fanout)
        window = child_window(load.window, len(below))
        for run in below:
            message = child_load(self._message, run, window)
            child = Child(
                self._loop, run, message, self._common, window,
                self._on_child_message, self._on_child_output, self._on_child_lost, self._inputs.settle,
            )  # fmt: skip
            child.on_file = self._freight.on_child_frame
            self._children.append(child)
            if load.input == "all" or load.input in child.ranks:
                self._inputs.add(child.sink)
        if below:
            Watch(self._loop, self._children, self._on_pulse)
        if self._household is not None:
            self._household.prolog(lambda: self._freight.begin(self._begin), self._fail)
        else:
            self._freight.begin(self._begin)

    def _begin(self) -> None:
        assert self._load is not None and self._local is not None
        patience_s = self._local.manner.patience_s if self._local.manner is not None else 0.0
        self._readiness = Readiness(self._loop, self._load.name, self._local_late, self._fail, patience_s)
        if self._parallel is not None:
            self._parallel.prepare(self._begin_local, self._fail)
        else:
            self._begin_local()

    def _begin_local(self) -> None:
        if self._local is None or self._load is None or self._machine.state is not State.STARTING:
            return
        if time.monotonic() > self._held_until:  # we were stopped: our timers come after this
            self._expire()
            return
        as_root = self._seat.as_root if self._seat is not None else None
        self._record, self._first_fork = self._host.record(self._load.launcher, as_root), now()
        group = self._record.group_fd if self._record is not None else -1
        self._local.begin(self._is_root, self._sharing.begin(self._loop, self._load, self._is_root), group)

    def _report_ready(self) -> None:
        self._up.tell({"op": "ready", "ranks": self._ready})
        self._ready = []

    def _report_failed(self) -> None:
        self._host.log.write("failed", launcher=self._launcher, message=self._failure.get("message", ""))
        self._up.tell(self._failure)

    def _release(self) -> None:
        assert self._load is not None and self._local is not None and self._seat is not None
        self._deadline.cancel()
        text = self._go.get("map")
        if text is None:
            names = {int(node["index"]): str(node["name"]) for node in self._load.nodes}
            text = rank_map(self._go["ranks"], names)
        tell_all(self._children, control({"op": "go", "ranks": [], "map": text}))
        try:
            self._seat.write_map(text)
        except OSError as error:
            self.noted(f"{self._host.node}: no rank map: {error.strerror}")
        if self._record is not None:
            self._take_down(self._record, self._local)
        self._local.release()
        if self._parallel is not None:
            self._parallel.released(self._local.pairs)
        gc.enable()

    def _take_down(self, record: Record, local: Local) -> None:
        """Record the sessions of the ranks, where no control group holds them together."""
        if local.ranks.grouped:
            return
        try:
            record.leave_group()
            record.held([pid for _rank, pid in local.pairs()], self._first_fork)
        except OSError as error:
            self._host.log.write("no record", launcher=self._launcher, error=error.strerror)
            return
        self._loop.after(FIRST_LOOK_S, lambda: self._look(record, FIRST_LOOK_S))

    def _look(self, record: Record, after_s: float) -> None:
        if self._machine.state is not State.RUNNING:
            return
        try:
            record.look()
        except OSError as error:
            self._host.log.write("no record", launcher=self._launcher, error=error.strerror)
        next_s = min(2 * after_s, LOOK_S)  # a program starts what it starts in its first moments, mostly
        self._loop.after(next_s, lambda: self._look(record, next_s))

    def _kill_tree(self) -> None:
        for child in self._children:
            if child.over:
                continue
            if child.link is None:  # its load never left, and never will
                self._on_child_lost(child, "killed before it was reached")
            else:
                child.send({"op": "kill"})

    def _sweep(self) -> None:
        self._deadline.cancel()
        assert self._local is not None
        self._orders.cancel()
        self._local.sweep()

    def _report_finished(self) -> None:
        self._finished = True
        self._sharing.give_up()
        self._up.flush(control({"op": "finished", "unclean": self._unclean}))

    def _forward_done(self) -> None:
        tell_all(self._children, control({"op": "done"}))
        self._forget_parent()

    def _drop_tree(self) -> None:
        for child in self._children:
            if not child.over:
                child.drop()

    def _end(self) -> None:
        if not self._may_serve_again():
            self._leave(0)
        self._tidy()
        self._over = True

    def _may_serve_again(self) -> bool:
        # Only behind a launch of plain ranks that ended as it should is this process as it was before.
        if self._local is None or self._local.manner is not None or not self._processes_gone:
            return False
        if self._parallel is not None and not self._parallel.silent:
            return False
        well = self._finished and not self._failure and not self._unclean
        return well and self._freight.stays_clean and self._orders.plain

    def close(self) -> int:
        """Let go of everything, after :meth:`run`; the status to leave with when no other launch comes."""
        if self._record is not None:
            self._record.end()
        self._parent.close()
        for child in self._children:
            child.drop()
        self._inputs.close()
        if self._seat is not None:
            self._seat.close()
        if self._local is not None:
            self._local.close()
        status = self._freight.close()
        self._loop.close()
        return status

    def _leave(self, status: int) -> NoReturn:
        self._tidy()
        os._exit(self._freight.close() or status)

    def _tidy(self) -> None:
        if self._household is not None:
            self._household.clear()
        if self._seat is not None:
            self._seat.clear()
            lasted_s = round(time.monotonic() - self._began, 3)
            self._host.log.write("launch ended", launcher=self._launcher, seconds=lasted_s)

    # From the PCT, and whoever adopts

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        if op == "kill_launch":
            self._killers.ask(session, message, self._local, self._processes_gone, bool(self._unclean))
        elif op == "fetch":
            self._freight.fetch(session, message)
        else:
            ranks = self._local.pairs() if self._local is not None else []
            state = self._machine.state.value
            told = {"launcher": self._launcher, "pid": os.getpid(), "state": state, "ranks": ranks}
            session.reply(message, dict(told, silent_s=self._parent.silent_s))

    def _on_terminate(self) -> None:
        self._host.log.write("terminated", launcher=self._launcher)
        if self._machine.state is State.LOADING:
            self._leave(_TERMINATED)  # its PCT tells whoever loses the link
        if self._machine.state in (State.STARTING, State.HELD):  # those above would wait for it
            self._fail(LoadFailed(f"{self._host.node}: its launch child was ended by SIGTERM", "launch"))
        self._terminate()

    def _terminate(self) -> None:
        # Killed from outside: report it as long as somebody listens, but not for ever.
        self._loop.after(LEAVE_S, lambda: self._handle(Event.LINK_LOST))
        self._handle(Event.KILL)


_DO = {
    Action.START: Launch._start,
    Action.REPORT_READY: Launch._report_ready,
    Action.REPORT_FAILED: Launch._report_failed,
    Action.RELEASE: Launch._release,
    Action.KILL_TREE: Launch._kill_tree,
    Action.SWEEP: Launch._sweep,
    Action.REPORT_FINISHED: Launch._report_finished,
    Action.FORWARD_DONE: Launch._forward_done,
    Action.DROP_TREE: Launch._drop_tree,
    Action.END: Launch._end,
}
