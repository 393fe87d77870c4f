"""A CPA's port for login processors without a CPA: their RCAs connect over TLS and name the user of each connection
(A12).

An RCA vouches for the uids of its own login processor, which its certificate names.
"""

from collections.abc import Callable
from typing import Any

from agents.link import tcp, tls, trust
from agents.link.acceptor import Acceptor
from agents.link.journal import Journal
from agents.link.lean import Socket
from agents.link.loop import READ, Loop, Timer
from agents.link.server import Session
from agents.wire.errors import AgentError
from agents.wire.roles import roles_of

#: The time limit for a handshake in seconds; the most unfinished handshakes.
PATIENCE_S, MOST = 5.0, 64


class Afar:
    """Listens at ``place`` (HOST:PORT), and passes every connection of an RCA of this mesh to ``welcome``."""

    def __init__(
        self, loop: Loop, place: str, mesh: str, welcome: Callable[[tls.Secured], Session], journal: Journal
    ) -> None:
        self._loop, self._mesh, self._welcome, self._journal = loop, mesh, welcome, journal
        self._shaking: dict[tls.Secured, Timer] = {}
        self._addresses: dict[tls.Secured, str] = {}
        host, _, port = place.rpartition(":")
        self._sock = tcp.listen(host.strip("[]"), int(port))
        self._acceptor = Acceptor(loop, self._sock, self._on_accept, journal.exhausted)

    def _on_accept(self, sock: Socket, place: tuple[Any, ...]) -> None:
        sock.setblocking(False)
        try:
            tcp.tune(sock)
            secured = tls.Secured(sock, trust.ours(), server=True)
        except (OSError, AgentError) as error:  # the peer has disconnected, or our certificate is unusable
            self._journal.write("refused", reason="handshake", peer=place[0], message=str(error))
            sock.close()
            return
        if len(self._shaking) >= MOST:
            self._drop(tcp.to_make_room(self._addresses), "too_slow", "others came")
        self._addresses[secured] = str(place[0])
        late = lambda: self._drop(secured, "too_slow", "no handshake in time")  # noqa: E731
        self._shaking[secured] = self._loop.after(PATIENCE_S, late)
        self._loop.watch(secured.fileno(), READ, lambda _events: self._shake(secured))

    def _shake(self, secured: tls.Secured) -> None:
        try:
            secured.shake()
        except BlockingIOError:
            self._loop.watch(secured.fileno(), secured.wants, lambda _events: self._shake(secured))
            return
        except OSError as error:
            self._drop(secured, "handshake", error.strerror or str(error))
            return
        roles = roles_of(secured.peer.names, self._mesh)
        if "rca" not in roles:
            reason = "wrong_role" if roles else "no_certificate"
            self._drop(secured, reason, f"a CPA serves RCAs alone, not {'/'.join(sorted(roles)) or 'anybody'}")
            return
        self._shaking.pop(secured).cancel()
        self._addresses.pop(secured)
        self._loop.unwatch(secured.fileno())
        self._welcome(secured)

    def _drop(self, secured: tls.Secured, reason: str, message: str) -> None:
        self._shaking.pop(secured).cancel()
        self._journal.write("refused", reason=reason, peer=self._addresses.pop(secured), message=message)
        self._loop.unwatch(secured.fileno())
        secured.close()

    def close(self) -> None:
        """Stop listening."""
        for secured in list(self._shaking):
            self._drop(secured, "closing", "the CPA ends")
        self._acceptor.close()
        self._sock.close()
