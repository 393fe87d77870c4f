"""Programs on a node that has them not: a named file in the RAM disk, one per host for each digest.

Layout, all 0700 and the user's own (in system mode this runs as the user, never as root):

    RAMDISK/redmesh-UID/          or TMPDIR/redmesh-programs-UID/ (agents/pct/images/ram_disk.py)
        lock                      held for a moment around every change of links; ``discard`` removes it with the rest.
                                  A holder that is stopped (SIGSTOP) is waited for once, for LOCK_S seconds
        images/SIZE-SHA256        a whole image, checked; each launch that uses it has a hard link
        images/SIZE-SHA256.part   an image that is arriving; its writer holds a flock on it
        launch-NAMESPACE-PID-STARTED-NAME/…  one launch child's files: hard links under the programs' own names, and
                                  symbolic links to segments of shared memory that are to go with it

The last link takes the image with it. What a launch child could not remove (kill -9) is removed by ``sweep``, which
knows from the directory's name whether its owner lives: pid and start time, in its own pid namespace.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from agents.linux import processes
from agents.pct.errors import OF_THE_PLACE, PctError, advice
from agents.pct.images.ram_disk import RAM_DISK, places, user_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

    from agents.pct.images.chunks import MappedFile

    Made = TypeVar("Made")

#: Space in bytes that is left for programs, which also use the RAM disk.
SPARE = 8 << 20
#: With free space for this many copies of an image, no space is reserved, because reserving costs more.
PLENTY = 256
#: Bytes copied at once: they stay in the second-level cache from hashing to writing.
CACHED = 512 << 10


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


#: The namespace of our pids. Read at once, as root in system mode, because a process that has become a user may not
#: read it.
_NAMESPACE = _namespace()
#: Prefixes of the shared memory segments to which a launch child keeps links.
SEGMENTS = ("mpich_shm_", "mpich_vci_")
#: Seconds that a process waits for the lock. A launch child that waits answers neither its parent nor its launcher, so
#: this is less than a fetch's STALL_S: the node of the stopped holder is named, not the nodes that wait for it.
LOCK_S = 1.0
_LOCK_AGAIN_S = 0.001
#: How often a launch child begins anew because the directories were removed under its hands.
_ATTEMPTS = 20
#: Seconds for which nothing removes directories that were just made.
_YOUNG_S = 0.05
_HEXADECIMAL = frozenset("0123456789abcdef")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ImageError(PctError):
    """An image cannot be stored here, or differs from the announced one. ``number``: the errno of a system call."""

    code = "image"
    number = 0


class Damaged(ImageError):
    """An image differs from the announced one: a fault of its launcher or the network, not of this node."""

    code = "damaged"


class InTheWay(ImageError):
    """A file of the user is in the image's place."""

    code = "in_the_way"
    lasting = True


class Missing(ImageError):
    """The sources no longer have the image."""

    code = "missing"


class Unsent(ImageError):
    """No source answers: the requesting node cannot reach them."""

    code = "unsent"
    fault = "node"


class Malformed(ImageError):
    """A malformed description of an image by the launcher or another node."""

    code = "malformed"


class NoRoom(ImageError):
    """No place has room: the image comes through the parallel file system."""

    code = "no_room"
    number = errno.ENOSPC
    lasting = of_room = True


class NoExec(ImageError):
    """Nothing may be executed in the place for programs."""

    number = errno.ENOEXEC
    lasting = True


def _runnable(path: str) -> os.statvfs_result:
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise _failed(path, error) from None
    if found.f_flag & os.ST_NOEXEC:
        raise NoExec(f"{path} is mounted noexec", "let TMPDIR name a directory that programs may run from, and mesh up")
    return found


def room(path: str, size: int) -> int:
    """The free bytes of the file system of ``path``. Raises NoRoom if ``size`` bytes and a file do not fit.

    Raises ImageError if nothing may be executed there.
    """
    found = _runnable(path)
    free = found.f_bavail * found.f_frsize
    # A file system that does not count inodes reports 0 of 0.
    if free < size + SPARE or (found.f_files and found.f_favail < 4):
        raise NoRoom(
            f"{path} has room for {max(0, free - SPARE)} bytes, {size} are needed",
            f"{advice(errno.ENOSPC)}, or let TMPDIR name a directory with room, and mesh up",
        )
    return free - SPARE


def launch_directory(name: str, ram_disk: str = RAM_DISK) -> str:
    """The directory for the files of this process; its name shows later whether the process is dead."""
    pid = os.getpid()
    whose = f"launch-{_NAMESPACE}-{pid}-{processes.start_time(pid)}-{name}"
    return os.path.join(user_directory(ram_disk, os.geteuid()), whose)


def in_ram_disk(make: "Callable[[str], Made]") -> "Tuple[Made, str]":
    """``make(place)`` for the RAM disk, or else for another place (ram_disk.py); and a line for people if it is not the
    RAM disk, or "".

    Raises ImageError, with the reasons of all places, if ``make`` fails in each; NoRoom if one of them has no room.
    """
    failed: List[ImageError] = []
    left: List[str] = []
    for place in places():
        try:
            made = make(place)
        except ImageError as error:
            failed.append(error)
        except OSError as error:
            failed.append(_failed(str(error.filename or place), error))
        else:
            return made, f"{', '.join(left)}: programs are copied to {place} instead" if left else ""
        left.append(_why(place, failed[-1].number))
        if failed[-1].number not in OF_THE_PLACE:
            break  # another user's file is in the way, or this process has no descriptors
    chosen = next((error for error in failed if isinstance(error, NoRoom)), failed[0])
    chosen.message = "; nor instead: ".join(error.message for error in failed)
    raise chosen


_LEFT = {
    errno.EROFS: "is read-only", errno.ENOEXEC: "is mounted noexec", errno.ENOENT: "does not exist",
    errno.ENOSPC: "has too little room",
}  # fmt: skip


def _why(place: str, number: int) -> str:
    return f"{place} {_LEFT[number]}" if number in _LEFT else f"{place}: {os.strerror(number)}"


class Store:
    """One launch child's part of the store. ``name`` names the node and launcher for people."""

    def __init__(self, name: str, ram_disk: str = RAM_DISK) -> None:
        if not name or "/" in name or "\0" in name:
            raise ImageError(f"{name!r} cannot name a directory")
        self.base = user_directory(ram_disk, os.geteuid())
        self._images = os.path.join(self.base, "images")
        self._shares = False
        self._lock_s = LOCK_S
        self.directory = launch_directory(name, ram_disk)
        attempts = 1
        while not self._make(last=attempts >= _ATTEMPTS):
            attempts += 1

    @classmethod
    def of_programs(cls, name: str, place: str) -> Store:
        """A store for files that are executed. Raises NoExec if they cannot be in ``place``."""
        _runnable(place)
        return cls(name, place)

    def _make(self, *, last: bool) -> bool:
        """Make the directories; False if ``discard`` removed them meanwhile, and this is not the ``last`` attempt."""
        own_directory(self.base)
        try:
            # Without the lock nothing removes the directories either: ``discard`` needs it.
            with self.lock() as lock:
                if not lock.is_current() and not last:
                    return False
                own_directory(self._images)
                os.mkdir(self.directory, 0o700)  # like O_EXCL: an existing directory is not ours
                return True
        except FileNotFoundError as error:
            if last:
                raise _failed(self.base, error) from None  # not the directory: a message for all launches
            return False
        except OSError as error:
            raise _failed(self.base, error) from None  # not the directory: a message for all launches

    def lock(self) -> _Lock:
        """The store's lock, for a ``with`` statement, which may not get it (``held``)."""
        lock = _Lock(self.base, self._lock_s)
        if not lock.held:
            self._lock_s = 0.0  # its holder is stopped: do not wait for it at each step
        return lock

    def want(self, digest: str, size: int, name: str, *, share: bool = True, folder: str = "") -> "Arriving":
        """Announce an image of ``size`` bytes with SHA-256 ``digest``, to be run as ``name``. Raises NoRoom or
        ImageError.

        Without ``share`` the launch child writes its own copy. ``folder``: a directory below the launch's own, for
        another image of the same name.
        """
        if len(digest) != 64 or not _HEXADECIMAL.issuperset(digest):
            raise Malformed("the digest of the image is not a SHA-256")
        if not 0 < size < 1 << 48:
            raise Malformed(f"an image of {size} bytes")
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise Malformed(f"{name!r} cannot name a file")
        directory = os.path.join(self.directory, folder) if folder else self.directory
        if folder:
            own_directory(directory)
        self._shares = self._shares or share
        arriving = Arriving(self, digest, size, os.path.join(directory, name), share)
        arriving.step()
        return arriving

    def remove(self) -> None:
        """Remove this launch's files, and the images that nobody else uses. Running programs keep theirs."""
        _remove_directory(self.directory)
        if self._shares:
            try:
                with self.lock() as lock:
                    if lock.held:  # otherwise the next launch that ends here removes them, or ``sweep``
                        _drop_unused(self._images)
            except OSError:
                pass  # another PCT of the user was the last one to use the place, or the user has changed it

    def image_path(self, digest: str, size: int) -> str:
        """The path of the host's copy."""
        return os.path.join(self._images, f"{size}-{digest}")


class Stores:
    """The stores of one launch child: one in the RAM disk, and one in each other place that something needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stores: Dict[str, Store] = {}

    def put(self, fill: "Callable[[Store], Made]") -> "Tuple[Made, Store, str]":
        """What ``fill(store)`` returns, in the first place with room for what it writes; that store; and a line for
        people, as ``in_ram_disk``.

        Raises ImageError if there is room nowhere.
        """

        def make(place: str) -> "Tuple[Made, Store]":
            known = self._stores.get(place)
            store = known or Store.of_programs(self._name, place)
            try:
                made = fill(store)
            except (OSError, ImageError) as error:
                if known is None:
                    store.remove()
                if isinstance(error, OSError):
                    raise _failed(store.base, error) from None  # as in the messages of all launches
                raise
            self._stores[place] = store
            return made, store

        (made, store), instead = in_ram_disk(make)
        return made, store, instead

    def remove(self) -> None:
        """Remove the files in all places."""
        for store in self._stores.values():
            store.remove()
        self._stores.clear()


class Arriving:
    """An image that is arriving. ``state``: ``here``, ``mine`` (write it), ``theirs`` (another PCT writes it),
    ``failed``.

    After ``theirs``, call ``step`` every few ms: the state becomes ``here``, or ``mine`` if the other PCT is dead.
    """

    def __init__(self, store: Store, digest: str, size: int, path: str, share: bool = True) -> None:
        self.path, self.digest, self.size = path, digest, size
        self._share = share
        self.state = "theirs"
        self.received = 0
        self._store = store
        self._whole = store.image_path(digest, size)
        if not share:
            self._write_own()
        self._fd = -1
        self._hash: Any = None
        self._written_at = 0

    def step(self) -> str:
        """Check again; returns the state."""
        if self.state != "theirs":
            return self.state
        try:
            if self._share:
                self._step_shared()
            if not self._share:
                self.state = "mine" if self._claim() else "theirs"
        except OSError as error:
            raise _failed(self._whole, error) from None
        if self.state == "mine":
            self._reserve()
        return self.state

    def _step_shared(self) -> None:
        with self._store.lock() as lock:
            if not lock.held:
                self._write_own()
            elif self._link():
                self.state = "here"
            elif self._claim():
                self.state = "mine"

    def _write_own(self) -> None:
        self._share, self._whole = False, self.path

    def _link(self) -> bool:
        try:
            os.link(self._whole, self.path)
            return True
        except FileNotFoundError:
            return False

    @property
    def part(self) -> str:
        """The path of the incomplete image, for forwarding it."""
        return self._whole + ".part"

    @property
    def whole(self) -> str:
        """The path of the complete image."""
        return self._whole

    def grows(self) -> bool:
        """True if its writer has written since the last call."""
        before = self._written_at
        try:
            self._written_at = os.stat(self.part).st_mtime_ns
        except OSError:
            pass
        return self._written_at != before

    def _claim(self) -> bool:
        import hashlib  # OpenSSL's; its import takes 5 ms, which only a writer pays

        fd = _locked(self.part)
        if fd >= 0 and os.fstat(fd).st_size:
            # The part of a dead writer is worthless, because nobody checked it. But a process with its descriptor may
            # still read it.
            os.unlink(self.part)
            os.close(fd)
            fd = _locked(self.part)
        if fd < 0:
            return False
        self._fd = fd
        self._hash = hashlib.sha256()
        return True

    def _reserve(self) -> None:
        try:
            if room(self._store.base, self.size) < PLENTY * self.size:
                os.posix_fallocate(self._fd, 0, self.size)  # allocated, not only promised
            else:
                os.ftruncate(self._fd, self.size)  # receivers of the descriptor map the whole file
        except ImageError:
            self.abandon()
            raise
        except OSError as error:
            self.abandon()
            raise _failed(self.part, error) from None

    def write(self, offset: int, data: Union[bytes, memoryview]) -> None:
        """Write the next piece. If it is not the next, or exceeds the announced size, discards everything and raises
        ImageError."""
        self._expect(offset, len(data))
        self._keep(memoryview(data))

    def copy(self, file: MappedFile, offset: int, count: int) -> int:
        """Copy the next ``count`` bytes from a file; returns how many there were. Raises ImageError as ``write``.

        Raises OSError if the file is unreadable.
        """
        self._expect(offset, count)
        end = offset + count
        while self.received < end:
            data = file.piece(self.received, min(CACHED, end - self.received))
            if not data:
                break
            self._keep(data)
        return self.received - offset

    def _expect(self, offset: int, count: int) -> None:
        if self.state != "mine":
            raise Malformed("a chunk of an image that nobody here writes")
        if offset != self.received or offset + count > self.size:
            self.abandon()
            raise Malformed(f"a chunk of {count} bytes at {offset}, where {self.received} of {self.size} have arrived")

    def _keep(self, data: memoryview) -> None:
        self._hash.update(data)
        try:
            while data:
                written = os.pwrite(self._fd, data, self.received)
                self.received += written
                data = data[written:]
        except OSError as error:
            self.abandon()
            if error.errno == errno.EFAULT:  # the mapped source file was truncated
                raise Missing(f"{self.path}: the file it is copied from was cut short") from None
            raise _failed(self.part, error) from None

    def finish(self) -> str:
        """All pieces are here: check and publish. Returns the path to run. Raises ImageError for a wrong length or
        digest."""
        if self.state == "here":
            return self.path
        if self.state != "mine":
            raise ImageError("the image is not here yet")
        if self.received != self.size or self._hash.hexdigest() != self.digest:
            received = self.received
            self.abandon()
            raise Damaged(
                f"the image is damaged: {received} of {self.size} bytes, or another SHA-256 than announced",
                "the file may have changed while it was read; launch again",
            )
        try:
            os.fchmod(self._fd, 0o500)  # several launches may run it, so none may write it
            if self._share:
                self._publish()
            else:
                self._let_go()
                os.rename(self.part, self._whole)
        except OSError as error:
            self.abandon()
            raise _failed(self.path, error) from None
        self.state = "here"
        return self.path

    def _publish(self) -> None:
        with self._store.lock() as lock:
            if lock.held:
                self._let_go()
                os.link(self.part, self.path)
                os.rename(self.part, self._whole)
            else:  # keep it for this launch: other processes could replace ``part`` after ``_let_go``
                os.link(self.part, self.path)
                os.unlink(self.part)
                self._let_go()

    def _let_go(self) -> None:
        # Close before it gets its name, because a file that is open for writing cannot be executed.
        os.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Discard an incomplete image; another PCT of this host may begin anew. Does nothing to a complete one."""
        if self.state == "mine":
            try:
                os.unlink(self.part)
            except OSError:
                pass
            if self._fd >= 0:
                self._let_go()
            self.state = "failed"


def _locked(path: str) -> int:
    """A locked descriptor of the file, which is created if missing; -1 if another process has locked it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        return -1
    return fd


def sweep(ram_disk: str = RAM_DISK) -> List[str]:
    """Remove what dead launch children of this user left; returns the names of their directories."""
    base = user_directory(ram_disk, os.geteuid())
    removed = []
    try:
        own_directory(base, make=False)
        names = os.listdir(base)
    except (OSError, ImageError):
        return []
    for name in names:
        owner = _owner(name)
        if owner is not None and not processes.alive(*owner):
            _remove_segments(os.path.join(base, name), ram_disk)
            _remove_directory(os.path.join(base, name))
            removed.append(name)
    try:
        with _Lock(base) as lock:
            if lock.held:
                _drop_unused(os.path.join(base, "images"))
    except OSError:
        pass
    return removed


def discard(ram_disk: str = RAM_DISK) -> bool:
    """Remove this user's directory in the RAM disk if no launch has files in it. Returns whether it was removed.

    A launch child that starts meanwhile waits for the lock, finds that it is not the current one, and begins anew.
    """
    base = user_directory(ram_disk, os.geteuid())
    try:
        own_directory(base, make=False)
        if _is_young(os.lstat(base).st_mtime) and not os.path.lexists(os.path.join(base, "lock")):
            return False  # a launch child has made it a moment ago, and is about to make the lock
        with _Lock(base, 0.0) as lock:
            if not lock.held or not lock.is_current() or lock.is_young() or _has_launches(base):
                return False
            if _is_computing(os.path.join(base, "digests")):
                return False
            for name in ("images", "digests"):
                _remove_directory(os.path.join(base, name))
            os.unlink(os.path.join(base, "lock"))
            os.rmdir(base)  # fails if a launch child has just begun without the lock, for shared memory alone
            return True
    except (OSError, ImageError):
        return False


def _has_launches(base: str) -> bool:
    return any(name.startswith("launch-") for name in os.listdir(base))


def _is_computing(digests: str) -> bool:
    """True if a process reads a file for its digest (agents/pct/images/digests.py): it holds a lock there."""
    try:
        locks = [name for name in os.listdir(digests) if name.endswith(".lock")]
    except FileNotFoundError:
        return False
    for name in locks:
        fd = os.open(os.path.join(digests, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def remove_segment(path: str) -> None:
    """Remove a shared memory segment that a launch of this user left, if it exists."""
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.unlink(path)
    except OSError:
        pass


def _remove_segments(directory: str, ram_disk: str) -> None:
    # agents/pct/mpi/mpich_memory.py makes these links; files of other names are not touched.
    try:
        links = [name for name in os.listdir(directory) if name.startswith(SEGMENTS)]
    except OSError:
        return
    for name in links:
        try:
            target = os.readlink(os.path.join(directory, name))
        except OSError:
            continue  # not a link
        if target == os.path.join(ram_disk, name):
            remove_segment(target)


def _owner(name: str) -> Optional[Tuple[int, int]]:
    """Pid and start time from a directory's name; None for another pid namespace, whose pids mean nothing here."""
    parts = name.split("-", 4)
    if len(parts) != 5 or parts[0] != "launch" or not all(part.isdigit() for part in parts[1:4]):
        return None
    return (int(parts[2]), int(parts[3])) if int(parts[1]) == _NAMESPACE else None


def _remove_directory(path: str) -> None:
    # By descriptor, and never through a link, because the names in it came from outside.
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError:
        return
    try:
        for name in os.listdir(fd):
            try:
                os.unlink(name, dir_fd=fd)
            except OSError:
                _remove_directory(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass
    finally:
        os.close(fd)


def _drop_unused(images: str) -> None:
    """Under the lock: remove images without another link, and parts whose writer is dead."""
    for name in os.listdir(images):
        path = os.path.join(images, name)
        try:
            if name.endswith(".part"):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)
                finally:
                    os.close(fd)
            elif os.lstat(path).st_nlink == 1:
                os.unlink(path)
        except OSError:
            continue


def _is_young(changed: float) -> bool:
    return abs(time.time() - changed) < _YOUNG_S


class _Lock:
    """A lock held around every change of links, for microseconds.

    ``held`` is False if another process has kept it for ``wait_s`` seconds: that process is stopped.
    """

    def __init__(self, base: str, wait_s: float = LOCK_S) -> None:
        self._path = os.path.join(base, "lock")
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        self._made = False
        try:
            self._fd = os.open(self._path, flags)
        except FileNotFoundError:
            self._fd, self._made = os.open(self._path, flags | os.O_CREAT, 0o600), True
        try:
            self.held = self._take(wait_s)
        except OSError:
            os.close(self._fd)
            raise

    def _take(self, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
            time.sleep(_LOCK_AGAIN_S)  # poll: flock has no time-out

    def __enter__(self) -> _Lock:
        return self

    def is_current(self) -> bool:
        """True unless ``discard`` has removed this lock while we waited for it."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def is_young(self) -> bool:
        """True if another process made the lock a moment ago, and is about to put something into the directory."""
        return not self._made and _is_young(os.fstat(self._fd).st_mtime)  # nobody writes to the lock

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def own_directory(path: str, *, make: bool = True) -> None:
    """Ensure that ``path`` is a private directory of ours. Raises ImageError for a link, or a directory that others
    may enter."""
    found = None
    for attempt in range(_ATTEMPTS):
        try:
            if make:
                try:
                    os.mkdir(path, 0o700)
                except FileExistsError:
                    pass
            found = os.lstat(path)
            break
        except OSError as error:
            removed = make and error.errno == errno.ENOENT and os.path.isdir(os.path.dirname(path))
            if not removed or attempt == _ATTEMPTS - 1:
                raise _failed(path, error) from None
    assert found is not None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise InTheWay(f"{path} is not a directory of our own", "somebody else made it: remove it, or ask who did")


def own_place(path: str) -> None:
    """``own_directory`` for ``path`` and the user's directory around it, which ``discard`` may remove between the
    two."""
    base = os.path.dirname(path)
    for attempt in range(_ATTEMPTS):
        own_directory(base)
        try:
            return own_directory(path)
        except ImageError:
            if attempt == _ATTEMPTS - 1 or os.path.isdir(base):
                raise


def _failed(path: str, error: OSError) -> ImageError:
    number = error.errno or 0
    said = f"{path}: {error.strerror}"
    no_room = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    failed = (NoRoom if no_room else ImageError)(said, advice(number))
    failed.number = number
    failed.lasting = no_room or number in OF_THE_PLACE
    return failed
