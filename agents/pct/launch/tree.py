"""The tree of a launch: links to the children, connected in parallel without blocking, and the link to the parent."""

from __future__ import annotations

import errno
import time

from agents.link.lean import socket
from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.sockets import EXHAUSTED, connect_now
from agents.pct.errors import advice
from agents.pct.launch.liveness import TICK_S, Action, Pulse
from agents.pct.launch.load import subtree_of
from agents.pct.stdio.stdin import ChildSink
from agents.pct.stdio.stdout import Returns
from agents.wire.address import LAUNCH
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import COMMON, CONTROL, FILE, STDERR, STDIN, STDOUT, frame
from agents.wire.messages import DOWN, UP, check, check_hello, hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Set

    from agents.link.link import Link
    from agents.link.loop import Loop, Timer

    class ChildEvents(Protocol):
        """The events of children for a launch child."""

        def child_said(self, child: "Child", op: str, message: Message) -> None:
            """A message of UP (agents/wire/messages.py)."""

        def child_wrote(self, child: "Child", kind: int, payload: bytes) -> None:
            """A frame with output of a rank of the subtree."""

        def child_lost(self, child: "Child", reason: str, death: Optional[Message] = None) -> None:
            """A subtree is lost. ``death``: its PCT lives and reports how its launch child died."""

        def input_taken(self) -> None:
            """Standard input has been accepted."""

    class TreePart(Protocol):
        """A part of a launch that handles messages of its own."""

        def orders(self) -> Mapping[str, Callable[[Message], None]]:
            """Handlers for messages from the parent, by op."""

        def reports(self) -> Mapping[str, Callable[["Child", Message], None]]:
            """Handlers for messages from children, by op."""


#: A PCT that has just died restarts within this many seconds, or its node is unusable now.
CONNECT_S = 2.0
_AGAIN_S = 0.05
_COMING_BACK = (errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN)

_HELLO = control(hello("parent"))


class Child:
    """A child: the first node of ``run`` with the subtree below it."""

    def __init__(
        self,
        loop: Loop,
        run: List[Dict[str, Any]],
        load: Message,
        common: bytes,
        window: int,
        events: "ChildEvents",
    ) -> None:
        self.loop = loop
        self.name = str(run[0]["name"])
        self.nodes = subtree_of(run)
        self.ranks = frozenset(rank for _, ranks in self.nodes for rank in ranks)
        self.exited: Set[int] = set()
        self.ready = False
        self.over = False  # finished or lost
        self.pulse = Pulse()
        self._greeted = False
        self.on_file: Optional[Callable[[bytes], None]] = None  # called with FILE frames of its subtree
        self._address, self._launcher = str(run[0]["address"]), int(load["launcher"])
        hello_ = _HELLO
        if not self._address.startswith("/"):
            from agents.wire.credential import for_subtree, greeting

            hello_ = control({**hello("parent"), **greeting(load, self.name)})
            load = for_subtree(load, [str(node["name"]) for node in run[1:]])
        self._first = hello_ + control(load) + frame(COMMON, common)
        self._events = events
        self._deadline = time.monotonic() + CONNECT_S
        self.link: Optional[Link] = None
        self.returns = Returns(window, lambda count: self.send({"op": "credit", "bytes": count}))
        self.sink = ChildSink(self._send_input, lambda: self.send({"op": "eof"}), events.input_taken)
        self._connect()

    def _connect(self) -> None:
        if self.over:
            return
        try:
            sock = connect_now(self._address, LAUNCH)
        except OSError as error:
            if error.errno in _COMING_BACK and time.monotonic() < self._deadline:
                self.loop.after(_AGAIN_S, self._connect)
                return
            why = f"no connection to its PCT: {error.strerror}"
            number = error.errno or 0
            self._lose(why, {"message": why, "hint": advice(number)} if number in EXHAUSTED else None)
        except AgentError as error:
            self._lose(error.message)
        else:
            self._talk(sock)

    def _talk(self, sock: socket.socket) -> None:
        self.link = Link(self.loop, sock, self._on_frame, self._on_end)
        self.link.send_raw(self._first)
        if not getattr(sock, "shaking", False):
            self._first = b""

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        self.pulse.heard = True
        if kind in (STDOUT, STDERR):
            self._events.child_wrote(self, kind, payload)
            return
        if kind == FILE and self.on_file is not None:
            self.on_file(payload)
            return
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} came up the tree")
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted, self._first = True, b""
            return
        if message.get("re") == 0 and "error" in message:
            self._lose(AgentError.from_message(message["error"]).message)  # it refused our launch
            return
        try:
            op = check(UP, message)
        except AgentError as error:
            raise WireError(error.message) from None
        if op == "credit":
            self.sink.grant(message["bytes"])
        elif op != "pong":
            self._events.child_said(self, op, message)

    def _on_end(self, link: Link, reason: str) -> None:
        failure = link.failure
        if failure is not None and failure.errno in _COMING_BACK and time.monotonic() < self._deadline:
            self.link = None
            self.loop.after(_AGAIN_S, self._connect)
        elif failure is not None or self.over:
            self._lose(reason)
        else:
            from agents.pct.launch.deaths import ask

            ask(self.loop, self._address, hello("pct"), self._launcher, lambda death: self._lose(reason, death))

    def ask_if_up(self, then: Callable[[bool], None]) -> None:
        """Ask the child's PCT whether it answers, where its launch child does not."""
        from agents.pct.launch.deaths import ask_if_up

        ask_if_up(self.loop, self._address, hello("pct"), self._launcher, then)

    def _lose(self, reason: str, death: Optional[Message] = None) -> None:
        if not self.over:
            # Call from the loop, never from inside the constructor.
            why = str(death["message"]) if death else reason
            self.loop.after(0, lambda: None if self.over else self._events.child_lost(self, why, death))

    def _send_input(self, data: bytes) -> None:
        if self.link is not None:
            self.link.send_raw(frame(STDIN, data))

    def has(self, place: int) -> bool:
        """True if the node at ``place`` is this child or below it."""
        return any(at == place for at, _ in self.nodes)

    def send(self, message: Message) -> None:
        """Send a message to the child."""
        self.send_raw(control(message))

    def send_raw(self, data: bytes) -> None:
        """Send a whole frame to the child; one that is not connected yet gets nothing but its load."""
        if self.link is not None:
            self.link.send_raw(data)

    def follow(self, data: bytes) -> None:
        """Send whole frames after the load, as soon as it has been sent."""
        if self.link is None or self._first:
            self._first += data
        if self.link is not None:
            self.link.send_raw(data)

    def drop(self) -> None:
        """Close the link; the child notices and cleans up by itself."""
        self.over = True
        self.sink.drop()
        if self.link is not None:
            self.link.close()


class Watch:
    """Monitors the children of a launch child. ``told(child, back)``: it has been silent for long, or has answered
    again."""

    def __init__(self, loop: Loop, children: List[Child], told: Callable[[Child, bool], None]) -> None:
        self._loop, self._children, self._told = loop, children, told
        loop.after(TICK_S, self._tick)

    def _tick(self) -> None:
        open_ = [child for child in self._children if not child.over]
        for child in open_:
            action = child.pulse.tick(-1 if child.link is None else child.link.delivered)
            if action is Action.ASK:
                child.send({"op": "ping"})
            elif action is not Action.NONE:
                self._told(child, action is Action.TELL_BACK)
        if open_:
            self._loop.after(TICK_S, self._tick)


# Messages to the parent: a greeting first; exits of ranks are gathered for a moment.


#: Exits are gathered for this long before they are sent, unless they are the last.
GATHER_S = 0.005


class Upward:
    """The link to the parent. ``is_last()``: no further rank can exit."""

    def __init__(
        self, loop: Loop, parent: Link, greeting: bytes, is_last: Callable[[], bool], gather_s: float = GATHER_S
    ) -> None:
        self._loop, self._parent, self._greeting, self._is_last = loop, parent, greeting, is_last
        self._gather_s = gather_s
        self._exits: List[List[Any]] = []
        self._closed: List[int] = []
        self._timer: Optional[Timer] = None

    def send(self, data: bytes) -> None:
        """Send frames unchanged."""
        # The greeting is sent with the first message, which saves the parent a wake-up.
        if self._greeting:
            data, self._greeting = self._greeting + data, b""
        self._parent.send_raw(data)

    def tell(self, message: Message) -> None:
        """Send a message at once."""
        self.send(control(message))

    def ended(self, ranks: List[List[Any]]) -> None:
        """Report exits of ranks: [rank, status, seconds] of each."""
        self._exits += ranks
        self._gather()

    def closed(self, ranks: List[int]) -> None:
        """Report that all output of these ranks has been sent."""
        self._closed += ranks
        self._gather()

    def _gather(self) -> None:
        if self._timer is None:
            self._timer = self._loop.after(0 if self._is_last() else self._gather_s, self.flush)

    def flush(self, more: bytes = b"") -> None:
        """Send what has been gathered, followed by ``more``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        data = b""
        if self._exits:
            data += control({"op": "exits", "ranks": self._exits})
            self._exits = []
        if self._closed:
            data += control({"op": "closed", "ranks": self._closed})
            self._closed = []
        if data or more:
            self.send(data + more)


class Tree:
    """A launch's connections on one node: its parent, its children, and the handlers of their messages."""

    def __init__(self, up: Upward, is_root: bool) -> None:
        self.up, self.is_root = up, is_root
        self.children: List[Child] = []
        self.orders: Dict[str, Callable[[Message], None]] = {}  # from the parent, by op
        self.reports: Dict[str, Callable[[Child, Message], None]] = {}  # from children, by op

    def add(self, part: TreePart) -> None:
        """Register the handlers of ``part``."""
        self.orders.update(part.orders())
        self.reports.update(part.reports())

    def on_order(self, message: Message) -> None:
        """Handle a message from the parent; ignored without a handler. Raises WireError for a malformed one."""
        try:
            op = check(DOWN, message)
        except AgentError as error:
            raise WireError(error.message) from None
        handler = self.orders.get(op)
        if handler is not None:
            handler(message)

    def on_report(self, child: Child, op: str, message: Message) -> None:
        """Handle a message from a child; ignored without a handler."""
        handler = self.reports.get(op)
        if handler is not None and not child.over:
            handler(child, message)

    def send_down(self, data: bytes, ranks: Optional[List[int]] = None) -> None:
        """Send frames to every living child; with ``ranks``, only to those with one of them in their subtree."""
        for child in self.children:
            if not child.over and (ranks is None or not child.ranks.isdisjoint(ranks)):
                child.send_raw(data)

    def drop(self) -> None:
        """Close the links to all living children."""
        for child in self.children:
            if not child.over:
                child.drop()
