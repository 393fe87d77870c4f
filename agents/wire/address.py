"""Addresses of daemons on other machines, and who is at the other end of a connection."""

from __future__ import annotations

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import FrozenSet

SCHEME = "tls://"
#: The server's name in a client's first message, in the clear: it brings a launch
#: (agents/pct/remote/spare_handshake.py).
LAUNCH = b"launch.redmesh"
#: The same, for an image that it wants (agents/pct/remote/image_proxy.py).
FETCH = b"fetch.redmesh"


class Peer:
    """Who is at the other end, as the kernel saw it when the connection was made.

    On another machine nobody has a uid here (-1), and ``names`` are the URIs of its certificate; none for a yod.
    """

    __slots__ = ("gid", "names", "pid", "uid")

    def __init__(self, pid: int, uid: int, gid: int, names: FrozenSet[str] = frozenset()) -> None:
        self.pid, self.uid, self.gid, self.names = pid, uid, gid, names


class Address:
    """Where a daemon of another machine listens, and who its certificate must say it is."""

    __slots__ = ("host", "name", "port", "role")

    def __init__(self, host: str, port: int, role: str, name: str) -> None:
        self.host, self.port, self.role, self.name = host, port, role, name


def parse(address: str) -> Address:
    """``tls://HOST:PORT/NODE`` (a PCT), or ``tls://HOST:PORT/ROLE/NAME``; an IPv6 host in []. AgentError."""
    place, slash, who = address[len(SCHEME) :].partition("/")
    host, colon, port = place.rpartition(":")
    role, _, name = who.rpartition("/")
    if not (address.startswith(SCHEME) and slash and colon and host and name and port.isascii() and port.isdigit()):
        raise AgentError(f"{address[:100]!r} is not an address", "tls://HOST:PORT/NODE is one", code="invalid")
    return Address(host.strip("[]"), int(port), role or "pct", name)
