"""A PCT that other machines reach: what agents/pct/remote/listener.py lets in, brought to launches and requests."""

from __future__ import annotations

import os
import time

from agents.link import trust as trusts
from agents.link.trust import SCHEME, Trust
from agents.pct.launch.paths import tombstone
from agents.pct.remote.admission import Admission
from agents.pct.remote.listener import Network, allowed, need_believed
from agents.wire import keys
from agents.wire.errors import Refusal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    from agents.link.loop import Loop
    from agents.link.server import Session
    from agents.link.tls import Secured
    from agents.pct.node.log import Log
    from agents.pct.remote.listener import Pass
    from agents.wire.control import Message
    from agents.wire.credential import Credential

#: Bytes of a request of somebody who has no certificate.
_LONGEST = 64 << 10
#: Sessions of such at once: anybody with one credential could open any number.
_MOST_LAUNCHERS = 32


class OutsideConfig:
    """What a node's keeper.json says of other machines: ``listen`` (ADDR:PORT), ``trust`` (a directory), ``owner``."""

    __slots__ = ("address", "clock", "listen", "owner", "trust")

    def __init__(self, config: Dict[str, Any], node: str) -> None:
        host, _, port = str(config["listen"]).rpartition(":")
        self.listen: Tuple[str, int] = (host.strip("[]"), int(port))
        self.trust = str(config["trust"])
        self.owner: Optional[int] = None if config.get("system") else int(config.get("owner", os.geteuid()))
        # where it is told how others reach it (a gateway, several networks), that, else where it listens
        self.address = f"{SCHEME}{config.get('address') or config['listen']}/{node}"
        #: A node that no RCA tells the time has its own to go by.
        self.clock: Optional[Callable[[], float]] = None if config.get("rca") else time.time


class Gateway:
    """The port of ``node``: certificates, admission, and who is brought to the PCT (``inside``) for what."""

    def __init__(
        self,
        loop: Loop,
        mesh: str,
        run: str,
        node: str,
        config: OutsideConfig,
        log: Log,
        inside: LocalPct,
    ) -> None:
        self._run, self._node, self._mesh, self._config, self._log = run, node, mesh, config, log
        self._inside = inside
        self._launchers: List[Session] = []  # sessions of those who have no more than a credential
        self._trust = Trust(mesh, self._file("ca.pem"), self._file("node.pem"))
        trusts.use(self._trust)
        launch_keys = keys.KeyFile(self._file("launch.key")).read
        self._admission = Admission(
            mesh, node, config.owner, inside.life, launch_keys, config.clock or inside.now,
            lambda launcher: os.path.exists(tombstone(run, node, launcher)),
        )  # fmt: skip
        self._network = Network(
            loop,
            config.listen,
            self._trust,
            self._admission,
            log,
            inside.begin_far,
            self._on_request,
            self._on_fetch,
            inside.hand_over,
            inside.hand_to_courier,
        )

    @property
    def address(self) -> str:
        """Where others reach this PCT."""
        return self._config.address

    def prepare(self) -> None:
        """Load TLS, for all that are forked from now on. NoTrust when the node's certificate is of no use."""
        import agents.pct.launch_child.load_check
        import agents.pct.remote.image_proxy
        import agents.pct.remote.spare_handshake  # noqa: F401

        self._trust.client()
        self._trust.server()

    def prepare_images(self) -> None:
        """Load what a launch needs whose program travels, which on other machines' nodes most do."""
        import agents.pct.launch_child.payload_transfer  # noqa: F401

    def _file(self, name: str) -> str:
        return os.path.join(self._config.trust, name)

    def _on_request(self, secured: Secured, credential: Optional[Credential]) -> None:
        session = self._inside.welcome_far(secured, _LONGEST if credential is not None else 0)
        session.state = credential
        if credential is not None:
            self._launchers = [one for one in self._launchers if one.open][-_MOST_LAUNCHERS:]
            if len(self._launchers) == _MOST_LAUNCHERS:
                self._launchers.pop(0).dismiss("others came")
            self._launchers.append(session)

    def _on_fetch(self, secured: Secured, message: Message) -> None:
        from agents.pct.remote.image_proxy import ImageSource, be_courier

        depot = ImageSource(self._run, self._node, self._mesh, self._log)
        self._inside.fork_courier(lambda line: be_courier(depot, line, secured, message))
        secured.close()

    def answer(self, question: bytes) -> bytes:
        """What a launch child that received a launch is told."""
        from agents.pct.remote.spare_handshake import answer

        return answer(question, self._network.let_in, self._network.failed)

    def renew(self, files: Dict[str, Any]) -> None:
        """Other certificates and keys from now on. BadFiles."""
        from agents.pct.remote.certificates import renew  # once in months

        renew(self._config.trust, self._mesh, files)
        self.prepare()  # or each launch child would read them
        self._log.write("trust renewed")

    def check(self, session: Session, op: str, message: Message) -> None:
        """Refusal unless whoever is at the other end may ask for ``op``."""
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
        """Listen no more."""
        self._network.close()


# What a PCT does for those whom it lets in from other machines (agents/pct/remote/gateway.py).


class LocalPct:
    """The PCT, as its port sees it: an interface, whose one implementation is agents/pct/node/daemon.py's Pct.

    Declared here so that the port does not import the daemon, which imports the port.
    """

    def life(self) -> "Tuple[str, int]":
        """Boot id and incarnation, as they are now."""
        raise NotImplementedError

    def now(self) -> Optional[float]:
        """The mesh's time, where it is known."""
        raise NotImplementedError

    def hand_over(self, sock: socket.socket) -> bool:
        """Give the connection of a launch to a launch child that waits; False when there is none."""
        raise NotImplementedError

    def begin_far(self, secured: Secured, role: str, let_in: Pass) -> None:
        """Begin a launch."""
        raise NotImplementedError

    def welcome_far(self, secured: Secured, limit: int) -> Session:
        """Serve requests of ``limit`` bytes at most."""
        raise NotImplementedError

    def hand_to_courier(self, sock: socket.socket) -> bool:
        """Give the connection of a node that wants an image to a courier that waits; False when there is none."""
        raise NotImplementedError

    def fork_courier(self, work: Callable[[socket.socket], NoReturn]) -> None:
        """Do ``work`` in a process of its own; it has a line to the PCT, by which it says that it may do more."""
        raise NotImplementedError
