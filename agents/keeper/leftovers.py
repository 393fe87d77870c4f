"""Removes what the meshes of ended batch jobs left on this host, because they were killed before they could.

Slurm with ``proctrack/cgroup`` kills the daemons on the script's host at the moment the script ends. What they left is
removed when another keeper of the same user ends here, or has started. A mesh is dead if nobody holds the lock of any
of its keepers, none of its processes runs, and its job's script has exited.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from agents.keeper import daemon_processes
from agents.linux import processes
from agents.linux.removal import remove_empty, remove_state, remove_tree
from agents.objects.carry import carry_all
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: A directory in which no keeper was started is left alone for these seconds: somebody may be starting one.
STARTS_S = 3600.0
_WHY = "its batch job was killed"


def sweep(jobs: str) -> List[str]:
    """Remove dead meshes from ``jobs``, the directory of a user's batch jobs on this host; return their paths."""
    if not os.path.isdir(jobs) or _is_remote(jobs):  # locks and processes of other hosts cannot be seen everywhere
        return []
    return [mesh for mesh in _directories(jobs) if _remove_if_dead(mesh)]


def states_of(mesh: str) -> List[str]:
    """The directories of keepers in that of a mesh: its own, and those of nodes on this host."""
    found = [mesh]
    for host in _directories(os.path.join(mesh, "nodes")):
        found += _directories(os.path.join(host, "redmesh", "nodes"))
    return [state for state in found if os.path.exists(os.path.join(state, "keeper.json"))]


def _remove_if_dead(mesh: str) -> bool:
    states, locks = states_of(mesh), []
    try:
        if os.lstat(mesh).st_uid != os.geteuid() or (not states and not _is_old(mesh)):
            return False
        for state in states:
            fd = os.open(os.path.join(state, "mesh.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            locks.append(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if any(daemon_processes.processes(state) or _has_owner(state) for state in states):
            return False
        return _remove(mesh, states)
    except (OSError, ValueError):
        return False  # a keeper holds its lock, or nobody can say
    finally:
        for fd in locks:
            os.close(fd)


def _remove(mesh: str, states: List[str]) -> bool:
    for state in states:
        config = _config(state)
        target, objects = config.get("keep_jobs"), os.path.join(state, "jobs")
        if target and os.path.isdir(objects):
            try:
                if carry_all(objects, str(target), f"{_WHY}: kept in {target}")[1]:
                    return False  # an object that cannot be carried stays, and with it everything
            except AgentError:
                return False
        run = str(config.get("run", ""))
        named = os.path.basename(run) in (os.path.basename(state), config.get("mesh"))
        if named and os.path.isdir(run) and os.lstat(run).st_uid == os.geteuid():
            remove_tree(run)
    for state in reversed(states):  # the mesh's own last
        remove_state(state)
    remove_tree(mesh)
    remove_empty(os.path.dirname(mesh), 2)
    return not os.path.exists(mesh)


def _has_owner(state: str) -> bool:
    """True if the job's script runs."""
    owner = _config(state).get("ends_with")
    if not isinstance(owner, list) or len(owner) != 2:
        return False
    return processes.alive(int(owner[0]), int(owner[1]))


def _config(state: str) -> Dict[str, Any]:
    with open(os.path.join(state, "keeper.json"), encoding="utf-8") as file:
        found = json.load(file)
    return found if isinstance(found, dict) else {}


def _is_old(mesh: str) -> bool:
    newest = max(os.lstat(place).st_mtime for place, _, _ in os.walk(mesh))
    return time.time() - newest > STARTS_S


def _directories(path: str) -> List[str]:
    try:
        return sorted(entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _is_remote(path: str) -> bool:
    from agents.pct.ranks.fork import is_remote

    return is_remote(os.fsencode(path))
