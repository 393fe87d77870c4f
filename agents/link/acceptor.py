"""Accepts connections at a listening socket, and pauses where the process or the machine has no descriptor left."""

from __future__ import annotations

import errno
import resource

from agents.link.loop import READ, Loop

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Callable

    from agents.link.lean import socket

#: Connections accepted before the loop serves others.
AT_ONCE = 16
#: Seconds until a listening socket is looked at again: it stays readable, so the loop would spin on it (epoll reports
#: levels, not edges).
_PAUSE_S = 0.1
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Calls ``on_connection(sock, address)`` for every connection at ``sock``, which stays the caller's.

    ``on_exhausted(reason)`` is called when accepting is paused for want of a descriptor, once until one is there again.
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
                if error.errno in _EXHAUSTED:
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
        """Accept what has been connecting up to now, then no more."""
        before = -1
        while not self._closed and self._accepted != before:
            before = self._accepted
            self._on_ready(READ)
        self.close()

    def close(self) -> None:
        """Accept no more; call it before the socket is closed."""
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self._sock.fileno())


# How many connections a daemon may have.


def allow_many_files() -> None:
    """As many as the hard limit has: a connection for every client or node, and a login shell allows often 1,024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass
