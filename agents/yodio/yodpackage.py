"""Unpacks the files of a job on a node (``mesh submit --file``), once for all workers of a launch. The launch's
directory is removed with the launch. Standard library only, Python 3.9."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from agents.yodio.yodbytes import to_system
else:
    from yodbytes import to_system

_DIRECTORY = "files"
_PIECE = 1 << 20


def unpack(name: str) -> str:
    """The directory with the files of the package ``name``, which was staged in. Raises OSError."""
    stage = os.environ["YOD_STAGE"]
    directory = os.path.join(stage, _DIRECTORY)
    with open(os.path.join(stage, name), "r+b") as package:
        fcntl.flock(package, fcntl.LOCK_EX)  # the workers of one node start together
        if os.path.isdir(directory):
            return directory
        part = directory + ".part"
        shutil.rmtree(part, ignore_errors=True)  # of a worker that was killed
        os.mkdir(part, 0o700)
        for text, size, mode, digest in json.loads(package.readline()):
            path = to_system(text)
            _write(package, os.path.join(part, path), path, size, mode, digest)
        os.rename(part, directory)
        package.truncate(0)  # its memory is needed for the unpacked files
    return directory


def _write(package: IO[bytes], target: str, name: str, size: int, mode: int, digest: str) -> None:
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    found = hashlib.sha256()
    # Tasks share the files, so none may change them for the others.
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        while size:
            data = package.read(min(size, _PIECE))
            if not data:
                break
            found.update(data)
            file.write(data)
            size -= len(data)
        os.fchmod(file.fileno(), (mode | 0o400) & 0o555)
    if found.hexdigest() != digest:
        raise OSError(errno.EIO, "its bytes are not those of its SHA-256 in the state object", name)
