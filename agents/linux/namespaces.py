"""Mount and user namespaces (namespaces(7), mount(2)), by agents/linux/libc.py."""

from __future__ import annotations

import os

from agents.linux.libc import Char as _Char
from agents.linux.libc import Int, Pointer, Unsigned, addressof, function, get_errno

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Optional

NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
READ_ONLY, NO_SUID, NO_DEVICES, RECURSIVE, SLAVE = 1, 2, 4, 0x4000, 1 << 19

_unshare = function("unshare", Int, Int)
_setns = function("setns", Int, Int, Int)
_mount = function("mount", Int, Pointer, Pointer, Pointer, Unsigned, Pointer)


def unshare(flags: int) -> None:
    """Move this process into new namespaces. Raises OSError if that is not allowed."""
    if _unshare(flags):
        _fail()


def enter(fd: int, kind: int) -> None:
    """Move this process into the namespace of a descriptor. Raises OSError."""
    if _setns(fd, kind):
        _fail()


def mount(source: bytes, target: bytes, kind: bytes, flags: int, options: bytes = b"") -> None:
    """Mount a file system in this process's mount namespace. Raises OSError, which names the path."""
    texts = [_text(source), _text(target), _text(kind), _text(options)]
    source_at, target_at, kind_at, options_at = (addressof(text) for text in texts)
    if _mount(source_at, target_at, kind_at, flags, options_at):
        _fail(target)


def map_own_ids(uid: int, gid: int) -> None:
    """In a new user namespace: map this user and group to themselves. Raises OSError."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _text(value: bytes) -> "Any":
    return (_Char * (len(value) + 1))(*[bytes((byte,)) for byte in value])


def _fail(path: "Optional[bytes]" = None) -> None:
    number = get_errno()
    raise OSError(number, os.strerror(number), os.fsdecode(path) if path is not None else None)
