"""The groups of the process that made a connection to a Unix socket (SO_PEERCRED, SO_PEERGROUPS)."""

from __future__ import annotations

import errno

from agents.link.lean import socket
from agents.link.sockets import peer
from agents.wire.caller_groups import MOST, CallerGroups

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Optional

_SO_PEERGROUPS = 59  # asm-generic/socket.h
_ROOM = 1024  # the most bytes that socket.getsockopt returns
_MOST_BYTES = 4 << 16  # of the 65,536 groups that Linux allows (NGROUPS_MAX)
_GID_MASK = (1 << 32) - 1  # the peer's gid is read as a signed number


def groups_of_peer(sock: socket.socket) -> Optional[CallerGroups]:
    """The groups that the peer had when it connected; None if the kernel does not say (Linux before 4.13).

    Of more than ``MOST`` supplementary groups only as many are read, because any user can make such connections.
    """
    data: Optional[bytes]
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _ROOM)
    except OSError as error:
        if error.errno != errno.ERANGE:
            return None
        data = _with_more_room(sock.fileno())
        if data is None:
            return None
    return CallerGroups(peer(sock).gid & _GID_MASK, memoryview(data).cast("I").tolist())


def _with_more_room(fd: int) -> Optional[bytes]:
    import ctypes  # costs milliseconds, and few processes have more than 256 groups

    room, length = ctypes.create_string_buffer(_MOST_BYTES), ctypes.c_uint(_MOST_BYTES)
    libc = ctypes.CDLL(None)
    failed = libc.getsockopt(fd, socket.SOL_SOCKET, _SO_PEERGROUPS, room, ctypes.byref(length))
    return None if failed else ctypes.string_at(room, min(length.value, 4 * MOST))  # sorted by the kernel
