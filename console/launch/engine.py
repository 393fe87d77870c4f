"""The launcher: sockets, timers and signals around the state machine in states.py, which decides what to do."""

from __future__ import annotations

import gc
import time

from agents.link.lean import signal
from agents.link.sockets import EXHAUSTED
from agents.wire.control import encode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import COMMON, STDIN, frame
from agents.wire.launch_events import GiveBack, NodeCannotStart, RanksStopped
from console.errors import ConsoleError
from console.launch import plan as plans
from console.launch.daemons.allocation import Allocation, told
from console.launch.daemons.connect import user, yod_socket
from console.launch.daemons.groups import difference
from console.launch.daemons.root_link import RootLink
from console.launch.events.stream import Stream, stamped
from console.launch.ranks import OutOfMemory
from console.launch.states import GRACE_S, JOB_GRACE_S, Do, Event, Launch, State
from redmesh.byte_text import without_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from agents.link.loop import Loop, Timer
    from console.launch.attach.server import Observers
    from console.launch.daemons.allocation import Daemons
    from console.launch.events.bad_exits import BadExits
    from console.launch.events.spool import SpoolFront
    from console.launch.features.feature import Feature
    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.stdio.frontend import Front
    from console.launch.stdio.stdin import Feeder, TypedInput
    from console.launch.transfer.transfer import Transfer
    from console.launch.watchdog import Watchdog

    MakeFront = Callable[[Loop, Request, Callable[[int], None], Callable[[str, int], None]], Front]

# Signals to yod become events of its launch.


_EVENTS: tuple[tuple[int, Event, tuple[Any, ...]], ...] = (
    (signal.SIGINT, Event.INTERRUPT, ()),
    (signal.SIGTERM, Event.TERMINATE, (int(signal.SIGTERM),)),
    (signal.SIGHUP, Event.TERMINATE, (int(signal.SIGHUP),)),
    (signal.SIGUSR1, Event.SIGNAL, (int(signal.SIGUSR1), None)),
    (signal.SIGUSR2, Event.SIGNAL, (int(signal.SIGUSR2), None)),
)
# In a batch system's job it announces the job's limit; elsewhere it is yod's own (``ulimit -t``).
_JOB_EVENTS: tuple[tuple[int, Event, tuple[Any, ...]], ...] = (
    (signal.SIGXCPU, Event.SIGNAL, (int(signal.SIGXCPU), None)),
)


def take_signals(
    loop: Loop, handle: Callable[..., None], leave: Callable[[], None] | None, in_job: bool = False
) -> None:
    r"""Have the loop call ``handle`` for signals, and ``leave`` for ^\. Ignored signals stay ignored (nohup).

    ``in_job``: in a batch system's job.
    """
    for number, event, facts in (*_EVENTS, *(_JOB_EVENTS if in_job else ())):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.on_signal(number, lambda event=event, facts=facts: handle(event, *facts))  # type: ignore[misc]
    if leave is not None and signal.getsignal(signal.SIGQUIT) != signal.SIG_IGN:
        loop.on_signal(signal.SIGQUIT, leave)


def is_passed_on(event: Event, *facts: Any) -> bool:
    """True if the ranks get the signal that yod got. In a batch system's job they may have got it already.

    False for ^C and a hang-up, for which yod sends SIGTERM: nobody else does.
    """
    return event is Event.SIGNAL or (event is Event.TERMINATE and facts == (int(signal.SIGTERM),))


_TICK_S = 0.5
_WAITS = {
    State.ALLOCATING: "keeps its place and waits",
    State.CONFIRMING: "waits with its start",
    State.RETURNING: "waits with its next try",
}
_OUTAGE_S = 5.0  # an outage of the database is reported again if the last one was at least this long ago
_OBSERVERS_AFTER_S = 0.1  # most launches are over by then and need no socket
_LAST_WORDS_S, _OBSERVERS_LAST_S = 1.0, 0.5
_NOTES_S = 2.0  # the longest delay before GO for merging equal messages of many nodes


class Engine:
    """Runs a launch from its request to its exit status. ``features``: optional parts, none for a plain launch."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        daemons: Daemons,
        asked: dict[str, Any],
        make_front: MakeFront,
        on_running: Callable[[int], None] | None = None,
        features: Sequence[Feature] = (),
    ) -> None:
        """``asked``: the request that was already sent to a CPA.

        ``on_running``: given for ``-detach``, and called once the launch runs. Such a launch reads no standard input,
        and its observer socket exists before the call.
        """
        self.begun = self.moved = time.monotonic()
        self._begun_at = time.time()
        self.loop, self.request, self.daemons = loop, request, daemons
        self.state_dir = daemons.state_dir
        self.features = features
        self._on_running = on_running
        self.launch = Launch(
            bad_exit_ends=request.stdio.batch or request.kill,
            retries=request.where.retries,
            for_job=request.state is not None and bool(request.state.socket),
            grace_s=JOB_GRACE_S if daemons.in_job else GRACE_S,
        )
        self.allocation = Allocation(daemons, asked, self.launch, self.handle)
        self.front = make_front(loop, request, self.on_output_written, self.on_output_broken)
        self.stream = Stream(self.front.event)
        self.plan: Plan | None = None
        self.root: RootLink | None = None
        self._moved_before = self.moved
        self._watchdog: Watchdog | None = None
        self._credit = 0
        self._credit_step = plans.window(request) >> 4
        self._went = self._relays = False
        self._reported = False
        self._notes: dict[str, list[str]] = {}  # a line -> the nodes that sent it
        self._feeder: Feeder | TypedInput | None = None
        self._transfer: Transfer | None = None
        self._observers: Observers | None = None
        self._grace: Timer | None = None
        self._bad_exits: BadExits | None = None
        self._ticked_at = self._ticked_before = 0.0
        self._away_said = 0.0  # when the database was last found unreachable
        daemons.cpa.on_away = self._database_away
        self._doing = self._table()
        self._messages = self._message_table()
        for feature in features:
            feature.context = self
            feature.begin()

    @property
    def spool_path(self) -> str:
        """The spool of a detached launch; "" for others."""
        return self.front.spool_path

    def hello_event(self) -> dict[str, Any]:
        """The first event for an observer."""
        return stamped(
            {
                "event": "hello",
                "launcher": self.launch.launcher,
                "command": self.request.command,
                "size": self.launch.ranks.size,
                "user": user(),
                "state": self.launch.state.value,
                "input": self._on_running is not None and self.request.stdio.input != "none",
            }
        )

    def run(self) -> int:
        """Run the launch to its end; returns yod's exit status."""
        leave = self._leave_terminal if self._on_running is None else None
        take_signals(self.loop, self._handle_signal, leave, self.daemons.in_job)
        self.loop.after(_TICK_S, self._tick)
        try:
            self.loop.run()
            self._last_words()
        finally:
            for feature in self.features:
                feature.close()
        if self._transfer is not None:
            self._transfer.close()
            return self.launch.exit_status or self._transfer.exit_status
        return self.launch.exit_status

    def _handle_signal(self, event: Event, *facts: Any) -> None:
        self._relays = self.daemons.in_job and is_passed_on(event, *facts)
        try:
            self.handle(event, *facts)
        finally:
            self._relays = False

    def handle(self, event: Event, *facts: Any) -> None:
        """Pass an event to the state machine and carry out its actions."""
        before, at = self.launch.state, time.monotonic()
        for feature in self.features:
            feature.on_event(event, facts)
        actions = self.launch.handle(event, *facts)
        state = self.launch.state
        if state is not before:
            self.moved = time.monotonic()
        for action in actions:
            self._doing[action[0]](*action[1:])
        if state is not before and state in (State.FREEING, State.ENDED):
            self._report()
        if state in (State.FREEING, State.HANDING, State.DRAINING) and not self.launch.drained and self.front.drained:
            self.handle(Event.DRAINED)
        if self.features:
            self._tell_features(before, event, at)

    def _tell_features(self, before: State, event: Event, at: float) -> None:
        state = self.launch.state
        for feature in self.features:
            if state is not before:
                feature.on_state(before, event, at)
            if event in (Event.EXITS, Event.LOST) and state is State.RUNNING:
                feature.on_ends()

    def _table(self) -> dict[Do, Callable[..., None]]:
        return {
            Do.ALLOCATE: self._allocate_again,
            Do.LOAD: self._load,
            Do.CONFIRM: self._confirm,
            Do.GO: self._go,
            Do.SIGNAL: self._signal,
            Do.KILL: self._kill,
            Do.DONE: lambda: self.send({"op": "done"}),
            Do.CUT: self._cut,
            Do.SWEEP: self._sweep,
            Do.NODE_FAILED: self._node_failed,
            Do.FREE: self._free,
            Do.HAND: self.allocation.hand,
            Do.UNREGISTER: lambda: self.daemons.rca.unregister(),
            Do.GRACE: self._start_grace,
            Do.SAY: self.say,
            Do.STATUS: lambda text: self.front.status(text),
            Do.ANNOUNCE: self._announce,
            Do.TELL: self.stream.emit,
            Do.LEAVE: self.loop.stop,
        }

    # Allocation

    def allocated(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """Handle the CPA's answer to the request for processors, which was sent before this object was made."""
        for feature in self.features:
            feature.on_reply(reply, error)
        if reply is None or error is not None:
            if self.allocation.lapsed(error, self.request.where.wait_s):
                self._allocate_again(self.request.where.wait_s)
            else:
                if error is not None:
                    self.stream.emit({"event": "refused", "code": error.code, "text": error.message})
                self.handle(Event.REFUSED, *self._refusal(error))
            return
        self.allocation.granted(reply, self._ticked_before)
        try:
            self.plan = plans.place_request(reply, self.request)
        except ConsoleError as misfit:
            status = misfit.exit_status
            self.front.complain(misfit.message, misfit.hint)
            self.launch.outcome.exit_status = status
            self._free(False, misfit.message, then=lambda *_: self.handle(Event.REFUSED, "", "", status))
            return
        self.front.planned(self.plan.size)
        self.handle(Event.ALLOCATED, self.plan, reply["launcher"])

    def _refusal(self, error: AgentError | None) -> tuple[str, str, int]:
        message, hint, exit_status = told(error)
        names = (self.request.where.exclude or {}).get("nodes", ())
        variable = next((name for name in names if repr(name) in message and name.isupper()), "")
        wanted = (self.request.where.wanted or {}).get("nodes", ())
        if any(message == f"there is no node {name!r} in this mesh" for name in wanted):
            hint += "; mesh init --host NAME (or --hostfile FILE), then mesh up, makes a mesh of other hosts"
        if variable:
            hint = f"-x is -exclude; Open MPI's -x {variable} is -export ALL,{variable}, and ALL alone is the default"
        return message, hint, exit_status

    def _database_away(self, why: str) -> None:
        """Report, once per outage, that this launch waits for the database."""
        now, before = time.monotonic(), self._away_said
        self._away_said = self.moved = now
        if now - before > _OUTAGE_S and self.launch.state in _WAITS:
            self.front.status(f"{why}; this launch {_WAITS[self.launch.state]} until it does")

    def _allocate_again(self, wait_s: float) -> None:
        self.plan, self._credit = None, 0
        self._wait_anew()
        self.allocation.ask_again(wait_s, self.allocated)

    def _renewed(self, loading_s: float) -> None:
        if self.root is not None:
            self.root.answered = False
        self.send({"op": "ping", "loading_s": loading_s})

    def _confirm(self) -> None:
        self._confirm_after(self.features)

    def _confirm_after(self, features: Sequence[Feature]) -> None:
        if features:
            first, rest = features[0], features[1:]
            if first.before_confirm(lambda: self._confirm_after(rest)):
                self._confirm_after(rest)
            return
        for feature in self.features:
            feature.before_request("started")
        assert self.plan is not None
        self.allocation.confirm(self.plan, self._confirmed)

    def _confirmed(self) -> None:
        # without a root nothing would receive GO: the launch fails when the cause of the root's end is known
        if self.root is not None:
            self.handle(Event.CONFIRMED)

    def _node_failed(self, node: str, reason: str) -> None:
        self.allocation.report_node(node, reason[:200])
        if self.plan is not None:
            from console.launch.daemons.root_pct import tell_failed

            tell_failed(self.loop, self.plan, node, self.allocation.reply, reason[:200])

    def _free(
        self,
        processor_error: bool,
        reason: str,
        then: Callable[[dict[str, Any] | None, AgentError | None], None] | None = None,
    ) -> None:
        for feature in self.features:
            feature.before_request("finish")
        if self._feeder is not None:
            self._feeder.close()
        self.allocation.free(processor_error, reason, then)

    # The tree

    def _load(self) -> None:
        assert self.plan is not None
        try:
            for feature in self.features:
                feature.before_load()
        except ConsoleError as error:  # the processors are allocated: end the launch, which frees them
            self._cannot_load(error.message, error.hint, error.exit_status, error.message)
            return
        if self._transfer is not None:
            self._transfer.close()  # of a failed load; this one has its own
            self._transfer = None
        reply = self.allocation.reply
        self.stream.emit(plans.allocated_event(self.plan, reply, self.request.command))
        if self.launch.state is not State.LOADING:
            return  # writing the event failed and ended the launch: send no load
        load = plans.load_message(self.plan, reply, self.request)
        address = self.plan.nodes[0].address
        far = not address.startswith("/")
        if not far:  # for other machines the credential has the expiry, in mesh time
            load["lapses_at"] = round(self.allocation.lapses_at, 3)
        hosts = plans.hosts(self.plan, apart=self.request.mpi.apart)
        message = plans.common_message(self.request, self.plan.size, hosts)
        common = frame(COMMON, encode(message))
        if self._watchdog is not None:
            self._watchdog.another_root()
        root = RootLink(self.loop, self)
        try:
            if far:
                self._load_far(root, load, common)
                return
            root.load(address, load, common)
        except (OSError, AgentError) as error:
            reason = f"cannot be reached: {getattr(error, 'strerror', None) or error}"
            if isinstance(error, OSError) and error.errno in EXHAUSTED:  # our own limits say nothing about the node
                self._reached_nobody(reason)
            else:
                self.loop.after(0, lambda: self.handle(Event.ROOT_ENDED, reason))
            return
        self.root = root
        self._loaded()

    def _reached_nobody(self, reason: str) -> None:
        root = self.launch.ranks.root_name
        hint = "yod itself has too few descriptors or too little memory: ulimit -n, ulimit -v"

        self._cannot_load(f"{root} {reason}", hint, 125, reason)

    def _cannot_load(self, message: str, hint: str, status: int, reason: str) -> None:
        def failed() -> None:
            self.handle(Event.FAILED, self.launch.ranks.root_name, message, hint, status, "launch")
            self.handle(Event.ROOT_ENDED, reason)

        self.loop.after(0, failed)

    def _load_far(self, root: RootLink, load: dict[str, Any], common: bytes) -> None:
        from console.launch.daemons.root_pct import believe, load_far

        believe(self.daemons.run_dir)

        def ask(members: dict[str, Any], then: Callable[..., None], seconds: float) -> None:
            self.daemons.cpa.ask(self.allocation.cookied("credential", **members), then, seconds, patient=True)

        load_far(root, self.loop, load, common, ask, self._let_in, self._not_let_in)
        self.root = root

    def _let_in(self, credential: dict[str, Any]) -> None:
        self.allocation.reply = {**self.allocation.reply, **credential}
        self._loaded()

    def _not_let_in(self, error: AgentError) -> None:
        root = self.launch.ranks.root_name
        self.handle(Event.FAILED, root, error.message, error.hint, error.exit_status, "launch")

    def _loaded(self) -> None:
        if self.plan is None:
            return
        if self.request.carries:
            self._transfers().begin()
        root, nodes = self.launch.ranks.root_name, len(self.plan.nodes)
        self.stream.emit({"event": "loading", "root": root, "nodes": nodes})

    def _transfers(self) -> Transfer:
        """The transfers of the launch (files for nodes and ranks), made at the first use; a plain launch has none."""
        if self._transfer is None:
            from console.launch.transfer.transfer import Transfer

            if self.plan is None or self.root is None or self.root.link is None:
                raise WireError("files before their load")
            self._transfer = Transfer(
                self.loop, self.request, self.plan, self.allocation.reply["launcher"], self.root.link,
                self._say_how_far, lambda *facts: self.handle(Event.FAILED, *facts), self.front.complain,
            )  # fmt: skip
        return self._transfer

    def _say_how_far(self, text: str) -> None:
        """Tell people about a transfer, unless the launch has failed: the reason stays the last line."""
        if self.launch.state is State.LOADING:
            self.front.status(text)

    @property
    def reads(self) -> bool:
        """True if yod itself has work to do before nodes can continue."""
        return self._transfer is not None and self._transfer.reads

    def send(self, message: dict[str, Any]) -> None:
        """Send a message down the tree."""
        for feature in self.features:
            feature.on_sent(message)
        if self.root is not None:
            self.root.send(message)

    def processes(self) -> list[dict[str, Any]]:
        """Host, program and process of every rank (console/launch/attach/mpir.py)."""
        from console.launch.attach.mpir import table

        return table(self.plan, self.request, self.launch.ranks) if self.plan is not None else []

    def _cut(self) -> None:
        if self.root is not None:
            self.root.close()
            self.root = None

    def _sweep(self) -> None:
        if self.plan is not None:
            from console.launch.daemons.root_pct import sweep

            sweep(self.loop, self.plan, self.allocation.reply)

    def on_root_end(self, reason: str) -> None:
        """Handle the loss of the link to the tree: ask the root's PCT for the cause if a launch was loaded."""
        self.root = None
        plan = self.plan
        if plan is None or self.launch.state not in (State.LOADING, State.CONFIRMING, State.RUNNING):
            self.handle(Event.ROOT_ENDED, reason)
            return
        from console.launch.daemons.root_pct import inquire

        reply = self.allocation.reply
        inquire(self.loop, plan.nodes[0], reply, lambda death: self._root_gone(plan, reason, death))

    def on_root_silent(self, seconds: float, is_still: Callable[[], bool]) -> None:
        """Before GO: ask the PCT of the silent root. If it answers, the launch child alone stands still."""
        plan, state, root = self.plan, self.launch.state, self.root
        if plan is None or root is None:
            return
        from agents.pct.launch.liveness import silent
        from console.launch.daemons.root_pct import inquire_if_up

        def answered(is_up: bool) -> None:
            if self.root is not root or self.launch.state is not state or not is_still():
                return
            if is_up:
                name = self.launch.ranks.root_name
                error = silent(name, seconds, is_up)
                self.handle(Event.FAILED, name, error.message, error.hint, error.exit_status, error.fault)
            else:
                self.handle(Event.SILENT, self.launch.ranks.root_name, seconds)

        inquire_if_up(self.loop, plan.nodes[0], self.allocation.reply, answered)

    def _root_gone(self, plan: Plan, reason: str, death: dict[str, Any] | None) -> None:
        if plan is not self.plan:
            return  # the launch was given up meanwhile, and is retried on other nodes
        if death is not None and self.launch.state is not State.RUNNING:
            root = self.launch.ranks.root_name
            self.handle(Event.FAILED, root, f"{root}: {death['message']}", str(death["hint"]), 125, "launch")
        else:
            self.handle(Event.ROOT_ENDED, str(death["message"]) if death else reason)

    # Messages from the tree

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Note a frame from the root as progress."""
        self._moved_before, self.moved = self.moved, time.monotonic()
        for feature in self.features:
            feature.on_frame(kind, payload)

    def on_output(self, kind: int, payload: bytes) -> None:
        """Pass a rank's output to the frontend and the observers."""
        view = memoryview(payload)
        self.front.output(kind, int.from_bytes(view[:4], "big"), view[4:])
        if self.stream.listeners:
            self.stream.frame(kind, payload)

    def on_file(self, payload: bytes) -> None:
        """Serve a rank's file request."""
        self._transfers().on_frame(payload)

    def on_refused(self, error: AgentError) -> None:
        """Handle a refusal by the root's PCT."""
        root = self.launch.ranks.root_name
        self.handle(Event.FAILED, root, error.message, error.hint, error.exit_status, "node")

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """Handle a node's message. Raises ValueError, TypeError or KeyError for an invalid one."""
        if op in ("pong", "silent"):
            self.moved = self._moved_before  # signs of life are not progress
        for feature in self.features:
            feature.on_message(op, message)
        handler = self._messages.get(op)
        if handler is not None:
            handler(message)

    def _message_table(self) -> dict[str, Callable[[dict[str, Any]], None]]:
        return {
            "ready": lambda message: self.handle(Event.READY, message["ranks"]),
            "exits": lambda message: self.handle(Event.EXITS, message["ranks"]),
            "credit": self._on_input_credit,
            "failed": self._on_failed,
            "want": lambda message: self._transfers().on_message("want", message),
            "no_room": lambda message: self._transfers().on_message("no_room", message),
            "lost": lambda message: self.handle(Event.LOST, message["nodes"], message["reason"]),
            "silent": self._on_silent,
            "note": self._tell_note,
            "abort": self._on_abort,
            "finished": self._on_finished,
            **{op: self._answer_observers(op) for op in ("stacks", "source", "debug_said", "debug_over", "want_tool")},
        }

    def _on_input_credit(self, message: dict[str, Any]) -> None:
        if self._feeder is not None:
            self._feeder.credit(message["bytes"])

    def _on_failed(self, message: dict[str, Any]) -> None:
        lasting = bool(message.get("lasting"))
        start = NodeCannotStart(
            message["node"], message["message"], message.get("hint", ""),
            lasting=lasting, of_room=bool(message.get("of_room")),
        )  # fmt: skip
        self.stream.emit(start.as_event())
        facts = (start.node, start.text, start.hint, message["exit_status"], message["fault"])
        self.handle(Event.FAILED, *facts, lasting)

    def _on_silent(self, message: dict[str, Any]) -> None:
        self.handle(Event.BACK if message.get("back") else Event.SILENT, message["node"], message["seconds"])

    def _on_abort(self, message: dict[str, Any]) -> None:
        who = {"rank": message["rank"], "node": message["node"], "text": message["message"]}
        self.stream.emit({"event": "aborted", **who})
        self.handle(Event.ABORTED, message["message"], message["exit_status"])

    def _on_finished(self, message: dict[str, Any]) -> None:
        self.front.output_ended()
        self.handle(Event.FINISHED, message.get("unclean", []))

    def _answer_observers(self, op: str) -> Callable[[dict[str, Any]], None]:
        def answer(message: dict[str, Any]) -> None:
            if self._observers is not None:
                self._observers.inspecting.told(op, message)

        return answer

    def _tell_note(self, message: dict[str, Any]) -> None:
        # A preemption is reported even with -quiet and -batch, because it explains the end.
        node, text, way = message["node"], message["message"], message.get("preempted_by")
        memory = message.get("out_of_memory")
        if memory is not None:  # for the terminal, the completion table has it
            self.stream.emit({"event": "note", "node": node, "text": text})
            found = OutOfMemory(int(memory["had"]), int(memory["limit"]), int(memory["host"]))
            self.handle(Event.OUT_OF_MEMORY, node, int(memory["rank"]), found)
            return
        stopped = message.get("stopped")
        if stopped is not None:  # not for the terminal: mostly it is its user who has stopped them
            self.stream.emit(RanksStopped(node, stopped["ranks"], stopped["pids"], stopped["since"]).as_event())
            return
        wish = message.get("give_back")
        if wish is not None:  # for the owner of the job
            pause = bool(wish.get("pause"))
            told = GiveBack(wish["key"], wish["launchers"], wish["keep"], str(wish.get("to", "")), pause=pause)
            self.stream.emit(told.as_event())
            return
        if way is None:
            self.stream.emit({"event": "note", "node": node, "text": text})
            if not self._notes:
                self.loop.after(0.0 if self._went else _NOTES_S, self._print_notes)
            self._notes.setdefault(text, []).append(node)
            return
        self.front.line(f"yod: {text}")
        by = {"to": str(way.get("to", "")), "kill_in_s": float(way.get("kill_in_s", 0.0))}
        self.stream.emit({"event": "gives_way", "node": node, **by, "text": text})

    def _print_notes(self) -> None:
        """Print one line for all nodes with the same message."""
        if not self._notes:
            return
        from redmesh.idset import fold_names

        notes, self._notes = self._notes, {}
        for text, nodes in notes.items():
            self.front.status(f"{fold_names(sorted(nodes, key=lambda name: (len(name), name)))}: {text}")

    def _go(self) -> None:
        self._print_notes()
        for feature in self.features:
            feature.before_go()
        ranks = self.launch.ranks
        self.send({"op": "go", "ranks": ranks.pids})
        self._went = True
        self._compare_groups()
        self.stream.emit({"event": "started", "ranks": [[pid, ranks.node_name(at)] for pid, at in ranks.pids]})
        options = self.request.output
        if self._on_running is not None:
            self.observe()
            self._on_running(self.launch.launcher)
            reads_input = options is not None and options.stdin_fd >= 0
        else:
            self.loop.after(_OBSERVERS_AFTER_S, self.observe)
            reads_input = self.request.stdio.input != "none"
        for feature in self.features:
            feature.after_go(reads_input=reads_input)
        if reads_input and not any(feature.holds_input for feature in self.features):
            self.start_input()

    def _compare_groups(self) -> None:
        """Tell if the ranks have other groups than yod, after GO: a look-up of names may take long."""
        if self.plan is None or self.root is None or self.root.link is None:
            return
        here = self.plan.nodes[0].address.startswith("/")
        told = difference(self.root.link.sock if here else None, self.allocation.reply.get("members", ()))
        if told:
            self.front.status(told)
            self.stream.emit({"event": "note", "node": "", "text": told})

    def start_input(self) -> None:
        """Start to read standard input, or the file of ``-stdin``, for the ranks."""
        from console.launch.stdio.stdin import Feeder

        options = self.request.output
        fd = 0 if options is None else max(0, options.stdin_fd)
        self._feeder = Feeder(self.loop, fd, self._send_input, self._input_ended)

    def _send_input(self, data: bytes) -> None:
        for feature in self.features:
            feature.on_input(len(data))
        if self.root is not None:
            self.root.send_raw(frame(STDIN, data))

    def _input_ended(self, why: str) -> None:
        for feature in self.features:
            feature.on_input(0)
        if why:
            self.say(f"standard input cannot be read: {why}", "")
        self.send({"op": "eof"})

    def observe(self) -> None:
        """Open the socket for observers."""
        if self._observers is None and self.launch.state is State.RUNNING:
            from console.launch.attach.server import observe

            self._observers = observe(self.loop, yod_socket(self.daemons.run_dir, self.launch.launcher), self)

    def type_input(self, data: bytes) -> None:
        """Send an observer's input to the ranks. Raises WireError unless the launch takes input from observers."""
        from console.launch.stdio.stdin import TypedInput

        if self._feeder is None and self._on_running is not None and self.request.stdio.input != "none":
            self._feeder = TypedInput(self._send_input)
        if not isinstance(self._feeder, TypedInput):
            raise WireError("this launch takes no input from observers: only launches of yod --detach --input=all do")
        self._feeder.give(data)
        self.stream.emit({"event": "typed", "bytes": len(data)})

    @property
    def reads_input(self) -> bool:
        """True if standard input goes to the ranks."""
        return self._feeder is not None

    def end_input(self) -> None:
        """End the ranks' standard input."""
        if self._feeder is not None:
            self._feeder.close()
        self.send({"op": "eof"})

    def release(self) -> None:
        """Release a held launch. Raises WireError if it is not held."""
        if not any(feature.release() for feature in self.features):
            raise WireError("this launch is not held")

    def _signal(self, number: int, ranks: list[int] | None) -> None:
        for feature in self.features:
            feature.before_signal(number, ranks)
        message = {"op": "signal", "signal": number, "ranks": ranks}
        self.send({**message, "relayed": True} if self._relays else message)
        for feature in self.features:
            feature.after_signal(number, ranks)

    def _kill(self) -> None:
        self.moved = time.monotonic()
        self._wait_anew()
        # Without a link, a launch that did not run has ended, and no tree will report that. One that ran waits for
        # _root_gone.
        if self.root is None and self.launch.state is not State.RUNNING:
            self.loop.after(0, lambda: self.handle(Event.ROOT_ENDED, "not loaded"))
        self.send({"op": "kill"})

    # The end

    def _start_grace(self, seconds: float) -> None:
        if self._grace is not None:
            self._grace.cancel()
        self._grace = self.loop.after(seconds, lambda: self.handle(Event.GRACE_OVER))

    def say(self, message: str, hint: str) -> None:
        """Report an error to people and observers."""
        if message:
            self.front.complain(message, hint)
            text = without_surrogates(message)  # it may contain a file name whose bytes are not UTF-8
            self.stream.emit({"event": "note", "node": "", "text": text})

    def _announce(self, ranks: list[int]) -> None:
        if self._bad_exits is None:
            from console.launch.events.bad_exits import BadExits

            self._bad_exits = BadExits(self.launch, self.loop.after, self._tell_bad_exits)
        self._bad_exits.add(ranks)

    def _tell_bad_exits(self, event: dict[str, Any]) -> None:
        from console.launch.events.bad_exits import in_foreground, lines

        self.stream.emit(event)
        run = self.request.run
        has_terminal = run is None or run.pty is None  # otherwise ^C goes to a rank
        for line in lines(event, "^C" if has_terminal and in_foreground() else event["stop"]):
            self.front.status(line)

    def _report(self) -> None:
        if self._reported:
            return
        self._reported = True
        self._print_notes()
        launch = self.launch
        if self._went:
            self._print_completion()
        elapsed = round(time.monotonic() - self.begun, 6)
        if self.plan is not None:  # now, while the CPA frees the processors
            from console.launch.events.completion_report import log_usage

            path = f"{self.state_dir}/usage.log"
            log_usage(path, launch, self.plan, self.request, user(), self._begun_at, elapsed)
        self.stream.emit({"event": "end", "exit_status": launch.exit_status, "elapsed_s": elapsed})

    def _print_completion(self) -> None:
        for feature in self.features:
            feature.before_completion()
        if not any(feature.completes() for feature in self.features):
            from console.launch.events.completion_report import told_rows

            for row in told_rows(self.launch, self.request):
                self.front.line(f"yod: {row}")
        for feature in self.features:
            for line in feature.last_lines():
                self.front.line(f"yod: {line}")

    def _last_words(self) -> None:
        """Write the remaining output, to standard output and to observers, for a limited time."""
        hurry = self.launch.interrupts > 2
        deadline = time.monotonic() + (0.1 if hurry else _LAST_WORDS_S)
        while not self.front.drained and time.monotonic() < deadline:
            self.loop.run_once(deadline - time.monotonic())
        if self._observers is not None:
            self._observers.finish(0.0 if hurry else _OBSERVERS_LAST_S)

    # Output credit

    def on_output_written(self, amount: int) -> None:
        """Return credit to the tree: ``amount`` bytes of output were written."""
        self._credit += amount
        if amount:  # yod's own lines have an amount of 0, and are not progress
            self.moved = time.monotonic()
        if self._credit >= self._credit_step:
            self.send({"op": "credit", "bytes": self._credit})
            self._credit = 0
        if self.launch.state in (State.FREEING, State.HANDING, State.DRAINING) and not self.launch.drained:
            self.loop.after(0, self._look_whether_drained)

    def _look_whether_drained(self) -> None:
        if self.front.drained and not self.launch.drained:
            self.handle(Event.DRAINED)

    def on_output_broken(self, message: str, exit_status: int) -> None:
        """Handle the loss of the output's reader."""
        self.handle(Event.OUTPUT_BROKEN, message, exit_status)

    def replace_front(self, front: SpoolFront) -> None:
        """Send further output and events to ``front``, except output that goes to files."""
        from console.launch.stdio.files import FilesFront

        if isinstance(self.front, FilesFront):
            self.front.take_inner(front)
        else:
            self.front = front  # type: ignore[assignment]
        self.stream.front = front.event

    def _leave_terminal(self) -> None:
        from console.launch.attach.detach import leave

        leave(self)

    # Signals and timers

    def _tick(self) -> None:
        gc.enable()  # disabled until now: most launches end before there is garbage to collect
        for feature in self.features:
            feature.on_tick()
        self._ticked_before, self._ticked_at = self._ticked_at, time.monotonic()
        if self.allocation.is_due(self._ticked_at):
            # A launch keeps its processors while its root answers, which it does once it has the load.
            if self.root is not None and self.root.answered:
                self.allocation.renew(self._renewed)
            else:
                self.send({"op": "ping"})
        self.loop.after(_TICK_S, self._tick)
        if self._watchdog is None:
            from console.launch.watchdog import Watchdog

            self._watchdog = Watchdog(self)
        self._watchdog.tick()

    def _wait_anew(self) -> None:
        if self._watchdog is not None:
            self._watchdog.renew()

    def outstanding(self) -> str:
        """What a launch without progress waits for; "" if that is normal."""
        from console.launch.watchdog import outstanding

        if any(feature.sleeps() for feature in self.features):
            return ""
        return outstanding(self.launch, self.request)
