"""Removes what the meshes of ended batch jobs left on this host, because they were killed before they could.

Slurm with ``proctrack/cgroup`` kills the daemons on the script's host at the moment the script ends. What they left is
removed when another keeper of the same user ends here, or has started. A mesh is dead if nothing shows that it lives or
starts:

* its job's script (``ends_with`` in keeper.json) has exited;
* no process of it runs;
* nobody holds ``up.lock`` (mesh up and mesh down), ``start.lock`` (the process that the manager started on this host:
  console/deploy/managed/starter.py), or ``mesh.lock`` (a keeper);
* nobody has created or started anything in it lately.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from agents.keeper import daemon_processes
from agents.link.sockets import connect_now, own_directory
from agents.linux import processes
from agents.linux.removal import remove_empty, remove_state, remove_tree
from agents.objects.carry import carry_all, has_objects
from agents.pct.ranks.fork import file_system
from agents.wire.errors import AgentError
from redmesh.settings.keeper_file import KeeperFile, read_keeper_file

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import AbstractSet, Dict, Iterable, List

#: Seconds for which a mesh is left alone after something was created in it; and one in which no keeper was started.
YOUNG_S, STARTS_S = 120.0, 3600.0
#: The file systems, by their types in statfs(2), on which the locks and processes of all users of a file can be seen:
#: ext2 to ext4, XFS, Btrfs, tmpfs, ZFS, F2FS. An overlay may be on a remote file system.
LOCAL = frozenset((0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x2FC12FC1, 0xF2F52010))
_WHY = "its batch job was killed"


def sweep(jobs: str, local: AbstractSet[int] = LOCAL) -> List[str]:
    """Remove dead meshes from ``jobs``, the directory of a user's batch jobs on this host; return their paths.

    ``local``: the types of file systems on which anything is removed.
    """
    if file_system(os.fsencode(jobs)) not in local:
        return []
    return _remove_dead([mesh for mesh in _directories(jobs) if not _is_young(mesh)])


def sweep_own(mesh: str, local: AbstractSet[int] = LOCAL) -> bool:
    """Remove ``mesh``, that of the caller's own job, if it is dead, even if it was started a moment ago."""
    if file_system(os.fsencode(mesh)) not in local or not states_of(mesh):
        return False
    return not is_kept(mesh) and bool(_remove_dead([mesh]))


def states_of(mesh: str) -> List[str]:
    """The directories of keepers in that of a mesh: its own, and those of nodes on this host."""
    found = [mesh]
    for place in _places_in(mesh):
        found += _directories(os.path.join(place, "nodes"))
    return [state for state in found if os.path.exists(os.path.join(state, "keeper.json"))]


def nodes_of(mesh: str) -> List[str]:
    """The directories of the keepers of nodes in that of a mesh."""
    return [state for state in states_of(mesh) if state != mesh]


def is_kept(state: str) -> bool:
    """True if a keeper holds the lock of its directory ``state``."""
    return _is_held(os.path.join(state, "mesh.lock"))


def _places_in(mesh: str) -> List[str]:
    places = [os.path.join(host, "redmesh") for host in _directories(os.path.join(mesh, "nodes"))]
    return [place for place in places if os.path.isdir(place)]


def _remove_dead(meshes: List[str]) -> List[str]:
    # Most meshes live: find that out without a lock, which would be in the way of a process that starts.
    states = {mesh: states_of(mesh) for mesh in meshes if not _has_owner(states_of(mesh))}
    living = daemon_processes.processes_of([state for those in states.values() for state in those]) if states else {}
    return [mesh for mesh, those in states.items() if not any(living[state] for state in those) and _try(mesh, those)]


def _try(mesh: str, states: List[str]) -> bool:
    """Remove a mesh if it is still dead while we hold all of its locks."""
    locks = _Locks()
    try:
        if os.lstat(mesh).st_uid != os.geteuid():
            return False
        for directory, name in _locks_of(mesh, states):
            locks.take(os.path.join(directory, name))
        if states_of(mesh) != states or _has_owner(states) or any(daemon_processes.processes_of(states).values()):
            return False
        return _remove(mesh, states)
    except (OSError, ValueError):
        return False  # somebody holds a lock, or nobody can say
    finally:
        locks.close()


def _locks_of(mesh: str, states: List[str]) -> Iterable[tuple[str, str]]:
    yield mesh, "up.lock"
    for place in _places_in(mesh):
        yield place, "start.lock"
    for state in states:
        yield state, "mesh.lock"


def _is_held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class _Locks:
    """The locks of a mesh, which the caller holds until ``close``."""

    def __init__(self) -> None:
        self._held: Dict[str, int] = {}  # path -> descriptor
        self._created: List[str] = []

    def take(self, path: str) -> None:
        """Take the lock of a file, which is created if it is missing. Raises OSError if another process holds it."""
        missing = not os.path.exists(path)
        fd = self._held[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_nlink:
            raise FileNotFoundError(path)  # another keeper has removed the mesh meanwhile
        if missing:
            self._created.append(path)

    def close(self) -> None:
        """Release all. Remove files that ``take`` created: a process that opens one meanwhile looks at its links."""
        for path in self._created:
            try:
                if os.path.samestat(os.stat(path), os.fstat(self._held[path])):
                    os.unlink(path)
            except OSError:
                pass
        for fd in self._held.values():
            os.close(fd)


def _remove(mesh: str, states: List[str]) -> bool:
    for state in states:
        target, objects = _config(state).keep_jobs, os.path.join(state, "jobs")
        if target and os.path.isdir(objects):
            try:
                own_directory(str(target))
                if carry_all(objects, str(target), f"{_WHY}: kept in {target}")[1]:
                    return False  # an object that cannot be carried stays, and with it everything
            except AgentError:
                return False
            remove_tree(objects)
    if has_objects(mesh):
        return False  # nobody knows where to carry them
    for state in states:
        remove_run(state)
    for state in reversed(states):  # the mesh's own last
        remove_state(state)
    remove_tree(mesh)
    remove_empty(os.path.dirname(mesh), 2)
    return not os.path.exists(mesh)


def remove_run(state: str) -> None:
    """Remove the directory of sockets, unless another mesh of that name (a requeued job's) uses it."""
    config = _config(state)
    run = config.run
    named = os.path.basename(run) in (os.path.basename(state), config.mesh)
    if named and os.path.isdir(run) and os.lstat(run).st_uid == os.geteuid() and not _is_used(run):
        remove_tree(run)


def _is_used(run: str) -> bool:
    for name in os.listdir(run):
        if name.endswith(".sock"):
            try:
                connect_now(os.path.join(run, name)).close()
            except (ConnectionRefusedError, FileNotFoundError):
                continue
            except (OSError, AgentError):
                pass  # its queue is full, or nobody can say
            return True
    return False


def _has_owner(states: List[str]) -> bool:
    """True if the job's script runs, or nobody can say."""
    try:
        scripts = [_config(state).script for state in states]
        return any(not processes.is_gone(*script) for script in scripts if script is not None)
    except (OSError, ValueError, TypeError, IndexError, OverflowError):
        return True


def _config(state: str) -> KeeperFile:
    with open(os.path.join(state, "keeper.json"), encoding="utf-8") as file:
        return read_keeper_file(json.load(file))


def _is_young(mesh: str) -> bool:
    """True if something was created in the directory lately: somebody may be starting the mesh."""
    try:
        states = states_of(mesh)
        files = [os.path.join(state, "keeper.json") for state in states]
        runs = [run for run in (_config(state).run for state in states) if os.path.isdir(run)]
        newest = max(os.lstat(path).st_mtime for path in (*files, *runs, *(place for place, _, _ in os.walk(mesh))))
    except (OSError, ValueError):
        return True
    return time.time() - newest < (YOUNG_S if states else STARTS_S)


def _directories(path: str) -> List[str]:
    try:
        return sorted(entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
