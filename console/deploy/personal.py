"""The personal mesh on this machine: up, adopted after its keeper was killed, and down again.

Everything here is done under ``STATE/up.lock``, so that ten yods that find no mesh start one.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.link.client import Client, Unreachable
from agents.link.sockets import UnsafeDirectory, connect, own_directory
from agents.wire.errors import AgentError
from console.deploy.kept_program import keep
from console.deploy.logs import tail
from console.deploy.plan import Size, cpa_url, keeper_config, size_of, wanted_size
from console.errors import ConsoleError
from console.settings import Settings
from console.starting import without_relative
from db.errors import StoreError

if TYPE_CHECKING:
    from console.deploy.simulated import Simulation
    from db.machine import NodeSpec

#: What a new keeper may take until every node is up: this, and as much more for each node.
UP_S, UP_EACH_S = 15.0, 0.05
DOWN_S = 30.0
_POLL_S = 0.005
NOT_YOURS = "XDG_STATE_HOME names the state directory; this one is not yours"


class Up(NamedTuple):
    """A mesh that is up, and whether this call started it (``started``) or gave it a new keeper (``adopted``)."""

    size: Size
    started: bool
    adopted: bool
    took_s: float


class MeshFailed(ConsoleError):
    """A mesh that did not come up; the message carries the end of the daemons' logs."""


def up(settings: Settings, *, auto: bool = False, simulation: "Simulation | None" = None) -> Up:
    """Bring the mesh up, or find it up. ConsoleError when it fails, or when one of another size is up.

    ``simulation``: a machine whose nodes are simulated (console/deploy/simulated.py).
    """
    begun = time.monotonic()
    size = wanted_size(settings)
    make_directories(settings)
    with locked(settings):
        config = read_config(settings)
        if config is not None and lives(config):
            _refuse_other_size(settings, size, size_of(config))
            adopted = not keeper_lives(config)
            if adopted:
                _start(settings, config)
            else:
                try_now(config)
            return Up(size_of(config), False, adopted, time.monotonic() - begun)
        boot_id = os.urandom(4).hex()
        if simulation is None:
            config = keeper_config(settings, size, boot_id, auto=auto)
            define_mesh(settings, config)
        else:
            config = _simulate(settings, simulation, boot_id)
        write_config(settings, config)
        _start(settings, config, anew=True)
        return Up(size_of(config), True, False, time.monotonic() - begun)


def down(settings: Settings, *, force: bool = False) -> bool:
    """End the mesh and every launch on it; False when none was up. ConsoleError when it will not end."""
    try:
        os.stat(settings.state_dir)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # "no mesh is up" would be a guess
        raise ConsoleError(f"{settings.state_dir}: {error.strerror}", NOT_YOURS) from None
    with locked(settings):
        return down_locked(settings, force=force)


def down_locked(settings: Settings, *, force: bool) -> bool:
    """The same for a caller that holds ``up.lock``."""
    config = read_config(settings)
    if config is None or not lives(config):
        if config is not None and os.path.islink(f"{settings.state_dir}/run"):
            tell_database(settings, config)  # it was killed, or the machine: nobody has told the database
        forget(settings, config)
        return False
    if not keeper_lives(config):
        spawn_keeper(config)  # it adopts what its predecessor left, and can end it
        until(lambda: keeper_lives(config), UP_S, "the keeper that is to end the mesh does not answer")
    _end(settings, config, force)
    return True


def read_config(settings: Settings) -> dict[str, Any] | None:
    """``keeper.json``, as the last ``mesh up`` wrote it; None when there is none."""
    try:
        with open(f"{settings.state_dir}/keeper.json", encoding="utf-8") as file:
            config: dict[str, Any] = json.load(file)
            return config
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConsoleError(f"{settings.state_dir}/keeper.json: {error.strerror}", NOT_YOURS) from None
    except ValueError as error:
        path = f"{settings.state_dir}/keeper.json"
        raise ConsoleError(f"{path} cannot be read: {error}", f"rm {path}") from None


def keeper_lives(config: dict[str, Any]) -> bool:
    """Whether the mesh's keeper answers."""
    return answers(f"{config['run']}/keeper.sock")


def lives(config: dict[str, Any]) -> bool:
    """Whether anything of the mesh answers: a daemon, or a launch that has outlived them all."""
    try:
        names = os.listdir(config["run"])
    except OSError:
        return False
    return any(answers(f"{config['run']}/{name}") for name in names if name.endswith(".sock"))


def answers(path: str) -> bool:
    """Whether somebody of ours listens at ``path``. AgentError when it is somebody else."""
    try:
        connect(path, 1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One ``mesh up`` or ``mesh down`` at a time."""
    fd = os.open(f"{settings.state_dir}/up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def make_directories(settings: Settings) -> None:
    """Our directories, made where missing; ConsoleError, naming the place, when one cannot be."""
    try:
        own_directory(settings.state_dir)
        own_directory(f"{settings.state_dir}/log")
    except UnsafeDirectory as error:
        raise ConsoleError(error.message, "remove it, or point XDG_STATE_HOME to a directory of your own") from None
    except OSError as error:
        raise ConsoleError(
            f"{error.filename or settings.state_dir}: {error.strerror}", "XDG_STATE_HOME names another place for state"
        ) from None


def _refuse_other_size(settings: Settings, size: Size, there: Size) -> None:
    # only what was asked for is compared: a plain `mesh up` beside a mesh of any size is fine
    for key in Size._fields:
        if key in settings.where and getattr(size, key) != getattr(there, key) and getattr(settings, key):
            raise ConsoleError(f"a mesh of {there} is up already", "mesh down, then mesh up with the new size")


def define_mesh(settings: Settings, config: dict[str, Any], nodes: "Sequence[NodeSpec] | None" = None) -> None:
    from console.deploy.schema import define

    url = cpa_url(settings)
    if config["database_file"] and config["database_file"] != settings.cpa_database_file:
        write_private(config["database_file"], url + "\n")
    define(url, config, nodes)


def _simulate(settings: Settings, simulation: "Simulation", boot_id: str) -> dict[str, Any]:
    from console.deploy.simulated import config_of, write_shares

    config = config_of(settings, simulation, boot_id)
    define_mesh(settings, config, simulation.nodes)
    write_shares(simulation, config, write_private)
    return config


def write_private(path: str, text: str) -> None:
    """Write a file of mode 0600, whole or not at all."""
    new = f"{path}.new"
    try:
        os.unlink(new)
    except FileNotFoundError:
        pass
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def write_config(settings: Settings, config: dict[str, Any]) -> None:
    public = bool(config.get("users"))  # system mode
    own_directory(os.path.dirname(config["run"]), public=public)
    own_directory(config["run"], public=public)
    write_private(f"{settings.state_dir}/keeper.json", json.dumps(config) + "\n")
    write_private(f"{config['run']}/login", f"{config['login']}\n")
    if public:
        os.chmod(f"{config['run']}/login", 0o644)
    link = f"{settings.state_dir}/run"
    try:
        os.unlink(link)
    except FileNotFoundError:
        pass
    os.symlink(config["run"], link)


def spawn_keeper(config: dict[str, Any], *, anew: bool = False) -> "subprocess.Popen[bytes]":
    """A keeper, detached from this terminal and from any launch this command runs in; ``anew``: nothing of it lives."""
    kept = without_relative(os.environ).items()
    environ = {k: v for k, v in kept if not k.startswith("YOD_") and k != "REDMESH_ALLOCATION_COOKIE"}
    state = config["state"]
    _keep_program(config, environ, anew)
    with open(f"{state}/log/keeper.stderr", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "agents.keeper", "--config", f"{state}/keeper.json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            cwd="/",
            start_new_session=True,
        )


def _keep_program(config: dict[str, Any], environ: dict[str, str], anew: bool) -> None:
    """Have the daemons run this version of the program, whatever becomes of the installed one while they do."""
    if config.get("users"):
        return  # in system mode root runs what root has installed; its PCTs load all of it when they begin
    try:
        kept = keep(config["state"], alone=anew)
    except OSError:
        return  # a disk that is full: they run the installed one
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (kept, environ.get("PYTHONPATH", ""))))


def daemons(config: dict[str, Any]) -> dict[str, int]:
    """The processes of the keeper and its daemons, by name; none when it does not answer."""
    try:
        with Client(f"{config['run']}/keeper.sock", "admin", 5.0) as keeper:
            told = keeper.call({"op": "status"})
    except Unreachable:
        return {}
    return {"keeper": int(told["pid"]), **{str(one["name"]): int(one["pid"]) for one in told["daemons"]}}


def try_now(config: dict[str, Any]) -> None:
    """Have the keeper try at once what did not come up and waits: what was wrong may have been mended."""
    pid = daemons(config).get("keeper", 0)
    if pid > 1:
        os.kill(pid, signal.SIGHUP)


def restart(config: dict[str, Any], name: str) -> None:
    """End one daemon; the keeper starts it again, and it reads ``keeper.json`` anew."""
    kill(daemons(config).get(name, 0), signal.SIGTERM)


def kill(pid: int, number: int) -> None:
    """Signal a daemon, and wait until it has ended."""
    if pid <= 1:  # it is between two lives
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, number)
        select.select([handle], [], [], DOWN_S)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _start(settings: Settings, config: dict[str, Any], *, anew: bool = False) -> None:
    """Start the keeper and wait until every node is up; else take all down again and say why."""
    begun_at = time.time()
    keeper = spawn_keeper(config, anew=anew)
    try:
        cause = _wait(settings, config, keeper)
    except BaseException:  # an interrupt too: no half of a mesh stays
        end_by_force(settings, config, keeper)
        raise
    if cause:
        said = tail(f"{config['state']}/log", begun_at)
        end_by_force(settings, config, keeper)
        raise MeshFailed(f"the mesh did not come up: {cause}{said}", f"the logs are in {config['state']}/log")
    keeper.returncode = 0  # it stays; nobody is to wait for it


def _wait(settings: Settings, config: dict[str, Any], keeper: "subprocess.Popen[bytes]") -> str:
    """Wait until the keeper answers and every node is up; "" then, else what is the matter."""
    from console.deploy.schema import absent, watch

    nodes = size_of(config).nodes
    patience_s = UP_S + UP_EACH_S * nodes
    deadline = time.monotonic() + patience_s
    with watch(cpa_url(settings)) as store:
        while (missing := absent(store))[0] or not keeper_lives(config):
            status = keeper.poll()
            if status is not None:
                return f"the keeper ended with status {status}"
            if time.monotonic() > deadline:
                count, names = missing
                few = ", ".join(names) + (" …" if count > len(names) else "")
                what = f"nodes that did not come up: {count} ({few})" if count else "the keeper is silent"
                return f"{what} within {patience_s:.0f} s"
            time.sleep(max(_POLL_S, nodes * 1e-5))
    return ""


def _end(settings: Settings, config: dict[str, Any], force: bool) -> None:
    try:
        with Client(f"{config['run']}/keeper.sock", "admin", DOWN_S) as keeper:
            keeper.call({"op": "down", "force": force})
    except Unreachable as error:
        if not _lock_is_free(settings):
            raise ConsoleError(f"the keeper did not take the order: {error.message}", "mesh down --force") from None
    until(lambda: _lock_is_free(settings), DOWN_S, "the keeper has not ended")
    forget(settings, config)
    if not config.get("granted") and not _database_knows(settings, config):
        tell_database(settings, config)


def _database_knows(settings: Settings, config: dict[str, Any]) -> bool:
    """Whether the keeper could have it written down that the mesh is gone."""
    from db.views import open_viewer

    try:
        with open_viewer(cpa_url(settings)) as viewer:  # of every side
            there = viewer.read()
    except (StoreError, ConsoleError):
        return False
    up = any(node.role != "login" and node.state in ("up", "suspect") for node in there.nodes)
    return there.mesh.boot_id != config["boot_id"] or not (up or there.launchers)


def tell_database(settings: Settings, config: dict[str, Any]) -> None:
    from console.deploy.schema import close_down

    if config.get("granted"):
        return  # the mesh goes on without this login processor
    try:
        close_down(cpa_url(settings), config["boot_id"])
    except (StoreError, ConsoleError) as error:
        # the next `mesh up` ends what this one could not
        print(f"mesh: the mesh is down, but the database was not told: {error.message}", file=sys.stderr)


def end_by_force(settings: Settings, config: dict[str, Any], keeper: "subprocess.Popen[bytes]") -> None:
    try:
        _end(settings, config, True)
    except (ConsoleError, AgentError):
        pass  # what it could not end it has no ears for
    if keeper.poll() is None:
        keeper.terminate()
        try:
            keeper.wait(5)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
    forget(settings, config)


def _lock_is_free(settings: Settings) -> bool:
    """Whether no keeper holds ``mesh.lock``. Asked only under up.lock, so no keeper is about to take it."""
    try:
        fd = os.open(f"{settings.state_dir}/mesh.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def forget(settings: Settings, config: dict[str, Any] | None) -> None:
    """Remove what a mesh that has ended leaves outside its state directory."""
    for run in {settings.run_dir, settings.new_run_dir, *([config["run"]] if config else [])}:
        if os.path.basename(run) == settings.mesh and os.path.isdir(run) and os.lstat(run).st_uid == os.geteuid():
            import shutil

            shutil.rmtree(run, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(run))
        except OSError:
            pass  # other meshes of the same user, or gone already
    try:
        os.unlink(f"{settings.state_dir}/run")
    except FileNotFoundError:
        pass


def until(true: Any, timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise ConsoleError(f"{what} within {timeout_s:.0f} s", "its log is in the state directory, under log/")
        time.sleep(_POLL_S)
