"""Finds out which parts of a mesh run, by its lock, sockets and processes, before anything is ended or redefined.

A missing socket does not show that its daemon has exited: logind removes /run/user/UID with all sockets at a user's
last logout. The daemons create them again (agents/link/sockets.py, listen_again); until then the lock and the
processes show what runs.
"""

import fcntl
import os
import time

from agents.keeper.daemon_processes import CPA, KEEPER, LAUNCH, PCT, RCA, SIMULATED, processes
from agents.link.sockets import LOOK_S, connect
from agents.linux.processes import children
from redmesh.settings.keeper_file import KeeperFile

#: Seconds for sockets to come back: the keeper creates RUN again, then the other daemons their sockets in it.
BACK_S = 2 * LOOK_S + 1
_POLL_S = 0.02
__all__ = [
    "BACK_S",
    "CPA",
    "KEEPER",
    "LAUNCH",
    "PCT",
    "RCA",
    "SIMULATED",
    "answers",
    "any_answers",
    "await_sockets",
    "lives",
    "lives_elsewhere",
    "lock_is_held",
    "processes",
]


def lives(config: KeeperFile) -> bool:
    """True if any part of the mesh runs: a daemon, or a launch child without daemons."""
    run, state = config.run, config.state
    return any_answers(run) or lock_is_held(state) or bool(processes(state))


def lives_elsewhere(config: KeeperFile) -> bool:
    """True if a keeper holds the lock of the mesh, and no part of the mesh is seen from here: two machines or
    containers share a state directory."""
    run, state = config.run, config.state
    return lock_is_held(state) and not (processes(state) or any_answers(run))


def answers(path: str) -> bool:
    """True if a process of this user listens at ``path``. Raises AgentError if the process is another user's."""
    try:
        connect(path, 1.0).close()
    except OSError:
        return False
    return True


def any_answers(run: str) -> bool:
    """True if any process listens at a socket in RUN."""
    return any(answers(f"{run}/{name}") for name in _names(run) if name.endswith(".sock"))


def lock_is_held(state: str) -> bool:
    """True if a keeper holds ``mesh.lock``."""
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


def await_sockets(config: KeeperFile) -> list[str]:
    """Wait until every running daemon of the mesh has its socket; return the names of those that have none in time."""
    run, state = config.run, config.state
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
        time.sleep(_POLL_S * (5 if missing else 1))  # poll: sockets do not report their creation


def _names(run: str) -> list[str]:
    try:
        return os.listdir(run)
    except OSError:
        return []
