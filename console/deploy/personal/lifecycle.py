"""Brings up the personal mesh on this machine, gives it a new keeper if its keeper was killed, and takes it down.

``up`` and ``down`` hold ``STATE/up.lock``, so that ten yods that find no mesh start only one.
"""

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.link.client import Client, Unreachable
from agents.link.lean import signal
from agents.link.sockets import UnsafeDirectory, own_directory
from agents.linux import ending
from agents.linux.ready import ready
from agents.wire.errors import AgentError
from console.deploy.personal import evidence_of_life
from console.deploy.personal.evidence_of_life import answers, lives
from console.deploy.personal.plan import Size, cpa_url, keeper_config, size_of, wanted_size
from console.errors import ConsoleError
from console.settings import Settings
from db.errors import StoreError
from redmesh.settings.keeper_file import KeeperFile, read_keeper_file
from redmesh.settings.record import MissingFields
from redmesh.start_command import ROOT, start_command, without_relative

if TYPE_CHECKING:
    import subprocess

    from console.deploy.personal.simulated import Simulation
    from db.machine.nodes import NodeSpec

#: Seconds for a new keeper to bring all nodes up: a base, and an addition for each node.
UP_S, UP_EACH_S = 15.0, 0.05
#: Time-outs in seconds. TRY_S: for nodes of a running mesh that are not up (daemons make removed sockets again within
#: two of their checks, and a node is up at the third). DOWN_S: for a mesh to end. END_S: for a keeper that does not
#: answer to exit. LEFT_S: for the other daemons to exit after their keeper.
TRY_S, DOWN_S, END_S, LEFT_S = 6.0, 30.0, 15.0, 5.0
_POLL_S = 0.005
_LOCK_TRIES = 100
FORCE = "mesh down --force ends what is up, then mesh up"
NOT_YOURS = "XDG_STATE_HOME names the state directory; this one is not yours"


class Up(NamedTuple):
    """A mesh that is up, and whether this call started it (``started``) or gave it a new keeper (``adopted``).

    ``size`` is its described size; the database knows what is up (schema.census).
    """

    size: Size
    started: bool
    adopted: bool
    took_s: float


class MeshFailed(ConsoleError):
    """A mesh did not come up; the message has the end of the daemons' logs."""


def up(settings: Settings, *, auto: bool = False, simulation: "Simulation | None" = None) -> Up:
    """Bring the mesh up, or find it up. Raises ConsoleError if that fails, or if a mesh of another size is up.

    ``simulation``: a machine whose nodes are simulated (console/deploy/personal/simulated.py).
    """
    begun = time.monotonic()
    size = wanted_size(settings)
    make_directories(settings)
    with locked(settings):
        config = living_config(settings)
        if config is not None:
            _refuse_other_size(settings, size, size_of(config))
            adopted = adopt(settings, config)
            if not adopted:
                try_now(config)
            if not auto:
                _await_nodes(settings, config, UP_S if adopted else TRY_S)
            return Up(size_of(config), False, adopted, time.monotonic() - begun)
        boot_id = os.urandom(4).hex()
        if simulation is None:
            from agents.pct.node.host_policy import judge_here

            policy = judge_here()
            if policy.refusal:
                raise ConsoleError(policy.refusal, policy.hint, exit_status=1)
            config = keeper_config(settings, size, boot_id, auto=auto)
            define_mesh(settings, config)
        else:
            config = _simulate(settings, simulation, boot_id)
        write_config(settings, config)
        _start(settings, config)
        return Up(size_of(config), True, False, time.monotonic() - begun)


def down(settings: Settings, *, force: bool = False) -> bool:
    """End the mesh and every launch on it; returns False if none was up. Raises ConsoleError if it does not end."""
    try:
        os.stat(settings.state_dir)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # "no mesh is up" would be a guess
        raise ConsoleError(f"{settings.state_dir}: {error.strerror}", NOT_YOURS) from None
    with locked(settings):
        return down_locked(settings, force=force)


def down_locked(settings: Settings, *, force: bool) -> bool:
    """Like :func:`down`, for a caller that holds ``up.lock``."""
    config, trouble = found_config(settings)
    there = config or bare_config(settings)
    if not lives(there):
        if config is not None and os.path.islink(f"{settings.state_dir}/run"):
            tell_database(settings, config)  # the keeper was killed, or the machine rebooted, before it could do this
        forget(settings, config)
        return False
    if not keeper_lives(there):
        with contextlib.suppress(ConsoleError):  # if RUN cannot be made, a signal still ends the keeper
            restore_run(there)
            evidence_of_life.await_sockets(there)
        if not lives(there):  # its keeper was ending it: in a batch job it does so when the script exits
            _ended(settings, there)
            return True
    if keeper_lives(there):
        _end(settings, there, force)
    elif evidence_of_life.lock_is_held(settings.state_dir):
        _end_by_signal(settings, there, force)
    elif config is not None:
        adopt(settings, config)  # a new keeper adopts what the old one left, and can end it
        _end(settings, config, force)
    else:
        _end_without_keeper(settings, there, trouble, force)
    return True


def adopt(settings: Settings, config: KeeperFile) -> bool:
    """Reach the keeper of a living mesh, or start one that adopts what is left; returns whether one was started.

    Raises ConsoleError if neither is possible; in that case nothing is ended or redefined.
    """
    if keeper_lives(config):
        return False
    restore_run(config)
    silent = evidence_of_life.await_sockets(config)
    if keeper_lives(config):
        return False
    if silent or evidence_of_life.lock_is_held(settings.state_dir):
        who = ", ".join(silent) or f"the keeper that holds {settings.state_dir}/mesh.lock"
        raise ConsoleError(
            f"the mesh is up, but {who} cannot be reached in {config.run}",
            f"a stopped process goes on by kill -CONT; the log is {config.state}/log/keeper.jsonl; {FORCE}",
        )
    begun_at = time.time()
    keeper = spawn_keeper(config)
    deadline = time.monotonic() + UP_S
    while not keeper_lives(config):
        status = keeper.poll()
        if status is not None or time.monotonic() > deadline:
            from console.deploy.personal.logs import tail

            what = "does not answer yet" if status is None else f"ended with status {status}"
            said = tail(f"{config.state}/log", begun_at)
            raise MeshFailed(
                f"the new keeper of the mesh that is up {what}: no process of the mesh was ended{said}",
                f"the logs are in {config.state}/log",
            )
        time.sleep(_POLL_S)  # poll: a socket does not report its creation
    keeper.returncode = 0  # it continues to run; this prevents a ResourceWarning of Popen
    return True


def restore_run(config: KeeperFile) -> None:
    """Create RUN again if it was removed under a living mesh. Raises ConsoleError if that is impossible."""
    run = config.run
    try:
        _make_run(config)
        if config.login and not os.path.exists(f"{run}/login"):
            _write_login(config)
    except (OSError, UnsafeDirectory) as error:
        why = error.message if isinstance(error, UnsafeDirectory) else f"{error.filename or run}: {error.strerror}"
        raise ConsoleError(
            f"the mesh is up, but the directory of its sockets is gone and cannot be made again: {why}",
            f"log in again, or keep the directory with loginctl enable-linger; {FORCE}",
        ) from None


def _make_run(config: KeeperFile) -> None:
    public = config.users  # system mode
    own_directory(os.path.dirname(config.run), public=public)
    own_directory(config.run, public=public)


def _write_login(config: KeeperFile) -> None:
    write_private(f"{config.run}/login", f"{config.login}\n")
    if config.users:
        os.chmod(f"{config.run}/login", 0o644)


def found_config(settings: Settings) -> tuple[KeeperFile | None, str]:
    """``keeper.json`` if it is usable; otherwise None, and the reason."""
    try:
        config = read_config(settings)
    except ConsoleError as error:
        return None, error.message
    return config, "" if config is not None else f"{settings.state_dir}/keeper.json does not exist"


def is_up(settings: Settings) -> bool:
    """True if any part of the mesh lives, with or without a usable keeper.json."""
    return lives(found_config(settings)[0] or bare_config(settings))


def living_config(settings: Settings) -> KeeperFile | None:
    """``keeper.json`` of a mesh of which any part runs; None if nothing runs.

    Raises ConsoleError if something runs and the file is unusable, because a new boot of the mesh would end it.
    """
    config, trouble = found_config(settings)
    if not lives(config or bare_config(settings)):
        return None
    if config is None:
        raise ConsoleError(f"a mesh is up, but its file cannot be used: {trouble}", FORCE)
    return config


def bare_config(settings: Settings) -> KeeperFile:
    """The part of keeper.json that finding daemons needs, for when the file is unusable."""
    return KeeperFile(
        run=settings.run_dir, state=settings.state_dir, mesh=settings.mesh, boot_id="", login="", nodes=(), cpas=0,
        users=bool(settings.system),
    )  # fmt: skip


def read_config(settings: Settings) -> KeeperFile | None:
    """The ``keeper.json`` of the last ``mesh up``; None if there is none."""
    path = f"{settings.state_dir}/keeper.json"
    try:
        with open(path, encoding="utf-8") as file:
            return read_keeper_file(json.load(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror}", NOT_YOURS) from None
    except MissingFields as error:
        raise ConsoleError(f"{path} lacks {error}", FORCE) from None
    except (ValueError, RecursionError) as error:
        raise ConsoleError(f"{path} cannot be read: {error}", FORCE) from None


def keeper_lives(config: KeeperFile) -> bool:
    """True if the mesh's keeper answers."""
    return answers(f"{config.run}/keeper.sock")


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Allow one ``mesh up`` or ``mesh down`` at a time."""
    fd = _lock(settings)
    try:
        yield
    finally:
        os.close(fd)


def _lock(settings: Settings) -> int:
    for _ in range(_LOCK_TRIES):
        try:
            fd = os.open(f"{settings.state_dir}/up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            make_directories(settings)
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # A keeper may have removed the directory, which a killed job had left (agents/keeper/leftovers.py).
            if os.fstat(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise ConsoleError(f"{settings.state_dir}/up.lock is removed again and again", "try again")


def make_directories(settings: Settings) -> None:
    """Create the state and log directories if missing. Raises ConsoleError, which names the directory."""
    try:
        own_directory(settings.state_dir, variable="XDG_STATE_HOME")
        own_directory(f"{settings.state_dir}/log", variable="XDG_STATE_HOME")
    except UnsafeDirectory as error:
        raise ConsoleError(error.message, error.hint) from None
    except OSError as error:
        raise ConsoleError(
            f"{error.filename or settings.state_dir}: {error.strerror}", "XDG_STATE_HOME names another place for state"
        ) from None


def _refuse_other_size(settings: Settings, size: Size, there: Size) -> None:
    # Compare only what was requested: a plain `mesh up` accepts a mesh of any size.
    for key in Size._fields:
        if key in settings.where and getattr(size, key) != getattr(there, key) and getattr(settings, key):
            raise ConsoleError(f"a mesh of {there} is up already", "mesh down, then mesh up with the new size")


def define_mesh(settings: Settings, config: KeeperFile, nodes: "Sequence[NodeSpec] | None" = None) -> None:
    from console.deploy.personal.schema import define

    url = cpa_url(settings)
    if config.database_file and config.database_file != settings.cpa_database_file:
        write_private(config.database_file, url + "\n")
    define(url, config, nodes)


def _simulate(settings: Settings, simulation: "Simulation", boot_id: str) -> KeeperFile:
    from console.deploy.personal.simulated import config_of, write_shares

    config = config_of(settings, simulation, boot_id)
    define_mesh(settings, config, simulation.nodes)
    write_shares(simulation, config, write_private)
    return config


def write_private(path: str, text: str) -> None:
    """Write a file atomically, with mode 0600."""
    new = f"{path}.new"
    try:
        os.unlink(new)
    except FileNotFoundError:
        pass
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def write_config(settings: Settings, config: KeeperFile) -> None:
    _make_run(config)
    write_private(f"{settings.state_dir}/keeper.json", json.dumps(config.to_json()) + "\n")
    _write_login(config)
    link = f"{settings.state_dir}/run"
    try:
        os.unlink(link)
    except FileNotFoundError:
        pass
    os.symlink(config.run, link)


def spawn_keeper(config: KeeperFile, *, anew: bool = False, lifelines: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """Start a keeper, detached from this terminal and from any surrounding launch.

    ``anew``: no part of the mesh runs. ``lifelines``: descriptors that it and its daemons keep open.
    """
    import subprocess  # a tenth of the time of commands that start nothing

    kept = without_relative(os.environ).items()
    environ = {k: v for k, v in kept if not k.startswith("YOD_") and k != "REDMESH_ALLOCATION_COOKIE"}
    if lifelines:
        environ["REDMESH_LIFELINES"] = "1"
    state = config.state
    command = start_command("keeper", _kept_program(config, anew))
    with open(f"{state}/log/keeper.stderr", "ab") as log:
        return subprocess.Popen(
            [*command, "--config", f"{state}/keeper.json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            cwd="/",
            start_new_session=True,
            pass_fds=lifelines,
        )


def _kept_program(config: KeeperFile, anew: bool) -> str:
    """The directory of the daemons' program: a snapshot if possible, so that upgrades do not change what runs."""
    if config.users:
        return ROOT  # in system mode daemons run the installed program; PCTs import everything at their start
    from console.deploy.personal.program_snapshot import keep

    try:
        return keep(config.state, alone=anew)
    except OSError:
        return ROOT  # the disk is full: use the installed program


def daemons(config: KeeperFile) -> dict[str, int]:
    """The pids of the keeper and its daemons, by name; empty if the keeper does not answer."""
    try:
        with Client(f"{config.run}/keeper.sock", "admin", 5.0) as keeper:
            told = keeper.call({"op": "status"})
    except Unreachable:
        return {}
    return {"keeper": int(told["pid"]), **{str(one["name"]): int(one["pid"]) for one in told["daemons"]}}


def try_now(config: KeeperFile) -> None:
    """Make the keeper retry daemons that did not come up, at once: the user may have removed the cause."""
    pid = daemons(config).get("keeper", 0)
    if pid > 1:
        os.kill(pid, signal.SIGHUP)


def restart(config: KeeperFile, name: str) -> None:
    """Restart a daemon, which then reads ``keeper.json`` again: terminate it, and the keeper starts it again."""
    kill(daemons(config).get(name, 0), end_signal(config))


def end_signal(config: KeeperFile) -> int:
    """The signal that ends a CPA or an RCA while its mesh goes on; it may be killed at any moment."""
    return signal.SIGKILL if config.signalled_by else signal.SIGTERM


def kill(pid: int, number: int) -> None:
    """Signal a daemon, and wait for its exit."""
    if pid <= 1:  # it is being restarted
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, number)
        ready(handle, seconds=DOWN_S)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _start(settings: Settings, config: KeeperFile) -> None:
    """Start the keeper of a mesh that is not up, and wait until every node is up.

    On failure, take down what was started, unless a launch runs on it. Raises MeshFailed with the reason.
    """
    begun_at = time.time()
    keeper = spawn_keeper(config, anew=True)
    try:
        cause = _wait(settings, config, keeper)
    except BaseException:  # including an interrupt: do not leave a partial mesh
        _take_down(settings, config, keeper)
        raise
    if cause:
        from console.deploy.personal.logs import tail

        said = tail(f"{config.state}/log", begun_at)
        if not _take_down(settings, config, keeper):
            cause += "; launches run on it already, so what is up stays up"
        raise MeshFailed(f"the mesh did not come up: {cause}{said}", f"the logs are in {config.state}/log")
    keeper.returncode = 0  # it continues to run; this prevents a ResourceWarning of Popen


def _await_nodes(settings: Settings, config: KeeperFile, patience_s: float) -> None:
    """Wait at most ``patience_s`` until every node of a running mesh is up; never fails."""
    from console.deploy.personal.schema import watch
    from db.views.deployment_reads import absent

    deadline = time.monotonic() + patience_s
    try:
        with watch(cpa_url(settings)) as store:
            while absent(store)[0] and keeper_lives(config) and time.monotonic() < deadline:
                time.sleep(_POLL_S * 10)  # poll: a database does not report changes
    except StoreError:
        pass  # the caller reads from the database what is up, and reports it


def _wait(settings: Settings, config: KeeperFile, keeper: "subprocess.Popen[bytes]") -> str:
    """Wait until the keeper answers and every node is up; returns "", or the reason of a failure."""
    from console.deploy.personal.schema import watch
    from db.views.deployment_reads import absent

    nodes = size_of(config).nodes
    patience_s = UP_S + UP_EACH_S * nodes
    deadline = time.monotonic() + patience_s
    with watch(cpa_url(settings)) as store:
        while True:
            late, status = time.monotonic() > deadline, keeper.poll()
            if status is not None:
                return f"the keeper ended with status {status}"
            # CPAs report nodes, so no query is of use before one listens: it needs most of the time for its start.
            listens = _cpa_listens(config)
            if late or listens:
                missing = absent(store)
                if not missing[0] and keeper_lives(config):
                    return ""
            if late:
                count, names = missing
                few = ", ".join(names) + (" …" if count > len(names) else "")
                what = f"nodes that did not come up: {count} ({few})" if count else "the keeper is silent"
                return f"{what} within {patience_s:.0f} s"
            # Poll: a database does not report changes.
            time.sleep(max(_POLL_S if listens else 2 * _POLL_S, nodes * 1e-5))


def _cpa_listens(config: KeeperFile) -> bool:
    return any(os.path.exists(f"{config.run}/cpa-{number}.sock") for number in range(config.cpas))


def _end(settings: Settings, config: KeeperFile, force: bool) -> None:
    try:
        with Client(f"{config.run}/keeper.sock", "admin", DOWN_S) as keeper:
            keeper.call({"op": "down", "force": force})
    except Unreachable as error:
        if evidence_of_life.lock_is_held(settings.state_dir):
            raise ConsoleError(f"the keeper refused: {error.message}", "mesh down --force") from None
    _ended(settings, config)


def _ended(settings: Settings, config: KeeperFile) -> None:
    """Wait for the exit of a keeper that was told to end, and of its daemons; then remove the mesh's files."""
    until(lambda: not evidence_of_life.lock_is_held(settings.state_dir), DOWN_S, "the keeper has not ended")
    deadline = time.monotonic() + LEFT_S
    while left := evidence_of_life.processes(settings.state_dir):  # if the keeper was killed meanwhile
        if time.monotonic() > deadline:
            some = ", ".join(f"{name} (process {pid})" for pid, (_, name) in list(left.items())[:3])
            raise ConsoleError(f"the keeper ended before its daemons: {some} still run", "mesh down once more")
        time.sleep(_POLL_S)  # poll: daemons are no children of this command
    forget(settings, config)
    if config.boot_id and not config.granted and not _database_knows(settings, config):
        tell_database(settings, config)


def _end_by_signal(settings: Settings, config: KeeperFile, force: bool) -> None:
    """End a mesh whose keeper lives but is unreachable, for example without a directory for its sockets."""
    told = f"the mesh is up, but its keeper cannot be reached in {config.run}"
    if not force:
        raise ConsoleError(f"{told}: which launches run is not known", "mesh down --force ends them too")
    keepers = [
        pid
        for pid, (kind, _) in evidence_of_life.processes(settings.state_dir).items()
        if kind == evidence_of_life.KEEPER
    ]
    if not keepers:
        raise ConsoleError(
            f"{told}, nor is its process seen from here: it holds {settings.state_dir}/mesh.lock",
            "mesh down on the host, or in the container, where mesh up was run",
        )
    _announce_end(config)
    kill(keepers[0], signal.SIGTERM)
    _ended(settings, config)


def _end_without_keeper(settings: Settings, config: KeeperFile, trouble: str, force: bool) -> None:
    """End the daemons that a killed keeper left, if no other keeper can be started because keeper.json is unusable."""
    if not force:
        raise ConsoleError(f"the daemons that are left have no keeper, and none can be started: {trouble}", FORCE)
    _announce_end(config)
    for kind in (
        evidence_of_life.PCT,
        evidence_of_life.SIMULATED,
        evidence_of_life.LAUNCH,
        evidence_of_life.RCA,
        evidence_of_life.CPA,
    ):  # a PCT ends its launches
        for pid, (what, _) in evidence_of_life.processes(settings.state_dir).items():
            if what == kind:
                kill(pid, signal.SIGTERM)
    _ended(settings, config)


def _announce_end(config: KeeperFile) -> None:
    # Otherwise daemons in the job of some batch systems take no signal for their end.
    if config.signalled_by:
        with contextlib.suppress(OSError):  # what does not obey is killed
            ending.announce(config.state, "")


def _database_knows(settings: Settings, config: KeeperFile) -> bool:
    """True if the database shows this boot of the mesh as down."""
    from db.views.viewer import open_viewer

    try:
        with open_viewer(cpa_url(settings)) as viewer:  # a viewer of all sides
            there = viewer.read()
    except (StoreError, ConsoleError):
        return False
    up = any(node.role != "login" and node.state in ("up", "suspect") for node in there.nodes)
    return there.mesh.boot_id != config.boot_id or not (up or there.launchers)


def tell_database(settings: Settings, config: KeeperFile) -> None:
    from console.deploy.personal.schema import close_down

    if config.granted:
        return  # the mesh continues without this login processor
    if config.ends_with and not os.path.exists(settings.state_dir):
        return  # the keeper of a job's mesh has removed it, including the database
    try:
        close_down(cpa_url(settings), config.boot_id)
    except (StoreError, ConsoleError) as error:
        # The next `mesh up` corrects the database.
        print(f"mesh: the mesh is down, but the database was not told: {error.message}", file=sys.stderr)


def _take_down(settings: Settings, config: KeeperFile, keeper: "subprocess.Popen[bytes]") -> bool:
    """End the keeper that this call started, and its daemons; if a launch runs on them, return False and keep them."""
    try:
        _end(settings, config, False)
    except AgentError as error:
        if error.code == "busy":
            return False
    except ConsoleError:
        pass  # the keeper does not answer, so no launch was started on it
    if any(kind == evidence_of_life.LAUNCH for kind, _ in evidence_of_life.processes(settings.state_dir).values()):
        return False
    if keeper.poll() is None:
        import subprocess

        _announce_end(config)
        keeper.terminate()  # it ends its daemons first
        try:
            keeper.wait(END_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
    if not lives(config):
        forget(settings, config)
    return True


def forget(settings: Settings, config: KeeperFile | None) -> None:
    """Remove what an ended mesh leaves outside its state directory."""
    for run in {settings.run_dir, settings.new_run_dir, *([config.run] if config else [])}:
        if os.path.basename(run) == settings.mesh and os.path.isdir(run) and os.lstat(run).st_uid == os.geteuid():
            import shutil

            shutil.rmtree(run, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(run))
        except OSError:
            pass  # other meshes of the same user, or already removed
    try:
        os.unlink(f"{settings.state_dir}/run")
    except FileNotFoundError:
        pass
    from agents.pct.node.launches import discard_place

    discard_place()  # digests that yod has computed on a host without a PCT


def until(true: Any, timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise ConsoleError(f"{what} within {timeout_s:.0f} s", "its log is in the state directory, under log/")
        time.sleep(_POLL_S)  # poll: a condition of any kind
