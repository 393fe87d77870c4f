"""The settings that daemons use. ``mesh up`` reads them from mesh.toml and writes them into ``keeper.json``."""

from __future__ import annotations

from redmesh.settings.record import PATH, Record, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple


class HeartbeatSettings(Record):
    """Heartbeats: when the RCA takes nodes and launchers for lost."""

    suspect_s: float = field("seconds without a heartbeat after which a node is suspect", default=5.0)
    down_s: float = field("seconds without a heartbeat after which a node is down", default=15.0)
    failed_s: float = field(
        "seconds after which a node on which a load failed is used again, if its PCT lives", default=30.0
    )
    silent_s: float = field(
        "seconds without a heartbeat after which a yod that still exists counts as lost (a yod that exits is "
        "noticed at once)",
        default=10.0,
    )


class NodeSettings(Record):
    """Nodes: how launches spread, and limits on a node."""

    fanout: int = field("the largest number of children of a node in the tree of a launch", default=32, least=2)
    service_memory_mb: int = field("address space in MiB that a process on a service node may have; 0: any", default=0)
    node_jobs_mb: int = field("MiB of one user's state objects that a node accepts; 0: no limit", default=10240)


class AllocationSettings(Record):
    """Allocation: who may do what, and how long the CPAs keep things."""

    batch_accounts: Tuple[str, ...] = field(
        "accounts of the batch system, which may create partitions for batch jobs, as administrators may",
        default=(),
        in_job=False,
    )
    admins: Tuple[str, ...] = field(
        "accounts that may end and signal any user's launches, drain and reset nodes, change modes and reserve; "
        "root and the mesh's owner always may",
        default=(),
        in_job=False,
    )
    max_processors: int = field(
        "processors that a user may have at once outside batch partitions; 0: any number", default=0, in_job=False
    )
    max_jobs: int = field(
        "jobs, and launches outside of jobs, that one user may run at once; 0: any number", default=0, in_job=False
    )
    placement: str = field(
        "the placement of requests that name no placement (docs/placement.md); empty: `default`", default=""
    )
    pending_s: float = field(
        "seconds for which processors are kept for a launcher until its ranks are ready, or yod reports that it loads",
        default=60.0,
        least=1,
    )
    loading_s: float = field(
        "seconds for which processors are kept while a launch loads; yod renews them", default=300.0, least=2
    )
    nice_grace_s: float = field(
        "seconds between SIGTERM and SIGKILL for a -nice launch that is preempted", default=300.0
    )
    post_back_urls: Tuple[str, ...] = field(
        "https://HOST:PORT of the servers to which a CPA may report processors that a request was granted",
        default=(),
        in_job=False,
    )
    post_back_ca: str = field(
        "a file with the CA certificates for these servers; empty: the system's", default="", kind=PATH, in_job=False
    )
    history_days: int = field("days for which ended partitions and launchers are kept", default=30)
    history_rows: int = field("number of ended partitions and launchers that are kept", default=10000)


class CleanupSettings(Record):
    """Clean-up after a lost launcher."""

    cleanup: str = field(
        "the executable that kills what a lost launcher left on its nodes; empty: the one of Redmesh",
        default="",
        kind=PATH,
    )


class UsersSettings(Record):
    """System mode: what other users see."""

    show_commands: int = field(
        "system mode: 1 shows the arguments of everybody's launches, and why launches failed, to all users; 0: to "
        "the launch's user and root",
        default=0,
    )


class PrologSettings(Record):
    """System mode: what root runs and allows on every node."""

    prolog: str = field(
        "system mode: the executable that root runs on every node before a launch", default="", kind=PATH
    )
    epilog: str = field(
        "system mode: the executable that root runs on every node after a launch", default="", kind=PATH
    )
    prolog_s: float = field("seconds after which a prolog or an epilog is killed", default=60.0, least=1)
    allow_root: int = field("system mode: 1 allows root to launch", default=0)
