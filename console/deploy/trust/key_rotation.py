"""``mesh trust rotate``: sends every node its new files through its PCT's own port, while launches run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.link import trust
from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.address import SCHEME, parse
from agents.wire.control import Message
from agents.wire.errors import AgentError
from console.deploy.personal import lifecycle
from console.deploy.personal.evidence_of_life import lives
from console.deploy.personal.plan import cpa_url
from console.deploy.trust.authority import Authority, Stage, TrustError, authority
from console.errors import ConsoleError
from console.settings import Settings
from db.store.store import open_store
from db.views import deployment_reads
from db.views.deployment_reads import places
from redmesh.settings.keeper_file import KeeperFile
from redmesh.text import counted

#: The most seconds for a node to accept its files; how many nodes are contacted in parallel.
TAKE_S, AT_ONCE = 15.0, 64
#: The steps in words.
TOLD = {
    Stage.INTRODUCED: "the next certificates and keys are accepted",
    Stage.TURNED: "they are in use, the former ones are still accepted",
    Stage.SETTLED: "the former ones are gone",
}


class FarNode(NamedTuple):
    """A node that is reached over TLS; ``is_there``: whether it is up."""

    name: str
    address: str
    is_there: bool


class Behind(TrustError):
    """The rotation cannot continue, because some nodes have not accepted their files."""

    def __init__(self, reasons: dict[str, str]) -> None:
        some = "; ".join(f"{name}: {why}" for name, why in list(reasons.items())[:5])
        more = f" and {len(reasons) - 5} more" if len(reasons) > 5 else ""
        who = counted(len(reasons), "node has not taken its", "nodes have not taken their")
        super().__init__(
            f"{who} files ({some}{more}); old and new ones are accepted",
            "mesh trust rotate goes on where it stopped, once they answer or are down",
        )


def nodes_of(settings: Settings) -> list[FarNode]:
    """The nodes on other machines. Raises StoreError."""
    with open_store(cpa_url(settings)) as store:
        nodes = places(store)
    return [FarNode(node.name, node.address, node.state != "down") for node in nodes if node.address.startswith(SCHEME)]


def rotate(settings: Settings, say: Callable[[str], None]) -> list[str]:
    """Rotate the mesh's CA and keys; return nodes that were down, which need ``mesh up``.

    Raises Behind or ConsoleError.
    """
    config = living(settings)
    with lifecycle.locked(settings):
        return rotate_locked(settings, config, say)


def rotate_locked(settings: Settings, config: KeeperFile, say: Callable[[str], None]) -> list[str]:
    """Like :func:`rotate`, for the mesh of ``config``, and for a caller that holds ``up.lock``."""
    keys = authority(settings.state_dir, settings.mesh)
    nodes = nodes_of(settings)
    there = [node for node in nodes if node.is_there]

    def tell(now: Authority) -> None:
        now.equip_login(config.login, _own_addresses(config), config.run)
        trust.use_login(settings.mesh, settings.state_dir)
        reasons = Telling(now, there).run()
        if reasons:
            raise Behind(reasons)
        say(f"{counted(len(there), 'node')}: {TOLD[now.stage]}")

    keys.rotate(tell)
    for name in _granted(settings):
        say(f"{name}: mesh up brings it the new ones, or mesh login grant it again, and join there")
    return [node.name for node in nodes if not node.is_there]


def _granted(settings: Settings) -> list[str]:
    """Granted login processors. Raises StoreError."""
    with open_store(cpa_url(settings)) as store:
        return deployment_reads.granted(store)


def living(settings: Settings) -> KeeperFile:
    """keeper.json of the mesh whose keys are here. Raises ConsoleError if it is down, or another login processor's."""
    config = lifecycle.read_config(settings)
    if config is None or not lives(config):
        raise ConsoleError("no mesh is up", "keys are made by mesh up, and anew by it when STATE/trust is gone")
    if config.granted:
        raise ConsoleError("this login processor was granted by another one, which has the mesh's keys", "do it there")
    return config


def _own_addresses(config: KeeperFile) -> list[str]:
    return [place.rpartition(":")[0].strip("[]") for place in config.rca]


class Telling:
    """Sends every node its files in parallel; ``run`` returns those that have not accepted them, with reasons."""

    def __init__(self, keys: Authority, nodes: Sequence[FarNode]) -> None:
        self._keys, self._waiting = keys, list(nodes)
        self._reasons: dict[str, str] = {}
        self._loop = Loop()
        self._outstanding = 0

    def run(self) -> dict[str, str]:
        """Send the files, and wait until each node has answered or timed out."""
        for _ in range(AT_ONCE):
            self._next()
        while self._outstanding:
            self._loop.run_once(None)
        return self._reasons

    def _next(self) -> None:
        while self._waiting:
            node = self._waiting.pop(0)
            try:
                self._tell(node)
                return
            except (OSError, AgentError) as error:
                self._reasons[node.name] = getattr(error, "message", None) or str(getattr(error, "strerror", error))

    def _tell(self, node: FarNode) -> None:
        made = self._keys.node_files(node.name, [parse(node.address).host])
        files = {name: content.decode("ascii") for name, content in made.items()}
        caller = Caller(self._loop, connect_now(node.address), "cpa", lambda _caller, _reason: None)
        over = False

        def answered(_reply: Message | None, error: AgentError | None) -> None:
            nonlocal over
            if over:
                return
            over = True
            timer.cancel()
            caller.close()
            if error is not None:
                self._reasons[node.name] = error.message
            self._outstanding -= 1
            self._next()

        self._outstanding += 1
        timer = self._loop.after(TAKE_S, lambda: answered(None, AgentError(f"no answer in {TAKE_S:.0f} s")))
        caller.call({"op": "trust", "files": files}, answered)
