"""Addresses of daemons on other machines, and the identity of a connection's peer."""

from __future__ import annotations

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import FrozenSet

SCHEME = "tls://"
#: The TLS server name in the first message of a client that brings a launch. It is sent unencrypted
#: (agents/pct/remote/spare_handshake.py).
LAUNCH = b"launch.redmesh"
#: The TLS server name in the first message of a client that fetches an image (agents/pct/remote/image_proxy.py).
FETCH = b"fetch.redmesh"


class Peer:
    """The identity of a connection's peer, as the kernel reported it when the connection was made.

    A peer on another machine has uid -1, and ``names`` are the URIs of its certificate; a yod there has no certificate.
    ``pid`` is 0 if the process is in a pid namespace that this one does not see. ``pid_started``: when the process
    began, if the RCA of another login processor vouches for the peer; otherwise -1. ``groups``: what that RCA says
    about the peer's groups (agents/wire/caller_groups.py); "" if it says nothing.
    """

    __slots__ = ("gid", "groups", "names", "pid", "pid_started", "uid")

    def __init__(
        self,
        pid: int,
        uid: int,
        gid: int,
        names: FrozenSet[str] = frozenset(),
        pid_started: int = -1,
        groups: str = "",
    ) -> None:
        self.pid, self.uid, self.gid, self.names, self.pid_started = pid, uid, gid, names, pid_started
        self.groups = groups


class Address:
    """The address of a daemon on another machine, and the identity that its certificate must have."""

    __slots__ = ("host", "name", "port", "role")

    def __init__(self, host: str, port: int, role: str, name: str) -> None:
        self.host, self.port, self.role, self.name = host, port, role, name


def parse(address: str) -> Address:
    """Parse ``tls://HOST:PORT/NODE`` (a PCT) or ``tls://HOST:PORT/ROLE/NAME``; an IPv6 host is in brackets. Raises
    AgentError."""
    place, slash, who = address[len(SCHEME) :].partition("/")
    host, colon, port = place.rpartition(":")
    role, _, name = who.rpartition("/")
    if not (address.startswith(SCHEME) and slash and colon and host and name and port.isascii() and port.isdigit()):
        raise AgentError(f"{address[:100]!r} is not an address", "tls://HOST:PORT/NODE is one", code="invalid")
    return Address(host.strip("[]"), int(port), role or "pct", name)
