"""New connections of the PCT: one that brings a launch is passed to a launch child, the PCT serves the others.

The hello is read without removing it from the socket (MSG_PEEK), so that a launch child gets the complete stream.
"""

from __future__ import annotations

import time

from agents.link.lean import socket
from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.wire.control import control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, HEADER_SIZE
from agents.wire.messages import check_hello, hello
from agents.wire.roles import LAUNCH_ROLES

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Set

HELLO_S = 5.0  # for the hello to arrive
_LONGEST = 1024  # bytes of a hello
_AGAIN_S = 0.01


class LaunchListener:
    """Accepted connections whose role is not known yet."""

    def __init__(
        self,
        loop: Loop,
        on_launch: Callable[[socket.socket, str], None],
        on_other: Callable[[socket.socket], None],
        on_objects: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._on_launch = on_launch
        self._on_other = on_other
        self._on_objects = on_objects
        self._waiting: Set[socket.socket] = set()

    def accept(self, sock: socket.socket) -> None:
        """Handle a new connection; its hello has usually arrived."""
        sock.setblocking(False)
        self._waiting.add(sock)
        self._look(sock, time.monotonic() + HELLO_S)

    def _look(self, sock: socket.socket, deadline: float) -> None:
        try:
            data = sock.recv(_LONGEST, socket.MSG_PEEK)
        except BlockingIOError:
            self._loop.watch(sock.fileno(), READ, lambda _events: self._look(sock, deadline))
            return
        except OSError:
            data = b""
        self._loop.unwatch(sock.fileno())
        if not data or time.monotonic() > deadline:
            self._drop(sock)
            return
        try:
            role, length = read_role(data)
        except WireError as error:
            self._refuse(sock, error)
            return
        if not role:
            self._loop.after(_AGAIN_S, lambda: self._look(sock, deadline))  # the hello is incomplete
            return
        self._waiting.discard(sock)
        if role in LAUNCH_ROLES:
            sock.recv(length)
            self._on_launch(sock, role)
        elif role == "object":
            self._on_objects(sock)
        else:
            self._on_other(sock)

    def _refuse(self, sock: socket.socket, error: AgentError) -> None:
        self._waiting.discard(sock)
        sock.recv(_LONGEST)  # unread data would turn the close into a reset
        link = Link(self._loop, sock, lambda *_: None, lambda *_: None)
        link.send_raw(control(hello("pct")) + control({"re": 0, "error": error.as_message()}))
        link.close(flush=True)

    def _drop(self, sock: socket.socket) -> None:
        self._waiting.discard(sock)
        sock.close()

    def close(self) -> None:
        """Close all waiting connections."""
        for sock in list(self._waiting):
            self._loop.unwatch(sock.fileno())
            self._drop(sock)


def read_role(data: bytes) -> "tuple[str, int]":
    """Role and length of the hello in ``data``; no role if it is incomplete. Raises WireError if it is invalid."""
    length = int.from_bytes(data[1:HEADER_SIZE], "big") if len(data) >= HEADER_SIZE else 0
    if data[0] != CONTROL or length > _LONGEST - HEADER_SIZE:
        raise WireError("the first message on a connection must be a hello")
    if len(data) < HEADER_SIZE + length:
        return "", 0
    payload = data[HEADER_SIZE : HEADER_SIZE + length]
    return check_hello(decode(payload)), HEADER_SIZE + length
