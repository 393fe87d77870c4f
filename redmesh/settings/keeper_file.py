"""``keeper.json``: what ``mesh up`` tells the keeper of a host, and the daemons that the keeper starts.

``mesh up`` writes the file as :meth:`KeeperFile.to_json` makes it; each daemon reads it at its start.
After an upgrade, daemons read the file of an earlier version: keys without a field are ignored, and a field whose key
is missing has its default. The required fields stand in the files of every version.
"""

from __future__ import annotations

from redmesh.byte_text import each_from_system, each_to_system
from redmesh.settings.groups import (
    AllocationSettings,
    CleanupSettings,
    HeartbeatSettings,
    NodeSettings,
    PrologSettings,
    UsersSettings,
)
from redmesh.settings.record import TEXT_OR_NUMBERS, Record, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple, Union

#: The role of nodes whose PCT runs beside logins and file systems (the PCT emulator, row A11).
SERVICE = "service"
#: Instead of ``ends_with``: the keeper ends with the process that started it.
PARENT = "parent"


class NodeEntry(Record, slots=True):
    """A node in ``keeper.json``."""

    name: str = field(meaning="the node's name")
    processors: Tuple[int, ...] = field(meaning="the mesh's numbers of its processors")
    id: int = field(default=0, meaning="its number in the system database")
    gpus: Tuple[int, ...] = field(default=(), meaning="the node's numbers of its GPUs")
    role: str = field(default="compute", meaning="compute, service or login")
    address: str = field(default="", meaning="tls://HOST:PORT/NAME of a node with a keeper of its own; else empty")
    listen: str = field(default="", meaning="HOST:PORT of this node alone")
    trust: str = field(default="", meaning="the directory with the keys of this node alone")


class ServedSettings(HeartbeatSettings, NodeSettings):
    """The settings that every keeper.json has. ``mesh upgrade`` replaces them."""


class CpaSettings(AllocationSettings, UsersSettings):
    """The settings of CPAs, which a further login processor gets with its grant."""


class LoginSettings(ServedSettings, CpaSettings, CleanupSettings):
    """The settings in the keeper.json of a login processor with CPAs."""


class KeeperFile(ServedSettings, CpaSettings, CleanupSettings, PrologSettings, slots=True):
    """``keeper.json``."""

    # The mesh, and this host in it
    run: str = field(meaning="RUN, the directory of the sockets")
    state: str = field(meaning="STATE, the directory of the logs and the lock")
    mesh: str = field(meaning="the mesh's name in certificates, and of the directory RUN")
    boot_id: str = field(meaning="the number of this start of the mesh; on a node, of its daemons")
    login: str = field(meaning="the name of this login processor; empty on a node")
    nodes: Tuple[NodeEntry, ...] = field(meaning="the nodes; on a node, itself", record=NodeEntry)
    cpas: int = field(meaning="the number of CPAs that the keeper starts")
    users: bool = field(default=False, meaning="system mode: every user of this login processor may connect")
    installed: str = field(default="", meaning="the directory of the full Redmesh; daemons run a copy without commands")

    # The end of a mesh that nobody uses, or whose batch job ends
    auto: bool = field(default=False, meaning="yod started the mesh, which ends when it is idle")
    idle_s: float = field(default=0.0, meaning="seconds without a launch after which such a mesh ends")
    ends_with: Union[str, Tuple[int, ...]] = field(
        default=(),
        kind=TEXT_OR_NUMBERS,
        meaning="the process and its start time with which the keeper ends, or `parent`",
    )
    signalled_by: str = field(default="", meaning="the batch system that sends signals to daemons too")
    signals_reach: str = field(default="", meaning="whom its signals reach, if that is known")
    supervisor: str = field(default="", meaning="the batch system's process above the keeper, if it has one")
    keep_jobs: str = field(default="", meaning="where the job's state objects are kept")

    # The system database
    database: str = field(default="", meaning="the URL that CPAs open, unless it holds a password")
    database_file: str = field(default="", meaning="the file with that URL, of mode 0600")
    topology: Optional[Dict[str, Any]] = field(
        default=None, meaning="the machine in the section `[topology]`, with defaults"
    )
    managers: Tuple[Dict[str, Any], ...] = field(default=(), meaning="the tables `[[manager]]`")

    # Other machines
    rca: Tuple[str, ...] = field(default=(), meaning="HOST:PORT of the RCAs, the one of this login processor first")
    trust: str = field(default="", meaning="the directory of the keys; empty: STATE/trust")
    listen: str = field(default="", meaning="HOST:PORT at which a node's PCT listens")
    cpa_listen: str = field(default="", meaning="HOST:PORT of the first CPA for other login processors")
    cpa_port: int = field(default=0, meaning="the port of the first CPA on every other login processor with CPAs")
    cpas_afar: Tuple[str, ...] = field(default=(), meaning="the CPAs of a login processor that has none")
    granted: bool = field(default=False, meaning="another login processor's mesh granted this one, and may revoke it")

    # A node's
    mesh_boot: str = field(default="", meaning="the login processor's boot_id; empty: the same as this one")
    protocol: int = field(default=1, meaning="the protocol number of the agent")
    owner: int = field(default=-1, meaning="the uid on the login processor of the mesh's owner; -1: the node's own")
    started_on: Optional[str] = field(
        default=None, meaning="the host of `mesh up`; empty: other meshes do not matter; null: this host"
    )
    system: bool = field(default=False, meaning="system mode: the PCT is root's")
    objects: str = field(default="", meaning="system mode: the directory of state objects")

    # A simulated machine
    simulated: Tuple[str, ...] = field(default=(), meaning="processes that stand in for PCTs")
    size: Tuple[int, ...] = field(default=(), meaning="the processors and nodes for which they do")

    # For tests alone
    register_again_s: float = field(
        default=5.0, meaning="seconds that launchers and PCTs have to register with a new RCA"
    )
    lease_s: float = field(default=0.0, meaning="seconds for which a node runs without an RCA; 0: 2/3 of down_s")
    spare_s: float = field(default=10.0, meaning="seconds for which a used launch child waits for the next launch")
    unwatched_s: float = field(default=30.0, meaning="seconds between looks at launches whose process nobody may watch")
    backfill: bool = field(default=True, meaning="smaller requests may pass if they delay nobody")

    def to_json(self) -> Dict[str, Any]:
        """The content of the file. It has all settings of the daemons that the keeper starts, so that a later version
        with other defaults changes nothing."""
        always = LoginSettings if self.cpas else ServedSettings
        wire: Dict[str, Any] = each_from_system(self.to_wire(always))
        return wire

    @property
    def script(self) -> Optional[Tuple[int, int]]:
        """The process of the batch job's script and its start time, if the keeper ends with it."""
        ends_with = self.ends_with
        return (ends_with[0], ends_with[1]) if ends_with and not isinstance(ends_with, str) else None

    @property
    def trust_directory(self) -> str:
        """The directory of the keys."""
        return self.trust or f"{self.state}/trust"


def read_keeper_file(found: object) -> KeeperFile:
    """The record of a decoded ``keeper.json``. Raises ValueError: MissingFields, or what is wrong with which value."""
    return KeeperFile.from_wire(each_to_system(found))
