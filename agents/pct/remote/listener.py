"""The PCT's door towards other machines: TLS, then a hello, then a launch, a request or an image that is wanted.

Everything here is bounded, for anybody may knock: so many visitors at once, so many seconds and so many bytes each; who
stands longest, of the address that has most visitors, makes room for the next.
"""

from __future__ import annotations

import time

from agents.link import tcp
from agents.link.acceptor import Acceptor
from agents.link.lean import socket
from agents.link.loop import READ, Loop
from agents.pct.remote.listener_states import TRANSITIONS, Action, Event, State
from agents.wire.address import FETCH, LAUNCH
from agents.wire.control import control, decode
from agents.wire.credential import Credential, Pass
from agents.wire.errors import AgentError, Refusal, WireError
from agents.wire.frames import CONTROL, HEADER_SIZE
from agents.wire.messages import PCT, check, check_hello, hello
from agents.wire.roles import LAUNCH_ROLES, LAUNCHER, name_of, need, roles_of
from agents.wire.roles import PCT as MAY

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Optional, Protocol

    from agents.link import tls
    from agents.link.journal import Journal
    from agents.link.trust import Trust
    from agents.pct.remote.admission import Admission
    from agents.wire.control import Message

    class LaunchTaker(Protocol):
        """The PCT, as far as launches and images go."""

        def hand_over(self, sock: socket.socket) -> bool: ...

        def begin_far(self, secured: tls.Secured, role: str, let_in: Pass) -> None: ...

        def hand_to_courier(self, sock: socket.socket) -> bool: ...


#: Seconds for handshake, hello and what follows; visitors at once; bytes of each message.
PATIENCE_S, MOST, LONGEST = 5.0, 64, 4096
_LINGER_S = 1.0  # for a refusal to be read
_GULP = 64 << 10
_HELLO = 4096  # bytes of TLS's own hello that are looked at


class PendingConnection:
    """One connection that nobody knows yet."""

    __slots__ = ("address", "buffer", "message", "on_timer", "secured", "since", "sock", "state", "way")

    def __init__(self, sock: socket.socket, secured: tls.Secured, address: str) -> None:
        self.sock, self.secured, self.address = sock, secured, address
        self.since = time.monotonic()
        self.state = State.SHAKING
        self.buffer = b""
        self.message: Message = {}  # its hello, then its request
        self.way: Any = None  # its Pass
        self.on_timer: Any = None


class Network:
    """Listens at ``place`` (host, port). What is let in goes ``inside``, to ``on_request``, ``on_fetch``."""

    def __init__(
        self,
        loop: Loop,
        place: "tuple[str, int]",
        trust: Trust,
        admission: Admission,
        log: Journal,
        inside: LaunchTaker,
        on_request: Callable[[tls.Secured, Optional[Credential]], None],
        on_fetch: Callable[[tls.Secured, Message], None],
    ) -> None:
        self._loop, self._trust, self._admission, self._log = loop, trust, admission, log
        self._inside, self._on_request, self._on_fetch = inside, on_request, on_fetch
        # each False when nobody waits for such a connection
        self._waits = {LAUNCH: inside.hand_over, FETCH: inside.hand_to_courier}
        self._visitors: Dict[int, PendingConnection] = {}
        self._leaving: List[tls.Secured] = []  # refused, and reading why
        self._sock = tcp.listen(*place)
        self._acceptor = Acceptor(loop, self._sock, self._receive, log.exhausted)

    def __len__(self) -> int:
        return len(self._visitors)

    def _receive(self, sock: socket.socket, place: Any) -> None:
        address = str(place[0])
        if len(self._visitors) >= MOST:
            self._make_room()
        try:
            sock.setblocking(False)
            tcp.tune(sock)
            from agents.link import tls  # the mesh is to hear of us first

            visitor = PendingConnection(sock, tls.Secured(sock, self._trust, server=True), address)
        except (OSError, AgentError) as error:
            self._log.write("cannot serve", peer=address, error=getattr(error, "message", None) or str(error))
            sock.close()
            return
        fd = sock.fileno()
        self._visitors[fd] = visitor
        visitor.on_timer = self._loop.after(PATIENCE_S, lambda: self._handle(visitor, Event.LATE))
        self._loop.watch(fd, READ, lambda _events: self._go_on(visitor))

    def _make_room(self) -> None:
        # First of all those that have not said a word: they cost whoever fills this room nothing.
        visitors = [one for one in self._visitors.values() if not one.secured.begun] or self._visitors.values()
        self._handle(tcp.to_make_room({visitor: visitor.address for visitor in visitors}), Event.LATE)

    # one visitor

    def _handle(self, visitor: PendingConnection, event: Event) -> None:
        step = TRANSITIONS.get((visitor.state, event))
        if step is None:
            return
        action, visitor.state = step
        if event is Event.LATE:
            self._log.write("refused", reason="too_slow", peer=visitor.address)
        if visitor.state is State.OVER:
            visitor.on_timer.cancel()
            self._loop.unwatch(visitor.secured.fileno())
            self._visitors.pop(visitor.secured.fileno(), None)
        self._DO[action](self, visitor)

    def _go_on(self, visitor: PendingConnection) -> None:
        try:
            if visitor.state is State.SHAKING:
                if not visitor.secured.begun and self._hand_over(visitor.sock):
                    self._handle(visitor, Event.HANDED)
                    return
                visitor.secured.shake()
                self._handle(visitor, Event.SHAKEN)
            else:
                self._read(visitor)
        except BlockingIOError:
            if visitor.state is not State.OVER:
                self._loop.watch(visitor.secured.fileno(), visitor.secured.wants, lambda _events: self._go_on(visitor))
        except (Refusal, WireError) as refusal:
            self._refused(visitor, refusal)
        except OSError as error:
            if visitor.state is State.SHAKING:
                self._log.write("refused", reason="handshake", peer=visitor.address, error=error.strerror or str(error))
            self._handle(visitor, Event.GONE)

    def _hand_over(self, sock: socket.socket) -> bool:
        said = sock.recv(_HELLO, socket.MSG_PEEK)
        return any(hint in said and hand_over(sock) for hint, hand_over in self._waits.items())

    def failed(self, reason: str) -> None:
        """A launch child has received a launch, and it came to nothing."""
        self._log.write("refused", reason="handshake", error=reason)

    def let_in(self, role: str, names: FrozenSet[str], text: str, mac: str) -> Pass:
        """What a launch is let in with. Refusal, which is logged."""
        try:
            return self._let_in(role, names, text, mac)
        except Refusal as refusal:
            self._log.write("refused", reason=refusal.reason, names=sorted(names), message=refusal.message)
            raise

    def _let_in(self, role: str, names: FrozenSet[str], text: str, mac: str) -> Pass:
        parent = ""
        if role != "launcher":
            need(MAY, role, roles_of(names, self._trust.mesh))
            parent = name_of(names, self._trust.mesh, "pct")
        credential = self._admission.admit(text, mac)
        return Pass(credential, parent, time.monotonic() + self._admission.left_s(credential))

    def _refused(self, visitor: PendingConnection, refusal: AgentError) -> None:
        reason = getattr(refusal, "reason", "protocol")
        names = sorted(visitor.secured.peer.names)
        self._log.write("refused", reason=reason, peer=visitor.address, names=names, message=refusal.message)
        visitor.message = {"re": 0, "error": refusal.as_message()}
        self._handle(visitor, Event.REFUSED)

    def _read(self, visitor: PendingConnection) -> None:
        while visitor.state in (State.GREETING, State.ASKING):
            message = self._message(visitor)
            if message is None:
                data = visitor.secured.recv(LONGEST)
                if not data:
                    self._handle(visitor, Event.GONE)
                    return
                visitor.buffer += data
            elif visitor.state is State.GREETING:
                self._greeted(visitor, message)
            else:
                self._asked(visitor, message)

    def _message(self, visitor: PendingConnection) -> "Optional[Message]":
        # the next message, when it is whole; its bytes stay in the buffer until somebody takes them
        return first_message(visitor.buffer)

    def _take(self, visitor: PendingConnection) -> None:
        length = int.from_bytes(visitor.buffer[1:HEADER_SIZE], "big")
        visitor.buffer = visitor.buffer[HEADER_SIZE + length :]

    def _greeted(self, visitor: PendingConnection, message: Message) -> None:
        role = check_hello(message)
        names, mesh = visitor.secured.peer.names, self._trust.mesh
        text, mac = str(message.get("credential", "")), str(message.get("mac", ""))
        need_believed(visitor.secured, self._trust)
        if role in LAUNCH_ROLES:
            visitor.way = self._let_in(role, names, text, mac)
            self._take(visitor)
            self._handle(visitor, Event.LAUNCHES)
        elif role == "child":
            need(MAY, "fetch", roles_of(names, mesh))
            self._take(visitor)
            self._handle(visitor, Event.FETCHES)
        else:
            roles = roles_of(names, mesh)
            if roles:
                need(MAY, "ask", roles)  # a broken node is not even listened to
            else:
                visitor.way = self._admission.recognise(text, mac)
            self._handle(visitor, Event.ASKS)

    def _asked(self, visitor: PendingConnection, message: Message) -> None:
        need_believed(visitor.secured, self._trust)
        visitor.message = wanted(message, visitor.secured.peer.names, self._trust.mesh)
        self._take(visitor)
        self._handle(visitor, Event.ASKED)

    # what the table says

    def _begin(self, visitor: PendingConnection) -> None:
        visitor.secured.unread(visitor.buffer)
        self._inside.begin_far(visitor.secured, "parent" if visitor.way.parent else "launcher", visitor.way)

    def _serve(self, visitor: PendingConnection) -> None:
        visitor.secured.unread(visitor.buffer)
        self._on_request(visitor.secured, visitor.way)

    def _carry(self, visitor: PendingConnection) -> None:
        self._on_fetch(visitor.secured, visitor.message)

    def _refuse(self, visitor: PendingConnection) -> None:
        secured = visitor.secured
        try:
            secured.sendall(control(hello("pct")) + control(visitor.message))
        except OSError:
            secured.close()
            return
        # What is left unread would make our end a reset, and the peer would never read why: it is read, and forgotten.
        self._leaving.append(secured)
        self._loop.watch(secured.fileno(), READ, lambda _events: self._listen_on(secured))
        self._loop.after(_LINGER_S, lambda: self._leave(secured))
        if len(self._leaving) > MOST:
            self._leave(self._leaving[0])

    def _listen_on(self, secured: tls.Secured) -> None:
        try:
            if not secured.recv(_GULP):
                self._leave(secured)
        except BlockingIOError:
            pass
        except OSError:
            self._leave(secured)

    def _leave(self, secured: tls.Secured) -> None:
        if secured in self._leaving:
            self._leaving.remove(secured)
            self._loop.unwatch(secured.fileno())
            secured.close()

    def _drop(self, visitor: PendingConnection) -> None:
        visitor.secured.close()

    def close(self) -> None:
        """Let everybody go, and listen no more."""
        for visitor in list(self._visitors.values()):
            self._loop.unwatch(visitor.secured.fileno())
            visitor.secured.close()
        self._visitors.clear()
        for secured in list(self._leaving):
            self._leave(secured)
        self._acceptor.close()
        self._sock.close()

    _DO = {
        Action.READ: _go_on,
        Action.BEGIN: _begin,
        Action.SERVE: _serve,
        Action.CARRY: _carry,
        Action.REFUSE: _refuse,
        Action.DROP: _drop,
    }


def first_message(data: bytes) -> Optional[Message]:
    """The message that ``data`` begins with; None when it is not whole yet. WireError when it is too long, or none."""
    if not data:
        return None
    length = int.from_bytes(data[1:HEADER_SIZE], "big") if len(data) >= HEADER_SIZE else 0
    if data[0] != CONTROL or length > LONGEST:
        raise WireError("the first message on a connection is a hello")
    if len(data) < HEADER_SIZE + length:
        return None
    return decode(data[HEADER_SIZE : HEADER_SIZE + length])


def wanted(message: Message, names: FrozenSet[str], mesh: str) -> Message:
    """What a launch child of another node asks for, with that node's name. Refusal, WireError."""
    need(MAY, "fetch", roles_of(names, mesh))
    try:
        op = check(PCT, message)
    except AgentError as error:
        raise WireError(error.message) from None
    if op != "fetch":
        raise Refusal("wrong_role", "a launch child of another node may fetch images, and nothing else")
    if "launcher" not in message:
        raise WireError("an image of which launch?")
    if message["offset"] < 0:
        raise WireError("an image from before its first byte")
    return dict(message, node=name_of(names, mesh, "pct"))


def need_believed(secured: tls.Secured, trust: Trust) -> None:
    """Refusal of a certificate whose CA may have gone since it was shown."""
    if not secured.peer.names:
        return
    try:
        believed = trust.believes(secured.since)
    except (OSError, AgentError):  # the files are gone, or of no use
        believed = False
    if not believed:
        raise Refusal("handshake", "the mesh's certificates have changed since this one was shown: connect anew")


def allowed(op: str, names: FrozenSet[str], mesh: str, credential: Optional[Credential], launcher: Any) -> None:
    """Refusal unless a peer may ask for ``op`` (of ``launcher``): by its certificate, or its launch's credential."""
    if credential is None:
        need(MAY, op, roles_of(names, mesh))
        return
    need(MAY, op, {LAUNCHER})
    if launcher != credential.launcher:
        raise Refusal("other_launcher", f"a credential of launcher {credential.launcher}, for launcher {launcher}")
