"""The kernel's interface of a FUSE file system: reads requests from ``/dev/fuse`` and writes replies.

Source: include/uapi/linux/fuse.h, protocol 7.31 (Linux 5.4) or later; native byte order. libfuse is not needed.
"""

from __future__ import annotations

import errno
import os
import struct
import time

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, NamedTuple, Union

    class Attributes(NamedTuple):
        """Attributes as in stat(2): times in ns; ``mode`` includes the file type."""

        ino: int
        size: int
        blocks: int
        mode: int
        nlink: int
        uid: int
        gid: int
        dev: int
        atime: int
        mtime: int
        ctime: int

else:
    from collections import namedtuple

    Attributes = namedtuple("Attributes", "ino size blocks mode nlink uid gid dev atime mtime ctime")

(
    LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK, _, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ,
    WRITE, STATFS, RELEASE, _, FSYNC, SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR, FLUSH, INIT, OPENDIR, READDIR,
    RELEASEDIR, FSYNCDIR, GETLK, SETLK, SETLKW, ACCESS, CREATE, INTERRUPT, BMAP, DESTROY, IOCTL, POLL, NOTIFY_REPLY,
    BATCH_FORGET, FALLOCATE, READDIRPLUS, RENAME2, LSEEK, COPY_FILE_RANGE,
) = range(1, 48)  # fmt: skip

#: Bits of FATTR_*: the attributes that a SETATTR sets.
SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME, SET_HANDLE = 1, 2, 4, 8, 16, 32, 64
SET_ATIME_NOW, SET_MTIME_NOW = 128, 256
#: FOPEN_*: how the kernel handles an open file.
DIRECT_IO, KEEP_CACHE, NO_FLUSH = 1, 2, 32
GETATTR_HANDLE = 1  # GETATTR names an open file
#: The largest read or write in bytes.
LARGEST = 512 << 10
#: Seconds for which the kernel may cache a name or attributes: a tenth of the time for which the file has been
#: unchanged, between these limits. An open always asks.
VALID_S, LONGEST_VALID_S = 3, 20

_ASYNC_READ, _ATOMIC_TRUNCATE, _BIG_WRITES, _INVALIDATE, _PLUS = 1, 8, 32, 1 << 12, 1 << 13
_PARALLEL, _MAX_PAGES = 1 << 18, 1 << 22
_WANTED = _ASYNC_READ | _ATOMIC_TRUNCATE | _BIG_WRITES | _INVALIDATE | _PLUS | _PARALLEL | _MAX_PAGES
_NOTIFY_INODE, _NOTIFY_STORE = 2, 4
_OLDEST_MINOR = 31

HEADER = struct.Struct("=IIQQIIIi")  # length, operation, unique, inode, uid, gid, pid, padding
_REPLY = struct.Struct("=IiQ")
_ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("=QQQQII")
_ATTR_HEAD = struct.Struct("=QII")
_INIT = struct.Struct("=IIII")
_INIT_REPLY = struct.Struct("=IIIIHHIIHHII6I")
_ENTRY_NAME = struct.Struct("=QQII")
_BLOCK = 4096

OPEN_IN, OPEN_OUT = struct.Struct("=II"), struct.Struct("=QII")
READ_IN = struct.Struct("=QQIIQII")  # handle, offset, size, flags, lock owner, flags of the file, padding; WRITE too
HANDLE_IN = struct.Struct("=Q")
RELEASE_IN = struct.Struct("=QI")  # handle, flags of the file
WRITE_OUT = struct.Struct("=II")
CREATE_IN = struct.Struct("=IIII")  # flags, mode, umask, open flags; then the name
MKNOD_IN = struct.Struct("=IIII")  # mode, device, umask, padding; then the name
MKDIR_IN = struct.Struct("=II")  # mode, umask; then the name
RENAME_IN, RENAME2_IN = struct.Struct("=Q"), struct.Struct("=QII")
GETATTR_IN = struct.Struct("=IIQ")  # flags, padding, handle
SETATTR_IN = struct.Struct("=IIQQQQQQIIIIIIII")
ACCESS_IN = struct.Struct("=II")
FORGET_IN, FORGET_ONE = struct.Struct("=Q"), struct.Struct("=QQ")
FALLOCATE_IN = struct.Struct("=QQQII")
STATFS_OUT = struct.Struct("=QQQQQIIII6I")


class FuseDevice:
    """An open ``/dev/fuse`` of a mount."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._buffer = bytearray(LARGEST + (64 << 10))
        self._view = memoryview(self._buffer)

    def begin(self) -> None:
        """Negotiate the protocol: the kernel's first request is there as soon as it has mounted. Raises OSError."""
        request = self.next()
        operation, unique = HEADER.unpack_from(request)[1:3] if request is not None else (0, 0)
        if request is None or operation != INIT:
            raise OSError(errno.EPROTO, "the kernel has not begun to speak FUSE")
        try:
            self.reply(unique, init_reply(request[HEADER.size :]))
        except ValueError as error:
            self.fail(unique, errno.EPROTO)
            raise OSError(errno.EPROTO, str(error)) from None

    def next(self) -> "Union[memoryview, None]":
        """The next request, valid until the next call; None if there is none. Raises OSError ENODEV if unmounted."""
        while True:
            try:
                count = os.readv(self.fd, [self._buffer])
            except BlockingIOError:
                return None
            except FileNotFoundError:
                continue  # the request was interrupted before it was read
            return self._view[:count]

    def reply(self, unique: int, *parts: "Union[bytes, memoryview]") -> None:
        """Reply to request ``unique``."""
        self._write(_REPLY.pack(_REPLY.size + sum(len(part) for part in parts), 0, unique), *parts)

    def fail(self, unique: int, code: int) -> None:
        """Reply to request ``unique`` with an errno."""
        self._write(_REPLY.pack(_REPLY.size, -code, unique))

    def forget_attributes(self, inode: int) -> None:
        """Invalidate the kernel's cached attributes of ``inode``."""
        self._write(_REPLY.pack(_REPLY.size + 24, _NOTIFY_INODE, 0) + struct.pack("=Qqq", inode, -1, 0))

    def store(self, inode: int, content: "Union[bytes, memoryview]") -> None:
        """Write the contents of ``inode``, from its beginning, into the kernel's cache. Not while it is open: this
        waits for reads."""
        head = struct.pack("=QQII", inode, 0, len(content), 0)
        self._write(_REPLY.pack(_REPLY.size + len(head) + len(content), _NOTIFY_STORE, 0) + head, content)

    def _write(self, *parts: "Union[bytes, memoryview]") -> None:
        try:
            os.writev(self.fd, parts)
        except OSError:
            pass  # ENOENT: the requester was killed, or the inode is forgotten; ENODEV: unmounted, which next() reports

    def close(self) -> None:
        """End the mount; processes that still use it get ENOTCONN."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def init_reply(body: memoryview) -> bytes:
    """The reply to INIT. Raises ValueError if the kernel is too old."""
    major, minor, readahead, flags = _INIT.unpack_from(body)
    if major != 7 or minor < _OLDEST_MINOR:
        needed = f"7.{_OLDEST_MINOR} (Linux 5.4) is needed"
        raise ValueError(f"the kernel's FUSE protocol is {major}.{minor}, {needed}")
    return _INIT_REPLY.pack(
        7, _OLDEST_MINOR, readahead, flags & _WANTED, 32, 24, LARGEST, 1, LARGEST // _BLOCK, 0, 0, 0, *[0] * 6
    )


def attributes(found: Attributes) -> bytes:
    """``struct fuse_attr``."""
    times = [divmod(moment, 10**9) for moment in (found.atime, found.mtime, found.ctime)]
    return _ATTRIBUTES.pack(
        found.ino, found.size, found.blocks, *[seconds & 0xFFFFFFFFFFFFFFFF for seconds, _ in times],
        *[part for _, part in times], found.mode, found.nlink, found.uid, found.gid, 0, _BLOCK, 0,
    )  # fmt: skip


def attr_out(found: Attributes) -> bytes:
    """``struct fuse_attr_out``."""
    return _ATTR_HEAD.pack(_valid_s(found), 0, 0) + attributes(found)


def entry_out(inode: int, found: Attributes) -> bytes:
    """``struct fuse_entry_out``."""
    valid_s = _valid_s(found)
    return _ENTRY.pack(inode, 0, valid_s, valid_s, 0, 0) + attributes(found)


def _valid_s(found: Attributes) -> int:
    unchanged_s = int(time.time()) - max(found.mtime, found.ctime) // 10**9
    return min(max(unchanged_s // 10, VALID_S), LONGEST_VALID_S)


#: The prefix of a READDIRPLUS entry that does not count as a LOOKUP.
NO_ENTRY = bytes(_ENTRY.size + _ATTRIBUTES.size)


def directory_entry(ino: int, following: int, mode: int, name: bytes) -> bytes:
    """``struct fuse_dirent``: ``following`` is the offset of the next one."""
    head = _ENTRY_NAME.pack(ino, following, len(name), (mode >> 12) & 15)
    return head + name + bytes(-len(name) % 8)


def names(body: "Union[bytes, memoryview]") -> "List[bytes]":
    """The zero-terminated names in a request."""
    return bytes(body).split(b"\0")[:-1]
