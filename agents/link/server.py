"""The server's side of request and reply: accept, greet, check, hand requests over in order of arrival."""

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

#: Answers that a peer may leave unread; more than the largest of them.
UNREAD_BYTES = 16 << 20
#: Connections accepted in a round where users connect: one who does so without end fills the listener's queue, and
#: the others wait for their place in it.
USERS_AT_ONCE = 256


def refused(error: AgentError) -> Message:
    """What says that a connection is refused, as a reply to no request: ``re`` is 0."""
    return {"re": 0, "error": error.as_message()}


class Session:
    """One accepted connection. ``state`` is the daemon's own to use."""

    def __init__(self, server: "Server", sock: Socket, limit: int = 0) -> None:
        self.server = server
        self.peer: Peer = peer(sock)
        self.role = ""
        self.state: Any = None
        self.link = Link(server.loop, sock, self._on_frame, self._on_end, limit=limit or None)
        self.intake: Optional[Intake] = None  # of a user who has limits
        self.request_bytes = 0  # of the request that is handed over
        self.dropped = False  # by this daemon: the end of the connection says nothing about the peer

    def serve_for(self, user: User) -> None:
        """Hold the peer to what ``user`` may have here."""
        from agents.link.user_limits import Intake  # the PCT, which has no users, never loads it

        assert self.server.users is not None
        self.intake = Intake(self.server.users, user, self.link, self.drop)
        if self.role:
            self.intake.greeted()

    def reply(self, request: Message, answer: Message) -> None:
        """Answer a request that carried an id."""
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
        """Close the connection because of what the peer, or its user, has here."""
        self.dropped = True
        self.dismiss(reason)

    def dismiss(self, reason: str) -> None:
        """Let the connection go."""
        if self.open:
            self.link.close()
            self._on_end(self.link, reason)

    def refuse(self, request: Message, error: AgentError) -> None:
        """Answer a request with an error."""
        self.reply(request, {"error": error.as_message()})

    def turn_away(self, error: AgentError) -> None:
        """Answer whatever is asked with ``error``, and close the connection."""
        self.link.send_raw(control(hello(self.server.role, self.server.name)) + control(refused(error)))
        self.forget()

    @property
    def open(self) -> bool:
        """Whether the peer is still there, as far as we know."""
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
                self.link.send(refused(error))  # or its program would ask again and again
            raise

    def _on_end(self, _link: Link, reason: str) -> None:
        self.forget()
        self.server.on_session_end(self, reason)

    def forget(self) -> None:
        """Close the connection without telling the daemon, which knows."""
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
        #: Set by daemons that want to hear of it.
        self.on_session_end: Callable[[Session, str], None] = lambda _session, _reason: None
        self.on_exhausted: Callable[[str], None] = lambda _reason: None
        #: Takes accepted connections; a PCT looks first who it is.
        self.on_accept: Callable[[Socket], object] = self.welcome
        self.sessions: Dict[int, Session] = {}
        self._refused = "", b""  # the last refusal, as a message and as frames
        self._public = public
        self._begin(listen(path))

    def _begin(self, sock: Socket) -> None:
        self.sock = sock
        if self._public:  # every user may connect; the daemon asks the kernel who it is
            os.chmod(self.path, 0o666)
        self._file = file_of(self.path)
        at_once = USERS_AT_ONCE if self.users is not None else AT_ONCE
        self._acceptor = Acceptor(self.loop, sock, self._on_socket, lambda why: self.on_exhausted(why), at_once)

    def listen_again(self, *, make: bool = True) -> bool:
        """Make the socket's file again where it was removed; whether it was. OSError, AgentError when that fails.

        ``make``: the directory too.
        """
        sock = listen_again(self.path, self._file, public=self._public, make=make)
        if sock is None:
            return False
        self._acceptor.finish()  # connections that were made before the file was removed
        self.sock.close()
        self._begin(sock)
        return True

    def _on_socket(self, sock: Socket, _address: object) -> None:
        if self.users is not None:
            self._on_user(sock, self.users)
        else:
            self.on_accept(sock)

    def _on_user(self, sock: Socket, users: Users) -> None:
        # A refusal is as cheap as can be: it is what somebody gets who connects without end.
        uid = peer(sock).uid
        try:
            user = users.connect(uid) if users.limits(uid) else None
        except AgentError as error:  # Busy
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
        """Serve requests on an accepted connection, of ``limit`` bytes at most (0: what the protocol allows)."""
        session = Session(self, sock, limit)
        self.sessions[id(session)] = session
        return session

    def close(self) -> None:
        """Stop listening and let every session go."""
        self._acceptor.close()
        self.sock.close()
        for session in list(self.sessions.values()):
            session.link.close()
        self.sessions.clear()
