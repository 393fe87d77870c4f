"""Tells whether an attempt at a section has written its part of an output, or has found the file of an earlier run;
gives parts their names; and tells whether a part is still as its attempt has left it.

A section's program may write its part under a fixed name (``part.{section}``). An older file with that name stays for
programs that continue it, but its modification time is set to ``OLD_NS`` before the attempt. Whatever writes to the
file, or puts another file in its place, changes that time. Comparing with the time that the file had before is not
enough: many file systems count in seconds. Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    #: Device, number, size, modification time and change time (0 if the modification time is OLD_NS) of a file.
    Found = Tuple[int, int, int, int, int]
    #: Size and modification time in nanoseconds of a part when its attempt had written it; None if that is not known.
    Written = Optional[Tuple[int, int]]

#: 1 January 2000, 07:03:14 UTC: a time that every file system can store, and that no program sets. Many programs set
#: midnight, so that two runs make the same files.
OLD_NS = 946_710_194 * 10**9
_COPY = "-copy"
_PIECE = 1 << 20
#: The signal for a process that breaks a lease. Its default action is none; SIGIO's ends the process.
_LEASE_SIGNAL = signal.SIGURG


def of_attempt(name: str, mark: str, attempt: int) -> str:
    """The name under which an attempt writes the part ``name``. ``mark`` is the job's, because a killed attempt of
    another job may still write to a file of the same number."""
    return f"{name}.redmesh-{mark}{attempt}"


def pattern(mark: str) -> str:
    """The ending of the names of the job's attempts at a part, and of their copies, as a regular expression."""
    return r"\.redmesh-" + mark + "[0-9]+(" + _COPY + ")?"


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


def written(path: str) -> Written:
    """What identifies the contents of a part that its attempt has written; None for a directory.

    Size and modification time are the same for every host that shares the file system (a device number is not, over
    NFS), and a copy that keeps times has them.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def is_still(path: str, attempts: Sequence[Sequence[Written]], place: int) -> bool:
    """True if the file ``path`` is as one of the attempts has left its part number ``place``, or if that is not known.

    A copy may have a time in whole seconds (tar). Raises OSError if the file does not exist.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening makes NFS ask the server
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    of_all = [parts[place] if place < len(parts) else None for parts in attempts]
    if not of_all:
        return True
    for one in of_all:
        if one is None or (
            one[0] == status.st_size and (status.st_mtime_ns == one[1] or status.st_mtime_ns == one[1] - one[1] % 10**9)
        ):
            return True
    return False


def settle(part: str, name: str, own: str) -> str:
    """Give the file ``part`` of an attempt that has succeeded the name ``name``; the program may have used that name
    itself. ``own`` is the attempt's name for the part.

    If a process may still write to the file, a copy gets the name. Returns that process, or "". Raises OSError if the
    file cannot be copied, or is written while it is copied.
    """
    held = held_by(part)
    if held:
        name = os.path.realpath(name)
        part = _copied(part, os.path.join(os.path.dirname(name), os.path.basename(own) + _COPY), held)
    if part != name:
        os.replace(part, name)
    return held


def held_by(path: str) -> str:
    """A process that has the regular file ``path`` open for writing; "" if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""  # only the program's user may read it: it is not copied
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return ""
        # The kernel gives a lease for reading only if nobody has the file open for writing.
        try:
            fcntl.fcntl(fd, fcntl.F_SETSIG, _LEASE_SIGNAL)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return ""
        except OSError as error:
            # Network file systems (which have no block device) refuse a lease, or say EAGAIN for every file.
            local = error.errno == errno.EAGAIN and os.major(status.st_dev)
            return _writer(status) or ("a process" if local else "")
    finally:
        os.close(fd)


def _writer(wanted: os.stat_result) -> str:
    """A process that has the file open for writing, among those whose descriptors this user may see."""
    own = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == own:
            continue
        try:
            for fd in os.listdir(f"/proc/{entry}/fd"):
                found = os.stat(f"/proc/{entry}/fd/{fd}")
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) and _writes(entry, fd):
                    with open(f"/proc/{entry}/comm", errors="replace") as file:
                        return f"process {entry} ({file.read().strip()})"
        except OSError:
            continue  # it has ended, or is another user's
    return ""


def _writes(process: str, fd: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{fd}") as file:
        for line in file:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & os.O_ACCMODE)
    return False


def _copied(part: str, made: str, held: str) -> str:
    """Copy a file that ``held`` may still write to as ``made``, and return that name. Raises OSError."""
    try:
        with open(part, "rb") as source, open(made, "wb") as copy:
            before = os.fstat(source.fileno())
            os.fchmod(copy.fileno(), stat.S_IMODE(before.st_mode))
            while True:
                piece = source.read(_PIECE)
                if not piece:
                    break
                copy.write(piece)
            after = os.fstat(source.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise OSError(errno.EBUSY, f"the section has ended, and {held} that it left behind still writes to it")
    except BaseException:
        _remove(made)
        raise
    return made


def still_open(path: str, held: str) -> str:
    """The error of a section of several ranks that has left a process with a part open."""
    return f"{path} may still change: {held} that the section left behind has it open for writing"


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
