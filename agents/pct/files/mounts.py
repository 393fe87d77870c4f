"""Mounts the directories of ``--io`` for the ranks of a launch, in a mount namespace that only they see.

A separate process creates the namespace, mounts and exits; descriptors keep the namespace alive, so that nothing is
left on the node after the launch, however it ended. Root needs only a mount namespace; other users also need a user
namespace.
"""

from __future__ import annotations

import errno
import json
import os
import struct

from agents.link.lean import signal, socket
from agents.link.loop import READ
from agents.linux import namespaces, prctl
from agents.pct.files.fuse import FuseDevice
from agents.pct.files.mounted import MountedDirectory, Owner
from agents.wire.control import to_bytes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Tuple

    from agents.pct.files.remote_io import Application
    from agents.pct.launch.context import LaunchContext

_FD = struct.Struct("i")
_LONGEST = 64 << 10


class Mounts:
    """The mounted directories of one launch on this node."""

    def __init__(self, launch: LaunchContext, files: Application, ram_disk: str) -> None:
        self._launch, self._files = launch, files
        self._hidden = [os.path.realpath(path) for path in (launch.run, ram_disk)]
        self._mounted: "List[MountedDirectory]" = []
        self._paths: "List[str]" = []  # the paths of those directories
        self._made: "List[bytes]" = []
        self._refused: "Dict[str, List[str]]" = {}
        self._unheard: "Dict[int, bytes]" = {}  # mounts whose helper has not reported yet
        self._helper = 0
        #: Descriptors and kinds of namespaces, in the order in which ranks enter them.
        self.namespaces: "List[Tuple[int, int]]" = []

    def begin(self, wanted: "Dict[str, Any]", then: "Callable[[], None]") -> None:
        """Mount the directories that are not the same here already, report failures, then call ``then``."""
        here = _same_host(str(wanted.get("host", "")))
        places = []
        for place, (name, writable, dev, ino) in enumerate(wanted["directories"]):
            path = to_bytes(name)
            if here and writable and _identity(path) == (dev, ino):
                continue
            places.append((place, path, bool(writable)))
        if not places:
            then()
            return
        self._unheard = {place: path for place, path, _ in places}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._helper = os.fork()
        if not self._helper:
            _mount_all(theirs, sorted(places, key=lambda wanted: len(wanted[1])), self._hidden, parent)
        theirs.close()
        ours.setblocking(False)
        self._launch.loop.watch(ours.fileno(), READ, lambda _events: self._on_message(ours, then))

    def _on_message(self, sock: socket.socket, then: "Callable[[], None]") -> None:
        try:
            data, control, _, _ = sock.recvmsg(_LONGEST, socket.CMSG_SPACE(2 * _FD.size), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, control = b"", []
        fds = [fd for _, _, given in control for (fd,) in _FD.iter_unpack(given[: len(given) // 4 * 4])]
        if data:
            self._take(json.loads(data.decode()), fds)
            return
        self._launch.loop.unwatch(sock.fileno())
        sock.close()
        self._tell()
        then()

    def _take(self, told: "Dict[str, Any]", fds: "List[int]") -> None:
        self._made += [to_bytes(name) for name in told.get("made", ())]
        if "error" in told:
            path = _shown(self._unheard.pop(told["place"]))
            self._refused.setdefault(told["error"], []).append(path)
        elif "alone" in told:
            self._serve(fds[0], told)
        else:
            self.namespaces = [(fd, told["kinds"][at]) for at, fd in enumerate(fds)]

    def _serve(self, fd: int, told: "Dict[str, Any]") -> None:
        place = told["place"]
        device, owner = FuseDevice(fd), Owner(os.geteuid(), os.getegid(), alone=told["alone"])
        path = _shown(self._unheard.pop(place))
        try:
            self._mounted.append(MountedDirectory(self._launch.loop, self._files, device, place, owner))
            self._paths.append(path)
        except OSError as error:
            device.close()
            self._refused.setdefault(str(error.strerror), []).append(path)

    def _tell(self) -> None:
        if self._unheard:
            why = "the process that mounts it ended"
            self._refused.setdefault(why, []).extend(map(_shown, self._unheard.values()))
        if self._paths and not self.namespaces:
            self._refused.setdefault("the node cannot keep its mount namespace", []).extend(self._paths)
        if not self._mounted:
            self._close_namespaces()
        for why, paths in self._refused.items():
            text = f"-io {', '.join(paths)} cannot be mounted: {why}; programs there reach it by yodio only"
            self._launch.tree.up.tell({"op": "note", "node": self._launch.node, "message": text})

    def _close_namespaces(self) -> None:
        for fd, _ in self.namespaces:
            os.close(fd)
        self.namespaces = []

    def abandon(self) -> None:
        """Yod is unreachable."""
        for mounted in self._mounted:
            mounted.abandon()

    def close(self) -> None:
        """End the mounts, and remove the mount points that were created."""
        for mounted in self._mounted:
            mounted.close()
        self._close_namespaces()
        made, self._made = self._made, []
        for path in made[::-1]:
            try:
                os.rmdir(path)
            except OSError:
                pass  # another launch uses it, or a user has created something in it


def _same_host(boot_id: str) -> bool:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() == boot_id
    except OSError:
        return False


def _identity(path: bytes) -> "Tuple[int, int]":
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


# In the helper process


def _mount_all(
    sock: socket.socket, places: "List[Tuple[int, bytes, bool]]", hidden: "List[str]", parent: int
) -> "NoReturn":
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl.die_with_parent()
        if os.getppid() == parent:
            _Helper(sock).run(places, hidden)
    finally:
        os._exit(0)


class _Helper:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        _real, self._acting, kept = os.getresuid()
        self._group = os.getegid()
        #: In system mode the launch child acts as a user and may become root.
        self._may_be_root = kept == 0
        self._kinds: "List[int]" = []

    def run(self, places: "List[Tuple[int, bytes, bool]]", hidden: "List[str]") -> None:
        try:
            self._unshare()
        except OSError as error:
            for place, _, _ in places:
                self._say({"place": place, "error": _why(error)})
            return
        mounted = 0
        for place, path, writable in places:
            made: "List[bytes]" = []
            try:
                self._refuse_hidden(path, hidden)
                fd = self._mount(path, writable, made)
                told = {"place": place, "alone": namespaces.NEW_USERS in self._kinds, "made": _latin(made)}
                self._say(told, fd)
                os.close(fd)
                mounted += 1
            except OSError as error:
                name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
                self._say({"place": place, "error": f"{name}{error.strerror}", "made": _latin(made)})
        if mounted:
            names = {namespaces.NEW_USERS: "user", namespaces.NEW_MOUNTS: "mnt"}
            fds = [os.open(f"/proc/self/ns/{names[kind]}", os.O_RDONLY | os.O_CLOEXEC) for kind in self._kinds]
            self._say({"kinds": self._kinds}, *fds)

    def _say(self, message: "Dict[str, Any]", *fds: int) -> None:
        handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"".join(_FD.pack(fd) for fd in fds))] if fds else []
        self._sock.sendmsg([json.dumps(message).encode()], handed)

    def _unshare(self) -> None:
        if self._may_be_root:
            try:
                self._as_root(lambda: namespaces.unshare(namespaces.NEW_MOUNTS))
                self._kinds = [namespaces.NEW_MOUNTS]
            except PermissionError:
                if self._acting:
                    raise  # a process with root's secrets must not create a user namespace
        if not self._kinds:
            namespaces.unshare(namespaces.NEW_USERS | namespaces.NEW_MOUNTS)
            namespaces.map_own_ids(self._acting, self._group)
            self._kinds = [namespaces.NEW_USERS, namespaces.NEW_MOUNTS]
        self._as_root(lambda: namespaces.mount(b"none", b"/", b"none", namespaces.RECURSIVE | namespaces.SLAVE))

    def _as_root(self, work: "Callable[[], Any]") -> "Any":
        if not self._acting or not self._may_be_root or namespaces.NEW_USERS in self._kinds:
            return work()
        os.seteuid(0)
        try:
            return work()
        finally:
            os.seteuid(self._acting)

    @staticmethod
    def _refuse_hidden(path: bytes, hidden: "List[str]") -> None:
        real = os.path.realpath(os.fsdecode(path)).rstrip("/") + "/"
        for name in hidden:
            if f"{name}/".startswith(real):
                raise OSError(errno.EBUSY, f"it holds {name}, which the processes of the launch need")

    def _mount(self, path: bytes, writable: bool, made: "List[bytes]") -> int:
        _make_directories(path, made)
        target = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Like fusermount: root acting for a user mounts only on the user's own directories.
            if self._acting and self._kinds == [namespaces.NEW_MOUNTS] and os.fstat(target).st_uid != self._acting:
                raise OSError(errno.EPERM, "the directory there is another user's", os.fsdecode(path))
            fd: int = self._as_root(lambda: os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
            options = f"fd={fd},rootmode=40000,user_id={self._acting},group_id={self._group}".encode()
            flags = namespaces.NO_SUID | namespaces.NO_DEVICES | (0 if writable else namespaces.READ_ONLY)
            try:
                self._as_root(lambda: namespaces.mount(b"yod", b"/proc/self/fd/%d" % target, b"fuse", flags, options))
            except OSError as error:
                os.close(fd)
                raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None
            return fd
        finally:
            os.close(target)


def _why(error: OSError) -> str:
    # unshare(2), user_namespaces(7): the errnos alone say "No space left on device" and "Operation not permitted".
    limits = "user.max_mnt_namespaces" if os.geteuid() == 0 else "user.max_user_namespaces, user.max_mnt_namespaces"
    reasons = {
        errno.ENOSPC: f"this host allows no further namespaces (sysctl {limits})",
        errno.EPERM: "this host does not allow namespaces (sysctl kernel.unprivileged_userns_clone,"
        " kernel.apparmor_restrict_unprivileged_userns; a container's seccomp filter)",
    }
    return reasons.get(error.errno or 0, f"no mount namespace: {error.strerror}")


def _make_directories(path: bytes, made: "List[bytes]") -> None:
    missing: "List[bytes]" = []
    while not os.path.isdir(path) and path not in (b"/", b""):
        missing.append(path)
        path = os.path.dirname(path)
    for name in missing[::-1]:
        try:
            os.mkdir(name, 0o700)
            made.append(name)
        except FileExistsError:
            pass  # another node on this host was faster


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _latin(names: "List[bytes]") -> "List[str]":
    return [name.decode("latin-1") for name in names]
