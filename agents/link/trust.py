"""The CAs that this process trusts and the certificate that it shows: set once, for all connections to other
machines.

No file is read before the first such connection, so a process that uses only Unix sockets never imports ssl.
"""

from __future__ import annotations

import os
import time

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Optional


class NoTrust(AgentError):
    """This process has no certificates for a connection to another machine."""

    code = "no_trust"


class Trust:
    """The files of a process: the CAs' certificates, and its own key and certificate if it has one."""

    __slots__ = ("_believed", "_client", "_held", "_narrowed_at", "_server", "_stamp", "ca_path", "mesh", "own_path")

    def __init__(self, mesh: str, ca_path: str, own_path: str = "") -> None:
        self.mesh, self.ca_path, self.own_path = mesh, ca_path, own_path
        self._client: Any = None
        self._server: Any = None
        self._stamp: Any = None
        self._held = False
        self._believed: "frozenset[str]" = frozenset()  # the contents of the CAs' file, if we accept connections
        self._narrowed_at = 0.0

    def client(self) -> Any:
        """The TLS context for outgoing connections."""
        self._look()
        if self._client is None:
            self._client = _context(self.ca_path, self.own_path, server=False)
        return self._client

    def server(self) -> Any:
        """The TLS context for incoming connections."""
        self._look()
        if self._server is None:
            self._server = _context(self.ca_path, self.own_path, server=True)
            before, self._believed = self._believed, _certificates(self.ca_path)
            if not before <= self._believed:
                self._narrowed_at = time.monotonic()
        return self._server

    def believes(self, since: float) -> bool:
        """True if every CA that was trusted at that instant (monotonic) still is, because a connection outlives a
        file."""
        self.server()
        return since >= self._narrowed_at

    def hold(self) -> None:
        """Keep using what has been read, because a process that gives up root cannot read the files again."""
        self.client()
        self._held = True

    def _look(self) -> None:
        if self._held:
            return
        # Files that were replaced (mesh trust rotate) take effect at the next connection.
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


# Only the C part of the module ``ssl`` is imported (docs/decisions/0011), with the first context.

_TLS_1_3 = 0x304


def _context(ca_path: str, own_path: str, *, server: bool) -> Any:
    """A TLS context for incoming (``server``) or outgoing connections. Raises NoTrust if the files are unusable."""
    import _ssl as ssl

    try:
        context = ssl._SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:  # the site's crypto policy allows no usable setting
        hint = "look at this host's OpenSSL configuration"
        raise NoTrust(f"TLS cannot be used here: {why_refused(error)}", hint) from None
    if server:
        context.verify_mode = ssl.CERT_OPTIONAL  # a yod has no certificate, and may do little
        context.num_tickets = 0
    else:
        context.check_hostname = False  # the identity is in a URI, which Secured checks
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
    """The reason why TLS refused a connection, without internal file names."""
    told = getattr(error, "verify_message", "")
    if told:
        return f"its certificate is refused: {told.rstrip('.')}"
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return _ALERTS.get(reason, str(reason).replace("_", " ").lower())


#: The meaning of alerts of the other side.
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
    """Set this process's Trust."""
    global _ours
    _ours = trust


def ours() -> Trust:
    """This process's Trust. Raises NoTrust if none is set."""
    if _ours is None:
        raise NoTrust("this process has no certificate for connections to other machines", "run mesh up")
    return _ours


def use_login(mesh: str, state: str) -> None:
    """Use the login processor's own files (console/deploy/trust/authority.py), if they exist."""
    directory = os.path.join(state, "trust")
    if os.path.exists(os.path.join(directory, "login.pem")):
        use(Trust(mesh, os.path.join(directory, "ca.pem"), os.path.join(directory, "login.pem")))


def use_run(mesh: str, run: str) -> None:
    """Use only the CAs, as a client without a certificate: for a yod."""
    use(Trust(mesh, os.path.join(run, "ca.pem")))
