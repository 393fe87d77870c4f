"""A PCT's service for other machines: what agents/pct/remote/listener.py admits becomes launches and requests."""

from __future__ import annotations

import os
import time

from agents.link import trust as trusts
from agents.link.trust import Trust
from agents.pct.launch.paths import tombstone
from agents.pct.remote.admission import Admission
from agents.pct.remote.listener import Network, allowed, need_believed
from agents.wire import keys
from agents.wire.address import SCHEME
from agents.wire.errors import Refusal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Protocol, Tuple

    from agents.link.journal import Journal
    from agents.link.loop import Loop
    from agents.link.server import Session
    from agents.link.tls import Secured
    from agents.wire.control import Message
    from agents.wire.credential import Credential, Pass
    from agents.wire.object_pass import ObjectPeer
    from redmesh.settings.keeper_file import KeeperFile, NodeEntry

    class LocalPct(Protocol):
        """The interface of the PCT for its port (agents/pct/node/daemon.py)."""

        def life(self) -> Tuple[str, int]: ...

        def now(self) -> Optional[float]: ...

        def hand_over(self, sock: socket.socket) -> bool: ...

        def begin_remote(self, secured: Secured, role: str, let_in: Pass) -> None: ...

        def welcome_remote(self, secured: Secured, limit: int) -> Session: ...

        def hand_to_image_proxy(self, sock: socket.socket) -> bool: ...

        def fork_image_proxy(self, work: Callable[[socket.socket], NoReturn]) -> None: ...

        def fork_courier(self, sock: Any, peer: Optional[ObjectPeer]) -> None: ...


#: The largest request of a peer without a certificate, in bytes.
_LONGEST = 64 << 10
#: The most sessions of such peers, because a single credential could open any number.
_MOST_LAUNCHERS = 32


class GatewayConfig:
    """A node's settings for other machines in keeper.json: ``listen`` (ADDR:PORT), ``trust`` (a directory),
    ``owner``."""

    __slots__ = ("address", "clock", "listen", "owner", "trust")

    def __init__(self, file: KeeperFile, node: NodeEntry) -> None:
        listen = node.listen or file.listen
        host, _, port = listen.rpartition(":")
        self.listen: Tuple[str, int] = (host.strip("[]"), int(port))
        self.trust = node.trust or file.trust_directory
        self.owner: Optional[int] = None if file.system else file.owner if file.owner >= 0 else os.geteuid()
        # The address for others if one is configured (a gateway, several networks), otherwise where it listens.
        self.address = f"{SCHEME}{node.address or listen}/{node.name}"
        #: A node without an RCA uses its own clock.
        self.clock: Optional[Callable[[], float]] = None if file.rca else time.time


class Gateway:
    """The port of ``node``: certificates, admission, and the dispatch of connections to the PCT (``pct``)."""

    def __init__(
        self,
        loop: Loop,
        mesh: str,
        run: str,
        node: str,
        config: GatewayConfig,
        log: Journal,
        pct: LocalPct,
    ) -> None:
        self._run, self._node, self._mesh, self._config, self._log = run, node, mesh, config, log
        self._pct = pct
        self._launchers: List[Session] = []  # sessions of peers that have only a credential
        self._trust = Trust(mesh, self._file("ca.pem"), self._file("node.pem"))
        trusts.use(self._trust)
        launch_keys = keys.KeyFile(self._file("launch.key")).read
        self._admission = Admission(
            mesh, node, config.owner, pct.life, launch_keys, config.clock or pct.now,
            lambda launcher: os.path.exists(tombstone(run, node, launcher)),
        )  # fmt: skip
        self._network = Network(
            loop,
            config.listen,
            self._trust,
            self._admission,
            log,
            pct,
            self._on_request,
            self._on_fetch,
        )

    @property
    def address(self) -> str:
        """The address of this PCT for others."""
        return self._config.address

    def prepare(self) -> None:
        """Import TLS, for all processes forked from now on. Raises NoTrust if the node's certificate is unusable."""
        import agents.pct.launch_child.load_check
        import agents.pct.remote.image_proxy
        import agents.pct.remote.spare_handshake  # noqa: F401

        self._trust.client()
        self._trust.server()

    def prepare_images(self) -> None:
        """Import what a launch with images needs, as most launches on other machines do."""
        import agents.pct.launch_child.payload_transfer  # noqa: F401

    def _file(self, name: str) -> str:
        return os.path.join(self._config.trust, name)

    def _on_request(self, secured: Secured, credential: Optional[Credential]) -> None:
        session = self._pct.welcome_remote(secured, _LONGEST if credential is not None else 0)
        session.state = credential
        if credential is not None:
            self._launchers = [one for one in self._launchers if one.open][-_MOST_LAUNCHERS:]
            if len(self._launchers) == _MOST_LAUNCHERS:
                self._launchers.pop(0).dismiss("others came")
            self._launchers.append(session)

    def _on_fetch(self, secured: Secured, message: Message) -> None:
        from agents.pct.remote.image_proxy import ImageSource, be_image_proxy

        source = ImageSource(self._run, self._node, self._mesh, self._log)
        self._pct.fork_image_proxy(lambda line: be_image_proxy(source, line, secured, message))
        secured.close()

    def answer(self, question: bytes) -> bytes:
        """The answer to a launch child that received a launch."""
        from agents.pct.remote.spare_handshake import answer

        return answer(question, self._network.let_in, self._network.failed)

    def receive(self, line: socket.socket, sock: socket.socket) -> "Optional[Tuple[Secured, str, Pass]]":
        """In a launch child: receive a launch from another machine; None if it was refused, or disconnected."""
        from agents.pct.remote.spare_handshake import receive

        return receive(line, sock)

    def renew(self, files: Dict[str, Any]) -> None:
        """Use other certificates and keys from now on. Raises BadFiles."""
        from agents.pct.remote.certificates import renew  # needed once in months

        renew(self._config.trust, self._mesh, files)
        self.prepare()  # otherwise each launch child would read them
        self._log.write("trust renewed")

    def check(self, session: Session, op: str, message: Message) -> None:
        """Raise Refusal unless the peer may ask for ``op``."""
        if session.peer.uid >= 0:
            return
        names = session.peer.names
        secured: Any = session.link.sock
        try:
            need_believed(secured, self._trust)
            allowed(op, names, self._mesh, session.state, message.get("launcher"))
        except Refusal as refusal:
            self._log.write("refused", reason=refusal.reason, op=op, names=sorted(names), message=refusal.message)
            raise

    def close(self) -> None:
        """Stop listening."""
        self._network.close()
