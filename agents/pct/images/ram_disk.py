"""Where the files of launches are: in the RAM disk, or in a directory for temporary files.

The RAM disk is ``/dev/shm``. Where no directory can be created there (read-only, full, missing, closed), the files are
in the agent's own TMPDIR or in /tmp; ``store.in_ram_disk`` chooses for each launch. Both kinds are shared by all users,
so everything is in a directory 0700 of the user, whose owner is checked.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Mapping

RAM_DISK = "/dev/shm"


def user_directory(place: str, uid: int) -> str:
    """The directory of a user in the RAM disk or another ``place``.

    The names differ because ``/tmp/redmesh-UID`` holds the sockets of meshes where there is no XDG_RUNTIME_DIR.
    """
    return os.path.join(place, f"redmesh-{uid}" if place == RAM_DISK else f"redmesh-programs-{uid}")


def places(environ: Mapping[str, str] = os.environ) -> List[str]:
    """The RAM disk, and the directories to use instead: $TMPDIR of this process and /tmp.

    Directories that another user could replace are left out. Those whose files cannot be executed come last.
    """
    found: List[str] = []
    for path in (environ.get("TMPDIR", ""), "/tmp"):
        real = os.path.realpath(path) if path.startswith("/") else ""
        if real and real not in (RAM_DISK, *found) and _is_safe(real):
            found.append(real)
    return [RAM_DISK, *sorted(found, key=_is_noexec)]


def _is_safe(path: str) -> bool:
    """True if ``path`` is a directory in which only we or root can rename what we create, and so on up to the root."""
    while True:
        try:
            status = os.stat(path)
        except OSError:
            return False
        others_write = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()) or others_write:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _is_noexec(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return True
