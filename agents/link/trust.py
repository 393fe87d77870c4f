"""Whom this process believes and what it shows: set once, used by every connection to another machine.

Nothing is read before the first of them: a process that only talks to Unix sockets never loads ssl.
"""

from __future__ import annotations

import os
import time

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Optional


class NoTrust(AgentError):
    """A connection to another machine that this process has no certificates for."""

    code = "no_trust"


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
            self._client = _context(self.ca_path, self.own_path, server=False)
        return self._client

    def server(self) -> Any:
        """The context of connections we accept."""
        self._look()
        if self._server is None:
            self._server = _context(self.ca_path, self.own_path, server=True)
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


# Only the C part of the module ``ssl`` is loaded (docs/decisions/0011), with the first context.

_TLS_1_3 = 0x304


def _context(ca_path: str, own_path: str, *, server: bool) -> Any:
    """For connections we accept (``server``) or make. NoTrust when the files are of no use."""
    import _ssl as ssl

    try:
        context = ssl._SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:  # the site's policy leaves nothing to work with
        hint = "look at this host's OpenSSL configuration"
        raise NoTrust(f"TLS cannot be used here: {why_refused(error)}", hint) from None
    if server:
        context.verify_mode = ssl.CERT_OPTIONAL  # a yod has no certificate, and may do little
        context.num_tickets = 0
    else:
        context.check_hostname = False  # who it is stands in a URI, which Secured looks at
        context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = _TLS_1_3
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(ca_path)
        if own_path:
            context.load_cert_chain(own_path)
    except OSError as error:
        raise NoTrust(f"{own_path or ca_path} cannot be used: {why_refused(error)}", "run mesh up") from None
    return context


def why_refused(error: OSError) -> str:
    """Why TLS refused, in words, without a library's file names."""
    told = getattr(error, "verify_message", "")
    if told:
        return f"its certificate is refused: {told.rstrip('.')}"
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return _ALERTS.get(reason, str(reason).replace("_", " ").lower())


#: What an alert of the other side means to a person.
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "our certificate is refused: it is of another mesh",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate is refused: it has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "our certificate is refused",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "our certificate is refused: it is for another purpose",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
}


_ours: Optional[Trust] = None


def use(trust: Optional[Trust]) -> None:
    """What this process works with from now on."""
    global _ours
    _ours = trust


def ours() -> Trust:
    """What this process works with. NoTrust when nobody has said."""
    if _ours is None:
        raise NoTrust("this process has no certificate for connections to other machines", "run mesh up")
    return _ours


def use_login(mesh: str, state: str) -> None:
    """Work with the login processor's own files (console/deploy/trust/authority.py), where there are any."""
    directory = os.path.join(state, "trust")
    if os.path.exists(os.path.join(directory, "login.pem")):
        use(Trust(mesh, os.path.join(directory, "ca.pem"), os.path.join(directory, "login.pem")))


def use_run(mesh: str, run: str) -> None:
    """Work as a client without a certificate: what a yod is."""
    use(Trust(mesh, os.path.join(run, "ca.pem")))
