"""The launcher's sockets, timers and signals around its machine (machine.py decides, this does)."""

from __future__ import annotations

import gc
import os
import time

from agents.link.lean import signal
from agents.link.link import Link
from agents.link.sockets import connect
from agents.wire.control import control, decode, encode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import COMMON, CONTROL, FILE, STDERR, STDIN, STDOUT, frame
from agents.wire.messages import UP, check, check_hello, hello
from console.errors import ConsoleError
from console.launch import plan as plans
from console.launch.daemons.connect import user, yod_socket
from console.launch.events.stream import Stream, stamped
from console.launch.states import Do, Event, Launch, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop, Timer
    from agents.wire.errors import AgentError
    from console.launch.attach.server import Observers
    from console.launch.daemons.cpa import Authority
    from console.launch.daemons.rca import Registration
    from console.launch.events.bad_exits import BadExits
    from console.launch.events.spool import SpoolFront
    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.states import Launch
    from console.launch.stdio.frontend import Front
    from console.launch.stdio.stdin import Feeder, TypedInput
    from console.launch.transfer.transfer import Transfer
    from console.launch.watchdog import Watchdog


# What a launcher says to the CPAs and, where none takes it, to the RCA: under its cookie, answered by an event.


#: Seconds for which CPAs are asked before a request is given up.
STARTED_S, FINISH_S = 45.0, 3.0
#: How often a request that waits is made anew because its reservation had lapsed before we heard of it.
LAPSES = 3
#: Seconds after which a reservation that could not be renewed is renewed again.
RENEW_AGAIN_S = 2.0


class Reservation:
    """The part of an engine that has processors confirmed and given back."""

    loop: Loop
    cpa: Authority
    rca: Registration
    _reply: dict[str, Any]
    _plan: Plan | None
    _feeder: Feeder | TypedInput | None
    _cargo: Transfer | None
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
    def has_root(self) -> bool:
        """Whether there is a link to the tree."""
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
        self.cpa.ask(self.cookied("loading"), self._renewed, STARTED_S, patient=True)

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
        started = self.cookied("started", ranks=self._plan.first_processor, root=self._plan.nodes[0].name)
        self.cpa.ask(started, self._confirmed, STARTED_S, patient=True)

    def _confirmed(self, _reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if error is not None:
            self.handle(Event.UNCONFIRMED, *told(error))
        elif self.has_root:  # else nobody would hear GO: the launch fails when its root's end is explained
            self.handle(Event.CONFIRMED)

    def _node_failed(self, node: str, reason: str) -> None:
        self.cpa.ask(self.cookied("node_failed", node=node, reason=reason[:200]), lambda *_: None, FINISH_S)
        if self._plan is not None:
            from console.launch.daemons.root_pct import tell_failed

            tell_failed(self.loop, self._plan, node, self._reply, reason[:200])

    def cookied(self, op: str, **members: Any) -> dict[str, Any]:
        """A request to a CPA under the launch's cookie."""
        return {"op": op, "launcher": self._reply["launcher"], "cookie": self._reply["cookie"], **members}

    def _finish(self, processor_error: bool, reason: str) -> dict[str, Any]:
        status = self.launch.exit_status
        told = self.cookied("finish", exit_status=status, processor_error=processor_error, reason=reason[:200])
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
        self.cpa.ask(self._finish(processor_error, reason), then or self._freed, FINISH_S, patient=True)

    def _freed(self, _reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if error is None or error.code == "expired":  # freed already: the pending time ran out, or a clean-up did it
            self.handle(Event.FREED)
        else:
            self.handle(Event.NOT_FREED, error.message)

    def _hand(self, processor_error: bool, reason: str) -> None:
        self.rca.hand(self._finish(processor_error, reason), self._handed)

    def _handed(self, error: AgentError | None) -> None:
        if error is None:
            self.handle(Event.HANDED)
        else:
            self.handle(Event.NOT_HANDED, error.message)


def told(error: AgentError | None) -> tuple[str, str, int]:
    """Message, hint and exit status of what went wrong."""
    return (error.message, error.hint, error.exit_status) if error is not None else ("no answer", "", 125)


# What yod does on signals, as events of its launch.


_EVENTS: tuple[tuple[int, Event, tuple[Any, ...]], ...] = (
    (signal.SIGINT, Event.INTERRUPT, ()),
    (signal.SIGTERM, Event.TERMINATE, (int(signal.SIGTERM),)),
    (signal.SIGHUP, Event.TERMINATE, (int(signal.SIGHUP),)),
    (signal.SIGUSR1, Event.SIGNAL, (int(signal.SIGUSR1), None)),
    (signal.SIGUSR2, Event.SIGNAL, (int(signal.SIGUSR2), None)),
)


def take_signals(loop: Loop, handle: Callable[..., None], leave: Callable[[], None] | None) -> None:
    """Have the loop call ``handle``, and ``leave`` for ^\\; what was ignored when we began stays so (nohup)."""
    for number, event, facts in _EVENTS:
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.on_signal(number, lambda event=event, facts=facts: handle(event, *facts))  # type: ignore[misc]
    if leave is not None and signal.getsignal(signal.SIGQUIT) != signal.SIG_IGN:
        loop.on_signal(signal.SIGQUIT, leave)


_TICK_S = 0.5
_WAITS = {
    State.ALLOCATING: "keeps its place and waits",
    State.CONFIRMING: "waits with its start",
    State.RETURNING: "waits with its next try",
}
_OUTAGE_S = 5.0  # without news of it: the next news is of another outage of the database
_OBSERVERS_AFTER_S = 0.1  # most launches are over by then and never pay for a socket
_LAST_WORDS_S, _OBSERVERS_LAST_S = 1.0, 0.5


class Engine(Reservation):
    """One launch from its request to its exit status."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        *,
        run: str,
        rca: Registration,
        cpa: Authority,
        allocation: dict[str, Any],
        state_dir: str,
        make_front: Callable[[Loop, Request, Callable[[int], None], Callable[[str, int], None]], Front],
        on_running: Callable[[int], None] | None = None,
    ) -> None:
        """``on_running`` is given by who detaches the launch: then nobody types, and the socket is there before it."""
        self.loop, self.request, self.run_dir, self.state_dir = loop, request, run, state_dir
        self._on_running = on_running
        self._allocation = allocation  # what was asked for, to ask again when a load fails because of a node
        self.launch = Launch(bad_exit_ends=request.batch or request.kill, retries=request.retries)
        self.front = make_front(loop, request, self.on_output_written, self.on_output_broken)
        self.stream = Stream(self.front.event)
        self._begun = time.monotonic()
        self._begun_at = time.time()
        self.moved = self._begun
        self._patience: Watchdog | None = None
        self._credit = 0
        self._credit_step = plans.window(request) >> 4
        self._plan: plans.Plan | None = None
        self._reply: dict[str, Any] = {}
        self._root: Link | None = None
        self.heard = False  # something has come from the root since the last tick
        self._greeted = False
        self._went = False
        self._reported = False
        self._feeder: Feeder | TypedInput | None = None
        self._cargo: Transfer | None = None
        self._observers: Observers | None = None
        self._grace: Timer | None = None
        self._bad_exits: BadExits | None = None
        self.rca, self.cpa = rca, cpa
        self._ticked_at = self._ticked_before = 0.0
        self._lapses_at = 0.0  # monotonic: no later than the reservation does by the database's clock
        self._renew_at = float("inf")  # when the reservation of a launch that still loads is to be renewed
        self._answered = False  # the root has said something since then that is no hello
        self._lapses = 0  # how often processors were given to us and given back before we were told
        self._away_said = 0.0  # when the database was last found away
        cpa.on_away = self._database_away
        self._doing = self._table()

    @property
    def spool_path(self) -> str:
        """Where a detached launch keeps its stream; "" for others."""
        return self.front.spool_path

    def hello_event(self) -> dict[str, Any]:
        """What an observer is told first."""
        return stamped(
            {
                "event": "hello",
                "launcher": self.launch.launcher,
                "command": self.request.command,
                "size": self.launch.ranks.size,
                "user": user(),
                "state": self.launch.state.value,
                "input": self._on_running is not None and self.request.input != "none",
            }
        )

    def run(self) -> int:
        """See the launch through to its end; yod's exit status."""
        take_signals(self.loop, self.handle, self._leave_terminal if self._on_running is None else None)
        self.loop.after(_TICK_S, self._tick)
        self.loop.run()
        self._last_words()
        if self._cargo is not None:
            self._cargo.close()
            return self.launch.exit_status or self._cargo.exit_status
        return self.launch.exit_status

    def handle(self, event: Event, *facts: Any) -> None:
        """Give the machine an event and do what it says."""
        before = self.launch.state
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

    def _table(self) -> dict[Do, Callable[..., None]]:
        return {
            Do.ALLOCATE: self._allocate_again,
            Do.LOAD: self._load,
            Do.CONFIRM: self._confirm,
            Do.GO: self._go,
            Do.SIGNAL: self._signal,
            Do.KILL: self._kill,
            Do.DONE: lambda: self._down({"op": "done"}),
            Do.CUT: self._cut,
            Do.SWEEP: self._sweep,
            Do.NODE_FAILED: self._node_failed,
            Do.FREE: self._free,
            Do.HAND: self._hand,
            Do.UNREGISTER: lambda: self.rca.unregister(),
            Do.GRACE: self._start_grace,
            Do.SAY: self._say,
            Do.STATUS: lambda text: self.front.status(text),
            Do.ANNOUNCE: self._announce,
            Do.TELL: self.stream.emit,
            Do.LEAVE: self.loop.stop,
        }

    # allocation

    def allocated(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """The CPA's answer to the request for processors, which was sent before we were made."""
        if reply is None or error is not None:
            if not self._asks_anew(error):
                self.handle(Event.REFUSED, *told(error))
            return
        self._reply = reply
        # granted after we asked, and after we last looked for an answer: we may have been stopped since
        self._lapses_at = max(self.cpa.asked_at, self._ticked_before) + reply["pending_s"]
        self._renew_at, self._answered = time.monotonic() + reply["pending_s"] / 3, False
        self.rca.launcher(reply["launcher"])
        try:
            self._plan = plans.place_request(reply, self.request)
        except ConsoleError as misfit:
            status = misfit.exit_status
            self.front.complain(misfit.message, misfit.hint)
            self.launch.verdict = status
            self._free(False, misfit.message, then=lambda *_: self.handle(Event.REFUSED, "", "", status))
            return
        self.front.planned(self._plan.size)
        self.handle(Event.ALLOCATED, self._plan, reply["launcher"])

    def _asks_anew(self, error: AgentError | None) -> bool:
        """Ask under another key: this one was granted, we were not told, and its processors are given back already.

        So it goes for who waits through an outage of the database that is longer than a reservation.
        """
        if error is None or error.code != "expired" or not self.request.wait_s or self._lapses == LAPSES:
            return False
        if self.launch.state is not State.ALLOCATING:
            return False
        self._lapses += 1
        self._allocate_again(self.request.wait_s)
        return True

    def _database_away(self, why: str) -> None:
        """The database cannot be asked, and this launch waits for it: said once an outage."""
        now, before = time.monotonic(), self._away_said
        self._away_said = self.moved = now
        if now - before > _OUTAGE_S and self.launch.state in _WAITS:
            self.front.status(f"{why}; this launch {_WAITS[self.launch.state]} until it does")

    def _allocate_again(self, wait_s: float) -> None:
        from console.launch.daemons.cpa import ALLOCATE_S

        self._plan, self._greeted, self._credit = None, False, 0
        self._wait_anew()
        again = dict(self._allocation, key=os.urandom(16).hex(), wait_s=max(wait_s, self.request.wait_s))
        self.cpa.ask(again, self.allocated, ALLOCATE_S + again["wait_s"], patient=again["wait_s"] > 0)

    # the tree

    def _load(self) -> None:
        assert self._plan is not None
        root = self._plan.nodes[0]
        if self._cargo is not None:
            self._cargo.close()  # of a load that failed; this one has its own
            self._cargo = None
        self.stream.emit(plans.allocated_event(self._plan, self._reply, self.request.command))
        if self.launch.state is not State.LOADING:
            return  # that could not be written, and nobody else reads it: nothing is sent that would have to be ended
        load = plans.load_message(self._plan, self._reply, self.request)
        far = not self._plan.nodes[0].address.startswith("/")
        if not far:  # elsewhere the credential says it, in the mesh's time
            load["lapses_at"] = round(self._lapses_at, 3)
        message = plans.common_message(self.request, self._plan.size, plans.hosts(self._plan), far=far)
        common = frame(COMMON, encode(message))
        if self._patience is not None:
            self._patience.another_root()
        try:
            if not root.address.startswith("/"):
                self._load_far(root.address, load, common)
                return
            sock = connect(root.address, 5.0)
        except (OSError, AgentError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.loop.after(0, lambda: self.handle(Event.ROOT_ENDED, f"cannot be reached: {reason}"))
            return
        self._root = Link(self.loop, sock, self._on_frame, self._on_root_end)
        self._root.send_raw(control(hello("launcher")) + control(load) + common)
        self._loaded()

    def _load_far(self, address: str, load: dict[str, Any], common: bytes) -> None:
        from console.launch.daemons.root_pct import FarLoad, believe

        believe(self.run_dir)
        self._root = FarLoad(
            self.loop, address, self.cpa, self.cookied("credential"), load, common,
            self._on_frame, self._on_root_end, self._let_in, self._not_let_in,
        ).link  # fmt: skip

    def _let_in(self, credential: dict[str, Any]) -> None:
        self._reply = {**self._reply, **credential}
        self._loaded()

    def _not_let_in(self, error: AgentError) -> None:
        self.handle(Event.FAILED, self._plan_root(), error.message, error.hint, error.exit_status, "launch")

    def _plan_root(self) -> str:
        return self._plan.nodes[0].name if self._plan is not None else ""

    def _loaded(self) -> None:
        if self._plan is None:
            return
        if self.request.carries:
            self._loaded_cargo().begin()
        self.stream.emit({"event": "loading", "root": self._plan_root(), "nodes": len(self._plan.nodes)})

    def _loaded_cargo(self) -> Transfer:
        """What travels with the launch: files for the nodes, and files for the ranks. A plain launch has none."""
        if self._cargo is None:
            from console.launch.transfer.transfer import Transfer

            if self._plan is None or self._root is None:
                raise WireError("cargo before its load")
            self._cargo = Transfer(
                self.loop, self.request, self._plan, self._reply["launcher"], self._root, self.front.status,
                lambda *facts: self.handle(Event.FAILED, *facts), self.front.complain,
            )  # fmt: skip
        return self._cargo

    def _down(self, message: dict[str, Any]) -> None:
        if self._root is not None:
            self._root.send(message)

    def processes(self) -> list[dict[str, Any]]:
        """Every rank's host, program and process (console/launch/attach/mpir.py)."""
        from console.launch.attach.mpir import table

        return table(self._plan, self.request, self.launch.ranks) if self._plan is not None else []

    def inspect(self, message: dict[str, Any]) -> None:
        """A question to the tree (console/launch/attach/server.py)."""
        self._down(message)

    def _cut(self) -> None:
        if self._root is not None:
            self._root.close()
            self._root = None

    def _sweep(self) -> None:
        if self._plan is not None:
            from console.launch.daemons.root_pct import sweep

            sweep(self.loop, self._plan, self._reply)

    def _on_root_end(self, _link: Link, reason: str) -> None:
        self._root = None
        if self._plan is None or self.launch.state not in (State.LOADING, State.CONFIRMING, State.RUNNING):
            self.handle(Event.ROOT_ENDED, reason)
            return
        from console.launch.daemons.root_pct import inquire

        plan = self._plan
        inquire(self.loop, plan.nodes[0], self._reply, lambda fate: self._root_gone(plan, reason, fate))

    def _root_gone(self, plan: Plan, reason: str, fate: dict[str, Any] | None) -> None:
        if plan is not self._plan:
            return  # the launch has been given up meanwhile and is tried on other nodes
        if fate is not None and self.launch.state is not State.RUNNING:
            message, hint = f"{self._plan_root()}: {fate['message']}", str(fate["hint"])
            self.handle(Event.FAILED, self._plan_root(), message, hint, 125, "launch")
        else:
            self.handle(Event.ROOT_ENDED, str(fate["message"]) if fate else reason)

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        self.heard = True
        before, self.moved = self.moved, time.monotonic()
        if kind in (STDOUT, STDERR):
            view = memoryview(payload)
            self.front.output(kind, int.from_bytes(view[:4], "big"), view[4:])
            if self.stream.listeners:
                self.stream.frame(kind, payload)
            return
        if kind == FILE:
            self._loaded_cargo().on_frame(payload)
            return
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where none is expected")
        message = decode(payload)
        try:
            if not self._greeted:
                check_hello(message)
                self._greeted = True
                return
            if message.get("re") == 0:  # its PCT did not let us in
                told = AgentError.from_message(message.get("error"))
                self.handle(Event.FAILED, self._plan_root(), told.message, told.hint, told.exit_status, "node")
                return
            op = check(UP, message)
            self._answered = True  # it has read the load: a launch child answers nothing before that
            if op in ("pong", "silent"):
                self.moved = before  # that a node is alive, or not, is no progress
            self._on_message(op, message)
        except (AgentError, ValueError, TypeError, KeyError, IndexError) as error:
            raise WireError(f"a message that makes no sense: {error}") from None

    def _on_message(self, op: str, message: dict[str, Any]) -> None:
        if op == "ready":
            self.handle(Event.READY, message["ranks"])
        elif op == "exits":
            self.handle(Event.EXITS, message["ranks"])
        elif op == "credit":
            if self._feeder is not None:
                self._feeder.credit(message["bytes"])
        elif op == "failed":
            facts = (message["node"], message["message"], message.get("hint", ""), message["exit_status"])
            self.handle(Event.FAILED, *facts, message["fault"])
        elif op in ("want", "no_room"):
            self._loaded_cargo().on_message(op, message)
        elif op == "lost":
            self.handle(Event.LOST, message["nodes"], message["reason"])
        elif op == "silent":
            self.handle(Event.BACK if message.get("back") else Event.SILENT, message["node"], message["seconds"])
        elif op == "note":
            self._tell_note(message)
        elif op == "abort":
            told = {"rank": message["rank"], "node": message["node"], "text": message["message"]}
            self.stream.emit({"event": "aborted", **told})
            self.handle(Event.ABORTED, message["message"], message["exit_status"])
        elif op in ("stacks", "debug_said", "debug_over", "want_tool"):
            if self._observers is not None:
                self._observers.inspecting.told(op, message)
        elif op == "finished":
            self.front.output_ended()
            self.handle(Event.FINISHED, message.get("unclean", []))

    def _tell_note(self, message: dict[str, Any]) -> None:
        # That a launch gives way is told also with -quiet and -batch: it explains the end.
        node, text, way = message["node"], message["message"], message.get("preempted_by")
        if way is None:
            self.front.status(f"{node}: {text}")
            self.stream.emit({"event": "note", "node": node, "text": text})
            return
        self.front.line(f"yod: {text}")
        told = {"to": str(way.get("to", "")), "kill_in_s": float(way.get("kill_in_s", 0.0))}
        self.stream.emit({"event": "gives_way", "node": node, **told, "text": text})

    def _go(self) -> None:
        ranks = self.launch.ranks
        self._down({"op": "go", "ranks": ranks.pids})
        self._went = True
        self.stream.emit({"event": "started", "ranks": [[pid, ranks.node_name(at)] for pid, at in ranks.pids]})
        if self._on_running is not None:
            self.observe()
            self._on_running(self.launch.launcher)
            return
        self.loop.after(_OBSERVERS_AFTER_S, self.observe)
        if self.request.input != "none":
            self._feed()

    def _feed(self) -> None:
        from console.launch.stdio.stdin import Feeder

        self._feeder = Feeder(self.loop, 0, lambda data: self._raw_down(frame(STDIN, data)), self._input_ended)

    def _input_ended(self, why: str) -> None:
        if why:
            self._say(f"standard input cannot be read: {why}", "")
        self._down({"op": "eof"})

    def _raw_down(self, data: bytes) -> None:
        if self._root is not None:
            self._root.send_raw(data)

    def observe(self) -> None:
        """Open the socket that observers connect to."""
        if self._observers is None and self.launch.state is State.RUNNING:
            from console.launch.attach.server import observe

            self._observers = observe(self.loop, yod_socket(self.run_dir, self.launch.launcher), self)

    def type_input(self, data: bytes) -> None:
        """What an observer sends to the ranks' standard input. WireError where yod reads its own, or no rank any."""
        from console.launch.stdio.stdin import TypedInput

        if self._feeder is None and self._on_running is not None and self.request.input != "none":
            self._feeder = TypedInput(lambda piece: self._raw_down(frame(STDIN, piece)))
        if not isinstance(self._feeder, TypedInput):
            raise WireError("this launch takes no input from observers: yod --detach --input=all does")
        self._feeder.give(data)
        self.stream.emit({"event": "typed", "bytes": len(data)})

    def end_input(self) -> None:
        """Standard input ends here for the ranks."""
        if self._feeder is not None:
            self._feeder.close()
        self._down({"op": "eof"})

    def release(self) -> None:
        """Let a held launch run; ours is none (console/launch/features/hooks.py has those)."""
        raise WireError("this launch is not held")

    def _signal(self, number: int, ranks: list[int] | None) -> None:
        self._down({"op": "signal", "signal": number, "ranks": ranks})

    def _kill(self) -> None:
        self.moved = time.monotonic()
        self._wait_anew()
        # What was not sent yet has ended already, and no tree will report it. A launch that ran waits for _root_gone.
        if self._root is None and self.launch.state is not State.RUNNING:
            self.loop.after(0, lambda: self.handle(Event.ROOT_ENDED, "not loaded"))
        self._down({"op": "kill"})

    # the end

    def _start_grace(self, seconds: float) -> None:
        if self._grace is not None:
            self._grace.cancel()
        self._grace = self.loop.after(seconds, lambda: self.handle(Event.GRACE_OVER))

    def _say(self, message: str, hint: str) -> None:
        if message:
            self.front.complain(message, hint)
            text = message.encode("utf-8", "replace").decode()  # it may name a file whose bytes are no text
            self.stream.emit({"event": "note", "node": "", "text": text})

    def _announce(self, ranks: list[int]) -> None:
        if self._bad_exits is None:
            from console.launch.events.bad_exits import BadExits

            self._bad_exits = BadExits(self.launch, self.loop.after, self._tell_bad_exits)
        self._bad_exits.add(ranks)

    def _tell_bad_exits(self, event: dict[str, Any]) -> None:
        from console.launch.events.bad_exits import in_foreground, lines

        self.stream.emit(event)
        manner = self.request.manner
        has_terminal = manner is None or manner.pty is None  # else a ^C is typed to a rank
        for line in lines(event, "^C" if has_terminal and in_foreground() else event["stop"]):
            self.front.status(line)

    def _report(self) -> None:
        if self._reported:
            return
        self._reported = True
        launch = self.launch
        if self._went:
            self._print_completion()
        elapsed = round(time.monotonic() - self._begun, 6)
        if self._plan is not None:  # now, while the CPA frees the processors
            from console.launch.events.completion_report import log_usage

            path = f"{self.state_dir}/usage.log"
            log_usage(path, launch, self._plan, self.request, user(), self._begun_at, elapsed)
        self.stream.emit({"event": "end", "exit_status": launch.exit_status, "elapsed_s": elapsed})

    def _print_completion(self) -> None:
        from console.launch.events.completion_report import told_rows

        for row in told_rows(self.launch, self.request):
            self.front.line(f"yod: {row}")

    def _last_words(self) -> None:
        """Let our reader, and observers that are nearly up to date, have the rest."""
        hurry = self.launch.interrupts > 2
        deadline = time.monotonic() + (0.1 if hurry else _LAST_WORDS_S)
        while not self.front.drained and time.monotonic() < deadline:
            self.loop.run_once(deadline - time.monotonic())
        if self._observers is not None:
            self._observers.finish(0.0 if hurry else _OBSERVERS_LAST_S)

    # output credit

    def on_output_written(self, amount: int) -> None:
        """So many bytes of output have been taken by whoever reads it."""
        self._credit += amount
        if amount:  # our own lines are no progress
            self.moved = time.monotonic()
        if self._credit >= self._credit_step:
            self._down({"op": "credit", "bytes": self._credit})
            self._credit = 0
        if self.launch.state in (State.FREEING, State.HANDING, State.DRAINING) and not self.launch.drained:
            self.loop.after(0, self._look_whether_drained)

    def _look_whether_drained(self) -> None:
        if self.front.drained and not self.launch.drained:
            self.handle(Event.DRAINED)

    def on_output_broken(self, message: str, exit_status: int) -> None:
        """Nobody takes output any more."""
        self.handle(Event.OUTPUT_BROKEN, message, exit_status)

    def replace_front(self, front: SpoolFront) -> None:
        """From now on ``front`` gets output and events, except output that goes to files."""
        from console.launch.stdio.files import FilesFront

        if isinstance(self.front, FilesFront):
            self.front.take_inner(front)
        else:
            self.front = front  # type: ignore[assignment]
        self.stream.front = front.event

    @property
    def reads_input(self) -> bool:
        """Whether standard input goes to the ranks."""
        return self._feeder is not None

    def _leave_terminal(self) -> None:
        from console.launch.attach.detach import leave

        leave(self)

    # signals and time

    def _tick(self) -> None:
        gc.enable()  # off until here: most launches end before they leave anything to collect
        self._ticked_before, self._ticked_at = self._ticked_at, time.monotonic()
        if self.launch.state is State.LOADING and self._ticked_at >= self._renew_at:
            self._renew()
        self.loop.after(_TICK_S, self._tick)
        if self._patience is None:
            from console.launch.watchdog import Watchdog

            self._patience = Watchdog(self)
        self._patience.tick()

    def _wait_anew(self) -> None:
        if self._patience is not None:
            self._patience.renew()

    @property
    def has_root(self) -> bool:
        """Whether there is a link to the tree."""
        return self._root is not None

    @property
    def delivered(self) -> int:
        """Link.delivered of the link to the tree."""
        return -1 if self._root is None else self._root.delivered

    def outstanding(self) -> str:
        """What a launch that does not move waits for; "" when it may."""
        from console.launch.watchdog import outstanding

        return outstanding(self.launch, self.request)
