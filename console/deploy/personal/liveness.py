"""What of a mesh lives: by its lock, its sockets and its processes. Whatever ends or redefines a mesh asks here first.

Sockets alone are no evidence: logind removes /run/user/UID, and all sockets in it, at a user's last logout. The daemons
make them again (agents/link/sockets.py, listen_again); until then the lock and the processes tell.
"""

import fcntl
import os
import time
from typing import Any

from agents.link.sockets import LOOK_S, connect
from agents.linux.processes import children, is_agent

#: Seconds for sockets to come back: the keeper makes RUN again, and the others their sockets in it.
BACK_S = 2 * LOOK_S + 1
_POLL_S = 0.02
#: What the processes of a mesh are called; the last two only by their titles (agents/linux/prctl.py, set_title).
KEEPER, CPA, RCA, SIMULATED, PCT, LAUNCH = "keeper", "cpa", "rca", "simulated", "pct", "launch"


def lives(config: dict[str, Any]) -> bool:
    """Whether anything of the mesh lives: a daemon, or a launch that has outlived them all."""
    run, state = str(config["run"]), str(config["state"])
    return any_answers(run) or lock_is_held(state) or bool(processes(state))


def answers(path: str) -> bool:
    """Whether somebody of ours listens at ``path``. AgentError when it is somebody else."""
    try:
        connect(path, 1.0).close()
    except OSError:
        return False
    return True


def any_answers(run: str) -> bool:
    """Whether anybody listens at a socket in RUN."""
    return any(answers(f"{run}/{name}") for name in _names(run) if name.endswith(".sock"))


def lock_is_held(state: str) -> bool:
    """Whether a keeper holds ``mesh.lock``."""
    try:
        fd = os.open(f"{state}/mesh.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def processes(state: str) -> dict[int, tuple[str, str]]:
    """Our processes that belong to the mesh in ``state``: by pid, what each is and its name (a PCT's is its node's)."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb", buffering=0) as file:
                    words = os.fsdecode(file.read(65536)).rstrip("\0").split("\0")
                known = _known(words, state)
                # anybody may call a process so
                ours = known is not None and (os.stat(f"/proc/{entry}").st_uid == os.geteuid() or is_agent(int(entry)))
                if known is not None and ours and has_same_directory(int(entry), state):
                    found[int(entry)] = known
            except OSError:
                continue  # it has ended meanwhile
    return found


def has_same_directory(pid: int, path: str) -> bool:
    """Whether ``path`` is the same directory for the process as for us; in a container it can be another.

    True when that cannot be told. FileNotFoundError when the process has exited.
    """
    try:
        here = os.stat(path)
    except OSError:
        return True
    try:
        there = os.stat(f"/proc/{pid}/root{path}")
    except FileNotFoundError:
        os.stat(f"/proc/{pid}")
        return False
    except OSError:
        return True  # it is somebody else's, or refuses to be looked at
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _known(words: list[str], state: str) -> tuple[str, str] | None:
    if len(words) == 1 and words[0].endswith(f" ({state})"):  # a title: redmesh-KIND NAME (STATE)
        kind, _, name = words[0][: -len(f" ({state})")].removeprefix("redmesh-").partition(" ")
        return (kind, name) if kind in (KEEPER, PCT, LAUNCH) and words[0].startswith("redmesh-") else None
    if f"{state}/keeper.json" not in words or "-m" not in words:
        return None
    module = words[words.index("-m") + 1]
    if module not in ("agents.keeper", "agents.cpa", "agents.rca", "agents.simulated"):
        return None
    kind = module.partition(".")[2]
    return kind, words[words.index("--name") + 1] if "--name" in words[:-1] else kind


def await_sockets(config: dict[str, Any]) -> list[str]:
    """Wait until every process of the mesh that lives has its socket; those that have not within BACK_S, by name."""
    run, state = str(config["run"]), str(config["state"])
    deadline = time.monotonic() + BACK_S
    whole = os.path.exists(f"{run}/login")
    while True:
        there = processes(state)
        missing = [
            f"{name} (process {pid})"
            for pid, (kind, name) in there.items()
            if kind != LAUNCH and not answers(f"{run}/{name}.sock")
        ]
        launches = sum(kind == LAUNCH and bool(children(pid)) for pid, (kind, _) in there.items())
        back = sum(name.startswith("launch-") and name.endswith(".sock") for name in _names(run))
        if not missing and (whole or back >= launches):
            return []
        whole = False
        if time.monotonic() > deadline:
            return missing
        time.sleep(_POLL_S * (5 if missing else 1))


def _names(run: str) -> list[str]:
    try:
        return os.listdir(run)
    except OSError:
        return []
