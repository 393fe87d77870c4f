"""A launch on a node that root runs for everybody: whose it is, its place, and what the site runs before and after it.

Prolog and epilog are the site's executables; they run as root, with an environment that no user has a word in.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import time

from agents.link.loop import READ
from agents.linux import processes
from agents.pct.errors import LoadFailed, whose
from agents.pct.files.yodio import load_all_modules
from agents.pct.images import store
from agents.pct.launch.paths import owed_epilog, processor_locks
from agents.pct.multiuser.identity import RAM_DISK, User, look_up
from agents.pct.multiuser.processor_lock import ProcessorLock

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Tuple

    from agents.link.journal import Journal
    from agents.link.loop import Loop
    from agents.pct.launch.load import Load

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SAYS = 2048  # bytes of what a prolog writes that are told
_NOBODY = 65534
_SWEEP_S = 10.0  # for one user's files: who stops what works for him makes nobody else wait longer


class SystemMode:
    """What keeper.json says: ``prolog`` and ``epilog`` (paths, or ""), ``prolog_s`` for either, ``allow_root``."""

    __slots__ = ("allow_root", "epilog", "patience_s", "prolog")

    def __init__(self, config: "Dict[str, Any]") -> None:
        self.prolog, self.epilog = str(config.get("prolog") or ""), str(config.get("epilog") or "")
        self.patience_s = float(config.get("prolog_s", 60.0))
        self.allow_root = bool(config.get("allow_root", False))
        load_all_modules()


class UserDirectory:
    """One launch's user on this node, and the directory of what it has here: ``run``, 0700, the user's own."""

    def __init__(self, mode: SystemMode, log: "Journal", run: str, loop: "Loop", load: "Load", uid: int) -> None:
        self._mode = mode
        self._loop, self._log, self._node, self._launcher = loop, log, load.name, load.launcher
        self._owed = owed_epilog(run, load.name, load.launcher)
        self.user: User = look_up(uid, self._node, root_allowed=self._mode.allow_root)
        self._held = ProcessorLock(processor_locks(run, load.name), load.name, load.nodes[0]["processors"])
        self.run = ""

    def settle(self) -> None:
        """Become the user, and make the directory. LoadFailed."""
        try:
            self.user.make_place()
            self.user.become()
            self.run = store.launch_directory(f"run-{self._node}-{self._launcher}")
            os.mkdir(self.run, 0o700)
        except OSError as error:
            why = f"{self._node}: no place for uid {self.user.uid}: {error.filename}: {error.strerror}"
            raise LoadFailed(why, whose(error.errno or 0)) from None

    def processes_gone(self) -> None:
        """No process of the launch has its processors any more."""
        self._held.release()

    def clear(self) -> None:
        """Remove the launch's directory, as the user: a link in it leads nowhere that the user may not go."""
        shutil.rmtree(self.run, ignore_errors=True)

    def prolog(self, then: "Callable[[], None]", failed: "Callable[[LoadFailed], None]") -> None:
        """Call ``then`` when the site has prepared this node, else ``failed``: the node's fault, not the program's."""

        def ended(status: int, said: str) -> None:
            if status == 0:
                then()
            else:
                failed(LoadFailed(f"{self._node}: the prolog {_how(status)}{said}", "node"))

        try:
            if self._mode.epilog:
                self.user.as_root(lambda: write_owed(self._owed, self.user.uid))
        except OSError as error:
            failed(LoadFailed(f"{self._node}: {self._owed}: {error.strerror}", "node"))
            return
        self._run_site("prolog", self._mode.prolog, ended)

    def epilog(self, then: "Callable[[], None]", tell: "Callable[[str], None]") -> None:
        """Call ``then`` when the site has cleaned up behind the launch; ``tell`` people when it could not."""

        def ended(status: int, said: str) -> None:
            if status != 0:
                tell(f"{self._node}: the epilog {_how(status)}{said}")
            if self._mode.epilog:
                self.user.as_root(lambda: take_owed(self._owed))
            then()

        self._run_site("epilog", self._mode.epilog, ended)

    def _run_site(self, step: str, path: str, ended: "Callable[[int, str], None]") -> None:
        if not path:
            ended(0, "")
            return
        began = time.monotonic()
        environment = site_environment(step, self._node, self._launcher, self.user)
        try:
            _pid, out = self.user.as_root(lambda: _start(path, environment, self._mode.patience_s))
        except OSError as error:
            ended(127, f": {error.strerror}")
            return
        said = bytearray()

        def on_output(_events: int) -> None:
            data = os.read(out, 4096)
            said.extend(data)
            if data and not _ended(said):
                del said[_SAYS:-_SAYS]
                return
            # not at the pipe's end: a daemon that the site began may hold it for ever
            self._loop.unwatch(out)
            os.close(out)
            status, text = _read_end(bytes(said))
            self._log.write(step, launcher=self._launcher, status=status, seconds=round(time.monotonic() - began, 3))
            ended(status, text)

        self._loop.watch(out, READ, on_output)


def site_environment(step: str, node: str, launcher: int, user: User) -> "Dict[str, str]":
    """All that a prolog or epilog is told: names of ours, and nothing that came with the load."""
    return {
        "PATH": _PATH, "LC_ALL": "C.UTF-8", "REDMESH_STEP": step, "REDMESH_NODE": node,
        "REDMESH_LAUNCHER": str(launcher), "REDMESH_UID": str(user.uid), "REDMESH_GID": str(user.gid),
        "REDMESH_USER": user.name,
    }  # fmt: skip


def write_owed(path: str, uid: int) -> None:
    """Note that a launch of ``uid`` is owed an epilog, whoever may be killed from now on. OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", buffering=0) as file:
        file.write(b"%d\n" % uid)


def take_owed(path: str) -> int:
    """Whose epilog was owed; it is not any more. -1: none was."""
    try:
        with open(path, "rb") as file:
            uid = int(file.read(32))
        os.unlink(path)
        return uid
    except (OSError, ValueError):
        return -1


def pay_epilog(mode: SystemMode, path: str, node: str, launcher: int) -> int:
    """Start the epilog of a launch whose launch child was killed: its pid, 0 where none is owed."""
    uid = take_owed(path)
    if uid < 0 or not mode.epilog:
        return 0
    try:
        user = look_up(uid, node, root_allowed=True)
        environment = site_environment("epilog", node, launcher, user)
        pid = os.fork()
    except (OSError, LoadFailed):
        return 0
    if pid == 0:
        _attend(mode.epilog, environment, os.open("/dev/null", os.O_WRONLY), mode.patience_s)
    return pid


def _start(path: str, environment: "Dict[str, str]", patience_s: float) -> "Tuple[int, int]":
    # A process of ours waits for it: whoever reaps children here must not take the status away from us.
    out, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        _attend(path, environment, theirs, patience_s)
    os.close(theirs)
    return pid, out


def _attend(path: str, environment: "Dict[str, str]", out: int, patience_s: float) -> "NoReturn":
    status = 126 << 8
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.umask(0o022)
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDONLY)
        pid = os.posix_spawn(
            path, [path], environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)],
        )  # fmt: skip
        status = _wait(pid, patience_s)
    except OSError as error:
        os.write(out, (error.strerror or str(error)).encode("utf-8", "replace"))
        status = 127 << 8
    finally:
        os.write(out, b"\0%d\n" % status)
        os._exit(0)


def _wait(pid: int, patience_s: float) -> int:
    handle = os.pidfd_open(pid)
    ready, _, _ = select.select([handle], [], [], patience_s)
    if not ready:
        processes.kill_all([*processes.descendants(pid), pid])
    return os.waitpid(pid, 0)[1]


def _ended(data: bytearray) -> bool:
    return data.endswith(b"\n") and data[-8:].rpartition(b"\0")[2][:-1].isdigit()


def _read_end(data: bytes) -> "Tuple[int, str]":
    text, _, number = data.rpartition(b"\0")
    said = text.decode("utf-8", "replace").strip()[:_SAYS]
    return int(number) if number.strip().isdigit() else 126 << 8, f": {said}" if said else ""


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed (signal {os.WTERMSIG(status)}; prolog_s is how long it may take)"
    return f"ended with {os.WEXITSTATUS(status) or status}"


def sweep_all(ram_disk: str = RAM_DISK) -> int:
    """Remove what dead launch children of any user left in the RAM disk, each user's as that user; who does (pid)."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for uid in users_of(ram_disk):
            # one after another: how many directories there are is up to users
            child = os.fork()
            if child == 0:
                os.setgroups([])
                os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                os.setresuid(uid, uid, uid)
                store.sweep(ram_disk)
                os._exit(0)
            _wait(child, _SWEEP_S)
    except Exception:  # whatever anybody put there
        pass
    finally:
        os._exit(0)


def users_of(ram_disk: str) -> "List[int]":
    """Who has a directory of ours in ``ram_disk``: the name alone is nothing, for anybody may make any. Never root."""
    found = []
    for name in os.listdir(ram_disk):
        path = os.path.join(ram_disk, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue  # gone meanwhile
        if status.st_uid and name == f"redmesh-{status.st_uid}" and stat.S_ISDIR(status.st_mode):
            found.append(status.st_uid)
    return found
