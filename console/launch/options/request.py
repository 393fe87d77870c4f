"""The launch request: all options of a launch in one object, made from the command line or by a library."""

from __future__ import annotations

from redmesh.byte_text import from_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from agents.job.state_requests import Owner
    from console.launch.options.output import OutputOptions
    from console.launch.options.run import RunOptions

    class OwnerRelay(Protocol):
        """Forwards requests of ranks to the owner of their job (console/launch/features/workers.py)."""

        def ask(self, channel: tuple[int, int], data: bytes, node: str, reply: Callable[[bytes], None]) -> None:
            """Forward a request; ``reply`` gets the answer."""

        def gone(self, channel: tuple[int, int]) -> None:
            """Report that a rank has closed its connection."""


#: How often other nodes are requested when a load fails because of a node; set by YODRETRYCOUNT.
RETRIES = 3
ENDING_S = 10.0  # seconds from the time limit until the processors are free, if the ranks end only by SIGKILL


#: Prefixes of variables that ranks must not get: secrets, and those by which an MPI or a framework knows another
#: launcher (a rank would join another job). What a batch system says of the job itself stays.
FOREIGN = (
    b"SLURM_PROCID", b"SLURM_LOCALID", b"SLURM_NODEID", b"SLURM_GTIDS", b"SLURM_TASK_PID", b"SLURM_STEP",
    b"SLURM_MPI_TYPE", b"SLURM_PMI", b"SLURM_SRUN_COMM_", b"SLURM_LAUNCH_NODE_",
    b"SLURM_CPU_BIND", b"SLURM_MEM_BIND", b"SLURM_DISTRIBUTION", b"SLURM_LABELIO",
    b"PMI_", b"PMIX_", b"PALS_", b"HYDI_", b"HYDRA_", b"MPI_LOCAL",
    b"FLUX_TASK_", b"FLUX_JOB_SIZE", b"FLUX_JOB_NNODES", b"FLUX_PMI", b"LSF_PM_",
    b"OMPI_COMM_", b"OMPI_UNIVERSE_", b"OMPI_APP_CTX", b"OMPI_ARGV", b"OMPI_COMMAND", b"OMPI_FILE_LOCATION",
    b"OMPI_FIRST_RANKS", b"OMPI_NUM_APP", b"OMPI_MCA_ess", b"OMPI_MCA_orte_", b"OMPI_MCA_pmix", b"PRTE_", b"PRRTE_",
    b"YOD_", b"REDMESH_LAUNCH", b"REDMESH_ALLOCATION_COOKIE", b"REDMESH_ADMIN_COOKIE", b"REDMESH_CPA_DATABASE",
)  # fmt: skip

#: Whole names of the same: PyTorch Lightning takes SLURM_NTASKS as a sign that srun has started the process.
#: SLURM_JOB_GPUS numbers the GPUs of the script's node; Slurm does not set it for steps.
FOREIGN_NAMES = frozenset((b"SLURM_NTASKS", b"SLURM_NPROCS", b"SLURM_JOB_GPUS"))


def is_foreign(name: bytes) -> bool:
    """True if ranks must not get this variable of yod's."""
    return name in FOREIGN_NAMES or name.startswith(FOREIGN)


class StateOptions:
    """The state object of a launch. ``owner`` answers the ranks' requests.

    If the ranks are workers of a job, another process owns the object; it listens at ``socket``, and ``relay`` is the
    connection to it.
    """

    __slots__ = ("grows", "holds", "keep", "owner", "purge", "relay", "socket", "uuid")

    def __init__(self, uuid: str, *, keep: bool, purge: bool, socket: str = "") -> None:
        self.uuid, self.keep, self.purge, self.socket = uuid, keep, purge, socket
        self.holds = False  # the job gives no processors back before its end
        self.grows = 0  # how many more processors the job could use, if it has some
        self.owner: Owner | None = None
        self.relay: OwnerRelay | None = None

    def allocation(self) -> dict[str, Any]:
        """What the CPA must know of workers: whether they are given back when other requests wait, and that their job
        has some."""
        if not self.socket:
            return {}
        told: dict[str, Any] = {} if self.holds else {"gives_back": True}
        return {**told, "grows": self.grows} if self.grows else told


class Program:
    """A line of a load file: ``size`` ranks of one program, on the processors ``wanted`` or any.

    ``size`` is 0 until a CPA has said how many its list has room for.
    """

    __slots__ = ("argv", "env", "line", "path", "size", "source", "wanted")

    def __init__(self, line: int, size: int, wanted: dict[str, Any] | None, path: bytes, argv: list[bytes]) -> None:
        self.line, self.size, self.wanted, self.path, self.argv = line, size, wanted, path, argv
        self.env: list[bytes] = []  # NAME=VALUE, only for these ranks
        self.source = ""  # the place of the line, as FILE:LINE


class ProgramOptions:
    """The program of each rank: path, arguments, environment, directory, limits."""

    __slots__ = ("argv", "cwd", "environ", "exported", "limits", "path", "segments", "umask")

    def __init__(self, path: bytes, argv: list[bytes], environ: Mapping[bytes, bytes], cwd: bytes, umask: int) -> None:
        self.path, self.argv, self.environ, self.cwd, self.umask = path, argv, environ, cwd, umask
        self.exported = False  # ``environ`` is already the ranks' environment
        self.limits: list[list[int]] = []  # number of a resource (getrlimit(2)), and the soft limit (-1: unlimited)
        self.segments: list[Program] | None = None  # a load file's lines; ``path`` and ``argv`` are the first one's

    @property
    def paths(self) -> list[bytes]:
        """The programs of the launch, one for each line of a load file."""
        return [self.path] if self.segments is None else [one.path for one in self.segments]


class PlacementOptions:
    """Processors, number of ranks, and permissions."""

    __slots__ = (
        "cookie", "cpa", "cpa_pid", "cpus_per_task", "distribution", "exclude", "gpus_per_task", "most", "nodes",
        "overcommit", "partition", "placement", "retries", "size", "wait_s", "wanted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.size: int | None = None  # ranks
        self.wanted: dict[str, Any] | None = None
        self.exclude: dict[str, Any] | None = None
        self.nodes: int | None = None  # spread over exactly this many
        self.most: dict[str, int] = {}  # node name → the most ranks on this node
        self.cpus_per_task, self.gpus_per_task = 1, 0
        self.overcommit = False
        self.distribution, self.placement = "block", "default"
        self.wait_s = 0.0
        self.retries = RETRIES
        self.partition: int | None = None  # set inside a batch job, with its cookie
        self.cookie: str | None = None
        self.cpa, self.cpa_pid = "", 0  # the CPA to ask: its socket's path or name; its process


class StdioOptions:
    """yod's input and output. ``input`` is ``shared``, ``all``, ``none`` or a rank."""

    __slots__ = ("batch", "input", "json", "label", "quiet", "unbuffered", "verbose")

    def __init__(self) -> None:
        self.input: str | int = "shared"
        self.batch = self.json = self.label = self.quiet = self.verbose = False
        self.unbuffered = False  # forward incomplete lines of ranks


class TransferOptions:
    """The distribution of programs and files to the nodes."""

    __slots__ = ("bcast", "bcast_libs", "bcast_share", "fanout", "io", "stage_in", "stage_out")

    def __init__(self) -> None:
        self.fanout = 32
        self.bcast, self.bcast_libs, self.bcast_share = "auto", False, True
        self.io: Sequence[str] = ()  # directories here in which ranks may open files
        self.stage_in: Sequence[str] = ()  # SRC:DST
        self.stage_out: Sequence[str] = ()


class MpiOptions:
    """The start-up of an MPI program (console/launch/options/mpi.py)."""

    __slots__ = ("apart", "hwloc", "kind", "pmix_library", "rendezvous", "strict")

    def __init__(self) -> None:
        self.apart = False  # nodes share no memory even with the same address: virtual nodes of a batch system
        self.kind = "auto"
        self.hwloc = False  # the program's MPI asks hwloc for the topology
        self.pmix_library = ""  # the program's own libpmix
        self.strict = False  # an exit with 0 without MPI_Finalize ends the launch
        self.rendezvous = True  # set MASTER_ADDR, RANK and similar variables


class Request:
    """A launch request. Rare options are None unless they were given."""

    __slots__ = ("kill", "mpi", "output", "program", "run", "state", "stdio", "transfer", "where")

    def __init__(self, program: ProgramOptions) -> None:
        self.program = program
        self.where, self.stdio, self.transfer, self.mpi = (
            PlacementOptions(), StdioOptions(), TransferOptions(), MpiOptions(),
        )  # fmt: skip
        self.kill = False  # a failed rank ends the others
        self.run: RunOptions | None = None  # run options
        self.output: OutputOptions | None = None  # files, limits, messages
        self.state: StateOptions | None = None  # --state (console/launch/features/state.py)

    @property
    def carries(self) -> bool:
        """True if the options already show that files will be sent to the nodes besides the load."""
        given = self.transfer
        files = given.io or given.stage_in or given.stage_out or self.state
        return bool(given.bcast == "always" or given.bcast_libs or files)

    @property
    def command(self) -> str:
        """The command line for display: arguments joined by blanks, at most 200 characters."""
        return from_bytes(b" ".join(self.program.argv)[:800])[:200]

    def allocation(self, key: str, login: str, pid: int, pid_started: int) -> dict[str, Any]:
        """The ``allocate`` message for the CPA."""
        where = self.where
        message: dict[str, Any] = {
            "op": "allocate",
            "key": key,
            "size": where.size,
            "wanted": where.wanted,
            "exclude": where.exclude,
            "cpus_per_task": where.cpus_per_task,
            "overcommit": where.overcommit,
            "partition": where.partition,
            "cookie": where.cookie,
            "placement": where.placement,
            "wait_s": where.wait_s,
            "login": login,
            "pid": pid,
            "pid_started": pid_started,
            "command": self.command,
        }
        if where.wait_s:
            message["notices"] = True
        if where.nodes is not None:
            message["nodes"] = where.nodes
        if where.most:
            message["most"] = where.most
        if self.run is not None:
            message.update(self.run.allocation())
        if self.state is not None:
            message.update(self.state.allocation())
        if self.output is not None and self.output.limit_s is not None:
            message["time_s"] = self.output.limit_s + ENDING_S
        if where.gpus_per_task:
            message["per_task"] = {"gpu": where.gpus_per_task}
        if self.program.segments is not None and not where.overcommit:  # then all lines share the available processors
            message["segments"] = [
                {"size": one.size or None, "wanted": one.wanted, "source": one.source} for one in self.program.segments
            ]
        return message


def forwarded(environ: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The launcher's own environment without other launchers' variables and cookies."""
    return [(name, value) for name, value in environ.items() if not is_foreign(name)]
