"""Accepts connections on a listening socket, and pauses while no file descriptor is left."""

from __future__ import annotations

import resource

from agents.link.loop import READ, Loop
from agents.link.sockets import EXHAUSTED

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Callable

    from agents.link.lean import socket

#: Connections accepted before the loop serves other events.
AT_ONCE = 16
#: Seconds before accepting is tried again: the socket stays readable, so the loop would spin (epoll is
#: level-triggered).
_PAUSE_S = 0.1
_QUEUED = 1024  # connections in a listener's queue, at most (agents/link/sockets.py, listen)


class Acceptor:
    """Calls ``on_connection(sock, address)`` for every connection on ``sock``, which the caller owns.

    ``on_exhausted(reason)`` is called once when accepting pauses for lack of a descriptor.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_connection: Callable[[Any, Any], None],
        on_exhausted: Callable[[str], None] = lambda _reason: None,
        at_once: int = AT_ONCE,
    ) -> None:
        self._loop, self._sock, self._at_once = loop, sock, at_once
        self._on_connection, self._on_exhausted = on_connection, on_exhausted
        self._told = self._closed = False
        self._accepted = 0
        self._watch()

    def _watch(self) -> None:
        if not self._closed:
            self._loop.watch(self._sock.fileno(), READ, self._on_ready)

    def _on_ready(self, _events: int) -> None:
        for _ in range(self._at_once):
            if self._closed:
                return
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause(error.strerror or str(error))
                return
            self._told = False
            self._accepted += 1
            self._on_connection(sock, address)

    def _pause(self, reason: str) -> None:
        self._loop.unwatch(self._sock.fileno())
        self._loop.after(_PAUSE_S, self._watch)
        if not self._told:
            self._told = True
            self._on_exhausted(reason)

    def finish(self) -> None:
        """Accept the connections that are already queued, then no more."""
        for _ in range(_QUEUED // self._at_once + 1):  # clients that connect without pause do not hold this up
            before = self._accepted
            self._on_ready(READ)
            if self._closed or self._accepted == before:
                break
        self.close()

    def close(self) -> None:
        """Stop accepting. Call this before the socket is closed."""
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self._sock.fileno())


# The number of connections a daemon may have.


def allow_many_files() -> None:
    """Raise the limit of open files to the hard limit: every client and node is a connection, and shells often allow
    1,024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass
