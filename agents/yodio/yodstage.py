"""Files of a section on nodes without a shared file system: inputs are fetched from the login processor into a
directory of the worker, and parts of outputs sent back (docs/sections.md). Standard library only, Python 3.9."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from agents.yodio.yodio import YodFile
    from agents.yodio.yodio import stat as stat_there
else:
    from yodio import YodFile
    from yodio import stat as stat_there

_PREFIX = "redmesh-sections-"
_PIECE = 256 << 10


class Stage:
    """The private directory of a worker, in place of the job's directory ``there``. Raises OSError."""

    def __init__(self, there: str) -> None:
        self._there = there
        _sweep(tempfile.gettempdir())
        self.directory = tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = _locked(self.directory)
        #: Fetched files: size and time there, and what the copy was like.
        self._fetched: Dict[str, Tuple[Tuple[Any, Any], Any]] = {}

    def local(self, path: str) -> str:
        """The local path of a file of the job's directory."""
        return os.path.join(self.directory, os.path.relpath(path, self._there))

    def fetch(self, names: List[str]) -> None:
        """Fetch inputs, unless they are here and unchanged, here (a section may write to its inputs) and there.

        Raises OSError.
        """
        for name in names:
            path = os.path.join(self._there, name)
            told = stat_there(path)
            known = (told["size"], told["mtime"])
            here = self.local(path)
            if self._fetched.get(name) == (known, _state(here)):
                continue
            if told["kind"] != "file":
                raise OSError(errno.EISDIR, "only files are staged", path)
            os.makedirs(os.path.dirname(here), exist_ok=True)
            with YodFile(path) as source, open(here, "wb") as copy:
                shutil.copyfileobj(source, copy, _PIECE)
            os.chmod(here, 0o700)
            self._fetched[name] = known, _state(here)

    def put(self, here: str, there: str) -> None:
        """Send a file back, and delete it here. Raises OSError, also if the file is written while it is sent."""
        with open(here, "rb") as source, YodFile(there, "w") as copy:
            before = os.fstat(source.fileno())
            shutil.copyfileobj(source, copy, _PIECE)
            after = os.fstat(source.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise OSError(errno.EBUSY, "the section has ended, and a process that it left behind still writes to it")
        os.unlink(here)

    def close(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def _state(path: str) -> Any:
    """What a write to the file, or its removal, changes."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _locked(directory: str) -> int:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _sweep(parent: str) -> None:
    """Delete what killed workers have left: unlocked directories of this user that are not just being created."""
    for name in os.listdir(parent):
        if not name.startswith(_PREFIX):
            continue
        path = os.path.join(parent, name)
        try:
            status = os.lstat(path)
            if status.st_uid != os.geteuid() or not os.listdir(path):
                continue
            os.close(_locked(path))
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
