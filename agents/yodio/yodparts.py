"""Tells whether an attempt at a section has written its part of an output, or has found the file of an earlier run.

A section's program may write its part under a fixed name (``part.{section}``). An older file with that name stays for
programs that continue it, but its modification time is set to ``OLD_NS`` before the attempt. Whatever writes to the
file, or puts another file in its place, changes that time. Comparing with the time that the file had before is not
enough: many file systems count in seconds. Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

    #: Device, number, size, modification time and change time (0 if the modification time is OLD_NS) of a file.
    Found = Tuple[int, int, int, int, int]

#: 1 January 2000, 07:03:14 UTC: a time that every file system can store, and that no program sets. Many programs set
#: midnight, so that two runs make the same files.
OLD_NS = 946_710_194 * 10**9


def of_attempt(name: str, mark: str, attempt: int) -> str:
    """The name under which an attempt writes the part ``name``. ``mark`` is the job's, because a killed attempt of
    another job may still write to a file of the same number."""
    return f"{name}.redmesh-{mark}{attempt}"


def age(path: str, aside: str) -> Optional[Found]:
    """Mark the file ``path`` as old before an attempt; returns how it is then, None if there is none.

    A file with further names (hard links) is replaced by a copy, written as ``aside``: the other names may be parts of
    other sections, or a backup.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and not os.path.islink(path):
        import shutil  # every worker of every job imports this module, and shutil takes 3.6 ms of 20 ms

        try:
            shutil.copy2(path, aside)
            os.replace(aside, path)
        except OSError:  # the disk is full: the times that the file has must do
            _remove(aside)
            return _found(path)
    _mark(path, status)
    return _found(path)


def age_unless_linked(path: str) -> None:
    """Mark the file ``path`` as old when a job is made, if it exists, has no further names, and can be marked."""
    try:
        status = os.stat(path)
    except OSError:
        return
    if status.st_nlink == 1:
        _mark(path, status)


def is_written(path: str, before: Optional[Found]) -> bool:
    """True if the file ``path`` was written since ``age`` returned ``before``. A directory counts as written."""
    found = _found(path)
    if found is None:
        try:
            os.listdir(os.path.dirname(path) or ".")  # NFS remembers for a while that a name did not exist
        except OSError:
            return False
        found = _found(path)
    return found is not None and (found != before or os.path.isdir(path))


def not_written(path: str) -> str:
    """The error of a section that has exited with 0 without a part."""
    why = "the file there is of an earlier run" if os.path.exists(path) else os.strerror(errno.ENOENT)
    return f"{path} was not written: {why}"


def is_old(path: str) -> bool:
    """True if the file ``path`` was marked and not written since. Raises OSError if it does not exist."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening makes NFS ask the server
    try:
        return os.fstat(fd).st_mtime_ns == OLD_NS
    finally:
        os.close(fd)


def _mark(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        return
    try:
        os.utime(path, ns=(status.st_atime_ns, OLD_NS))
    except OSError:
        pass  # the file is another user's; its change time must do


def _found(path: str) -> Optional[Found]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening makes NFS ask the server
    except OSError:
        try:
            status = os.stat(path)  # it may not be readable
        except OSError:
            return None
    else:
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
    # The change time of a marked file may change without a write: a backup makes a hard link.
    changed = 0 if status.st_mtime_ns == OLD_NS else status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
