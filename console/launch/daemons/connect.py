"""Connects a launch to its mesh: to a CPA, to one that the keeper restarts, or to a personal mesh started now."""

from __future__ import annotations

import os
import time

from agents.link.sockets import connect, peer
from agents.wire.errors import AgentError
from console.errors import ConsoleError
from console.launch.daemons.cpa import SILENT_S, connect_any, cpa_sockets
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from console.launch.options.request import Request
    from console.settings import Settings
    from redmesh.settings.keeper_file import PlaceInFile

#: Seconds for a running mesh to restart a CPA.
CPA_S = 5.0
_CHANGE_S = 60.0  # the longest wait for mesh up or mesh upgrade of a mesh of hosts
_POLL_S = 0.02
_WHERE_S = 2.0  # for a CPA to tell where a launch is


def reach(settings: Settings, start: int, status: Callable[[str], None]) -> tuple[str, socket.socket]:
    """Return RUN of the mesh, and a connection to one of its CPAs; start a personal mesh if no mesh is up.

    ``status`` gets a line about starting or waiting. Raises ConsoleError if no CPA can be reached or started.
    """
    run = settings.run_dir
    sock = connect_any(run, start)
    if sock is not None:
        return run, sock
    if settings.system:
        told = f"this machine's mesh does not answer in {run}"
        raise ConsoleError(told, "its administrator starts it: mesh up")
    if settings.hosts:
        if not _answers(f"{run}/keeper.sock") and not _is_changed(settings):
            raise ConsoleError(
                f"the mesh of this configuration does not answer ({_some(settings.hosts)})",
                f"mesh up brings it up; `hosts` stands in {settings.where.get('hosts', 'the configuration')}",
            )
        status("the mesh does not answer while mesh up, upgrade or down is at work: waiting for it")
    elif not _answers(f"{run}/keeper.sock"):
        if os.path.islink(f"{settings.state_dir}/run"):  # mesh down removes it
            status(f"the mesh does not answer in {run}: starting what is missing of it")
        else:
            from redmesh.text import counted

            if settings.allocation:
                status(f"no mesh is up in this job: starting one ({settings.allocation}); it ends with the job")
            else:
                size = counted(settings.processors or os.cpu_count() or 1, "processor")
                status(f"no mesh is up: starting a personal mesh of {size} (mesh down ends it)")
        _start(settings)
    deadline = time.monotonic() + CPA_S
    longest = time.monotonic() + _CHANGE_S
    while True:
        run = settings.run_dir
        sock = connect_any(run, start)
        if sock is not None:
            return run, sock
        now = time.monotonic()
        if now < longest and settings.hosts and _is_changed(settings):
            deadline = now + CPA_S
        if now > deadline:
            raise ConsoleError(f"no CPA answers in {run} within {CPA_S:.0f} s", "mesh status shows the daemons")
        time.sleep(_POLL_S)  # poll: a socket does not report its creation


def _is_changed(settings: Settings) -> bool:
    """True while ``mesh up``, ``mesh upgrade`` or ``mesh down`` works: it holds up.lock."""
    from console.launch.events.spool import is_held

    return is_held(f"{settings.state_dir}/up.lock")


def login_name(settings: Settings) -> str:
    """The name of this login processor in its mesh."""
    if settings.login:
        return settings.login
    if settings.system:
        try:
            with open(f"{settings.run_dir}/login", encoding="utf-8") as name:
                return name.read().strip()
        except OSError:
            return os.uname().nodename.partition(".")[0] or "login"
    place = _place(settings)
    return (place.login if place is not None else "") or os.uname().nodename.partition(".")[0] or "login"


def mesh_name(settings: Settings) -> str:
    """The mesh's name in certificates: that in keeper.json, because a granted login processor has another STATE."""
    place = None if settings.system else _place(settings)
    return place.mesh if place is not None else settings.mesh


def owner_of_mesh(settings: Settings) -> int:
    """The process with which the mesh of a batch system's job ends; 0 if that is not known."""
    place = _place(settings)
    return place.script[0] if place is not None and place.script is not None else 0


def _place(settings: Settings) -> PlaceInFile | None:
    from agents.wire.keeper_json import ConfigError, place_in

    try:
        return place_in(f"{settings.state_dir}/keeper.json")
    except ConfigError:
        return None


def stay_on_side(settings: Settings, launcher: int) -> None:
    """On a host with several login processors, refuse a launch that is on another side of the machine.

    On other hosts this is not needed, because a launch's socket is on its own login processor. Raises ConsoleError or
    AgentError.
    """
    if not settings.login:
        return
    from agents.link.client import Client, Unreachable

    for path in cpa_sockets(settings.run_dir):
        try:
            with Client(path, "launcher") as cpa:
                cpa.call({"op": "signal_launchers", "launchers": [launcher], "signal": 0, "login": settings.login})
            return
        except Unreachable:
            continue
    told = f"no CPA answers that could tell which side launcher {launcher} is on"
    raise ConsoleError(told, "mesh status shows the daemons")


class Whereabouts:
    """What a CPA knows of a launch: that it runs ``here``, or the login processor ``login`` where it runs, or that it
    has ``ended`` (or never began). Nothing if no CPA answers, or if the launch is another user's."""

    __slots__ = ("ended", "here", "login")

    def __init__(self, login: str = "", *, here: bool = False, ended: bool = False) -> None:
        self.login, self.here, self.ended = login, here, ended


def whereabouts(run: str, launcher: int) -> Whereabouts:
    """Ask a CPA about this user's launch ``launcher``."""
    from agents.link.client import Client
    from agents.wire.errors import AgentError

    try:
        with open(f"{run}/login", encoding="utf-8") as file:
            here = file.read().strip()
    except OSError:
        return Whereabouts()
    question = {"op": "signal_launchers", "launchers": [launcher], "signal": 0, "elsewhere": True}
    for path in cpa_sockets(run):
        try:
            with Client(path, "launcher", _WHERE_S) as cpa:
                reply = cpa.call(question)
        except AgentError:  # unreachable, or another user's launch: the caller reports that
            continue
        login = str(reply.get("elsewhere", {}).get(str(launcher), ""))
        ended = launcher not in reply.get("launchers", [launcher])
        return Whereabouts("" if login == here else login, here=not ended and login in ("", here), ended=ended)
    return Whereabouts()


def yod_socket(run: str, launcher: int) -> str:
    """The observer socket of the yod of ``launcher``: in RUN, or in system mode in RUN/users/UID."""
    name = f"yod-{launcher}.sock"
    users = f"{run}/users"
    if not os.path.isdir(users):
        return f"{run}/{name}"
    if os.geteuid() == 0:
        for uid in os.listdir(users):
            if os.path.exists(f"{users}/{uid}/{name}"):
                return f"{users}/{uid}/{name}"
    return f"{users}/{os.geteuid()}/{name}"


def yod_owner(path: str) -> int:
    """The uid of the yod that must listen at ``path``: UID of RUN/users/UID, otherwise -1 for the caller's."""
    part = os.path.dirname(path)
    return int(os.path.basename(part)) if os.path.basename(os.path.dirname(part)) == "users" else -1


def user() -> str:
    """The caller's name, for display only: permissions depend on the uid."""
    import pwd  # a look-up may ask LDAP, so it is done only in this function

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def start_time(pid: int) -> int:
    """The start time of a process in clock ticks since boot (field 22 of /proc/PID/stat)."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        # the name, in parentheses, may contain anything
        return int(file.read().rpartition(b")")[2].split()[19])


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _answers(path: str) -> bool:
    try:
        connect(path, 1.0).close()
    except OSError:
        return False
    return True


def _start(settings: Settings) -> None:
    # In a separate process, so that yod does not import the database modules.
    from redmesh.start_command import start_command, without_relative  # few yods start a mesh

    config = ["--config", settings.file] if settings.file else []
    words = [*start_command("mesh"), *config, "up", "--auto"]
    reader, writer = os.pipe()
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_DUP2, writer, 2),
    ]
    environ = without_relative(os.environ)
    if settings.manager != "auto":
        environ = {**environ, "REDMESH_MANAGER": settings.manager}
    pid = os.posix_spawn(words[0], words, environ, file_actions=streams)
    os.close(writer)
    with open(reader, "rb", buffering=0) as told:
        said = (told.readall() or b"").decode("utf-8", "replace").strip()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        said = f"mesh up died of signal {-status}"
    if status:
        why = " ".join(said.removeprefix("mesh: ").split()) or "mesh up says no more"
        raise ConsoleError(f"no personal mesh: {why}", exit_status=status if status > 0 else None)


# A CPA that the user names (``--cpa ADDRESS``, ``--cpa-pid PID``; -nid and -pid of the original yod).


def reach_named(settings: Settings, request: Request) -> tuple[str, socket.socket]:
    """Return RUN of the named CPA's mesh, and a connection to the CPA; starts no mesh. Raises ConsoleError."""
    shown = clean(request.where.cpa)
    if "/" in request.where.cpa:
        paths = [os.path.abspath(request.where.cpa)]
    elif request.where.cpa:
        name = request.where.cpa.removesuffix(".sock")
        paths = [f"{settings.run_dir}/{f'cpa-{name}' if name.isdecimal() else name}.sock"]
    else:
        paths = cpa_sockets(settings.run_dir)
        shown = f"of process {request.where.cpa_pid}"
    reason = "no such socket"
    for path in paths:
        try:
            sock = connect(path, SILENT_S)
        except (OSError, AgentError) as error:
            reason = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)
            continue
        if not request.where.cpa_pid or peer(sock).pid == request.where.cpa_pid:
            return os.path.dirname(path), sock
        reason = f"it is process {peer(sock).pid}" if request.where.cpa else "no CPA here is that process"
        sock.close()
    raise ConsoleError(f"the CPA {shown} does not answer: {reason}", "mesh status names the CPAs and their processes")
