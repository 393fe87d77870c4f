"""The PCT's port for other machines: TLS, then a hello, then a launch, a request or an image fetch.

Everything is limited, because anybody may connect: the number of pending connections, and seconds and bytes for each.
For a new connection, the oldest one of the address with most of them is closed.
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
from agents.wire.object_pass import ObjectPeer
from agents.wire.roles import LAUNCH_ROLES, LAUNCHER, name_of, need, roles_of
from agents.wire.roles import PCT as MAY

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Optional, Protocol

    from agents.link import tls
    from agents.link.journal import Journal
    from agents.link.trust import Trust
    from agents.pct.remote.admission import Admission
    from agents.wire.control import Message

    class LaunchTaker(Protocol):
        """The PCT's interface for launches and images."""

        def hand_over(self, sock: socket.socket) -> bool: ...

        def begin_remote(self, secured: tls.Secured, role: str, let_in: Pass) -> None: ...

        def hand_to_image_proxy(self, sock: socket.socket) -> bool: ...

        def fork_courier(self, sock: Any, peer: Optional[ObjectPeer]) -> None: ...


#: Limits: seconds for handshake, hello and the next message; pending connections; bytes of each message.
PATIENCE_S, MOST, LONGEST = 5.0, 64, 4096
_LINGER_S = 1.0  # for the peer to read a refusal
_GULP = 64 << 10
#: The first byte of an HTTP request: only GET is answered. Our own messages begin with CONTROL.
_HTTP = b"G"
_HELLO = 4096  # bytes of TLS's own hello that are inspected


class PendingConnection:
    """A connection whose purpose is not known yet."""

    __slots__ = ("address", "buffer", "message", "on_timer", "secured", "since", "sock", "state", "way")

    def __init__(self, sock: socket.socket, secured: tls.Secured, address: str) -> None:
        self.sock, self.secured, self.address = sock, secured, address
        self.since = time.monotonic()
        self.state = State.SHAKING
        self.buffer = b""
        self.message: Message = {}  # its hello, then its request
        self.way: Any = None  # its Pass, or its ObjectPeer
        self.on_timer: Any = None


class Network:
    """Listens at ``place`` (host, port). Admitted connections go to ``pct``, ``on_request`` or ``on_fetch``."""

    def __init__(
        self,
        loop: Loop,
        place: "tuple[str, int]",
        trust: Trust,
        admission: Admission,
        log: Journal,
        pct: LaunchTaker,
        on_request: Callable[[tls.Secured, Optional[Credential]], None],
        on_fetch: Callable[[tls.Secured, Message], None],
    ) -> None:
        self._loop, self._trust, self._admission, self._log = loop, trust, admission, log
        self._pct, self._on_request, self._on_fetch = pct, on_request, on_fetch
        # Each returns False if no process waits for such a connection.
        self._waits = {LAUNCH: pct.hand_over, FETCH: pct.hand_to_image_proxy}
        self._pending: Dict[int, PendingConnection] = {}
        self._leaving: List[tls.Secured] = []  # refused, and reading the reason
        self._sock = tcp.listen(*place)
        self._acceptor = Acceptor(loop, self._sock, self._receive, log.exhausted)

    def __len__(self) -> int:
        return len(self._pending)

    def _receive(self, sock: socket.socket, place: Any) -> None:
        address = str(place[0])
        if len(self._pending) >= MOST:
            self._make_room()
        try:
            sock.setblocking(False)
            tcp.tune(sock)
            from agents.link import tls  # import it late, because registering with the mesh comes first

            pending = PendingConnection(sock, tls.Secured(sock, self._trust, server=True), address)
        except (OSError, AgentError) as error:
            self._log.write("cannot serve", peer=address, error=getattr(error, "message", None) or str(error))
            sock.close()
            return
        fd = sock.fileno()
        self._pending[fd] = pending
        pending.on_timer = self._loop.after(PATIENCE_S, lambda: self._handle(pending, Event.LATE))
        self._loop.watch(fd, READ, lambda _events: self._go_on(pending))

    def _make_room(self) -> None:
        # First those that have sent nothing, so that the attacker's own connections are closed.
        waiting = [one for one in self._pending.values() if not one.secured.begun] or self._pending.values()
        self._handle(tcp.to_make_room({pending: pending.address for pending in waiting}), Event.LATE)

    # Pending connections

    def _handle(self, pending: PendingConnection, event: Event) -> None:
        step = TRANSITIONS.get((pending.state, event))
        if step is None:
            return
        action, pending.state = step
        if event is Event.LATE:
            self._log.write("refused", reason="too_slow", peer=pending.address)
        if pending.state is State.OVER:
            pending.on_timer.cancel()
            self._loop.unwatch(pending.secured.fileno())
            self._pending.pop(pending.secured.fileno(), None)
        self._DO[action](self, pending)

    def _go_on(self, pending: PendingConnection) -> None:
        try:
            if pending.state is State.SHAKING:
                if not pending.secured.begun and self._hand_over(pending.sock):
                    self._handle(pending, Event.HANDED)
                    return
                pending.secured.shake()
                self._handle(pending, Event.SHAKEN)
            else:
                self._read(pending)
        except BlockingIOError:
            if pending.state is not State.OVER:
                self._loop.watch(pending.secured.fileno(), pending.secured.wants, lambda _events: self._go_on(pending))
        except (Refusal, WireError) as refusal:
            self._refused(pending, refusal)
        except OSError as error:
            if pending.state is State.SHAKING:
                self._log.write("refused", reason="handshake", peer=pending.address, error=error.strerror or str(error))
            self._handle(pending, Event.GONE)

    def _hand_over(self, sock: socket.socket) -> bool:
        said = sock.recv(_HELLO, socket.MSG_PEEK)
        return any(hint in said and hand_over(sock) for hint, hand_over in self._waits.items())

    def failed(self, reason: str) -> None:
        """A launch child received a launch that was refused or failed."""
        self._log.write("refused", reason="handshake", error=reason)

    def let_in(self, role: str, names: FrozenSet[str], text: str, mac: str) -> Pass:
        """The admission data of a launch. Raises Refusal, which is logged."""
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

    def _refused(self, pending: PendingConnection, refusal: AgentError) -> None:
        reason = getattr(refusal, "reason", "protocol")
        names = sorted(pending.secured.peer.names)
        self._log.write("refused", reason=reason, peer=pending.address, names=names, message=refusal.message)
        pending.message = {"re": 0, "error": refusal.as_message()}
        self._handle(pending, Event.REFUSED)

    def _read(self, pending: PendingConnection) -> None:
        while pending.state in (State.GREETING, State.ASKING):
            if pending.state is State.GREETING and pending.buffer.startswith(_HTTP):
                self._handle(pending, Event.OBJECTS)
                return
            message = self._message(pending)
            if message is None:
                data = pending.secured.recv(LONGEST)
                if not data:
                    self._handle(pending, Event.GONE)
                    return
                pending.buffer += data
            elif pending.state is State.GREETING:
                self._greeted(pending, message)
            else:
                self._asked(pending, message)

    def _message(self, pending: PendingConnection) -> "Optional[Message]":
        # The next message if it is complete; its bytes stay in the buffer.
        return first_message(pending.buffer)

    def _take(self, pending: PendingConnection) -> None:
        length = int.from_bytes(pending.buffer[1:HEADER_SIZE], "big")
        pending.buffer = pending.buffer[HEADER_SIZE + length :]

    def _greeted(self, pending: PendingConnection, message: Message) -> None:
        role = check_hello(message)
        names, mesh = pending.secured.peer.names, self._trust.mesh
        text, mac = str(message.get("credential", "")), str(message.get("mac", ""))
        need_believed(pending.secured, self._trust)
        if role in LAUNCH_ROLES:
            pending.way = self._let_in(role, names, text, mac)
            self._take(pending)
            self._handle(pending, Event.LAUNCHES)
        elif role == "child":
            need(MAY, "fetch", roles_of(names, mesh))
            self._take(pending)
            self._handle(pending, Event.FETCHES)
        elif role == "object":
            roles = roles_of(names, mesh)
            if not text:
                need(MAY, "object", roles)
            pending.way = ObjectPeer(min(roles, default=""), self._admission.user(text, mac) if text else None)
            self._handle(pending, Event.OBJECTS)
        else:
            roles = roles_of(names, mesh)
            if roles:
                need(MAY, "ask", roles)  # a compromised node is refused at once
            else:
                pending.way = self._admission.recognise(text, mac)
            self._handle(pending, Event.ASKS)

    def _asked(self, pending: PendingConnection, message: Message) -> None:
        need_believed(pending.secured, self._trust)
        pending.message = wanted(message, pending.secured.peer.names, self._trust.mesh)
        self._take(pending)
        self._handle(pending, Event.ASKED)

    # Actions of the state machine

    def _begin(self, pending: PendingConnection) -> None:
        pending.secured.unread(pending.buffer)
        self._pct.begin_remote(pending.secured, "parent" if pending.way.parent else "launcher", pending.way)

    def _serve(self, pending: PendingConnection) -> None:
        pending.secured.unread(pending.buffer)
        self._on_request(pending.secured, pending.way)

    def _carry(self, pending: PendingConnection) -> None:
        self._on_fetch(pending.secured, pending.message)

    def _courier(self, pending: PendingConnection) -> None:
        pending.secured.unread(pending.buffer)
        self._pct.fork_courier(pending.secured, pending.way)

    def _refuse(self, pending: PendingConnection) -> None:
        secured = pending.secured
        try:
            secured.sendall(control(hello("pct")) + control(pending.message))
        except OSError:
            secured.close()
            return
        # Unread data would turn our close into a reset, and the peer would never read the reason: read and discard it.
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

    def _drop(self, pending: PendingConnection) -> None:
        pending.secured.close()

    def close(self) -> None:
        """Close all connections and stop listening."""
        for pending in list(self._pending.values()):
            self._loop.unwatch(pending.secured.fileno())
            pending.secured.close()
        self._pending.clear()
        for secured in list(self._leaving):
            self._leave(secured)
        self._acceptor.close()
        self._sock.close()

    _DO = {
        Action.READ: _go_on,
        Action.BEGIN: _begin,
        Action.SERVE: _serve,
        Action.CARRY: _carry,
        Action.COURIER: _courier,
        Action.REFUSE: _refuse,
        Action.DROP: _drop,
    }


def first_message(data: bytes) -> Optional[Message]:
    """The message at the start of ``data``; None if it is incomplete. Raises WireError if it is too long or invalid."""
    if not data:
        return None
    length = int.from_bytes(data[1:HEADER_SIZE], "big") if len(data) >= HEADER_SIZE else 0
    if data[0] != CONTROL or length > LONGEST:
        raise WireError("the first message on a connection must be a hello")
    if len(data) < HEADER_SIZE + length:
        return None
    return decode(data[HEADER_SIZE : HEADER_SIZE + length])


def wanted(message: Message, names: FrozenSet[str], mesh: str) -> Message:
    """The image request of another node's launch child, with that node's name. Raises Refusal or WireError."""
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
    """Raise Refusal if the CA of a peer's certificate may have been removed since the handshake."""
    if not secured.peer.names:
        return
    try:
        believed = trust.believes(secured.since)
    except (OSError, AgentError):  # the files are missing or unusable
        believed = False
    if not believed:
        raise Refusal("handshake", "the mesh's certificates have changed since this one was shown: connect anew")


def allowed(op: str, names: FrozenSet[str], mesh: str, credential: Optional[Credential], launcher: Any) -> None:
    """Raise Refusal unless a peer may ask for ``op`` (of ``launcher``): by its certificate, or its launch's
    credential."""
    if credential is None:
        need(MAY, op, roles_of(names, mesh))
        return
    need(MAY, op, {LAUNCHER})
    if launcher != credential.launcher:
        raise Refusal("other_launcher", f"a credential of launcher {credential.launcher}, for launcher {launcher}")
