"""The site's prolog and epilog: executables that run before and after each launch on a node in system mode.

They run as root, with an environment that no user can influence.
"""

from __future__ import annotations

import os
import signal

from agents.linux import processes
from agents.linux.ready import ready
from agents.pct.errors import LoadFailed
from agents.pct.multiuser.identity import User, look_up

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, NoReturn, Tuple

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SAYS = 2048  # how many bytes of a prolog's output are reported


def site_environment(step: str, node: str, launcher: int, user: User) -> "Dict[str, str]":
    """The environment of a prolog or epilog: our variables only, none from the load."""
    return {
        "PATH": _PATH, "LC_ALL": "C.UTF-8", "REDMESH_STEP": step, "REDMESH_NODE": node,
        "REDMESH_LAUNCHER": str(launcher), "REDMESH_UID": str(user.uid), "REDMESH_GID": str(user.account_gid),
        "REDMESH_USER": user.name,
    }  # fmt: skip


def write_owed(path: str, uid: int) -> None:
    """Record that a launch of ``uid`` needs an epilog, even if processes are killed from now on. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", buffering=0) as file:
        file.write(b"%d\n" % uid)


def take_owed(path: str) -> int:
    """Take the record; returns the uid, or -1 if there was none."""
    try:
        with open(path, "rb") as file:
            uid = int(file.read(32))
        os.unlink(path)
        return uid
    except (OSError, ValueError):
        return -1


def pay_epilog(epilog: str, patience_s: float, path: str, node: str, launcher: int) -> int:
    """Start ``epilog`` for a launch whose launch child was killed; returns its pid, or 0 if ``path`` records none."""
    uid = take_owed(path)
    if uid < 0 or not epilog:
        return 0
    try:
        user = look_up(uid, node, root_allowed=True)
        environment = site_environment("epilog", node, launcher, user)
        pid = os.fork()
    except (OSError, LoadFailed):
        return 0
    if pid == 0:
        _attend(epilog, environment, os.open("/dev/null", os.O_WRONLY), patience_s)
    return pid


def start(path: str, environment: "Dict[str, str]", patience_s: float) -> "Tuple[int, int]":
    """Start a prolog or epilog with a limit of ``patience_s`` seconds; returns the pid of the process that waits for
    it, and a pipe with its output, which ends with its status (``ended``, ``read_end``). Raises OSError."""
    # A separate process waits for it, because the reaper of this process would take its status.
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
        status = wait_for(pid, patience_s)
    except OSError as error:
        os.write(out, (error.strerror or str(error)).encode("utf-8", "replace"))
        status = 127 << 8
    finally:
        os.write(out, b"\0%d\n" % status)
        os._exit(0)


def wait_for(pid: int, patience_s: float) -> int:
    """Wait for a child, which is killed with its descendants after ``patience_s`` seconds; returns its status."""
    handle = os.pidfd_open(pid)
    if not ready(handle, seconds=patience_s):
        processes.kill_all([*processes.descendants(pid), pid])
    return os.waitpid(pid, 0)[1]


def ended(data: bytearray) -> bool:
    """True if the data ends with a status."""
    return data.endswith(b"\n") and data[-8:].rpartition(b"\0")[2][:-1].isdigit()


def read_end(data: bytes) -> "Tuple[int, str]":
    """The status, and the output, to be appended to a sentence."""
    text, _, number = data.rpartition(b"\0")
    said = text.decode("utf-8", "replace").strip()[:SAYS]
    return int(number) if number.strip().isdigit() else 126 << 8, f": {said}" if said else ""


def how(status: int) -> str:
    """The end of the process in words."""
    if os.WIFSIGNALED(status):
        return f"was killed (signal {os.WTERMSIG(status)}; prolog_s is how long it may take)"
    return f"ended with {os.WEXITSTATUS(status) or status}"
