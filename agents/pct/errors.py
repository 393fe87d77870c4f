"""Errors of a PCT and its launch children."""

from __future__ import annotations

import errno

from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


#: The exit status of a launch child after an internal error.
FAULT = 70


class PctError(AgentError):
    """The base class of this package's errors; ``fault`` says whose fault it is if a load fails of it (LoadFailed), and
    ``lasting`` whether a later load fails there too, if nobody mends it, and ``of_room`` whether free room mends it.

    The error of a system call is the launch's fault, whatever the error is: launches with other limits, sizes or files
    start on the same node, and a user could cause each of these errors on every node (docs/decisions/0027).
    """

    code = "pct"
    fault = "launch"
    lasting = False
    of_room = False


_DISK = "a disk or file server fails there (dmesg); mesh drain takes the node out of service"
_ADVICE = {
    errno.EMFILE: "start fewer ranks on a node, or run mesh down and mesh up under a larger limit (ulimit -n)",
    errno.ENFILE: "the node's kernel has too few open files: sysctl fs.file-max",
    errno.EROFS: "mount -o remount,rw makes it writable; if it is the RAM disk, -bcast never does without",
    errno.ENOSPC: "its file system is full: free room there (df -h; du -xsh shows what fills it)",
    errno.EDQUOT: "the quota of the user is used up there (quota -s): remove files",
    errno.EIO: _DISK, errno.ENODEV: _DISK, errno.ENXIO: _DISK, errno.ESTALE: _DISK,
}  # fmt: skip


#: Errors of a system call after which another file system may do: this one is read-only, full, closed, missing, broken.
OF_THE_PLACE = (
    errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EIO,
    errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOEXEC,
)  # fmt: skip
#: Errors of a system call after which room that somebody frees is all that is needed: by programs that end, mostly.
OF_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: Errors of a directory's disk, which no launch can cause and none can work round.
_OF_THE_DISK = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE)


def advice(number: int) -> str:
    """What to do after a system call of a launch child has failed with that errno; "" if the error says enough."""
    return _ADVICE.get(number, "")


def whose_run(number: int) -> str:
    """Whose fault it is that a launch child cannot write in RUN, where every launch on the node needs a place.

    A user may cause a lack of descriptors or room; a failing or read-only disk is the node's fault.
    """
    return "node" if number in _OF_THE_DISK else "launch"


class LoadFailed(PctError):
    """A launch cannot start on this node.

    ``fault``: ``program`` (it would fail anywhere), ``node`` (another node may work, and this one is taken out of
    service: its PCT is silent, or the site's own test failed), ``stalled`` (its processes stand still there: another
    node may work, and this one stays in service, because a user can stop his processes on every node) or ``launch``
    (all others: it was killed, its load is malformed, its user prevents it, or its launch child says why it cannot
    start).

    ``lasting``: it would fail there again, because a file or directory is missing or cannot be written. A job of tasks
    that fails so on every node ends (agents/job/grants/failed_starts.py); later if only room is missing (``of_room``).
    """

    def __init__(
        self, message: str, fault: str, exit_status: int = 125, rank: Optional[int] = None, hint: str = "",
        lasting: bool = False, of_room: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message, hint, exit_status=exit_status)
        self.fault = fault
        self.rank = rank
        self.lasting = lasting or fault == "program"
        self.of_room = of_room

    def as_failed(self, node: str) -> Dict[str, Any]:
        """The ``failed`` message to send up the tree."""
        return {
            "op": "failed",
            "node": node,
            "rank": self.rank,
            "message": self.message,
            "hint": self.hint,
            "fault": self.fault,
            "lasting": self.lasting,
            "of_room": self.of_room,
            "exit_status": self.exit_status,
        }
