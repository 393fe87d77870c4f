"""What somebody asked yod to do: one object, made by the command line or a library."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from agents.job.owner import Owner
    from console.launch.options.output import OutputOptions
    from console.launch.options.run import RunOptions

    class OwnerRelay(Protocol):
        """Passes requests of ranks to the owner of their job (console/launch/features/workers.py)."""

        def ask(self, channel: tuple[int, int], data: bytes, node: str, reply: Callable[[bytes], None]) -> None:
            """Pass a request on; ``reply`` gets the answer."""

        def gone(self, channel: tuple[int, int]) -> None:
            """A rank has closed its connection."""


#: New nodes are asked for so often when a load fails because of one; YODRETRYCOUNT sets it.
RETRIES = 3
ENDING_S = 10.0  # from the end of its time until its processors are free, at most where its ranks end at SIGKILL


#: Variables of launchers around or before us: a rank that sees them believes in another job. And our own secrets.
FOREIGN = (
    b"SLURM_", b"PMI_", b"PMIX_", b"PALS_", b"HYDI_", b"HYDRA_", b"MPI_LOCAL", b"FLUX_TASK_", b"FLUX_JOB_",
    b"OMPI_COMM_", b"OMPI_UNIVERSE_", b"OMPI_APP_CTX", b"OMPI_ARGV", b"OMPI_COMMAND", b"OMPI_FILE_LOCATION",
    b"OMPI_FIRST_RANKS", b"OMPI_NUM_APP", b"OMPI_MCA_ess", b"OMPI_MCA_orte_", b"OMPI_MCA_pmix", b"PRTE_", b"PRRTE_",
    b"YOD_", b"REDMESH_LAUNCH", b"REDMESH_ALLOCATION_COOKIE", b"REDMESH_ADMIN_COOKIE", b"REDMESH_CPA_DATABASE",
)  # fmt: skip


class StateOptions:
    """The state object that a launch is recorded in. ``owner`` answers ranks' requests, once the launch begins.

    Ranks that are workers of a job have its owner elsewhere, at ``socket``, which ``relay`` is connected to.
    """

    __slots__ = ("keep", "owner", "purge", "relay", "socket", "uuid")

    def __init__(self, uuid: str, *, keep: bool, purge: bool, socket: str = "") -> None:
        self.uuid, self.keep, self.purge, self.socket = uuid, keep, purge, socket
        self.owner: Owner | None = None
        self.relay: OwnerRelay | None = None


class Program:
    """A line of a load file: ``size`` ranks of one program, on the processors ``wanted`` or on any.

    ``size`` is 0 until a CPA has said how many its list has room for.
    """

    __slots__ = ("argv", "env", "line", "path", "size", "source", "wanted")

    def __init__(self, line: int, size: int, wanted: dict[str, Any] | None, path: bytes, argv: list[bytes]) -> None:
        self.line, self.size, self.wanted, self.path, self.argv = line, size, wanted, path, argv
        self.env: list[bytes] = []  # NAME=VALUE, of these ranks alone
        self.source = ""  # where the line is, as FILE:LINE


class ProgramOptions:
    """What each rank is: program, arguments, environment, directory."""

    __slots__ = ("argv", "cwd", "environ", "exported", "path", "segments", "umask")

    def __init__(self, path: bytes, argv: list[bytes], environ: Mapping[bytes, bytes], cwd: bytes, umask: int) -> None:
        self.path, self.argv, self.environ, self.cwd, self.umask = path, argv, environ, cwd, umask
        self.exported = False  # ``environ`` is as the ranks are to have it
        self.segments: list[Program] | None = None  # a load file's lines; ``path`` and ``argv`` are the first one's

    @property
    def paths(self) -> list[bytes]:
        """The programs of the launch, one for each line of a load file."""
        return [self.path] if self.segments is None else [one.path for one in self.segments]


class PlacementOptions:
    """Which processors, how many ranks on them, and under whose right."""

    __slots__ = (
        "cookie", "cpa", "cpa_pid", "cpus_per_task", "distribution", "exclude", "gpus_per_task", "most", "nodes",
        "overcommit", "partition", "placement", "retries", "size", "wait_s", "wanted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.size: int | None = None  # ranks
        self.wanted: dict[str, Any] | None = None
        self.exclude: dict[str, Any] | None = None
        self.nodes: int | None = None  # spread over exactly so many
        self.most: dict[str, int] = {}  # at most so many ranks on the nodes named
        self.cpus_per_task, self.gpus_per_task = 1, 0
        self.overcommit = False
        self.distribution, self.placement = "block", "default"
        self.wait_s = 0.0
        self.retries = RETRIES
        self.partition: int | None = None  # set inside a batch job, with its cookie
        self.cookie: str | None = None
        self.cpa, self.cpa_pid = "", 0  # the CPA to ask: its socket's path or name; its process


class StdioOptions:
    """What yod reads and prints. ``input`` is ``shared``, ``all``, ``none`` or a rank."""

    __slots__ = ("batch", "input", "json", "label", "quiet", "unbuffered", "verbose")

    def __init__(self) -> None:
        self.input: str | int = "shared"
        self.batch = self.json = self.label = self.quiet = self.verbose = False
        self.unbuffered = False  # the pieces of ranks' lines go on one by one


class TransferOptions:
    """How programs and files get to the nodes."""

    __slots__ = ("bcast", "bcast_libs", "bcast_share", "fanout", "io", "stage_in", "stage_out")

    def __init__(self) -> None:
        self.fanout = 32
        self.bcast, self.bcast_libs, self.bcast_share = "auto", False, True
        self.io: Sequence[str] = ()  # directories that ranks may open files of here
        self.stage_in: Sequence[str] = ()  # SRC:DST
        self.stage_out: Sequence[str] = ()


class MpiOptions:
    """How the ranks of an MPI program find each other (console/launch/options/mpi.py)."""

    __slots__ = ("apart", "hwloc", "kind", "pmix_library", "rendezvous", "strict")

    def __init__(self) -> None:
        self.apart = False  # nodes share nothing, though they may have one address: a batch system's virtual nodes
        self.kind = "auto"
        self.hwloc = False  # the program's MPI asks hwloc about its node
        self.pmix_library = ""  # where the program's own libpmix is
        self.strict = False  # a rank that exits with 0 without MPI_Finalize ends the launch
        self.rendezvous = True  # whether ranks are given MASTER_ADDR, RANK and the like


class Request:
    """One launch as it was asked for; options that few use are set by whoever reads them."""

    __slots__ = ("kill", "mpi", "output", "program", "run", "state", "stdio", "transfer", "where")

    def __init__(self, program: ProgramOptions) -> None:
        self.program = program
        self.where, self.stdio, self.transfer, self.mpi = (
            PlacementOptions(), StdioOptions(), TransferOptions(), MpiOptions(),
        )  # fmt: skip
        self.kill = False  # a rank that exits badly ends the others
        self.run: RunOptions | None = None  # how the ranks are run beyond the plain way
        self.output: OutputOptions | None = None  # files, limits, what is told
        self.state: StateOptions | None = None  # --state (console/launch/features/state.py)

    @property
    def carries(self) -> bool:
        """Whether more travels with the launch than its load, as far as that is known before a node is asked."""
        given = self.transfer
        files = given.io or given.stage_in or given.stage_out or self.state
        return bool(given.bcast == "always" or given.bcast_libs or files)

    @property
    def command(self) -> str:
        """The command line for people: arguments joined, at most 200 characters."""
        return b" ".join(self.program.argv)[:600].decode("utf-8", "replace")[:200]

    def allocation(self, key: str, login: str, pid: int, pid_started: int) -> dict[str, Any]:
        """The CPA's ``allocate``."""
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
        if self.output is not None and self.output.limit_s is not None:
            message["time_s"] = self.output.limit_s + ENDING_S
        if where.gpus_per_task:
            message["per_task"] = {"gpu": where.gpus_per_task}
        if self.program.segments is not None and not where.overcommit:  # then all lines share what there is
            message["segments"] = [
                {"size": one.size or None, "wanted": one.wanted, "source": one.source} for one in self.program.segments
            ]
        return message


def forwarded(environ: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The launcher's own environment without other launchers' variables and without cookies."""
    return [(name, value) for name, value in environ.items() if not name.startswith(FOREIGN)]
