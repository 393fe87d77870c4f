"""TCP sockets for TLS: a node listens before it has imported TLS (agents/link/tls.py)."""

from __future__ import annotations

import errno
import os
import struct
import time

from agents.link.lean import Socket, socket

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Hashable, Optional, Tuple, TypeVar

    from agents.link.loop import Loop, Timer

    T = TypeVar("T", bound=Hashable)

#: Keep-alive settings: the kernel detects a vanished peer (a pulled plug) within about this many seconds.
_IDLE_S, _EVERY_S, _TIMES, _UNHEARD_MS = 3, 2, 3, 9000
#: Seconds from sent data to a look whether the peer's kernel has acknowledged it, and between further looks.
_LOOK_S, _AGAIN_S = 3.0, 1.0
#: The option for the longest pause between two probes of a full window (linux/tcp.h), and its value.
_RTO_MAX_MS, _PROBE_MS = 44, 3000


def resolve(host: str, port: int, kind: int = socket.SOCK_STREAM, family: int = 0) -> "Tuple[int, Any]":
    """Family and first address of ``host``. Raises OSError."""
    # As bytes, because for a str Python would load its IDNA tables.
    name: Any = host.encode("ascii") if host.isascii() else host
    found = socket.getaddrinfo(name, port, family, kind)
    return found[0][0], found[0][4]


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """A non-blocking listening socket. Raises OSError."""
    family, place = resolve(host, port)
    sock = Socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def tune(sock: socket.socket) -> None:
    """Disable Nagle's algorithm, and enable the detection of vanished peers."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.TCP_KEEPINTVL, _EVERY_S),
        (socket.TCP_KEEPCNT, _TIMES),
        (socket.TCP_USER_TIMEOUT, _UNHEARD_MS),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class _State:
    """What the kernel knows of a connection (struct tcp_info).

    ``waits``: data is not acknowledged, or waits for a larger window; ``full``: all of that waits for a window.
    ``acked``: bytes that were acknowledged.
    ``heard_ms``: since the peer's kernel was last heard. ``unanswered``: how often data or a probe of a full window was
    sent since then, as far as is known.
    """

    __slots__ = ("acked", "full", "heard_ms", "unanswered", "waits")

    def __init__(self, sock: socket.socket) -> None:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 148)
        retransmits, probes = told[2], told[3]
        (in_flight,) = struct.unpack_from("I", told, 24)
        sent_ms, self.heard_ms = struct.unpack_from("I8xI", told, 44)
        # kernels before 4.6 do not have the last field: there the kernel's own limit holds
        self.acked, unsent = struct.unpack_from("Q16xI", told, 120)
        self.waits, self.full = bool(in_flight or unsent), bool(unsent and not in_flight)
        self.unanswered = probes
        if in_flight and self.heard_ms > sent_ms:
            self.unanswered += 1 + retransmits


class FullWindow:
    """Keeps a connection whose peer does not read, as long as the peer's kernel answers.

    TCP_USER_TIMEOUT limits how long data may stay unacknowledged. It also ends a connection whose peer is stopped
    (SIGSTOP) and whose window is full, although the peer's kernel answers each probe of the window (tcp(7); Linux,
    tcp_probe_timer). While it answers, the limit is put off here. After two probes without an answer the connection
    has timed out: ``lost(reason)``.

    The limit is put off until nothing waits, not until some data was acknowledged: the kernel's clock of a full window
    runs on if the peer makes less room than the first unsent segment takes (tcp_ack_probe).
    """

    __slots__ = ("_acked", "_loop", "_lost", "_put_off", "_since", "_sock", "_timer")

    def __init__(self, loop: Loop, sock: socket.socket, lost: Callable[[str], None]) -> None:
        self._loop, self._sock, self._lost = loop, sock, lost
        self._timer: Optional[Timer] = None
        self._acked, self._since = -1, 0.0
        self._put_off = False

    def sent(self) -> None:
        """Data was given to the kernel."""
        if self._timer is None:
            self._since = time.monotonic()
            self._timer = self._loop.after(_LOOK_S, self._look)

    def close(self) -> None:
        """The connection is being closed."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        try:
            state = _State(self._sock)
            self._decide(state)
        except (OSError, struct.error):
            return  # its end is reported as that of any connection; or the kernel does not tell its state
        if self._put_off and state.unanswered > 1 and state.heard_ms > _UNHEARD_MS:
            self._lost(os.strerror(errno.ETIMEDOUT))
        elif state.waits:
            self._timer = self._loop.after(_AGAIN_S, self._look)

    def _decide(self, state: _State) -> None:
        moves, self._acked = state.acked != self._acked, state.acked
        if not state.waits:
            if self._put_off:
                self._put_off = False
                self._limit(_UNHEARD_MS)
        elif moves and not (self._put_off or state.full):
            pass  # the peer reads
        elif moves or state.unanswered <= self._put_off:  # the answer to one probe may be lost
            if not self._put_off:
                self._put_off = True
                try:
                    self._sock.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, _PROBE_MS)
                except OSError:
                    pass  # before Linux 6.15: the pauses between probes grow up to the limit
            self._limit(int((time.monotonic() - self._since) * 1000) + _UNHEARD_MS)

    def _limit(self, limit_ms: int) -> None:
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)


def to_make_room(addresses: Dict[T, str]) -> T:
    """Which of several connections, oldest first, to close for a new one: the oldest of the address with most."""
    count: Dict[str, int] = {}
    for address in addresses.values():
        count[address] = count.get(address, 0) + 1
    most = max(count, key=lambda address: count[address])
    return next(visitor for visitor, address in addresses.items() if address == most)
