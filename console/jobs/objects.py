"""The state objects of this user on this host: directories, summaries, and automatic deletion."""

from __future__ import annotations

import os
import time

from agents.job.start import AFTER, CALLS, ERRORS, FOLLOWER, SOCKET, beside
from agents.link.sockets import UnsafeDirectory, own_directory
from console.errors import ConsoleError
from console.jobs.job_record import ENDED, JobRecord
from redmesh.state import KEPT_ROOM, OTHER, SUFFIX, StateError, is_uuid, owned
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.settings import Settings

SHORTEST = 4  # the fewest digits that may name a job


def directory_of(state_dir: str) -> str:
    """The directory of objects."""
    return f"{state_dir}/jobs"


def make_directory(directory: str) -> None:
    """Create the directory of objects and missing parents, all 0700. Raises ConsoleError."""
    try:
        own_directory(directory, variable="XDG_STATE_HOME")
    except UnsafeDirectory as error:
        raise ConsoleError(error.message, error.hint) from None
    except OSError as error:
        raise ConsoleError(
            f"{directory} cannot be made: {error.strerror}", "check the mesh's state directory"
        ) from None


def uuids(directory: str) -> list[str]:
    """The UUIDs of objects in a directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX) and is_uuid(name[: -len(SUFFIX)]))


def places(directory: str) -> list[str]:
    """``directory``, and its subdirectories for the nodes of this host (agents/objects)."""
    try:
        with os.scandir(directory) as found:
            return [directory, *sorted(one.path for one in found if one.is_dir())]
    except OSError:
        return [directory]


def node_of(settings: Settings, path: str) -> str:
    """The node of this host in whose directory an object is; "" for the login processor."""
    directory, name = os.path.split(os.path.dirname(os.path.abspath(path)))
    return name if directory == os.path.abspath(directory_of(settings.state_dir)) else ""


def find(settings: Settings, text: str) -> str:
    """The path of the object ``text``: a UUID, its beginning, or a file. Raises ConsoleError."""
    if "/" in text or text.endswith(SUFFIX):
        return text
    directory = directory_of(settings.state_dir)
    found = [
        os.path.join(place, uuid + SUFFIX)
        for place in (places(directory) if len(text) >= SHORTEST else ())
        for uuid in uuids(place)
        if uuid.startswith(text)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConsoleError(f"{len(found)} jobs begin with {text}", "give more of the UUID; mesh job list prints them")
    launch = (
        f"launch {text} is ended by yod -signal TERM {text}; "
        if text.isdigit() and len(text) < 8 and text[0] != "0"
        else ""
    )
    raise ConsoleError(
        f"there is no job {text[:60]!r} on this host", f"{launch}mesh job list prints the jobs there are ({directory})"
    )


def opened(path: str) -> StateReader:
    """Open an object for reading. Raises ConsoleError."""
    try:
        return StateReader(path)
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None


def summary(path: str) -> JobRecord:
    """A job's summary: one read, whatever its size. Raises ConsoleError."""
    with opened(path) as job:
        try:
            told = job.summary()
            return JobRecord(told, path, owner_lost=told["state"] not in ENDED and not owned(path))
        except StateError as error:
            raise ConsoleError(error.message, error.hint) from None


def sweep(directory: str, days: float, megabytes: int) -> list[str]:
    """Delete objects of jobs that ended more than ``days`` ago, then the oldest ones until the rest fits ``megabytes``.

    0 means no limit. Objects with the flag ``keep``, or whose job has not ended, stay. Returns the deleted UUIDs.
    """
    now, gone, left = time.time(), [], []
    for uuid in uuids(directory):
        path = os.path.join(directory, uuid + SUFFIX)
        try:
            found = os.stat(path)
        except OSError:
            continue
        if days and now - found.st_mtime > days * 86400 and may_go(path):
            delete(path)
            gone.append(uuid)
        else:
            left.append((found.st_mtime, found.st_size, uuid, path))
    size = sum(one[1] for one in left)
    for _, its_size, uuid, path in sorted(left):
        if not megabytes or size <= megabytes << 20:
            break
        if may_go(path):
            delete(path)
            gone.append(uuid)
            size -= its_size
    return gone


def may_go(path: str) -> bool:
    """True only if the object shows that its job has ended, and does not have the flag ``keep``.

    A launch ends with its yod, so it counts as ended if its owner is lost. A job of tasks could be resumed.
    """
    try:
        told = summary(path)
    except ConsoleError:
        return False
    ended = told.has_ended or (told.owner_lost and told.kind == "launch")
    return ended and not told.keep and not owned(path)


def delete(path: str) -> None:
    """Delete an object and the files beside it. Raises OSError."""
    names = [path + suffix for suffix in ("", "-wal", "-shm", ".lock", KEPT_ROOM)]
    number = 1
    while os.path.exists(f"{path}{OTHER}{number}"):  # other states of the job, which agents/objects/carry.py has kept
        names.append(f"{path}{OTHER}{number}")
        number += 1
    for name in [*names, *(beside(path, suffix) for suffix in (SOCKET, AFTER, ERRORS, FOLLOWER))]:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
    import shutil

    shutil.rmtree(beside(path, CALLS), ignore_errors=True)
