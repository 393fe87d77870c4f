"""``keeper.json``: what ``mesh up`` tells the keeper of a host, and the daemons that the keeper starts.

``mesh up`` writes the file as :meth:`KeeperFile.to_json` makes it; each daemon reads it at its start.
After an upgrade, daemons read the file of an earlier version: keys without a field are ignored, and a field whose key
is missing has its default. The required fields stand in the files of every version.
"""

from __future__ import annotations

from redmesh.byte_text import each_from_system
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
    from typing import Any, Dict, Optional, Tuple, TypeVar, Union

    T = TypeVar("T", bound="Place")

#: The role of nodes whose PCT runs beside logins and file systems (the PCT emulator, row A11).
SERVICE = "service"
#: Instead of ``ends_with``: the keeper ends with the process that started it.
PARENT = "parent"


class NodeEntry(Record, slots=True):
    """A node in ``keeper.json``."""

    name: str = field("the node's name")
    processors: Tuple[int, ...] = field("the mesh's numbers of its processors")
    id: int = field("its number in the system database", default=0)
    gpus: Tuple[int, ...] = field("the node's numbers of its GPUs", default=())
    role: str = field("compute, service or login", default="compute")
    address: str = field("tls://HOST:PORT/NAME of a node with a keeper of its own; else empty", default="")
    listen: str = field("HOST:PORT of this node alone", default="")
    trust: str = field("the directory with the keys of this node alone", default="")


class ServedSettings(HeartbeatSettings, NodeSettings):
    """The settings that every keeper.json has. ``mesh upgrade`` replaces them."""


class CpaSettings(AllocationSettings, UsersSettings):
    """The settings of CPAs, which a further login processor gets with its grant."""


class LoginSettings(ServedSettings, CpaSettings, CleanupSettings):
    """The settings in the keeper.json of a login processor with CPAs."""


class Place(Record):
    """What commands need of the mesh, and of this host in it."""

    mesh: str = field("the mesh's name in certificates, and of the directory RUN")
    login: str = field("the name of this login processor; empty on a node")
    ends_with: Union[str, Tuple[int, ...]] = field(
        "the process and its start time with which the keeper ends, or `parent`", default=(), kind=TEXT_OR_NUMBERS
    )

    @property
    def script(self) -> Optional[Tuple[int, int]]:
        """The process of the batch job's script and its start time, if the keeper ends with it."""
        ends_with = self.ends_with
        return (ends_with[0], ends_with[1]) if ends_with and not isinstance(ends_with, str) else None


class PlaceInFile(Place, slots=True):
    """Of ``keeper.json``, what commands need: every yod reads it, and a machine may have 10,000 nodes."""


class KeeperFile(Place, ServedSettings, CpaSettings, CleanupSettings, PrologSettings, slots=True):
    """``keeper.json``."""

    # The mesh, and this host in it
    run: str = field("RUN, the directory of the sockets")
    state: str = field("STATE, the directory of the logs and the lock")
    boot_id: str = field("the number of this start of the mesh; on a node, of its daemons")
    nodes: Tuple[NodeEntry, ...] = field("the nodes; on a node, itself", record=NodeEntry)
    cpas: int = field("the number of CPAs that the keeper starts")
    users: bool = field("system mode: every user of this login processor may connect", default=False)
    installed: str = field("the directory of the full Redmesh; daemons run a copy without commands", default="")

    # The end of a mesh that nobody uses, or whose batch job ends
    auto: bool = field("yod started the mesh, which ends when it is idle", default=False)
    idle_s: float = field("seconds without a launch after which such a mesh ends", default=0.0)
    signalled_by: str = field("the batch system that sends signals to daemons too", default="")
    signals_reach: str = field("whom its signals reach, if that is known", default="")
    supervisor: str = field("the batch system's process above the keeper, if it has one", default="")
    keep_jobs: str = field("where the job's state objects are kept", default="")

    # The system database
    database: str = field("the URL that CPAs open, unless it holds a password", default="")
    database_file: str = field("the file with that URL, of mode 0600", default="")
    topology: Optional[Dict[str, Any]] = field("the machine in the section `[topology]`, with defaults", default=None)
    managers: Tuple[Dict[str, Any], ...] = field("the tables `[[manager]]`", default=())

    # Other machines
    rca: Tuple[str, ...] = field("HOST:PORT of the RCAs, the one of this login processor first", default=())
    trust: str = field("the directory of the keys; empty: STATE/trust", default="")
    listen: str = field("HOST:PORT at which a node's PCT listens", default="")
    cpa_listen: str = field("HOST:PORT of the first CPA for other login processors", default="")
    cpa_port: int = field("the port of the first CPA on every other login processor with CPAs", default=0)
    cpas_afar: Tuple[str, ...] = field("the CPAs of a login processor that has none", default=())
    granted: bool = field("another login processor's mesh granted this one, and may revoke it", default=False)

    # A node's
    mesh_boot: str = field("the login processor's boot_id; empty: the same as this one", default="")
    protocol: int = field("the protocol number of the agent", default=1)
    owner: int = field("the uid on the login processor of the mesh's owner; -1: the node's own", default=-1)
    started_on: Optional[str] = field(
        "the host of `mesh up`; empty: other meshes do not matter; null: this host", default=None
    )
    system: bool = field("system mode: the PCT is root's", default=False)
    objects: str = field("system mode: the directory of state objects", default="")

    # A simulated machine
    simulated: Tuple[str, ...] = field("processes that stand in for PCTs", default=())
    size: Tuple[int, ...] = field("the processors and nodes for which they do", default=())

    # For tests alone
    register_again_s: float = field("seconds that launchers and PCTs have to register with a new RCA", default=5.0)
    lease_s: float = field("seconds for which a node runs without an RCA; 0: 2/3 of down_s", default=0.0)
    spare_s: float = field("seconds for which a used launch child waits for the next launch", default=10.0)
    unwatched_s: float = field("seconds between looks at launches whose process nobody may watch", default=30.0)
    backfill: bool = field("smaller requests may pass if they delay nobody", default=True)

    def to_json(self) -> Dict[str, Any]:
        """The content of the file. It has all settings of the daemons that the keeper starts, so that a later version
        with other defaults changes nothing."""
        always = LoginSettings if self.cpas else ServedSettings
        wire: Dict[str, Any] = each_from_system(self.to_wire(always))
        return wire

    @property
    def trust_directory(self) -> str:
        """The directory of the keys."""
        return self.trust or f"{self.state}/trust"


def read_keeper_file(found: object) -> KeeperFile:
    """The record of a decoded ``keeper.json``. Raises ValueError: MissingFields, or what is wrong with which value."""
    return _checked(KeeperFile.from_wire(found))


def read_place(found: object) -> PlaceInFile:
    """What commands need of a decoded ``keeper.json``. Raises ValueError as :func:`read_keeper_file`."""
    return _checked(PlaceInFile.from_wire(found))


def _checked(place: T) -> T:
    if not isinstance(place.ends_with, str) and len(place.ends_with) not in (0, 2):
        raise ValueError(f"ends_with must be a process and its start time, not {place.ends_with}")
    return place
