"""The settings of a command: defaults, overridden by the TOML file, then ``REDMESH_*`` variables, then options.

Every yod imports this module, so it imports only modules that cost almost nothing. The TOML reader, and the search for
the most similar key, are imported only if there is a file, or an error in it.
"""

from __future__ import annotations

import binascii
import os
import stat
import sys

from console.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    Value = str | int | float | tuple[str, ...]

TEXT, PATH, COUNT, SECONDS, NAMES = "text", "path", "whole number", "number", "list of names"
COUNT_OR_AUTO = 'whole number or "auto"'
HOSTS = "list of names or tables"

#: Every key: name, kind, default, smallest value, meaning. A test compares the table with docs/configuration.md.
KEYS: tuple[tuple[str, str, Value, int, str], ...] = (
    ("database", TEXT, "", 0, "the system database as viewers open it; empty: SQLite in the state directory"),
    (
        "cpa_database_file",
        PATH,
        "",
        0,
        "a file of mode 0600 with the URL that the CPAs open; empty: the same URL as `database`",
    ),
    ("processors", COUNT, 0, 0, "processors of a personal mesh; 0: as many as this machine has cores"),
    ("nodes", COUNT, 1, 1, "number of PCTs (nodes) that share the processors of a personal mesh"),
    ("service_nodes", COUNT, 0, 0, "how many of the nodes are service nodes: in no pool, reached by `yod -service`"),
    ("service_memory_mb", COUNT, 0, 0, "address space in MiB that a process on a service node may have; 0: any"),
    ("cpas", COUNT, 1, 1, "CPAs of a personal mesh"),
    (
        "gpus",
        COUNT_OR_AUTO,
        "auto",
        0,
        "GPUs of each node of a personal mesh; auto: this machine's (/dev/nvidia0 …), divided among the nodes",
    ),
    (
        "hosts",
        HOSTS,
        (),
        0,
        "machines of a mesh over SSH (docs/deployment.md); if there are any, yod starts no personal mesh",
    ),
    (
        "login_address",
        TEXT,
        "",
        0,
        "the address at which agents reach this machine; empty: the address of the route to the hosts",
    ),
    ("agent_port", COUNT, 7117, 1, "the TCP port that agents listen on, and the UDP port of the RCA"),
    (
        "cpa_port",
        COUNT,
        0,
        0,
        "the TCP port of the first CPA, for login processors that have no CPA; 0: no CPA listens",
    ),
    (
        "manager",
        TEXT,
        "auto",
        0,
        "the batch system whose job is used (docs/managers.md): auto, none, slurm, grid_engine, pbs, lsf, flux …",
    ),
    ("max_processors", COUNT, 0, 0, "processors that a user may have at once outside batch partitions; 0: any number"),
    ("max_jobs", COUNT, 0, 0, "jobs, and launches outside of jobs, that one user may run at once; 0: any number"),
    (
        "post_back_urls",
        NAMES,
        (),
        0,
        "https://HOST:PORT of the servers to which a CPA may report processors that a request was granted",
    ),
    ("post_back_ca", PATH, "", 0, "a file with the CA certificates for these servers; empty: the system's"),
    (
        "job",
        TEXT,
        "",
        0,
        "for commands outside of a batch job: the state directory of the job's mesh (`mesh manager list` prints it)",
    ),
    ("ssh_config", PATH, "", 0, "the configuration file of SSH; empty: ~/.ssh/config"),
    ("connect_s", SECONDS, 15.0, 1, "seconds after which a connection to a host over SSH times out"),
    ("fanout", COUNT, 32, 2, "the largest number of children of a node in the tree of a launch"),
    ("idle_minutes", SECONDS, 30.0, 0, "minutes without a launch after which a personal mesh that yod started ends"),
    (
        "batch_accounts",
        NAMES,
        (),
        0,
        "accounts of the batch system, which may create partitions for batch jobs, as administrators may",
    ),
    (
        "admins",
        NAMES,
        (),
        0,
        "accounts that may end and signal any user's launches, drain and reset nodes, change modes and reserve; root "
        "and the mesh's owner always may",
    ),
    (
        "cleanup",
        PATH,
        "",
        0,
        "the executable that kills what a lost launcher left on its nodes; empty: the one of Redmesh",
    ),
    ("suspect_s", SECONDS, 5.0, 0, "seconds without a heartbeat after which a node is suspect"),
    ("down_s", SECONDS, 15.0, 0, "seconds without a heartbeat after which a node is down"),
    ("failed_s", SECONDS, 30.0, 0, "seconds after which a node on which a load failed is used again, if its PCT lives"),
    (
        "pending_s",
        SECONDS,
        60.0,
        1,
        "seconds for which processors are kept for a launcher until its ranks are ready, or yod reports that it loads",
    ),
    ("loading_s", SECONDS, 300.0, 2, "seconds for which processors are kept while a launch loads; yod renews them"),
    (
        "silent_s",
        SECONDS,
        10.0,
        0,
        "seconds without a heartbeat after which a yod that still exists counts as lost (a yod "
        "that exits is noticed at once)",
    ),
    (
        "placement",
        TEXT,
        "",
        0,
        "the placement of requests that name no placement (docs/placement.md); empty: `default`",
    ),
    ("nice_grace_s", SECONDS, 300.0, 0, "seconds between SIGTERM and SIGKILL for a -nice launch that is preempted"),
    (
        "login",
        TEXT,
        "",
        0,
        "the name of this login processor in the mesh; empty: the login processor that started the mesh",
    ),
    (
        "system",
        PATH,
        "",
        0,
        "the state directory of a mesh that root runs for every user (docs/system.md); empty: no such mesh",
    ),
    ("system_run", PATH, "/run/redmesh", 0, "the directory of the sockets of that mesh"),
    ("prolog", PATH, "", 0, "system mode: the executable that root runs on every node before a launch"),
    ("epilog", PATH, "", 0, "system mode: the executable that root runs on every node after a launch"),
    ("prolog_s", SECONDS, 60.0, 1, "seconds after which a prolog or an epilog is killed"),
    ("allow_root", COUNT, 0, 0, "system mode: 1 allows root to launch"),
    (
        "show_commands",
        COUNT,
        0,
        0,
        "system mode: 1 shows the arguments of everybody's launches, and why launches failed, to all users; 0: to the "
        "launch's user and root",
    ),
    (
        "mpi",
        TEXT,
        "auto",
        0,
        "the value of `--mpi` for scripts, and for programs that are linked against no MPI: auto, "
        "pmi1, pmi2, pmix, none",
    ),
    ("history_days", COUNT, 30, 0, "days for which ended partitions and launchers are kept"),
    ("history_rows", COUNT, 10000, 0, "number of ended partitions and launchers that are kept"),
    ("job_limit_mb", COUNT, 1024, 1, "MiB that the state object of one job may have"),
    ("job_days", SECONDS, 30.0, 0, "days for which state objects of ended jobs are kept; 0: no limit"),
    ("jobs_mb", COUNT, 10240, 0, "MiB of state objects above which the oldest of ended jobs are deleted; 0: no limit"),
    ("node_jobs_mb", COUNT, 10240, 0, "MiB of one user's state objects that a node accepts; 0: no limit"),
)
_BY_NAME = {key[0]: key for key in KEYS}
#: The section that describes the machine (docs/topology.md), kept unparsed because only ``mesh up`` reads it.
TOPOLOGY = "topology"
#: The console's preferences (docs/console.md), kept unparsed because only the console reads them.
CONSOLE = "console"


#: Managers of parts of the machine (docs/jobs.md): the tables [[manager]]. The key `manager` with a text is another.
MANAGER = "manager"


#: The site's configuration, for users without one of their own.
SITE = "/etc/redmesh/mesh.toml"


#: Every job of a batch system has at least one of these variables; without one, no manager is imported.
JOB_MARKS = ("FLUX_URI", "SLURM_JOB_ID", "PE_HOSTFILE", "PBS_JOBID", "LSB_JOBID")
#: Keys that describe a machine; they are ignored in a batch job, where the machine is the job's allocation.
_MACHINE = frozenset(
    ("database", "cpa_database_file", "processors", "nodes", "service_nodes", "cpas", "gpus", "hosts", "login_address",
     "agent_port", "cpa_port", "batch_accounts", "admins", "login", "system", "max_processors", "max_jobs",
     "post_back_urls", "post_back_ca")
)  # fmt: skip


class ConfigurationError(UsageError):
    """An unusable configuration; the message says where the value came from."""


class Settings:
    """The immutable settings of a command. ``where[key]`` is the source of a value: a file, variable or option."""

    __slots__ = (
        *_BY_NAME,
        "_runtime",
        "allocation",
        "console",
        "file",
        "host_tables",
        "managers",
        "mesh",
        "state_dir",
        "topology",
        "where",
    )

    database: str
    cpa_database_file: str
    processors: int
    nodes: int
    service_nodes: int
    service_memory_mb: int
    cpas: int
    gpus: int | str
    hosts: tuple[str, ...]  # the names of the hosts, as written in the file
    login_address: str
    agent_port: int
    cpa_port: int
    manager: str
    managers: list[dict[str, Any]]  # the tables [[manager]] as written in the file (db/allocation/managers.py)
    max_processors: int
    max_jobs: int
    post_back_urls: tuple[str, ...]
    post_back_ca: str
    job: str
    allocation: str  # MANAGER-JOB of the batch system's job that this process is in and uses; "" outside of one
    ssh_config: str
    connect_s: float
    host_tables: tuple[Mapping[str, Any], ...]  # the settings of each of `hosts` (console/deploy/hosts/description.py)
    fanout: int
    idle_minutes: float
    batch_accounts: tuple[str, ...]
    admins: tuple[str, ...]
    cleanup: str
    suspect_s: float
    down_s: float
    silent_s: float
    failed_s: float
    pending_s: float
    loading_s: float
    placement: str
    login: str
    mpi: str
    system: str
    system_run: str
    prolog: str
    epilog: str
    prolog_s: float
    allow_root: int
    show_commands: int
    nice_grace_s: float
    history_days: int
    history_rows: int
    job_limit_mb: int
    job_days: float
    jobs_mb: int
    node_jobs_mb: int
    topology: dict[str, Any] | None  # the section [topology] as it was written; `mesh up` reads it (db/topology)
    console: dict[str, Any] | None  # the section [console] as it was written; console/tui/config.py reads it
    state_dir: str  # STATE of docs/architecture.md
    mesh: str  # CRC-32 of STATE's path
    file: str  # the TOML file that was read, or ""
    where: dict[str, str]
    _runtime: str

    def __init__(
        self,
        values: Mapping[str, Value],
        where: dict[str, str],
        file: str,
        environ: Mapping[str, str],
        topology: dict[str, Any] | None = None,
        console: dict[str, Any] | None = None,
        allocation: str = "",
        managers: list[dict[str, Any]] | None = None,
    ):
        put = object.__setattr__
        put(self, "managers", managers or [])
        put(self, "allocation", allocation)
        put(self, "console", console)
        put(self, "topology", topology)
        put(self, "host_tables", ())
        for name, _kind, default, _least, _meaning in KEYS:
            put(self, name, values.get(name, default))
        self._name_hosts(values.get("hosts", ()))
        put(self, "where", where)
        put(self, "file", file)
        above = f"{job_directory(environ)}/redmesh-{os.geteuid()}"
        home = self.job or (f"{above}/jobs/{allocation}" if allocation else state_directory(environ))
        system = os.path.realpath(self.system) if self.system else ""
        put(self, "state_dir", system if system and not os.geteuid() else home)
        put(self, "mesh", f"{binascii.crc32(os.fsencode(system or home)):08x}")
        put(
            self,
            "_runtime",
            self.system_run if system else above if allocation or self.job else runtime_directory(environ),
        )
        if not self.database:
            put(self, "database", f"sqlite://{system or home}/mesh.db")

    def within(self, allocation: str, manager: str) -> Settings:
        """A copy for the hosts of a batch job that joins this mesh (``mesh grow``); state and mesh stay the same."""
        copy = object.__new__(Settings)
        for name in Settings.__slots__:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "allocation", allocation)
        object.__setattr__(copy, "manager", manager)
        return copy

    def _name_hosts(self, given: Any) -> None:
        tables = tuple({"name": one} if isinstance(one, str) else one for one in given)
        object.__setattr__(self, "host_tables", tables)
        object.__setattr__(self, "hosts", tuple(str(table.get("name", "?")) for table in tables))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("settings do not change; load them again")

    @property
    def run_dir(self) -> str:
        """RUN of the mesh: the directory that ``mesh up`` chose, whatever XDG_RUNTIME_DIR is in this process.

        A login over ssh and a cron job often have different values of it, and must still find the same mesh.
        """
        if self.system:
            return self.new_run_dir
        try:
            return os.readlink(f"{self.state_dir}/run")
        except OSError:
            return self.new_run_dir

    @property
    def new_run_dir(self) -> str:
        """The RUN that a mesh gets if it is started now."""
        return f"{self._runtime}/{self.mesh}"

    @property
    def idle_s(self) -> float:
        """Seconds without a launch after which an auto-started mesh ends."""
        return self.idle_minutes * 60


def state_directory(environ: Mapping[str, str]) -> str:
    """STATE: ``$XDG_STATE_HOME/redmesh`` with symbolic links resolved, so that each directory has one name."""
    home = environ.get("XDG_STATE_HOME", "")
    if not home.startswith("/"):  # the XDG specification says that relative paths are ignored
        home = home_directory(environ)
        if not home:
            told = f"no home directory: HOME is not set, and uid {os.geteuid()} has no account"
            raise ConfigurationError(told, "export XDG_STATE_HOME=DIR, a directory of yours")
        home += "/.local/state"
    return os.path.realpath(f"{home}/redmesh")


def home_directory(environ: Mapping[str, str]) -> str:
    """``$HOME`` if it is an absolute path, else the account's home directory, else ""."""
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd  # needed only in batch jobs without HOME

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def job_directory(environ: Mapping[str, str]) -> str:
    """The directory for a batch job's files: ``$TMPDIR``, which many batch systems set for each job, else ``/tmp``."""
    place = environ.get("TMPDIR", "")
    return os.path.realpath(place) if place.startswith("/") and os.access(place, os.W_OK | os.X_OK) else "/tmp"


def runtime_directory(environ: Mapping[str, str]) -> str:
    """The directory that contains RUN: ``$XDG_RUNTIME_DIR/redmesh``, else ``/tmp/redmesh-UID``."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    try:
        # The directory may belong to another user (su keeps the variable) or not exist: then use the fallback.
        if runtime.startswith("/") and os.stat(runtime).st_uid == os.geteuid():
            return os.path.join(os.path.realpath(runtime), "redmesh")
    except OSError:
        pass
    return f"/tmp/redmesh-{os.geteuid()}"


def _is_uuid(text: str) -> bool:
    # In tasks of a job REDMESH_JOB is the job's UUID. redmesh.state, which knows UUIDs, would load sqlite3.
    return len(text) == 36 and text.count("-") == 4 and "/" not in text


def load(
    overrides: Mapping[str, object] | None = None, *, config: str = "", environ: Mapping[str, str] = os.environ
) -> Settings:
    """Return the settings of a command with the options ``overrides`` (None: not given) and ``--config``.

    Raises ConfigurationError for an unreadable file, an unknown key, or a value of the wrong type.
    """
    file = config or environ.get("REDMESH_CONFIG", "") or _find(environ)
    values, sections = _read_file(file) if file else ({}, {})
    where = dict.fromkeys((*values, *sections), file)
    for name in _BY_NAME:
        variable = f"REDMESH_{name.upper()}"
        if variable in environ and not (name == "job" and _is_uuid(environ[variable])):
            values[name] = _parsed(name, environ[variable], variable)
            where[name] = variable
    for name, option in (overrides or {}).items():
        if option is not None:
            word = f"--{name.replace('_', '-')}"
            values[name] = _parsed(name, option, word) if isinstance(option, str) else _typed(name, option, word, "")
            where[name] = word
    allocation = _allocation(values, environ)
    if allocation:
        for name in _MACHINE & values.keys():
            del values[name]
        sections.pop(TOPOLOGY, None)
        sections.pop(MANAGER, None)
    settings = Settings(
        values, where, file, environ, sections.get(TOPOLOGY), sections.get(CONSOLE), allocation, sections.get(MANAGER)
    )
    if settings.suspect_s > settings.down_s:
        raise ConfigurationError(
            f"suspect_s ({settings.suspect_s:g}) is over down_s ({settings.down_s:g})",
            "a node is suspect before it is down",
        )
    return settings


def as_root(settings: Settings, command: str) -> str:
    """The command line with which root runs ``command`` for the same mesh: sudo passes no REDMESH_CONFIG on."""
    if settings.file in ("", SITE):
        return f"sudo {command}"
    import shlex  # slow to import for every yod

    return f"sudo {command} --config {shlex.quote(os.path.abspath(settings.file))}"


def _allocation(values: Mapping[str, Value], environ: Mapping[str, str]) -> str:
    """The batch job that this process is in, as MANAGER-JOB; "" outside of a job or with ``manager = "none"``."""
    name = str(values.get("manager", "auto"))
    if name == "none" or values.get("job") or (name == "auto" and not any(mark in environ for mark in JOB_MARKS)):
        return ""
    from agents.managers import registry
    from redmesh.managers import ManagerError

    try:
        found, manager = registry.find(environ, name)
        job = str(manager.job_id(environ)) if found else ""
    except ManagerError as error:
        raise UsageError(error.message, error.hint) from None
    return (
        found + "-" + "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in job) if found else ""
    )


def _read_file(file: str) -> tuple[dict[str, Value], dict[str, Any]]:
    """Return the checked keys of a configuration file, and its sections unchanged."""
    values: dict[str, Value] = {}
    sections: dict[str, Any] = {}
    folder = os.path.dirname(os.path.abspath(file))
    for name, raw in _read_toml(file).items():
        if name in (TOPOLOGY, CONSOLE):
            if not isinstance(raw, dict):
                raise ConfigurationError(f"{file}: {name} must be a table", f"it begins with a line [{name}]")
            sections[name] = raw
        elif name == MANAGER and isinstance(raw, list):
            sections[name] = raw  # the tables [[manager]]; the text key `manager` then has its default "auto"
        elif name in _BY_NAME:
            values[name] = _typed(name, raw, file, folder)
        else:
            raise ConfigurationError(f"{file}: no key is called {name!r}", _nearest(name))
    return values, sections


def _find(environ: Mapping[str, str]) -> str:
    try:
        status = os.stat("mesh.toml")
    except OSError:
        status = None
    if status is not None and stat.S_ISREG(status.st_mode):
        if status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022:
            return os.path.abspath("mesh.toml")
        sys.stderr.write(
            "redmesh: ./mesh.toml is left out: it must belong to you or root and be writable by nobody else"
            " (chmod go-w mesh.toml)\n"
        )
    home = environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith("/"):
        home = f"{home_directory(environ)}/.config"
    for path in (f"{home}/redmesh/mesh.toml", SITE):
        if os.path.exists(path):
            return path
    return ""


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}", "--config names a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}", "docs/configuration.md has an example") from None
    except RecursionError:
        told = f"{path} cannot be read: its tables or lists are nested too deeply"
        raise ConfigurationError(told, "docs/configuration.md has an example") from None


def _nearest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, (*_BY_NAME, TOPOLOGY, CONSOLE), 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_BY_NAME)}"


def _typed(name: str, raw: object, origin: str, folder: str) -> Value:
    """Check a value that already has a type, from TOML or an option; return it converted to the key's type."""
    kind = _BY_NAME[name][1]
    if kind == NAMES:
        if isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw):
            return tuple(raw)
    elif kind == HOSTS:
        if isinstance(raw, list | tuple) and all(isinstance(item, str | dict) for item in raw):
            return tuple(raw)
    elif kind == COUNT_OR_AUTO and raw == "auto":
        return raw
    elif kind in (TEXT, PATH):
        if isinstance(raw, str):
            return _path(raw, folder) if kind == PATH else raw
    elif isinstance(raw, int | float) and not isinstance(raw, bool) and (kind == SECONDS or isinstance(raw, int)):
        return _large_enough(name, float(raw) if kind == SECONDS else raw, origin)
    raise ConfigurationError(f"{origin}: {name} must be a {kind}, not {raw!r}")


def _parsed(name: str, text: str, origin: str) -> Value:
    """Parse a value from the environment or the command line. Items of a list are separated by commas."""
    kind = _BY_NAME[name][1]
    if kind in (NAMES, HOSTS):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind in (TEXT, PATH):
        return _path(text, os.getcwd()) if kind == PATH else text
    if kind == COUNT_OR_AUTO and text == "auto":
        return text
    try:
        number = float(text) if kind == SECONDS else int(text)
    except ValueError:
        raise ConfigurationError(f"{origin}: {text!r} is not a {kind}") from None
    return _large_enough(name, number, origin)


def _large_enough(name: str, number: int | float, origin: str) -> int | float:
    least = _BY_NAME[name][3]
    if not least <= number < 1 << 31:  # NaN also fails this test
        raise ConfigurationError(f"{origin}: {name} must be at least {least}, not {number}")
    return number


def _path(text: str, folder: str) -> str:
    return os.path.join(folder, os.path.expanduser(text)) if text else ""
