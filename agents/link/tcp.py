"""TCP sockets under TLS: a node listens before it has loaded TLS itself (agents/link/tls.py)."""

from __future__ import annotations

from agents.link.lean import Socket, socket

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Hashable, Tuple, TypeVar

    T = TypeVar("T", bound=Hashable)

#: A peer that is gone without a word (a pulled plug) is found out by the kernel in about so many seconds.
_IDLE_S, _EVERY_S, _TIMES, _UNHEARD_MS = 3, 2, 3, 9000


def resolve(host: str, port: int, kind: int = socket.SOCK_STREAM, family: int = 0) -> "Tuple[int, Any]":
    """Family and address of the first that ``host`` has. OSError."""
    # as bytes: for a text Python would load its tables of international names
    name: Any = host.encode("ascii") if host.isascii() else host
    found = socket.getaddrinfo(name, port, family, kind)
    return found[0][0], found[0][4]


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """A listening socket, not blocking. OSError."""
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
    """No waiting for more to send, and no waiting for ever for a peer that is gone."""
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
    """Which of several visitors, oldest first, leaves for another: the oldest of the address that has most."""
    count: Dict[str, int] = {}
    for address in addresses.values():
        count[address] = count.get(address, 0) + 1
    most = max(count, key=lambda address: count[address])
    return next(visitor for visitor, address in addresses.items() if address == most)
