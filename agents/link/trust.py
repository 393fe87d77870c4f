"""Whom this process believes and what it shows: set once, used by every connection to another machine.

Nothing is read before the first of them: a process that only talks to Unix sockets never loads ssl.
"""

from __future__ import annotations

import os
import time

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Optional

SCHEME = "tls://"
#: The server's name in a client's first message, in the clear: it brings a launch
#: (agents/pct/remote/spare_handshake.py).
LAUNCH = b"launch.redmesh"
#: The same, for an image that it wants (agents/pct/remote/image_proxy.py).
FETCH = b"fetch.redmesh"


class NoTrust(AgentError):
    """A connection to another machine that this process has no certificates for."""

    code = "no_trust"


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
        raise AgentError(f"{address[:100]!r} is no address", "tls://HOST:PORT/NODE is one", code="invalid")
    return Address(host.strip("[]"), int(port), role or "pct", name)


class Trust:
    """The files of one process: the CAs' certificates, and its own key and certificate if it has one."""

    __slots__ = ("_believed", "_client", "_held", "_narrowed_at", "_server", "_stamp", "ca_path", "mesh", "own_path")

    def __init__(self, mesh: str, ca_path: str, own_path: str = "") -> None:
        self.mesh, self.ca_path, self.own_path = mesh, ca_path, own_path
        self._client: Any = None
        self._server: Any = None
        self._stamp: Any = None
        self._held = False
        self._believed: "frozenset[str]" = frozenset()  # what stands in the CAs' file, where we accept connections
        self._narrowed_at = 0.0

    def client(self) -> Any:
        """The context of connections we make."""
        self._look()
        if self._client is None:
            from agents.link.tls import client_context

            self._client = client_context(self.ca_path, self.own_path)
        return self._client

    def server(self) -> Any:
        """The context of connections we accept."""
        self._look()
        if self._server is None:
            from agents.link.tls import server_context

            self._server = server_context(self.ca_path, self.own_path)
            before, self._believed = self._believed, _certificates(self.ca_path)
            if not before <= self._believed:
                self._narrowed_at = time.monotonic()
        return self._server

    def believes(self, since: float) -> bool:
        """Whether every CA that was believed at that instant (monotonic) still is: a connection outlives a file."""
        self.server()
        return since >= self._narrowed_at

    def hold(self) -> None:
        """Go on with what has been read: whoever gives up root cannot read the files any more."""
        self.client()
        self._held = True

    def _look(self) -> None:
        if self._held:
            return
        # files that have been replaced (mesh trust rotate) hold from the next connection on
        stamp = tuple(_stamp_of(path) for path in (self.ca_path, self.own_path) if path)
        if stamp != self._stamp:
            self._stamp, self._client, self._server = stamp, None, None


def _certificates(path: str) -> "frozenset[str]":
    with open(path, encoding="ascii", errors="replace") as file:
        return frozenset("".join(one.split()) for one in file.read().split("-----END CERTIFICATE-----"))


def _stamp_of(path: str) -> "tuple[int, int]":
    try:
        found = os.stat(path)
    except OSError as error:
        raise NoTrust(f"{path}: {error.strerror}", "run mesh up: it writes the files of a mesh") from None
    return found.st_ino, found.st_mtime_ns


_ours: Optional[Trust] = None


def use(trust: Optional[Trust]) -> None:
    """What this process works with from now on."""
    global _ours
    _ours = trust


def ours() -> Trust:
    """What this process works with. NoTrust when nobody has said."""
    if _ours is None:
        raise NoTrust("this process has no certificates for other machines", "run mesh up")
    return _ours


def use_login(mesh: str, state: str) -> None:
    """Work with the login processor's own files (console/deploy/trust/authority.py), where there are any."""
    directory = os.path.join(state, "trust")
    if os.path.exists(os.path.join(directory, "login.pem")):
        use(Trust(mesh, os.path.join(directory, "ca.pem"), os.path.join(directory, "login.pem")))


def use_run(mesh: str, run: str) -> None:
    """Work as a client without a certificate: what a yod is."""
    use(Trust(mesh, os.path.join(run, "ca.pem")))
