"""What somebody asked yod to do: one object, made by the command line or a library."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from agents.job.owner import Owner
    from console.launch.options.output import OutputOptions
    from console.launch.options.run import RunOptions

#: New nodes are asked for so often when a load fails because of one; YODRETRYCOUNT sets it.
RETRIES = 3


#: Variables of launchers around or before us: a rank that sees them believes in another job. And our own secrets.
FOREIGN = (
    b"SLURM_", b"PMI_", b"PMIX_", b"PALS_", b"HYDI_", b"HYDRA_", b"MPI_LOCAL", b"FLUX_TASK_", b"FLUX_JOB_",
    b"OMPI_COMM_", b"OMPI_UNIVERSE_", b"OMPI_APP_CTX", b"OMPI_ARGV", b"OMPI_COMMAND", b"OMPI_FILE_LOCATION",
    b"OMPI_FIRST_RANKS", b"OMPI_NUM_APP", b"OMPI_MCA_ess", b"OMPI_MCA_orte_", b"OMPI_MCA_pmix", b"PRTE_", b"PRRTE_",
    b"YOD_", b"REDMESH_LAUNCH", b"REDMESH_ALLOCATION_COOKIE", b"REDMESH_ADMIN_COOKIE", b"REDMESH_CPA_DATABASE",
)  # fmt: skip


class StateOptions:
    """The state object that a launch is recorded in. ``owner`` answers ranks' requests, once the launch begins."""

    __slots__ = ("keep", "owner", "purge", "uuid")

    def __init__(self, uuid: str, *, keep: bool, purge: bool) -> None:
        self.uuid, self.keep, self.purge = uuid, keep, purge
        self.owner: Owner | None = None


class Program:
    """A line of a load file: ``size`` ranks of one program, on the processors ``wanted`` or on any.

    ``size`` is 0 until a CPA has said how many its list has room for.
    """

    __slots__ = ("argv", "env", "line", "path", "size", "source", "wanted")

    def __init__(self, line: int, size: int, wanted: dict[str, Any] | None, path: bytes, argv: list[bytes]) -> None:
        self.line, self.size, self.wanted, self.path, self.argv = line, size, wanted, path, argv
        self.env: list[bytes] = []  # NAME=VALUE, of these ranks alone
        self.source = ""  # where the line is, as FILE:LINE


class Request:
    """One launch as it was asked for. ``size`` counts ranks; ``input`` is ``shared``, ``all``, ``none`` or a rank.

    ``nodes``: spread over exactly so many; ``most``: at most so many ranks on the nodes named; ``segments``: the lines
    of a load file, then ``path`` and ``argv`` are its first program's.
    """

    __slots__ = (
        "argv",
        "batch",
        "bcast",
        "bcast_libs",
        "bcast_share",
        "conduct",
        "cookie",
        "cpa",
        "cpa_pid",
        "cpus_per_task",
        "cwd",
        "distribution",
        "environ",
        "exclude",
        "exported",
        "fanout",
        "gpus_per_task",
        "hwloc",
        "input",
        "io",
        "json",
        "kill",
        "label",
        "manner",
        "most",
        "mpi",
        "nodes",
        "overcommit",
        "partition",
        "path",
        "placement",
        "pmix_library",
        "quiet",
        "rendezvous",
        "retries",
        "segments",
        "size",
        "stage_in",
        "stage_out",
        "state",
        "umask",
        "unbuffered",
        "verbose",
        "wait_s",
        "wanted",
    )

    def __init__(
        self,
        path: bytes,
        argv: list[bytes],
        *,
        environ: Mapping[bytes, bytes],
        cwd: bytes,
        umask: int,
        size: int | None = None,
        wanted: dict[str, Any] | None = None,
        cpus_per_task: int = 1,
        overcommit: bool = False,
        distribution: str = "block",
        input: str | int = "shared",
        fanout: int = 32,
        wait_s: float = 0.0,
        partition: int | None = None,
        cookie: str | None = None,
        batch: bool = False,
        kill: bool = False,
        label: bool = False,
        json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        bcast: str = "auto",
        bcast_libs: bool = False,
        bcast_share: bool = True,
        io: Sequence[str] = (),
        stage_in: Sequence[str] = (),
        stage_out: Sequence[str] = (),
    ) -> None:
        self.path, self.argv, self.environ, self.cwd, self.umask = path, argv, environ, cwd, umask
        self.size, self.wanted = size, wanted
        self.cpus_per_task, self.overcommit, self.distribution = cpus_per_task, overcommit, distribution
        self.input, self.fanout, self.wait_s = input, fanout, wait_s
        self.partition, self.cookie = partition, cookie  # set inside a batch job
        self.batch, self.kill, self.label, self.json, self.quiet, self.verbose = (
            batch,
            kill,
            label,
            json,
            quiet,
            verbose,
        )
        self._say_nothing_more()
        self.bcast, self.bcast_libs, self.bcast_share = bcast, bcast_libs, bcast_share  # how programs get to the nodes
        self.io, self.stage_in, self.stage_out = io, stage_in, stage_out  # what ranks may open here; SRC:DST

    def _say_nothing_more(self) -> None:
        # options that few use are set by whoever reads them (console/cli/yod/extra_options.py)
        self.exclude: dict[str, Any] | None = None
        self.nodes: int | None = None
        self.most: dict[str, int] = {}
        self.gpus_per_task = 0
        self.placement = "default"
        self.segments: list[Program] | None = None
        self.unbuffered = False  # the pieces of ranks' lines go on one by one
        self.mpi = "auto"  # how the ranks of an MPI program find each other (console/launch/options/mpi.py)
        self.hwloc = False  # the program's MPI asks hwloc about its node
        self.pmix_library = ""  # where the program's own libpmix is
        self.rendezvous = True  # whether ranks are given MASTER_ADDR, RANK and the like
        self.exported = False  # ``environ`` is as the ranks are to have it
        self.retries = RETRIES
        self.manner: RunOptions | None = (
            None  # how the ranks are run beyond the plain way (console/launch/options/run.py)
        )
        self.conduct: OutputOptions | None = None  # files, limits, what is told (console/launch/options/output.py)
        self.state: StateOptions | None = None  # --state (console/launch/features/state.py)
        self.cpa, self.cpa_pid = "", 0  # the CPA to ask: its socket's path or name; its process

    @property
    def carries(self) -> bool:
        """Whether more travels with the launch than its load, as far as that is known before a node is asked."""
        files = self.io or self.stage_in or self.stage_out or self.state
        return bool(self.bcast == "always" or self.bcast_libs or files)

    @property
    def command(self) -> str:
        """The command line for people: arguments joined, at most 200 characters."""
        return b" ".join(self.argv)[:600].decode("utf-8", "replace")[:200]

    def allocation(self, key: str, login: str, pid: int, pid_started: int) -> dict[str, Any]:
        """The CPA's ``allocate``."""
        message: dict[str, Any] = {
            "op": "allocate",
            "key": key,
            "size": self.size,
            "wanted": self.wanted,
            "exclude": self.exclude,
            "cpus_per_task": self.cpus_per_task,
            "overcommit": self.overcommit,
            "partition": self.partition,
            "cookie": self.cookie,
            "placement": self.placement,
            "wait_s": self.wait_s,
            "login": login,
            "pid": pid,
            "pid_started": pid_started,
            "command": self.command,
        }
        if self.wait_s:
            message["notices"] = True
        if self.nodes is not None:
            message["nodes"] = self.nodes
        if self.most:
            message["most"] = self.most
        if self.manner is not None:
            message.update(self.manner.allocation())
        if self.gpus_per_task:
            message["per_task"] = {"gpu": self.gpus_per_task}
        if self.segments is not None and not self.overcommit:  # then all lines share what there is
            message["segments"] = [
                {"size": one.size or None, "wanted": one.wanted, "source": one.source} for one in self.segments
            ]
        return message


def forwarded(environ: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The launcher's own environment without other launchers' variables and without cookies."""
    return [(name, value) for name, value in environ.items() if not name.startswith(FOREIGN)]
