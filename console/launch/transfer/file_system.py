"""Serves the directories of ``--io`` as a file system for nodes: answers their kernels' requests by system calls.

The node's kernel has already followed symbolic links in a name. So this module follows no link and no ``..``: each
component is opened relative to the descriptor of the one before it, and no name leads out of the directory.
"""

from __future__ import annotations

import errno
import os
import stat

from agents.pct.files.fuse import (
    SET_ATIME,
    SET_ATIME_NOW,
    SET_GID,
    SET_HANDLE,
    SET_MODE,
    SET_MTIME,
    SET_MTIME_NOW,
    SET_SIZE,
    SET_UID,
)
from agents.pct.files.remote_io import (  # fmt: skip
    ACCESS,
    ATTRIBUTES,
    CHANGES,
    CREATE_FILE,
    HANDLE,
    LINK,
    MAKE,
    OPEN_FILE,
    OWN_ID,
    PLACE,
    READ_DIRECTORY,
    READ_FILE,
    READ_LINK,
    RELEASE_FILE,
    REMOVE,
    RENAME,
    RESERVE,
    SET_ATTRIBUTES,
    SMALL,
    SPACE,
    STATUS,
    SYNC_FILE,
    WRITE_FILE,
)
from agents.wire.frames import MAX_DATA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from console.launch.transfer.sandbox import Root

    Reply = tuple[int, bytes]  # value, data
    Key = tuple[int, int]  # node and channel

_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LONGEST = MAX_DATA - 1024
_WRITING = (CREATE_FILE, SET_ATTRIBUTES, MAKE, REMOVE, RENAME, LINK)


class FileSystem:
    """Serves mounted directories. A handle belongs to one channel of a node: others cannot use it."""

    def __init__(self, roots: list[Root]) -> None:
        self._roots = roots
        self._open: dict[tuple[Key, int], int] = {}
        self._read_only: set[int] = set()  # read-only descriptors
        self._last = 0
        self._uid, self._gid = os.geteuid(), os.getegid()
        self._do: dict[int, Callable[[Key, int, int, memoryview], Reply]] = {
            ATTRIBUTES: self._attributes,
            OPEN_FILE: self._open_file,
            CREATE_FILE: self._create,
            READ_FILE: self._read,
            WRITE_FILE: self._write,
            SYNC_FILE: self._sync,
            RELEASE_FILE: self._release,
            READ_DIRECTORY: self._read_directory,
            SET_ATTRIBUTES: self._set_attributes,
            MAKE: self._make,
            REMOVE: self._remove,
            RENAME: self._rename,
            LINK: self._link,
            READ_LINK: self._read_link,
            ACCESS: self._access,
            SPACE: self._space,
            RESERVE: self._reserve,
        }
        _raise_descriptor_limit()

    def serves(self, op: int) -> bool:
        """True if ``op`` is an operation of a mounted directory."""
        return op in self._do

    def serve(self, op: int, key: Key, offset: int, length: int, data: memoryview) -> Reply:
        """Carry out a request; return value and data of the answer. Raises OSError."""
        if op in _WRITING and not self._roots[PLACE.unpack_from(data)[0]].writable:
            raise _error(errno.EROFS)
        return self._do[op](key, offset, length, data)

    def forget(self, key: Key) -> None:
        """Close the open files of a node's channel, which was closed."""
        for at in [at for at in self._open if at[0] == key]:
            self._close(self._open.pop(at))

    def close(self) -> None:
        """Close all open files, at the end of the launch."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._read_only.clear()

    def _close(self, fd: int) -> None:
        self._read_only.discard(fd)
        os.close(fd)

    # Names

    def _parent(self, data: memoryview) -> tuple[_Directory, str, Root]:
        root = self._roots[PLACE.unpack_from(data)[0]]
        *above, name = os.fsdecode(bytes(data[PLACE.size :])).split("/")
        if name in (".", "..") or (above and not name):
            raise _error(errno.EINVAL)
        return _Directory(root.fd, above), name or ".", root

    def _status(self, found: os.stat_result) -> bytes:
        return STATUS.pack(
            found.st_ino, found.st_size, found.st_blocks, found.st_mode, found.st_nlink,
            OWN_ID if found.st_uid == self._uid else found.st_uid,
            OWN_ID if found.st_gid == self._gid else found.st_gid,
            found.st_dev, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns,
        )  # fmt: skip

    def _status_at(self, name: str, at: int) -> bytes:
        return self._status(os.stat(name, dir_fd=at, follow_symlinks=False))

    def _attributes(self, key: Key, handle: int, _length: int, data: memoryview) -> Reply:
        if handle:
            return 0, self._status(os.fstat(self._of(key, handle)))
        directory, name, _ = self._parent(data)
        with directory as at:
            return 0, self._status_at(name, at)

    def _access(self, _key: Key, _offset: int, mask: int, data: memoryview) -> Reply:
        directory, name, root = self._parent(data)
        if mask & os.W_OK and not root.writable:
            raise _error(errno.EROFS)
        with directory as at:
            if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                return 0, b""  # a symbolic link: the node's kernel checks its target by another request
            if not os.access(name, mask & 7, dir_fd=at):
                raise _error(errno.EACCES)
        return 0, b""

    def _read_directory(self, _key: Key, offset: int, _length: int, data: memoryview) -> Reply:
        directory, name, _ = self._parent(data)
        with directory as at:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=at)
        try:
            names = sorted(os.listdir(fd))
            parts: list[bytes] = []
            size = 0
            while offset < len(names) and size < _LONGEST - 1024:
                try:
                    found = self._status_at(names[offset], fd)
                except FileNotFoundError:
                    offset += 1
                    continue  # it was removed meanwhile
                encoded = os.fsencode(names[offset])
                parts += [found, len(encoded).to_bytes(2, "big"), encoded]
                size += len(found) + 2 + len(encoded)
                offset += 1
            return (offset if offset < len(names) else 0), b"".join(parts)
        finally:
            os.close(fd)

    def _read_link(self, _key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        directory, name, _ = self._parent(data)
        with directory as at:
            return 0, os.fsencode(os.readlink(name, dir_fd=at))

    def _make(self, _key: Key, mode: int, _length: int, data: memoryview) -> Reply:
        path, target = _halves(data)
        directory, name, _ = self._parent(path)
        kind = stat.S_IFMT(mode)
        with directory as at, _AllModes():
            if kind == stat.S_IFDIR:
                os.mkdir(name, stat.S_IMODE(mode), dir_fd=at)
            elif kind == stat.S_IFLNK:
                os.symlink(os.fsdecode(target), name, dir_fd=at)
            elif kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                os.mknod(name, mode, dir_fd=at)
            else:
                raise _error(errno.EPERM)
            return 0, self._status_at(name, at)

    def _remove(self, _key: Key, is_directory: int, _length: int, data: memoryview) -> Reply:
        directory, name, _ = self._parent(data)
        with directory as at:
            if is_directory:
                os.rmdir(name, dir_fd=at)
            else:
                os.unlink(name, dir_fd=at)
        return 0, b""

    def _two(self, data: memoryview) -> tuple[_Directory, str, _Directory, str]:
        old, new = _halves(data)
        directory, name, _ = self._parent(old)
        other, new_name, _ = self._parent(memoryview(bytes(data[: PLACE.size]) + new))
        return directory, name, other, new_name

    def _rename(self, _key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        directory, name, other, new = self._two(data)
        with directory as at, other as to:
            os.rename(name, new, src_dir_fd=at, dst_dir_fd=to)
        return 0, b""

    def _link(self, _key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        directory, name, other, new = self._two(data)
        with directory as at, other as to:
            os.link(name, new, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)
            return 0, self._status_at(new, to)

    def _set_attributes(self, key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        bits, handle, mode, uid, gid, size, atime, mtime = CHANGES.unpack_from(data, PLACE.size)
        if bits & SET_HANDLE:
            fd = self._of(key, handle)
            if fd in self._read_only:  # the request may name another directory
                raise _error(errno.EROFS)
            self._change(fd, bits, mode, (uid, gid), (size, atime, mtime))
            return 0, self._status(os.fstat(fd))
        directory, name, _ = self._parent(memoryview(bytes(data[: PLACE.size]) + data[PLACE.size + CHANGES.size :]))
        with directory as at:
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise _error(errno.EOPNOTSUPP)
            flags = os.O_WRONLY if bits & SET_SIZE else os.O_PATH
            fd = os.open(name, flags | _SAFE, dir_fd=at)
            try:
                if bits & SET_SIZE:
                    self._change(fd, bits, mode, (uid, gid), (size, atime, mtime))
                else:  # by the descriptor's name in /proc: chmod(2) by path could follow a link made meanwhile
                    self._change(f"/proc/self/fd/{fd}", bits, mode, (uid, gid), (size, atime, mtime))
                return 0, self._status(os.fstat(fd))
            finally:
                os.close(fd)

    def _change(
        self, where: int | str, bits: int, mode: int, owner: tuple[int, int], values: tuple[int, int, int]
    ) -> None:
        size, atime, mtime = values
        if bits & SET_SIZE:
            os.truncate(where, size)
        if bits & (SET_UID | SET_GID):
            uid, gid = (
                -1 if not bits & bit else own if number == OWN_ID else number
                for bit, number, own in ((SET_UID, owner[0], self._uid), (SET_GID, owner[1], self._gid))
            )
            os.chown(where, uid, gid)
        if bits & SET_MODE:
            os.chmod(where, stat.S_IMODE(mode))
        if bits & (SET_ATIME | SET_MTIME):
            if bits & (SET_ATIME_NOW | SET_MTIME_NOW) == SET_ATIME_NOW | SET_MTIME_NOW:
                os.utime(where)
            else:
                found = os.stat(where)
                os.utime(
                    where,
                    ns=(
                        atime if bits & SET_ATIME else found.st_atime_ns,
                        mtime if bits & SET_MTIME else found.st_mtime_ns,
                    ),
                )

    # Open files

    def _of(self, key: Key, handle: int) -> int:
        fd = self._open.get((key, handle))
        if fd is None:
            raise _error(errno.EBADF)
        return fd

    def _add(self, key: Key, fd: int) -> int:
        self._last = self._last % 0xFFFFFFFF + 1
        self._open[key, self._last] = fd
        return self._last

    def _open_file(self, key: Key, flags: int, _length: int, data: memoryview) -> Reply:
        directory, name, root = self._parent(data)
        if flags & (os.O_ACCMODE | os.O_TRUNC) and not root.writable:
            raise _error(errno.EROFS)
        with directory as at:
            fd = os.open(name, flags & _FLAGS | _SAFE, dir_fd=at)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise _error(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO)
            # Send the contents of a small file at once, because a read follows.
            readable = flags & os.O_ACCMODE != os.O_WRONLY
            content = os.pread(fd, SMALL + 1, 0) if readable and 0 < found.st_size <= SMALL else b""
            if len(content) != found.st_size:
                content = b""
            if not root.writable:
                self._read_only.add(fd)
            return self._add(key, fd), self._status(found) + content
        except BaseException:
            os.close(fd)
            raise

    def _create(self, key: Key, flags: int, mode: int, data: memoryview) -> Reply:
        directory, name, _ = self._parent(data)
        flags = flags & (_FLAGS | os.O_EXCL) | os.O_CREAT | _SAFE
        with directory as at, _AllModes():
            fd = os.open(name, flags, mode, dir_fd=at)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise _error(errno.ENXIO)
        return self._add(key, fd), self._status(found)

    def _read(self, key: Key, offset: int, length: int, data: memoryview) -> Reply:
        found = os.pread(self._of(key, HANDLE.unpack(data)[0]), min(length, _LONGEST), offset)
        return len(found), found

    def _write(self, key: Key, offset: int, _length: int, data: memoryview) -> Reply:
        fd = self._of(key, HANDLE.unpack_from(data)[0])
        data = data[HANDLE.size :]
        while data:  # a descriptor opened with O_APPEND appends, whatever the offset
            count = os.pwrite(fd, data, offset)
            data, offset = data[count:], offset + count
        return offset, b""

    def _sync(self, key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        os.fsync(self._of(key, HANDLE.unpack(data)[0]))
        return 0, b""

    def _release(self, key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        for (handle,) in HANDLE.iter_unpack(data):
            fd = self._open.pop((key, handle), None)
            if fd is not None:
                self._close(fd)
        return 0, b""

    def _reserve(self, key: Key, offset: int, _length: int, data: memoryview) -> Reply:
        size = int.from_bytes(data[HANDLE.size :], "big")
        os.posix_fallocate(self._of(key, HANDLE.unpack_from(data)[0]), offset, size)
        return 0, b""

    def _space(self, _key: Key, _offset: int, _length: int, data: memoryview) -> Reply:
        found = os.fstatvfs(self._roots[PLACE.unpack_from(data)[0]].fd)
        numbers = (
            found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree,
            found.f_bsize, found.f_namemax, found.f_frsize,
        )  # fmt: skip
        return 0, b"".join(number.to_bytes(8, "big") for number in numbers)


class _Directory:
    """A context manager that opens the directory ``names`` below ``root`` and closes it at the end."""

    __slots__ = ("_fd", "_names", "_root")

    def __init__(self, root: int, names: list[str]) -> None:
        self._root, self._names, self._fd = root, names, -1

    def __enter__(self) -> int:
        at = self._root
        for name in self._names:
            if name in ("", ".", ".."):
                raise _error(errno.EINVAL)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            self._drop()
            at = self._fd = below
        return at

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __exit__(self, *_: object) -> None:
        self._drop()


class _AllModes:
    """Clears the umask: a file gets the requested mode, to which the rank's kernel has applied the rank's umask."""

    def __enter__(self) -> None:
        self._umask = os.umask(0)

    def __exit__(self, *_: object) -> None:
        os.umask(self._umask)


def _halves(data: memoryview) -> tuple[memoryview, bytes]:
    """Split data of two names: the place with the first name, and the second one, after a zero byte."""
    name, _, more = bytes(data[PLACE.size :]).partition(b"\0")
    return data[: PLACE.size + len(name)], more


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _raise_descriptor_limit() -> None:
    import resource  # every rank may have files open

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # programs then get EMFILE earlier
