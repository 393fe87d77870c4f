"""The server's side of requests and replies: accepts, greets, checks, and dispatches requests in order of arrival."""

from __future__ import annotations

import os

from agents.link.acceptor import AT_ONCE, Acceptor
from agents.link.lean import Socket
from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.sockets import file_of, listen, listen_again, peer
from agents.wire.address import Peer
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL
from agents.wire.messages import Shape, check, check_hello, hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from agents.link.user_limits import Intake, User, Users

#: The limit of unread answers to a peer; more than the largest answer.
UNREAD_BYTES = 16 << 20
#: Connections accepted in one round if users connect: a user who connects without end fills the listener's queue, in
#: which others wait.
USERS_AT_ONCE = 256


def refused(error: AgentError) -> Message:
    """The refusal of a connection, as a reply to no request: ``re`` is 0."""
    return {"re": 0, "error": error.as_message()}


class Session:
    """An accepted connection. ``state`` is for the daemon's own use."""

    def __init__(self, server: "Server", sock: Socket, limit: int = 0) -> None:
        self.server = server
        self.peer: Peer = peer(sock)
        self.role = ""
        self.state: Any = None
        self.link = Link(server.loop, sock, self._on_frame, self._on_end, limit=limit or None)
        self.intake: Optional[Intake] = None  # the intake of a user with limits
        self.request_bytes = 0  # the size of the request that is being handled
        self.dropped = False  # this daemon closed the connection: its end does not mean that the peer exited

    def serve_for(self, user: User) -> None:
        """Apply the limits of ``user`` to this connection."""
        from agents.link.user_limits import Intake  # the PCT, which has no users, never imports it

        assert self.server.users is not None
        self.intake = Intake(self.server.users, user, self.link, self.drop)
        if self.role:
            self.intake.greeted()

    def reply(self, request: Message, answer: Message) -> None:
        """Reply to a request that has an id."""
        if "id" in request:
            self.link.send(dict(answer, re=request["id"]))
            if self._unread_too_much():
                self.server.loop.after(0, lambda: self.drop("it asks and asks, and never reads an answer"))

    def _unread_too_much(self) -> bool:
        if self.intake is None:
            return self.link.out_bytes > UNREAD_BYTES
        self.intake.weigh()
        return self.intake.unread_too_much

    def drop(self, reason: str) -> None:
        """Close the connection because the peer, or its user, exceeds a limit."""
        self.dropped = True
        self.dismiss(reason)

    def dismiss(self, reason: str) -> None:
        """Close the connection."""
        if self.open:
            self.link.close()
            self._on_end(self.link, reason)

    def refuse(self, request: Message, error: AgentError) -> None:
        """Reply to a request with an error."""
        self.reply(request, {"error": error.as_message()})

    def turn_away(self, error: AgentError) -> None:
        """Reply to any request with ``error``, and close the connection."""
        self.link.send_raw(control(hello(self.server.role, self.server.name)) + control(refused(error)))
        self.forget()

    @property
    def open(self) -> bool:
        """True if the peer is still connected, as far as is known."""
        return self.link.sock is not None

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where a request was expected")
        if self.intake is not None:
            self._check_size(self.intake, payload)
        message = decode(payload)
        self.request_bytes = len(payload)
        if not self.role:
            self.role = check_hello(message)
            if self.intake is not None:
                self.intake.greeted()
            self.link.send(hello(self.server.role, self.server.name))
            return
        try:
            op = check(self.server.table, message)
            self.server.on_request(self, op, message)
        except WireError:
            raise
        except AgentError as error:
            self.refuse(message, error)

    def _check_size(self, intake: Intake, payload: bytes) -> None:
        try:
            intake.check(payload)
        except WireError as error:
            if self.role:
                self.link.send(refused(error))  # otherwise its program would ask again and again
            raise

    def _on_end(self, _link: Link, reason: str) -> None:
        self.forget()
        self.server.on_session_end(self, reason)

    def forget(self) -> None:
        """Close the connection without a call to the daemon, which knows."""
        self.link.close()
        self.server.sessions.pop(id(self), None)
        if self.intake is not None:
            self.intake.over()


class Server:
    """Listens at ``path`` and calls ``on_request(session, op, message)`` for every request in ``table``."""

    def __init__(
        self,
        loop: Loop,
        path: str,
        role: str,
        table: Dict[str, Shape],
        on_request: Callable[[Session, str, Message], None],
        *,
        name: str = "",
        public: bool = False,
        users: Optional[Users] = None,
    ) -> None:
        self.loop, self.path, self.role, self.table, self.name = loop, path, role, table, name
        self.on_request, self.users = on_request, users
        #: Replaced by daemons that need to know.
        self.on_session_end: Callable[[Session, str], None] = lambda _session, _reason: None
        self.on_exhausted: Callable[[str], None] = lambda _reason: None
        #: Handles accepted connections; a PCT first checks the peer.
        self.on_accept: Callable[[Socket], object] = self.welcome
        self.sessions: Dict[int, Session] = {}
        self._refused = "", b""  # the last refusal, as a message and as frames
        self._public = public
        self._begin(listen(path))

    def _begin(self, sock: Socket) -> None:
        self.sock = sock
        if self._public:  # every user may connect; the daemon asks the kernel for the uid
            os.chmod(self.path, 0o666)
        self._file = file_of(self.path)
        at_once = USERS_AT_ONCE if self.users is not None else AT_ONCE
        self._acceptor = Acceptor(self.loop, sock, self._on_socket, lambda why: self.on_exhausted(why), at_once)

    def listen_again(self, *, make: bool = True) -> bool:
        """Create the socket again if its file was removed; returns whether it was. Raises OSError or AgentError.

        ``make``: create the directory too.
        """
        sock = listen_again(self.path, self._file, public=self._public, make=make)
        if sock is None:
            return False
        self._acceptor.finish()  # connections that were made before the removal
        self.sock.close()
        self._begin(sock)
        return True

    def _on_socket(self, sock: Socket, _address: object) -> None:
        if self.users is not None:
            self._on_user(sock, self.users)
        else:
            self.on_accept(sock)

    def _on_user(self, sock: Socket, users: Users) -> None:
        # Refusals must be cheap: users who connect without end get many.
        uid = peer(sock).uid
        try:
            user = users.connect(uid) if users.limits(uid) else None
        except AgentError as error:  # raises Busy
            try:
                sock.setblocking(False)
                sock.send(self._refusal(error))
            except OSError:
                pass
            sock.close()
            return
        session = self.welcome(sock)
        if user is not None:
            session.serve_for(user)

    def _refusal(self, error: AgentError) -> bytes:
        if self._refused[0] != error.message:
            self._refused = error.message, control(hello(self.role, self.name)) + control(refused(error))
        return self._refused[1]

    def welcome(self, sock: Socket, limit: int = 0) -> Session:
        """Serve requests on an accepted connection, each at most ``limit`` bytes (0: the protocol's limit)."""
        session = Session(self, sock, limit)
        self.sessions[id(session)] = session
        return session

    def close(self) -> None:
        """Stop listening and close every session."""
        self._acceptor.close()
        self.sock.close()
        for session in list(self.sessions.values()):
            session.link.close()
        self.sessions.clear()
