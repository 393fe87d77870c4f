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
from redmesh.settings.groups import (
    AllocationSettings,
    CleanupSettings,
    HeartbeatSettings,
    NodeSettings,
    PrologSettings,
    UsersSettings,
)
from redmesh.settings.record import COUNT_OR_AUTO, HOSTS, NAMES, PATH, SECONDS, TEXT, Record, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Value = str | int | float | tuple[str, ...]


class MachineSettings(Record):
    """A personal mesh: its size and its end."""

    processors: int = field(
        "processors of a personal mesh; 0: as many as this machine has cores", default=0, in_job=False
    )
    nodes: int = field(
        "number of PCTs (nodes) that share the processors of a personal mesh", default=1, least=1, in_job=False
    )
    service_nodes: int = field(
        "how many of the nodes are service nodes: in no pool, reached by `yod -service`", default=0, in_job=False
    )
    cpas: int = field("CPAs of a personal mesh", default=1, least=1, in_job=False)
    gpus: int | str = field(
        "GPUs of each node of a personal mesh; auto: this machine's (/dev/nvidia0 …), divided among the nodes",
        default="auto",
        kind=COUNT_OR_AUTO,
        in_job=False,
    )
    idle_minutes: float = field(
        "minutes without a launch after which a personal mesh that yod started ends", default=30.0
    )


class DatabaseSettings(Record):
    """The system database."""

    database: str = field(
        "the system database as viewers open it; empty: SQLite in the state directory", default="", in_job=False
    )
    cpa_database_file: str = field(
        "a file of mode 0600 with the URL that the CPAs open; empty: the same URL as `database`",
        default="",
        kind=PATH,
        in_job=False,
    )


class HostSettings(Record):
    """A mesh over SSH, or one that root runs for every user."""

    hosts: tuple[str, ...] = field(
        "machines of a mesh over SSH (docs/deployment.md); if there are any, yod starts no personal mesh",
        default=(),
        kind=HOSTS,
        in_job=False,
    )
    login_address: str = field(
        "the address at which agents reach this machine; empty: the address of the route to the hosts",
        default="",
        in_job=False,
    )
    agent_port: int = field(
        "the TCP port that agents listen on, and the UDP port of the RCA", default=7117, least=1, in_job=False
    )
    cpa_port: int = field(
        "the TCP port of the first CPA, for login processors that have no CPA; 0: no CPA listens",
        default=0,
        in_job=False,
    )
    ssh_config: str = field("the configuration file of SSH; empty: ~/.ssh/config", default="", kind=PATH)
    connect_s: float = field("seconds after which a connection to a host over SSH times out", default=15.0, least=1)
    login: str = field(
        "the name of this login processor in the mesh; empty: the login processor that started the mesh",
        default="",
        in_job=False,
    )
    system: str = field(
        "the state directory of a mesh that root runs for every user (docs/system.md); empty: no such mesh",
        default="",
        kind=PATH,
        in_job=False,
    )
    system_run: str = field("the directory of the sockets of that mesh", default="/run/redmesh", kind=PATH)


class JobSettings(Record):
    """Batch systems, launches, and the state objects of jobs."""

    manager: str = field(
        "the batch system whose job is used (docs/managers.md): auto, none, slurm, grid_engine, pbs, lsf, flux …",
        default="auto",
    )
    job: str = field(
        "for commands outside of a batch job: the state directory of the job's mesh (`mesh manager list` prints it)",
        default="",
    )
    mpi: str = field(
        "the value of `--mpi` for scripts, and for programs that are linked against no MPI: auto, pmi1, pmi2, pmix, "
        "none",
        default="auto",
    )
    job_limit_mb: int = field("MiB that the state object of one job may have", default=1024, least=1)
    job_days: float = field("days for which state objects of ended jobs are kept; 0: no limit", default=30.0)
    jobs_mb: int = field(
        "MiB of state objects above which the oldest of ended jobs are deleted; 0: no limit", default=10240
    )


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


class ConfigurationError(UsageError):
    """An unusable configuration; the message says where the value came from."""


class Settings(
    MachineSettings, DatabaseSettings, HostSettings, JobSettings, NodeSettings, HeartbeatSettings, AllocationSettings,
    CleanupSettings, PrologSettings, UsersSettings, slots=True,
):  # fmt: skip
    """The immutable settings of a command. ``where[key]`` is the source of a value: a file, variable or option."""

    managers: list[dict[str, Any]]  # the tables [[manager]] as written in the file (db/allocation/managers.py)
    allocation: str  # MANAGER-JOB of the batch system's job that this process is in and uses; "" outside of one
    host_tables: tuple[Mapping[str, Any], ...]  # the settings of each of `hosts` (console/deploy/hosts/description.py)
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
        self._fill(values)
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
    for name in Settings.FIELDS:
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
        values = {name: value for name, value in values.items() if Settings.FIELDS[name].in_job}
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
        elif name in Settings.FIELDS:
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

    close = difflib.get_close_matches(name, (*Settings.FIELDS, TOPOLOGY, CONSOLE), 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(Settings.FIELDS)}"


def _typed(name: str, raw: object, origin: str, folder: str) -> Value:
    """Check a value that already has a type, from TOML or an option; return it converted to the key's type."""
    kind = Settings.FIELDS[name].kind
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
    kind = Settings.FIELDS[name].kind
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
    least = Settings.FIELDS[name].least
    if not least <= number < 1 << 31:  # NaN also fails this test
        raise ConfigurationError(f"{origin}: {name} must be at least {least}, not {number}")
    return number


def _path(text: str, folder: str) -> str:
    return os.path.join(folder, os.path.expanduser(text)) if text else ""
