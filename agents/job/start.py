"""Starts owners of jobs, and jobs that wait for the end of another job."""

from __future__ import annotations

import json
import os

from agents.job.description import ENVIRONMENT, parse_environment, read
from redmesh.settings.keeper_file import read_keeper_file
from redmesh.start_command import start_command
from redmesh.state import SUFFIX, StateError, is_uuid
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List

#: Files beside the object: the socket of the owner, the jobs that wait for the job's end, the owner's stderr, the
#: directory of large calls and results of redmesh.Executor, the lock of the process that waits for jobs elsewhere.
SOCKET, AFTER, ERRORS, CALLS, FOLLOWER = ".sock", ".after", ".err", ".calls", ".follow"


def beside(path: str, suffix: str) -> str:
    """A file beside an object: ``UUID.sock`` for ``UUID.job``."""
    return path[: -len(SUFFIX)] + suffix


def start_owner(path: str) -> None:
    """Start the owner of the job at ``path`` in its own session with the job's environment. Raises StateError or
    OSError.

    The owner exits at once if another one is running, or if the job has ended.
    """
    import subprocess  # 4 ms, which a command that only reads a job does not spend

    errors = os.open(beside(path, ERRORS), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.Popen(
            [*start_command("job"), os.path.abspath(path)],
            env=_environment(path),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(errors)


def _environment(path: str) -> Dict[bytes, bytes]:
    with StateReader(path) as job:
        read(job)  # a description that no owner can read: who starts one is told, not the file with its last words
        variables = job.file(ENVIRONMENT)
    found = _with_our_mesh(parse_environment(variables)) if variables is not None else dict(os.environb)
    return {**found, **_mesh_of_batch_job(os.path.dirname(os.path.dirname(os.path.abspath(path))))}


def _mesh_of_batch_job(state: str) -> Dict[bytes, bytes]:
    """REDMESH_JOB, where ``state`` is the directory of the mesh of a batch job: this job's variables are not the
    task's."""
    try:
        with open(os.path.join(state, "keeper.json"), encoding="utf-8") as file:
            in_job = bool(read_keeper_file(json.load(file)).ends_with)
    except (OSError, ValueError):
        return {}
    return {b"REDMESH_JOB": os.fsencode(state)} if in_job else {}


def _with_our_mesh(variables: Dict[bytes, bytes]) -> Dict[bytes, bytes]:
    """A job's environment with our mesh's variables.

    They matter if the job was submitted on another login processor, with another home directory.
    """
    names = (b"XDG_", b"REDMESH_")
    ours = {name: value for name, value in os.environb.items() if name.startswith(names)}
    if variables.get(b"HOME") != os.environb.get(b"HOME"):
        home = os.fsencode(os.path.expanduser("~"))
        ours = {b"XDG_STATE_HOME": home + b"/.local/state", b"XDG_CONFIG_HOME": home + b"/.config", **ours}
    if b"PYTHONPATH" not in variables and b"PYTHONPATH" in os.environb:
        ours[b"PYTHONPATH"] = os.environb[b"PYTHONPATH"]  # the libraries of this machine's Redmesh
    return {**{name: value for name, value in variables.items() if not name.startswith(names)}, **ours}


def wait_for(directory: str, other: str, uuid: str) -> None:
    """Have job ``uuid`` started when job ``other`` ends. Raises OSError."""
    with open(os.path.join(directory, other + AFTER), "a+") as file:
        file.seek(0)
        if f"{uuid}\n" not in file:
            file.write(f"{uuid}\n")


def dependents(path: str) -> List[str]:
    """The UUIDs of the jobs that wait for the end of the job at ``path``."""
    try:
        with open(beside(path, AFTER)) as file:
            return [uuid for uuid in dict.fromkeys(line.strip() for line in file) if is_uuid(uuid)]
    except FileNotFoundError:
        return []


def start_dependents(path: str) -> List[str]:
    """Start the jobs that wait for the end of the job at ``path``; returns their UUIDs."""
    return start_beside(path, dependents(path))


def start_beside(path: str, uuids: Iterable[str]) -> List[str]:
    """Start the jobs ``uuids``, whose objects are beside ``path``; returns the UUIDs of those that exist."""
    started = []
    for uuid in uuids:
        dependent = os.path.join(os.path.dirname(path), uuid + SUFFIX)
        try:
            start_owner(dependent)
            started.append(uuid)
        except (StateError, OSError):
            continue  # purged meanwhile
    return started
