"""TCP sockets for TLS: a node listens before it has imported TLS (agents/link/tls.py)."""

from __future__ import annotations

from agents.link.lean import Socket, socket

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Hashable, Tuple, TypeVar

    T = TypeVar("T", bound=Hashable)

#: Keep-alive settings: the kernel detects a vanished peer (a pulled plug) within about this many seconds.
_IDLE_S, _EVERY_S, _TIMES, _UNHEARD_MS = 3, 2, 3, 9000


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


def to_make_room(addresses: Dict[T, str]) -> T:
    """Which of several connections, oldest first, to close for a new one: the oldest of the address with most."""
    count: Dict[str, int] = {}
    for address in addresses.values():
        count[address] = count.get(address, 0) + 1
    most = max(count, key=lambda address: count[address])
    return next(visitor for visitor, address in addresses.items() if address == most)
