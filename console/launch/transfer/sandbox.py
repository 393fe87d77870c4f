"""The directories in which ranks may open files. Names are resolved like with RESOLVE_IN_ROOT of openat2(2).

Each component is opened relative to the descriptor of the one before it, and this module follows symbolic links itself,
so that no ``..``, no link and no directory that is moved meanwhile leads out. A link into one of the directories is
allowed.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_LINKS = 40  # the kernel's limit
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class OutsideSandbox(OSError):
    """A name leads out of all directories."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "not below a directory of yod --io")


class Root:
    """A directory; ``writable``: ranks may write."""

    __slots__ = ("fd", "path", "writable")

    def __init__(self, path: str, writable: bool) -> None:
        self.path, self.writable = os.path.realpath(path), writable
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class Roots:
    """The directories of a launch. Relative names are below the first one."""

    def __init__(self, directories: Sequence[tuple[str, bool]]) -> None:
        self.roots = [Root(path, writable) for path, writable in directories]
        # Ranks may use the directory's name as the user wrote it, or with links resolved.
        self._named = [(os.path.abspath(path), root) for (path, _), root in zip(directories, self.roots, strict=True)]
        self._named += [(root.path, root) for root in self.roots]

    def open(self, name: bytes, flags: int, mode: int = 0o666) -> int:
        """Open the file ``name`` like os.open. Raises OutsideSandbox or OSError."""
        writing = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        root, parts = self._start(os.fsdecode(name))
        for _ in range(_MOST_LINKS):
            if writing and not root.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            found = self._walk(root, parts, flags, mode)
            if isinstance(found, int):
                return found
            root, parts = found
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _start(self, name: str) -> tuple[Root, list[str]]:
        if not self.roots:
            raise OutsideSandbox
        if not name.startswith("/"):
            return self.roots[0], name.split("/")
        for path, root in sorted(self._named, key=lambda named: -len(named[0])):
            if name == path or name.startswith(path.rstrip("/") + "/"):
                return root, name[len(path.rstrip("/")) :].split("/")
        raise OutsideSandbox

    def _walk(self, root: Root, parts: list[str], flags: int, mode: int) -> int | tuple[Root, list[str]]:
        """Return a descriptor; or, if the name has a link, its target: a root and the components below it."""
        ahead = [part for part in parts if part not in ("", ".")]
        if ahead and parts[-1] in ("", "."):
            flags |= os.O_DIRECTORY  # "name/" must be a directory
            if flags & os.O_CREAT:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        trail: list[int] = []  # descriptors from the root to the present directory
        names: list[str] = []
        try:
            while ahead:
                part = ahead.pop(0)
                at = trail[-1] if trail else root.fd
                if part == "..":
                    if not trail:
                        raise OutsideSandbox
                    os.close(trail.pop())
                    names.pop()
                    continue
                target = _link(part, at)
                if target is not None:
                    return self._follow(root, names, target, ahead)
                if not ahead:
                    return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode, dir_fd=at)
                trail.append(os.open(part, _PATH | os.O_DIRECTORY, dir_fd=at))
                names.append(part)
            # The root itself, or a name that ended in "..".
            return os.open(".", flags | os.O_CLOEXEC, dir_fd=trail[-1] if trail else root.fd)
        finally:
            for fd in trail:
                os.close(fd)

    def _follow(self, root: Root, names: list[str], target: str, ahead: list[str]) -> tuple[Root, list[str]]:
        if target.startswith("/"):
            root, parts = self._start(target)
            return root, [*parts, *ahead]
        return root, [*names, *target.split("/"), *ahead]

    def close(self) -> None:
        """Close the descriptors."""
        for root in self.roots:
            os.close(root.fd)
        self.roots.clear()


def _link(name: str, at: int) -> str | None:
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return os.readlink(name, dir_fd=at)
    except FileNotFoundError:
        pass
    return None
