"""Unix sockets by path: private directories, paths of any length, peers by SO_PEERCRED.

An address that is not a path (``tls://…``) is on another machine: agents/link/tls.py handles it, and is imported only
then.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from agents.link.lean import Socket, socket
from agents.link.trust import ours
from agents.wire.address import SCHEME, Peer
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Optional, Tuple

#: Seconds between a daemon's checks that the files of its sockets still exist.
LOOK_S = 2.0
#: Errors of a system call on a socket that say nothing about its peer: this process, or its machine, has no descriptors
#: or memory left.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CREDENTIALS = struct.Struct("3i")
_QUEUE_S = 1.0  # the longest wait for a place in the listener's queue
_ALONE_S = 2.0  # the longest wait for another process that starts to listen in the same directory
_LONGEST = 107  # sun_path holds 108 bytes including the closing NUL


class UnsafeDirectory(AgentError):
    """A directory for sockets is writable by another user."""

    code = "unsafe"


def own_directory(path: str, *, create: bool = True, public: bool = False, variable: str = "XDG_RUNTIME_DIR") -> str:
    """Return ``path``, a 0700 directory of the caller, created if missing. Raises UnsafeDirectory if it is anything
    else.

    ``public``: all may enter and list it (0755), nobody else may write. ``variable``: the environment variable with the
    path, for the error.
    """
    mode = 0o755 if public else 0o700
    if create:
        _make_above(os.path.dirname(path))
        try:
            os.mkdir(path, mode)
            os.chmod(path, mode)  # independent of the umask
        except FileExistsError:
            pass
    if os.geteuid() == 0:
        _check_above(path)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077 & ~mode:
        told = f"{path} must be your own directory, closed to everybody else (mode {mode:04o})"
        remedy = f"point {variable} to a directory of your own"
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            remedy = f"see that nothing in it is somebody else's, then: chmod {mode:o} {path}"
        # in a sticky directory such as /tmp, only the owner and root may remove it
        if status.st_uid not in (0, os.geteuid()):
            told += f"; it belongs to uid {status.st_uid}"
            remedy = f"mkdir -m 700 ~/.redmesh-own && export {variable}=~/.redmesh-own, or ask root to remove it"
        raise UnsafeDirectory(told, remedy)
    return path


def _make_above(path: str) -> None:
    # os.makedirs applies its mode only to the last directory, but a recreated XDG_RUNTIME_DIR must be 0700 too.
    if path and not os.path.isdir(path):
        _make_above(os.path.dirname(path))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass


def give_room(path: str, uid: int, gid: int) -> None:
    """Return ``path``, a user's 0700 directory inside one of ours, created if missing. Raises OSError.

    If we were killed before the ownership was changed, it is changed now.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == os.geteuid() != uid:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)


def _check_above(path: str) -> None:
    # A root-owned directory inside a user's directory is not safe: the user may rename it and put another in its place.
    above = os.path.dirname(path) or "."
    status = os.stat(above)
    if status.st_uid != 0 or (status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX):
        raise UnsafeDirectory(
            f"{path} would be root's file in a directory that others may change: {above}",
            f"remove {above}, or choose another place",
        )


def _short(path: str) -> "tuple[str, int]":
    # A long path goes through a descriptor of its directory; the caller closes it.
    if len(os.fsencode(path)) <= _LONGEST:
        return path, -1
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{directory}/{os.path.basename(path)}", directory


def listen(path: str, backlog: int = 1024) -> socket.socket:
    """A listening socket at ``path`` (mode 0600); replaces a dead one. Raises AgentError if another process listens
    there."""
    short, directory = _short(path)
    alone = _alone(os.path.dirname(path) or ".")
    try:
        sock = Socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            try:
                _bind(sock, short)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                _remove_dead(path, short)
                _bind(sock, short)
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return sock
    finally:
        os.close(alone)
        if directory >= 0:
            os.close(directory)


def _alone(directory: str) -> int:
    """A lock that keeps others from listening in ``directory`` until the descriptor is closed.

    A socket that is bound and does not listen yet looks dead. The wait is limited, in case the holder is stopped.
    """
    import fcntl
    import time

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + _ALONE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                return fd
            time.sleep(0.005)  # poll: an flock with a time limit
        except OSError:
            return fd  # the file system has no such locks


def file_of(path: str) -> "Tuple[int, int]":
    """Device and inode of the file at ``path``; zeros if it does not exist or is unreachable."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def listen_again(
    path: str, known: "Tuple[int, int]", backlog: int = 1024, *, public: bool = False, make: bool = False
) -> "Optional[socket.socket]":
    """A new socket listening at ``path`` if the file ``known`` (see :func:`file_of`) was removed; otherwise None.

    logind removes /run/user/UID with everything in it at a user's last logout, and mounts another at the next login.
    ``make`` also creates the directory: a daemon that may outlive its mesh leaves that to others. Raises OSError, or
    AgentError if the directory is not ours or another process listens there.
    """
    if file_of(path) == known:
        return None
    own_directory(os.path.dirname(path), create=make, public=public)
    return listen(path, backlog)


def _bind(sock: socket.socket, short: str) -> None:
    before = os.umask(0o177)  # 0600 from the start, and cheaper than a later chmod
    try:
        sock.bind(short)
    finally:
        os.umask(before)


def _remove_dead(path: str, short: str) -> None:
    probe = Socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(short)
    except ConnectionRefusedError:
        os.unlink(short)
    except FileNotFoundError:
        pass
    else:
        raise AgentError(f"somebody listens at {path} already", "is the same daemon running twice?", code="in_use")
    finally:
        probe.close()


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def connect(path: str, timeout_s: float = 5.0, owner: int = -1) -> socket.socket:
    """A blocking connection to the socket at ``path``, whose owner must be the caller, root, or ``owner``.

    Raises OSError as connect(2), or UnsafeDirectory if the listener belongs to another user.
    """
    if path[:1] != "/" and path.startswith(SCHEME):
        from agents.link import tls

        return tls.connect(path, ours(), timeout_s)  # type: ignore[return-value]
    short, directory = _short(path)
    sock = Socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # With a Python time-out, connect(2) would not wait at all if the listener's queue is full.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(min(timeout_s, _QUEUE_S)))
        sock.connect(short)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0))  # no limit
        sock.settimeout(timeout_s)
        _check_owner(path, sock, owner)
        return sock
    except BaseException:
        sock.close()
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def connect_now(path: str, hint: bytes = b"", owner: int = -1) -> socket.socket:
    """Like :func:`connect`, without waiting. Raises BlockingIOError if the listener's queue is full.

    To another machine, the connection is only begun, and a Link completes it; ``hint`` tells that machine its purpose.
    ``owner``: the required owner of the listener, if neither the caller nor root.
    """
    if path[:1] != "/" and path.startswith(SCHEME):
        from agents.link import tls

        return tls.connect_now(path, ours(), hint)  # type: ignore[return-value]
    short, directory = _short(path)
    sock = Socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect(short)
        _check_owner(path, sock, owner)
        return sock
    except BaseException:
        sock.close()
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def _check_owner(path: str, sock: socket.socket, wanted: int = -1) -> None:
    owner = peer(sock).uid
    if owner not in ((0, os.geteuid()) if wanted < 0 else (wanted,)):
        raise UnsafeDirectory(
            f"the daemon at {path} belongs to uid {owner}, not to " + ("you" if wanted < 0 else f"uid {wanted}"),
            "remove the socket, or point XDG_RUNTIME_DIR to a directory of your own",
        )


def peer(sock: socket.socket) -> Peer:
    """The identity of the peer."""
    known = getattr(sock, "peer", None)  # set on connections to another machine
    if known is not None:
        return known  # type: ignore[no-any-return]
    return Peer(*_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))
