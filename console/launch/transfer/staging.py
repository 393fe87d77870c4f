"""Stages files: to the nodes before the ranks start, and back when they have ended (--stage-in, --stage-out).

A node sends the number of the option and the rank; this module determines the file.
"""

from __future__ import annotations

import errno
import os
import stat

from console.launch.options.transfer import stage_in, stage_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from console.launch.options.patterns import Pattern
    from console.launch.options.request import Request
    from console.launch.plan import Plan


class Staged:
    """The staged files of a launch."""

    def __init__(self, request: Request, plan: Plan, launcher: int) -> None:
        self._plan, self._launcher = plan, launcher
        self._here = _current_directory()  # not -chdir's, which is on the nodes
        self._in = [stage_in(text) for text in request.transfer.stage_in]
        self._out = [stage_out(text) for text in request.transfer.stage_out]
        self._unfinished: set[str] = set()

    def _fill(self, pattern: Pattern, rank: int) -> str:
        node = self._plan.nodes[self._plan.node_of[rank]]
        return pattern.fill(rank, node.name, self._launcher, node.ranks.index(rank))

    def source(self, number: int, rank: int) -> tuple[int, dict[str, Any]]:
        """Open the file of stage-in ``number`` for ``rank``; return its descriptor and the node's instructions.

        Raises OSError.
        """
        pattern, target = self._in[number]
        name = self._fill(pattern, rank)
        path = os.path.join(self._here, name)
        try:
            # Never block: a pipe without a writer would delay the whole launch.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise OSError(error.errno, f"{path}: {error.strerror}") from None
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, f"{path} is not a regular file")
        return fd, {
            "name": os.fsencode(os.path.basename(name)).decode("latin-1"),
            "to": os.fsencode(self._fill(target, rank)).decode("latin-1") if target else "",
            "mode": found.st_mode & 0o777,
            "file": [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns],
        }

    def wanted(self, number: int, rank: int) -> dict[str, Any]:
        """Names of the file on the node, and of its local copy, for stage-out ``number`` of ``rank``."""
        source, target = (self._fill(pattern, rank) for pattern in self._out[number])
        return {"from": os.fsencode(source).decode("latin-1"), "to": os.fsencode(target).decode("latin-1")}

    def destination(self, number: int, rank: int, told: dict[str, Any]) -> tuple[int, Callable[[int], None]]:
        """Open a temporary file for a stage-out; return its descriptor, and a function that renames it at the end."""
        path = os.path.join(self._here, self._fill(self._out[number][1], rank))
        if os.path.isdir(path):
            path = os.path.join(path, os.path.basename(self._fill(self._out[number][0], rank)))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.part-{os.urandom(8).hex()}"  # launchers of two meshes may have the same number
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, int(told["mode"]) & 0o777)
        self._unfinished.add(part)

        def finish(size: int) -> None:
            if os.fstat(fd).st_size != int(told["size"]):
                raise OSError(5, f"{path}: {os.fstat(fd).st_size} of {told['size']} bytes have come")
            os.rename(part, path)
            self._unfinished.discard(part)

        return fd, finish

    def close(self) -> None:
        """Remove incomplete files."""
        for part in self._unfinished:
            try:
                os.unlink(part)
            except OSError:
                pass


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed: relative names then fail, absolute ones do not need it
        return ""
