"""The launch child: one process for one launch on one node, between its parent and its ranks.

states.py decides what to do; this module does it. The PCT forks it with the accepted connection. It outlives the PCT,
and exits by ``os._exit``.
"""

from __future__ import annotations

import gc
import os
import time

from agents.link.journal import where
from agents.link.lean import signal, socket
from agents.link.link import Link
from agents.link.loop import Loop
from agents.linux import ending, processes
from agents.pct.errors import FAULT, LoadFailed
from agents.pct.launch.context import LaunchContext
from agents.pct.launch.liveness import State as Silence
from agents.pct.launch.liveness import silent
from agents.pct.launch.load import Load, child_load, child_window, rank_map, read_load, read_program, runs
from agents.pct.launch.tree import Child, Tree, Upward, Watch
from agents.pct.launch_child.endpoint import LaunchEndpoint, NodeContext
from agents.pct.launch_child.payload import Payload
from agents.pct.launch_child.requests import Requests
from agents.pct.launch_child.states import Action, Event, LaunchMachine, State
from agents.pct.launch_child.termination import KillTimer
from agents.pct.mpi.pmi_server import PmiServer
from agents.pct.mpi.rendezvous import choose_master
from agents.pct.ranks.out_of_memory import LaunchMemory
from agents.pct.ranks.process_tracking import KEEP_S, Record
from agents.pct.ranks.supervisor import LocalRanks
from agents.pct.stdio.shared_stdin import Sharing
from agents.pct.stdio.stdin import Inputs
from agents.pct.stdio.stdout import Relay
from agents.wire.control import Message, control, decode
from agents.wire.errors import Refusal, WireError
from agents.wire.frames import COMMON, CONTROL, STDIN
from agents.wire.messages import hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional

    from agents.link.server import Session
    from agents.pct.launch.line_and_gpu_variables import OwnVariables
    from agents.pct.launch.load import Program
    from agents.pct.launch.options import RunOptions
    from agents.pct.ranks.ranks import Rank
    from agents.wire.credential import Pass

#: Seconds for the load to arrive, and to exit after a kill.
LOAD_S, LEAVE_S = 10.0, 2.0
#: Seconds for which killed processes wait for yod's answers about mounted files.
FILES_S = 2.0
_TERMINATED = 128 + signal.SIGTERM
#: States in which no rank has run yet.
_BEFORE_GO = (State.STARTING, State.HELD)


class GoDeadline:
    """The deadline for GO: first the time for the load to arrive, then the time for which processors are reserved."""

    def __init__(self, loop: Loop, expired: Callable[[], None]) -> None:
        self._loop, self._expired = loop, expired
        self._ends_at = 0.0
        self._timer = loop.after(LOAD_S, expired)
        self.seconds = LOAD_S

    def renew(self, seconds: float) -> None:
        """Set the deadline to ``seconds`` from now."""
        self._ends_at, self.seconds = time.monotonic() + seconds, seconds
        self._timer.cancel()
        self._timer = self._loop.after(seconds, self._expired)

    @property
    def over(self) -> bool:
        """True if the deadline has passed; in a process that was stopped, its timer comes later."""
        return time.monotonic() > self._ends_at

    def cancel(self) -> None:
        """GO has arrived, or nothing waits for it."""
        self._timer.cancel()


class Launch:
    """A launch on this node: its state machine, its links in the tree, its ranks, and its payload."""

    def __init__(self, host: NodeContext, sock: socket.socket, role: str, let_in: Optional[Pass] = None) -> None:
        self._host, self._let_in = host, let_in
        self._memory = LaunchMemory(host.node, host.memory)
        self._machine = LaunchMachine()
        self._loop = Loop()
        self._loop.on_signal(signal.SIGCHLD, self._on_child_signal)
        ending.on_terminate(self._loop, self._on_terminate, signal.SIGTERM)
        self._began = time.monotonic()
        self._message: Optional[Message] = None
        self._common = b""
        self._load: Optional[Load] = None
        self._local: Optional[LocalRanks] = None
        self._pmi: Optional[PmiServer] = None
        self._relay: Optional[Relay] = None
        self._ready: List[List[int]] = []
        self._unclean: List[List[Any]] = []
        self._failure: Message = {}
        self._go: Message = {}
        self._endpoint: Optional[LaunchEndpoint] = None
        self._user: Any = None  # in system mode (agents/pct/multiuser/system_mode.py)
        self._record: Optional[Record] = None
        #: True if yod is lost in a batch system's job: the root finds out whether the job ends (orphan.py).
        self._orphaned = False
        self._logs_steps = self._processes_gone = self._finished = self._over = False
        self._deadline = GoDeadline(self._loop, self._expire)
        self._parent = Link(self._loop, sock, self._on_parent_frame, self._on_parent_end)
        up = Upward(self._loop, self._parent, control(hello("child", host.node)), self._no_more_ends)
        self._tree = Tree(up, is_root=role == "launcher")
        self._kill_timer = KillTimer(self._loop, self._terminate, self._noted_once)
        self._inputs = Inputs(lambda count: up.tell({"op": "credit", "bytes": count}))
        self._sharing = Sharing(self._inputs, self._tree.children, up.tell, self._pids)
        self._payload = Payload(host.node)
        self._requests = Requests(self._loop, host.node, self._tree, lambda: self._local, self.noted)
        if ending.in_job():
            self._requests.expect_manager(self._on_terminate)
        self._tree.orders.update(self._own_orders())
        self._tree.reports.update(self._own_reports())
        for part in (self._sharing, self._payload, self._requests):
            self._tree.add(part)
        if self._tree.is_root:
            up.send(b"")

    def run(self) -> None:
        """Serve until the launch is over. Returns if this process may serve another launch, otherwise exits."""
        try:
            while not self._over:
                self._loop.run_once(None)
                self._memory.look()
        except Exception as error:  # a bug must not leave ranks behind
            self._report_fault(error)
            if self._local is not None:
                self._local.sweep()
            self._leave(FAULT)

    def _report_fault(self, error: Exception) -> None:
        # Its PCT reports the death to peers that lose the link to us.
        from agents.pct.launch.deaths import write_fault

        self._host.log.write("internal", launcher=self._launcher, error=repr(error), where=where(error))
        as_root = (self._endpoint.as_root if self._endpoint is not None else None) or (lambda work: work())
        try:
            as_root(lambda: write_fault(self._host.run, self._host.node, self._launcher, error, where(error)))
        except OSError:
            pass  # the death is then reported without the error text

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
            self._steps[action](self)

    # Messages from the parent

    def _on_parent_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind == STDIN:
            self._inputs.feed(payload)
        elif kind == COMMON:
            self._on_common(payload)
        elif kind != CONTROL:
            self._payload.on_frame(kind, payload)
        elif self._message is None:
            self._message = decode(payload)
        else:
            self._tree.on_order(decode(payload))

    def _own_orders(self) -> Dict[str, Callable[[Message], None]]:
        return {
            "credit": self._on_credit,
            "go": self._on_go,
            "kill": lambda _message: self._handle(Event.KILL),
            "eof": lambda _message: self._inputs.end(),
            "ping": self._on_ping,
            "orphaned": lambda _message: self._on_orphaned() if ending.in_job() and not self._tree.is_root else None,
            "done": lambda _message: self._handle(Event.DONE),
        }

    def _on_credit(self, message: Message) -> None:
        if self._relay is not None:
            self._relay.grant(message["bytes"])

    def _on_go(self, message: Message) -> None:
        self._go = message
        self._handle(Event.GO)

    def _on_ping(self, message: Message) -> None:
        self._tree.up.tell({"op": "pong"})
        if message.get("starved"):
            self._payload.starve()
        seconds = message.get("loading_s")
        if seconds is not None and self._load is not None and self._machine.state in _BEFORE_GO:
            self._deadline.renew(seconds)
            self._tree.send_down(control({"op": "ping", "loading_s": seconds}))

    def _on_parent_end(self, _link: Link, reason: str) -> None:
        if self._machine.state in (*_BEFORE_GO, State.RUNNING):
            self._host.log.write("parent lost", launcher=self._launcher, reason=reason)
        self._forget_parent()
        if self._machine.state is State.RUNNING and self._tree.is_root and ending.in_job():
            self._on_orphaned()
            from agents.pct.launch_child.orphan import Orphan

            Orphan(self._loop, self._host.run, lambda: self._handle(Event.LINK_LOST))
        else:
            self._handle(Event.LINK_LOST)

    def _on_orphaned(self) -> None:
        self._orphaned = True
        self._tree.send_down(control({"op": "orphaned"}))

    def _forget_parent(self) -> None:
        if self._relay is not None:
            self._relay.abandon()
        self._payload.abandon()

    def _on_common(self, payload: bytes) -> None:
        if self._message is None or self._load is not None:
            raise WireError("the common part of a load comes once, behind it")
        self._common = payload
        try:
            load = self._load = read_load(self._message)
            load.mesh = self._host.mesh  # this node's own mark, by which its PCT finds processes
            self._deadline.renew(load.pending_s)
            self._relay = Relay(self._parent, load.window)
            self._endpoint = LaunchEndpoint(self._loop, self._host, load, self._on_request)
            self._endpoint.check_alive()
            self._check_reserved(load)
            if self._let_in is not None:
                self._check_let_in(self._let_in, load)
            if self._host.system is not None:
                self._become_user(self._let_in, load)
            program = read_program(payload)
            for rank in load.ranks:
                program.segment_of(rank)
            self._prepare(load, program)
        except LoadFailed as error:
            self._fail(error)
            return
        self._do(self._machine.loaded(len(load.ranks), len(runs(load.nodes[1:], load.fanout))))

    def _prepare(self, load: Load, program: Program) -> None:
        """Create the parts of the launch that need its load. Raises LoadFailed if this node cannot run it."""
        assert self._relay is not None and self._endpoint is not None
        run = self._user.run if self._user is not None else self._host.run
        launch = LaunchContext(self._loop, run, load, program, self._tree, self._fail, self._memory.task_killed)
        own: Optional[OwnVariables] = None
        if program.subgroups or "gpus" in load.nodes[0]:
            from agents.pct.launch.line_and_gpu_variables import own_variables

            own = own_variables(load, program, self._host.gpus, self._host.log)
        options = self._read_options(load, program) if program.options else None
        self._payload.loaded(launch)
        if program.parallel:
            self._make_pmi(launch)
        self._local = LocalRanks(
            launch, self._endpoint.map_path, self._relay, self._inputs, self, options, own, self._pmi
        )
        if options is not None and options.at_once:
            from agents.pct.debug.crash_queue import Faults

            number_of, tell = self._local.ranks.number_of, self._tree.up.tell
            self._local.watch_faults(Faults(self._loop, load.name, options.at_once, number_of, tell, self.noted))

    def _check_reserved(self, load: Load) -> None:
        """Raise LoadFailed if another launch may have the processors by now: a node that was stopped starts nothing."""
        # If the launcher is on this machine, its monotonic clock is ours; a value ahead of ours comes from another
        # machine.
        lapses_at = self._let_in.lapses_at if self._let_in is not None else load.lapses_at
        late = time.monotonic() - lapses_at
        if lapses_at and late > 0:
            why = f"the reservation of launcher {load.launcher} lapsed {late:.1f} s before its load was read"
            raise LoadFailed(f"{load.name}: {why}", "launch", hint="no process was started; start the launch again")

    def _check_let_in(self, let_in: Pass, load: Load) -> None:
        """Raise LoadFailed if a load from another machine is not the one of its credential."""
        from agents.pct.launch_child.load_check import check_load

        assert self._message is not None
        try:
            self._payload.members = check_load(let_in, self._host.node, load, self._message, self._common)
        except Refusal as refusal:
            self._host.log.write("refused", reason=refusal.reason, launcher=load.launcher, message=refusal.message)
            raise LoadFailed(f"{self._host.node}: {refusal.message}", "launch") from None

    def _become_user(self, let_in: Optional[Pass], load: Load) -> None:
        from agents.link import trust
        from agents.pct.multiuser.system_mode import UserDirectory
        from agents.wire.caller_groups import of_members

        assert self._endpoint is not None and self._message is not None
        if let_in is None:
            raise LoadFailed(f"{load.name}: in system mode a launch comes with a credential", "launch")
        trust.ours().hold()
        host = self._host
        try:
            caller = of_members(self._message.get("members"))
        except WireError as error:
            raise LoadFailed(f"{load.name}: {error.message}", "launch") from None
        user = UserDirectory(host.system, host.log, host.run, self._loop, load, let_in.credential.uid, caller)
        # Before the identity changes: a failure afterwards leaves files in RUN that the user may not remove.
        self._endpoint.as_root = processes.as_root = user.user.as_root
        user.settle()
        self._user = user
        if user.refused_groups:  # now, because a program that cannot be run may need them
            self.noted(user.refused_groups)
        self._endpoint.map_path = f"{user.run}/ranks"

    def _make_pmi(self, launch: LaunchContext) -> None:
        load = launch.load
        if self._tree.is_root and self._message is not None and load.master is None:
            load.master = choose_master(str(load.nodes[0]["address"]), load.launcher)
            self._message = dict(self._message, master=load.master)
        self._pmi = PmiServer(launch, self.noted, lambda: self._machine.runs)
        self._tree.add(self._pmi)

    def _read_options(self, load: Load, program: Program) -> RunOptions:
        from agents.pct.launch.options import RunOptions

        options = RunOptions(program.options, load)
        self._logs_steps = options.log
        options.complete(program.env)
        return options

    def _expire(self) -> None:
        # No node is at fault: the program may have gigabytes, or its user may have stopped the launcher.
        if self._load is not None and self._machine.state in _BEFORE_GO:
            held_s = f"{self._deadline.seconds:g} s"
            why = f"{held_s} were over, for which processors are held, before every process could run"
            self._tree.up.tell(LoadFailed(f"{self._host.node}: {why}", "launch").as_failed(self._host.node))
        self._handle(Event.EXPIRED)

    def _fail(self, error: LoadFailed, node: str = "") -> None:
        self._fail_with(error.as_failed(node or self._host.node))

    def _fail_with(self, message: Message) -> None:
        if not self._failure:
            self._failure = message
        self._handle(Event.FAILED)

    # Events of this node's processes

    def _on_child_signal(self) -> None:
        if self._local is not None:
            self._local.reap()

    def rank_held(self, rank: Rank) -> None:
        assert self._load is not None and self._local is not None
        if self._local.ranks.elsewhere:
            self._memory.adopt(rank.pid)
        self._ready.append([rank.number, rank.pid, self._load.place])
        self._do(self._machine.one_held())

    def rank_ended(self, rank: Rank, seconds: float) -> None:
        if rank.released_at:
            found = self._memory.killed(rank) if rank.killed_by_others else None
            if found is not None:
                why = f"rank {rank.number} ran out of memory and was killed by the kernel: {found.text}"
                self.noted(why, out_of_memory=found.fields(rank.number))
            self._tree.up.ended([[rank.number, rank.status, round(seconds, 6)]])
            if self._pmi is not None:
                self._pmi.rank_ended(rank)
        elif self._machine.state in _BEFORE_GO:
            status = rank.status or 0
            how = f"died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
            why = f"{self._host.node}: rank {rank.number} {how} before it could run"
            # Only its user, or the kernel for lack of memory, can have killed a held rank: no node is at fault.
            self._fail(LoadFailed(why, "launch", rank=rank.number))

    def rank_closed(self, number: int) -> None:
        self._tree.up.closed([number])

    def noted(self, message: str, **more: Any) -> None:
        self._host.log.write("note", launcher=self._launcher, message=message)
        self._tree.up.tell({"op": "note", "node": self._host.node, "message": message, **more})

    def stopped(self, message: str, stopped: Dict[str, Any]) -> None:
        self.noted(message, stopped=stopped)

    def _noted_once(self, message: str, **more: Any) -> None:
        # The root reports to the launcher what all nodes learn at once.
        if self._tree.is_root:
            self.noted(message, **more)
        else:
            self._host.log.write("note", launcher=self._launcher, message=message)

    def unrecorded(self, error: OSError) -> None:
        self._host.log.write("no record", launcher=self._launcher, error=error.strerror)

    def drained(self) -> None:
        self._handle(Event.DRAINED)

    def processes_gone(self) -> None:
        assert self._local is not None
        self._processes_gone = True
        if self._pmi is not None:
            self._pmi.close()
        if self._local.unclean:
            self._unclean += [[self._host.node, pid] for pid in self._local.unclean]
            self._host.log.write("unclean", launcher=self._launcher, pids=self._local.unclean)
        elif self._user is not None:
            self._user.processes_gone()
        self._kill_timer.answer(self._local.killed, bool(self._unclean))

    def swept(self) -> None:
        self._payload.finish(bool(self._go), self._clean_up)

    def _clean_up(self) -> None:
        if self._user is not None:
            self._user.epilog(lambda: self._handle(Event.SWEPT), self.noted)
        else:
            self._handle(Event.SWEPT)

    def _pids(self) -> List[int]:
        return self._local.pids() if self._local is not None else []

    def _no_more_ends(self) -> bool:
        return self._local is not None and not self._local.ranks.living and self._machine.open_children <= 0

    # Messages from the children

    def child_said(self, child: Child, op: str, message: Message) -> None:
        self._tree.on_report(child, op, message)

    def _own_reports(self) -> Dict[str, Callable[[Child, Message], None]]:
        return {
            "ready": self._on_child_ready,
            "failed": lambda _child, message: self._fail_with(message),
            "exits": self._on_child_exits,
            "closed": lambda _child, message: self._behind_output(lambda: self._tree.up.closed(message["ranks"])),
            "finished": self._on_child_finished,
            "lost": self._on_lost_below,
            "silent": self._pass_up,
            "note": self._pass_up,
            "backtrace": self._pass_up,
        }

    def _on_child_ready(self, child: Child, message: Message) -> None:
        child.ready = True
        self._ready += message["ranks"]
        self._do(self._machine.one_held())

    def _on_child_exits(self, child: Child, message: Message) -> None:
        child.exited.update(entry[0] for entry in message["ranks"])
        self._tree.up.ended(message["ranks"])
        if self._pmi is not None:
            self._pmi.settle()

    def _on_child_finished(self, child: Child, message: Message) -> None:
        child.over = True
        self._sharing.gone(child)
        self._unclean += message.get("unclean", [])
        self._behind_output(lambda: self._do(self._machine.child_over()))

    def _on_lost_below(self, child: Child, message: Message) -> None:
        for _, ranks in message["nodes"]:
            child.exited.update(ranks)
        self._tree.up.tell(message)

    def _pass_up(self, _child: Child, message: Message) -> None:
        self._tree.up.tell(message)

    def _behind_output(self, call: Callable[[], None]) -> None:
        assert self._relay is not None
        self._relay.barrier(call)

    def child_wrote(self, child: Child, kind: int, payload: bytes) -> None:
        assert self._relay is not None
        if len(payload) < 4:
            raise WireError("an output frame without a rank")
        self._relay.push(kind, int.from_bytes(payload[:4], "big"), memoryview(payload)[4:], child.returns.passed)

    def child_lost(self, child: Child, reason: str, death: Optional[Message] = None) -> None:
        child.drop()
        self._host.log.write("child lost", launcher=self._launcher, child=child.name, reason=reason)
        if self._machine.state in _BEFORE_GO:
            hint, fault = ("", "node") if not death else (str(death.get("hint", "")), "launch")
            self._fail(LoadFailed(f"{child.name}: {reason}", fault, hint=hint), child.name)
        elif not self._failure:
            nodes = [[place, [r for r in ranks if r not in child.exited]] for place, ranks in child.nodes]
            self._tree.up.tell({"op": "lost", "nodes": nodes, "reason": f"{child.name}: {reason}"})
        self._requests.child_lost(child, reason)
        if self._pmi is not None:
            self._pmi.child_lost(child, reason)
        self._sharing.gone(child)
        self._behind_output(lambda: self._do(self._machine.child_over()))

    def input_taken(self) -> None:
        self._inputs.settle()

    def _on_pulse(self, child: Child, back: bool) -> None:
        told = "answers again after" if back else "silent for"
        self._host.log.write("pulse", launcher=self._launcher, child=child.name, told=told, seconds=child.pulse.seconds)
        if not back and self._machine.state in _BEFORE_GO:
            child.ask_if_up(lambda is_up: self._silent_before_go(child, is_up))
        else:
            message = {"op": "silent", "node": child.name, "seconds": child.pulse.seconds}
            self._tree.up.tell(dict(message, back=True) if back else message)

    def _silent_before_go(self, child: Child, is_up: bool) -> None:
        if child.over or child.pulse.state is not Silence.SILENT or self._machine.state not in _BEFORE_GO:
            return
        self._fail(silent(child.name, child.pulse.seconds, is_up), child.name)

    # Actions of the state machine

    def _start(self) -> None:
        assert self._load is not None and self._message is not None
        load = self._load
        below = runs(load.nodes[1:], load.fanout)
        window = child_window(load.window, len(below))
        for run in below:
            child = Child(self._loop, run, child_load(self._message, run, window), self._common, window, self)
            child.on_file = self._payload.on_child_frame
            self._tree.children.append(child)
            if load.input == "all" or load.input in child.ranks:
                self._inputs.add(child.sink)
        if below:
            Watch(self._loop, self._tree.children, self._on_pulse)
        if self._user is not None:
            self._user.prolog(lambda: self._payload.begin(self._begin), self._fail)
        else:
            self._payload.begin(self._begin)

    def _begin(self) -> None:
        assert self._local is not None
        self._local.expect()
        if self._pmi is not None:
            self._pmi.prepare(self._begin_local, self._fail)
        else:
            self._begin_local()

    def _begin_local(self) -> None:
        if self._local is None or self._load is None or self._machine.state is not State.STARTING:
            return
        if self._deadline.over:  # this process was stopped, so its timers come after this event
            self._expire()
            return
        as_root = self._endpoint.as_root if self._endpoint is not None else None
        self._record = self._host.record(self._load.launcher, as_root)
        self._local.record(self._record)
        self._loop.after(KEEP_S, self._keep_record)
        self._local.ranks.enter(self._payload.namespaces)
        # a terminal needs a session of its own
        if self._pmi is not None and self._pmi.yields and self._local.terminal is None:
            self._local.ranks.share_session()
        shared, is_root = self._load.input == "shared" and self._load.nnodes > 1, self._tree.is_root
        self._local.begin(is_root, self._sharing.begin(self._loop, self._load.place, is_root) if shared else -1)

    def _keep_record(self) -> None:
        if self._record is not None and not self._finished:
            self._record.keep()
            self._loop.after(KEEP_S, self._keep_record)

    def _report_ready(self) -> None:
        lowered = self._local.ranks.limits.lowered_text() if self._local is not None else ""
        if lowered:  # not before: a launch that fails has one line
            self.noted(lowered)
        self._tree.up.tell({"op": "ready", "ranks": self._ready})
        self._ready = []

    def _report_failed(self) -> None:
        self._host.log.write("failed", launcher=self._launcher, message=self._failure.get("message", ""))
        self._tree.up.tell(self._failure)

    def _release(self) -> None:
        assert self._load is not None and self._local is not None and self._endpoint is not None
        self._deadline.cancel()
        text = self._go.get("map")
        if text is None:
            names = {int(node["index"]): str(node["name"]) for node in self._load.nodes}
            text = rank_map(self._go["ranks"], names)
        self._tree.send_down(control({"op": "go", "ranks": [], "map": text}))
        try:
            self._endpoint.write_map(text)
        except OSError as error:
            self.noted(f"{self._host.node}: no rank map: {error.strerror}")
        self._local.release()
        if self._pmi is not None:
            self._pmi.released(self._local.pairs)
        gc.enable()

    def _kill_tree(self) -> None:
        for child in self._tree.children:
            if child.over:
                continue
            if child.link is None:  # its load was never sent, and never will be
                self.child_lost(child, "killed before it was reached")
            else:
                child.send({"op": "kill"})

    def _sweep(self) -> None:
        self._deadline.cancel()
        assert self._local is not None
        self._requests.cancel()
        self._local.sweep()
        if self._payload.namespaces:  # a process that waits for yod's answer about a file cannot be killed
            self._loop.after(FILES_S, self._payload.abandon_mounts)

    def _report_finished(self) -> None:
        self._finished = True
        self._sharing.give_up()
        self._tree.up.flush(control({"op": "finished", "unclean": self._unclean}))
        if self._orphaned and self._tree.is_root:  # nobody will answer
            self._loop.after(0, lambda: self._handle(Event.LINK_LOST))

    def _forward_done(self) -> None:
        self._tree.send_down(control({"op": "done"}))
        self._forget_parent()

    def _drop_tree(self) -> None:
        self._tree.drop()

    def _end(self) -> None:
        if not self._may_serve_again():
            if self._record is not None and self._processes_gone and not self._unclean:
                self._record.end()
            self._leave(0)
        self._tidy()
        self._over = True

    def _may_serve_again(self) -> bool:
        # Only after a normal launch of plain ranks is this process as it was before.
        if self._local is None or self._local.options is not None or not self._processes_gone:
            return False
        if self._pmi is not None and not self._pmi.silent:
            return False
        well = self._finished and not self._failure and not self._unclean
        return well and self._payload.stays_clean and self._requests.plain

    def close(self) -> int:
        """Release everything after :meth:`run`; returns the exit status if no other launch comes."""
        if self._record is not None:
            self._record.end()
        self._parent.close()
        for child in self._tree.children:
            child.drop()
        self._inputs.close()
        if self._endpoint is not None:
            self._endpoint.close()
        if self._local is not None:
            self._local.close()
        status = self._payload.close()
        self._loop.close()
        return status

    def _leave(self, status: int) -> NoReturn:
        self._tidy()
        os._exit(self._payload.close() or status)

    def _tidy(self) -> None:
        if self._user is not None:
            self._user.clear()
        if self._endpoint is not None:
            self._endpoint.clear()
            lasted_s = round(time.monotonic() - self._began, 3)
            self._host.log.write("launch ended", launcher=self._launcher, seconds=lasted_s)

    # Requests of the PCT, or of a later one

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        waits = self._orphaned and self._machine.state is State.RUNNING
        if op == "kill_launch" and waits and not message.get("grace_s"):
            # The RCA has seen that yod is gone. If the job ends, the ranks have until then; otherwise the root is about
            # to end the launch.
            session.reply(message, {"clean": False, "killed": 0, "deferred": True})
        elif op == "kill_launch":
            self._kill_timer.ask(session, message, self._local, self._processes_gone, bool(self._unclean))
        elif op == "give_back":
            wish = {key: message[key] for key in ("key", "launchers", "keep", "to", "pause") if key in message}
            self.noted(f"processors are wanted for {wish.get('to', '')}", give_back=wish)
            session.reply(message, {"told": True})
        elif op == "fetch":
            self._payload.fetch(session, message)
        else:
            ranks = self._local.pairs() if self._local is not None else []
            state = self._machine.state.value
            told = {"launcher": self._launcher, "pid": os.getpid(), "state": state, "ranks": ranks}
            session.reply(message, dict(told, silent_s=self._parent.silent_s))

    def _on_terminate(self) -> None:
        self._host.log.write("terminated", launcher=self._launcher)
        if why := ending.reason():
            self.noted(f"this node ends: {why}")
        if self._machine.state is State.LOADING:
            self._leave(_TERMINATED)  # its PCT reports the death to peers that lose the link
        if self._machine.state in (State.STARTING, State.HELD):  # those above would wait for it
            self._fail(LoadFailed(f"{self._host.node}: its launch child was ended by SIGTERM", "launch"))
        self._terminate()

    def _terminate(self) -> None:
        # Killed from outside: report it while the parent listens, but not for ever.
        self._loop.after(LEAVE_S, lambda: self._handle(Event.LINK_LOST))
        self._handle(Event.KILL)

    _steps: Dict[Action, Callable[[Launch], None]] = {
        Action.START: _start,
        Action.REPORT_READY: _report_ready,
        Action.REPORT_FAILED: _report_failed,
        Action.RELEASE: _release,
        Action.KILL_TREE: _kill_tree,
        Action.SWEEP: _sweep,
        Action.REPORT_FINISHED: _report_finished,
        Action.FORWARD_DONE: _forward_done,
        Action.DROP_TREE: _drop_tree,
        Action.END: _end,
    }
