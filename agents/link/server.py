"""The server's side of request and reply: accept, greet, check, hand requests over in order of arrival."""

from __future__ import annotations

import os

from agents.link.lean import Socket
from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.link.sockets import Peer, file_of, listen, listen_again, peer
from agents.wire.control import Message, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL
from agents.wire.messages import Shape, check, check_hello, hello

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

#: Answers that a peer may leave unread; more than the largest of them.
UNREAD_BYTES = 16 << 20


class Session:
    """One accepted connection. ``state`` is the daemon's own to use."""

    def __init__(self, server: "Server", sock: Socket, limit: int = 0) -> None:
        self.server = server
        self.peer: Peer = peer(sock)
        self.role = ""
        self.state: Any = None
        self.link = Link(server.loop, sock, self._on_frame, self._on_end, limit=limit or None)

    def reply(self, request: Message, answer: Message) -> None:
        """Answer a request that carried an id."""
        if "id" in request:
            self.link.send(dict(answer, re=request["id"]))
            if self.link.out_bytes > UNREAD_BYTES:
                self.server.loop.after(0, lambda: self.dismiss("it asks and asks, and never reads an answer"))

    def dismiss(self, reason: str) -> None:
        """Let the connection go."""
        if self.open:
            self.link.close()
            self._on_end(self.link, reason)

    def refuse(self, request: Message, error: AgentError) -> None:
        """Answer a request with an error."""
        self.reply(request, {"error": error.as_message()})

    @property
    def open(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        return self.link.sock is not None

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where a request was expected")
        message = decode(payload)
        if not self.role:
            self.role = check_hello(message)
            self.link.send(hello(self.server.role, self.server.name))
            return
        try:
            op = check(self.server.table, message)
            self.server.on_request(self, op, message)
        except WireError:
            raise
        except AgentError as error:
            self.refuse(message, error)

    def _on_end(self, _link: Link, reason: str) -> None:
        self.server.sessions.pop(id(self), None)
        self.server.on_session_end(self, reason)


class Server:
    """Listens at ``path`` and calls ``on_request(session, op, message)`` for every request in ``table``."""

    def __init__(
        self,
        loop: Loop,
        path: str,
        role: str,
        table: Dict[str, Shape],
        on_request: Callable[[Session, str, Message], None],
        on_session_end: Callable[[Session, str], None] = lambda _session, _reason: None,
        *,
        name: str = "",
        may_connect: Optional[Callable[[Peer], bool]] = None,
        on_accept: Optional[Callable[[Socket], None]] = None,
        public: bool = False,
    ) -> None:
        self.loop, self.path, self.role, self.table, self.name = loop, path, role, table, name
        self.on_request, self.on_session_end = on_request, on_session_end
        self._may_connect = may_connect
        self._on_socket = on_accept or self.welcome  # a PCT looks first who it is
        self.sessions: Dict[int, Session] = {}
        self._public = public
        self._begin(listen(path))

    def _begin(self, sock: Socket) -> None:
        self.sock = sock
        if self._public:  # every user may knock; the daemon asks the kernel who it is
            os.chmod(self.path, 0o666)
        self._file = file_of(self.path)
        self.loop.watch(sock.fileno(), READ, self._on_accept)

    def listen_again(self, *, make: bool = True) -> bool:
        """Make the socket's file again where it was removed; whether it was. OSError, AgentError when that fails.

        ``make``: the directory too.
        """
        sock = listen_again(self.path, self._file, public=self._public, make=make)
        if sock is None:
            return False
        self._on_accept(READ)  # connections that were made before the file was removed
        self.loop.unwatch(self.sock.fileno())
        self.sock.close()
        self._begin(sock)
        return True

    def _on_accept(self, _events: int) -> None:
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            if self._may_connect is not None and not self._may_connect(peer(sock)):
                sock.close()
                continue
            self._on_socket(sock)

    def welcome(self, sock: Socket, limit: int = 0) -> Session:
        """Serve requests on an accepted connection, of ``limit`` bytes at most (0: what the protocol allows)."""
        session = Session(self, sock, limit)
        self.sessions[id(session)] = session
        return session

    def close(self) -> None:
        """Stop listening and let every session go."""
        self.loop.unwatch(self.sock.fileno())
        self.sock.close()
        for session in list(self.sessions.values()):
            session.link.close()
        self.sessions.clear()
