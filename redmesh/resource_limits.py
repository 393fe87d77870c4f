"""Which limit of a process or host an error comes from, and how to raise it."""

from __future__ import annotations

import errno

_HINTS = {
    errno.EMFILE: "the limit of open files is reached: ulimit -n shows and raises it",
    errno.ENFILE: "this host has no more open files: sysctl fs.file-max; lsof shows who has them",
    errno.ENOMEM: "a limit of memory is reached, or this host has none left: ulimit -v, free -m",
    errno.EFBIG: "the limit of a file's size is reached: ulimit -f shows and raises it",
    errno.ENOSPC: "free some space there: df",
    errno.EDQUOT: "free some space there: quota",
    errno.ENOLCK: "this host has no more file locks",
}
#: What SQLite says where it cannot open a file, whatever the reason, and what to do then.
UNOPENED = "unable to open database file"
OPENING = "see who may read and write it (ls -l), and how many files this process may open (ulimit -n)"
#: Errors for which the file that could not be opened says nothing.
OF_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_PROCESSES = (
    "the limit of processes may be reached: ulimit -u, or pids.max of the control group; end some of this user's"
)
#: What the dynamic linker says instead of an errno.
_LINKER = (
    ("failed to map segment", errno.ENOMEM),
    ("cannot allocate memory", errno.ENOMEM),
    ("cannot open shared object file: Error 24", errno.EMFILE),
    ("cannot open shared object file: Too many open files", errno.EMFILE),
)


def limit_hint(error: BaseException) -> str:
    """The limit that has made a call fail, and how to raise it; "" for other errors."""
    if isinstance(error, MemoryError):
        return _HINTS[errno.ENOMEM]
    if isinstance(error, OSError):
        # A write that would block has a count of bytes; what starts a process or a thread has none.
        if error.errno == errno.EAGAIN and not hasattr(error, "characters_written"):
            return _PROCESSES
        return _HINTS.get(error.errno or 0, "")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return _PROCESSES
    if isinstance(error, ImportError):
        return next((_HINTS[number] for text, number in _LINKER if text in str(error)), "")
    return ""
