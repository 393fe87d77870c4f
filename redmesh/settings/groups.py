"""The settings that daemons use. ``mesh up`` reads them from mesh.toml and writes them into ``keeper.json``."""

from __future__ import annotations

from redmesh.settings.record import PATH, Record, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple


class HeartbeatSettings(Record):
    """Heartbeats: when the RCA takes nodes and launchers for lost."""

    suspect_s: float = field(default=5.0, meaning="seconds without a heartbeat after which a node is suspect")
    down_s: float = field(default=15.0, meaning="seconds without a heartbeat after which a node is down")
    failed_s: float = field(
        default=30.0, meaning="seconds after which a node on which a load failed is used again, if its PCT lives"
    )
    silent_s: float = field(
        default=10.0,
        meaning="seconds without a heartbeat after which a yod that still exists counts as lost (a yod that exits is "
        "noticed at once)",
    )


class NodeSettings(Record):
    """Nodes: how launches spread, and limits on a node."""

    fanout: int = field(default=32, least=2, meaning="the largest number of children of a node in the tree of a launch")
    service_memory_mb: int = field(
        default=0, meaning="address space in MiB that a process on a service node may have; 0: any"
    )
    node_jobs_mb: int = field(default=10240, meaning="MiB of one user's state objects that a node accepts; 0: no limit")


class AllocationSettings(Record):
    """Allocation: who may do what, and how long the CPAs keep things."""

    batch_accounts: Tuple[str, ...] = field(
        default=(),
        in_job=False,
        meaning="accounts of the batch system, which may create partitions for batch jobs, as administrators may",
    )
    admins: Tuple[str, ...] = field(
        default=(),
        in_job=False,
        meaning="accounts that may end and signal any user's launches, drain and reset nodes, change modes and "
        "reserve; root and the mesh's owner always may",
    )
    max_processors: int = field(
        default=0,
        in_job=False,
        meaning="processors that a user may have at once outside batch partitions; 0: any number",
    )
    max_jobs: int = field(
        default=0,
        in_job=False,
        meaning="jobs, and launches outside of jobs, that one user may run at once; 0: any number",
    )
    placement: str = field(
        default="",
        meaning="the placement of requests that name no placement (docs/placement.md); empty: `default`",
    )
    pending_s: float = field(
        default=60.0,
        least=1,
        meaning="seconds for which processors are kept for a launcher until its ranks are ready, or yod reports that "
        "it loads",
    )
    loading_s: float = field(
        default=300.0,
        least=2,
        meaning="seconds for which processors are kept while a launch loads; yod renews them",
    )
    nice_grace_s: float = field(
        default=300.0, meaning="seconds between SIGTERM and SIGKILL for a -nice launch that is preempted"
    )
    post_back_urls: Tuple[str, ...] = field(
        default=(),
        in_job=False,
        meaning="https://HOST:PORT of the servers to which a CPA may report processors that a request was granted",
    )
    post_back_ca: str = field(
        default="",
        kind=PATH,
        in_job=False,
        meaning="a file with the CA certificates for these servers; empty: the system's",
    )
    history_days: int = field(default=30, meaning="days for which ended partitions and launchers are kept")
    history_rows: int = field(default=10000, meaning="number of ended partitions and launchers that are kept")


class CleanupSettings(Record):
    """Clean-up after a lost launcher."""

    cleanup: str = field(
        default="",
        kind=PATH,
        meaning="the executable that kills what a lost launcher left on its nodes; empty: the one of Redmesh",
    )


class UsersSettings(Record):
    """System mode: what other users see."""

    show_commands: int = field(
        default=0,
        meaning="system mode: 1 shows the arguments of everybody's launches, and why launches failed, to all users; "
        "0: to the launch's user and root",
    )


class PrologSettings(Record):
    """System mode: what root runs and allows on every node."""

    prolog: str = field(
        default="", kind=PATH, meaning="system mode: the executable that root runs on every node before a launch"
    )
    epilog: str = field(
        default="", kind=PATH, meaning="system mode: the executable that root runs on every node after a launch"
    )
    prolog_s: float = field(default=60.0, least=1, meaning="seconds after which a prolog or an epilog is killed")
    allow_root: int = field(default=0, meaning="system mode: 1 allows root to launch")
