"""A directory of the login processor as a file system on this node: yod answers the kernel's requests.

Consistency is close-to-open, as with NFS: what was closed on one node is seen by an open on any other. A write is
answered when it has been sent; its error is reported by the next write, fsync or close. ``close`` returns when yod has
everything.
"""

from __future__ import annotations

import errno
import os
import stat

from agents.link.lean import deque
from agents.link.loop import READ
from agents.pct.files import fuse
from agents.pct.files.fuse import Attributes, FuseDevice
from agents.pct.files.inodes import Inode, Inodes
from agents.pct.files.open_file import OpenFile
from agents.pct.files.remote_io import (
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
    READ_LINK,
    RELEASE_FILE,
    REMOVE,
    RENAME,
    RESERVE,
    SET_ATTRIBUTES,
    SPACE,
    STATUS,
    SYNC_FILE,
)

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, List, Optional, Tuple, Union

    from agents.link.loop import Loop
    from agents.pct.files.remote_io import Answer, Application

_GATHER_S = 0.02  # the longest delay of small writes
_RELEASED = 64  # files that were only read are released in groups of this size
_BATCH = 32  # kernel requests handled before the loop serves other events


class Owner:
    """The user and group, on this node, of files of yod's user. In a user namespace all files have them."""

    __slots__ = ("alone", "gid", "uid")

    def __init__(self, uid: int, gid: int, *, alone: bool) -> None:
        self.uid, self.gid, self.alone = uid, gid, alone


class _Listing:
    """An open directory: its contents when it was read from the beginning."""

    __slots__ = ("entries", "inode")

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self.entries: "Optional[List[Tuple[bytes, Attributes]]]" = None


class MountedDirectory:
    """Serves one mount until :meth:`close`. ``place`` is its index among the directories of ``--io``.

    Raises OSError if the kernel's FUSE protocol is not supported; ``device`` then stays the caller's.
    """

    def __init__(self, loop: Loop, files: Application, device: FuseDevice, place: int, owner: Owner) -> None:
        self._loop, self._files, self._owner, self._place = loop, files, owner, PLACE.pack(place)
        device.begin()
        self.device = device
        self._channel = files.channel()
        self._number = 0
        self._inodes = Inodes()
        self._handles: "Dict[int, Union[OpenFile, _Listing]]" = {}
        self._last_handle = 0
        self.under_way = 0  # bytes of writes and read-aheads that yod has not answered
        self._gathering: "List[OpenFile]" = []
        self._timed = False
        self._released: "List[int]" = []
        self._room: "Deque[Callable[[], None]]" = deque()
        self._asked: "Dict[int, Answer]" = {}
        self._lost = self._closed = False
        self._do: "Dict[int, Callable[[int, int, memoryview], None]]" = {
            fuse.LOOKUP: self._lookup,
            fuse.FORGET: self._forget,
            fuse.BATCH_FORGET: self._forget_many,
            fuse.GETATTR: self._getattr,
            fuse.SETATTR: self._setattr,
            fuse.READLINK: self._readlink,
            fuse.SYMLINK: self._symlink,
            fuse.MKNOD: self._mknod,
            fuse.MKDIR: self._mkdir,
            fuse.UNLINK: lambda unique, inode, body: self._remove(unique, inode, body, 0),
            fuse.RMDIR: lambda unique, inode, body: self._remove(unique, inode, body, 1),
            fuse.RENAME: lambda unique, inode, body: self._rename(unique, inode, body, fuse.RENAME_IN.size, 0),
            fuse.RENAME2: self._rename2,
            fuse.LINK: self._link,
            fuse.OPEN: self._open,
            fuse.CREATE: self._create,
            fuse.READ: self._read,
            fuse.WRITE: self._write,
            fuse.STATFS: self._statfs,
            fuse.FLUSH: self._flush,
            fuse.FSYNC: self._fsync,
            fuse.RELEASE: self._release,
            fuse.OPENDIR: self._opendir,
            fuse.READDIRPLUS: lambda unique, inode, body: self._readdir(unique, body, plus=True),
            fuse.READDIR: lambda unique, inode, body: self._readdir(unique, body, plus=False),
            fuse.RELEASEDIR: self._releasedir,
            fuse.FSYNCDIR: lambda unique, inode, body: self.device.reply(unique),
            fuse.ACCESS: self._access,
            fuse.FALLOCATE: self._fallocate,
        }
        loop.watch(device.fd, READ, self._on_ready)

    def _on_ready(self, _events: int) -> None:
        for _ in range(_BATCH):
            try:
                request = self.device.next()
            except OSError:
                self.close()  # unmounted
                return
            if request is None:
                return
            self._serve(request)
            if self._closed:
                return

    def _serve(self, request: memoryview) -> None:
        _, op, unique, inode, *_ = fuse.HEADER.unpack_from(request)
        do = self._do.get(op)
        if do is None:
            if op not in (fuse.INTERRUPT, fuse.DESTROY):  # neither has an answer; pending requests are answered anyway
                self.device.fail(unique, errno.ENOSYS)
            return
        try:
            do(unique, inode, request[fuse.HEADER.size :])
        except (KeyError, TypeError):
            self.device.fail(unique, errno.ESTALE)

    # Requests to yod

    def ask(self, op: int, offset: int, length: int, data: bytes, then: Answer) -> None:
        """Send a request to yod; ``then(errno, value, data)`` follows, with EIO if yod is unreachable."""
        if self._lost:
            self._loop.after(0, lambda: then(errno.EIO, 0, memoryview(b"")))
            return
        self._number = number = self._number % 0xFFFFFFFF + 1
        self._asked[number] = then
        self._files.ask(
            self._channel, number, op, offset, length, data, lambda *answer: self._answered(number, *answer)
        )

    def _answered(self, number: int, code: int, value: int, data: memoryview) -> None:
        then = self._asked.pop(number, None)
        if then is not None:
            then(code, value, data)

    def _after_writes(self, op: int, offset: int, length: int, data: bytes, then: Answer) -> None:
        """As ``ask``, after all earlier writes, because yod answers in order."""
        self._push()
        self.ask(op, offset, length, data, then)

    def abandon(self) -> None:
        """Yod is unreachable: present and later requests get EIO."""
        self._lost = True
        asked, self._asked = self._asked, {}
        for then in asked.values():
            then(errno.EIO, 0, memoryview(b""))
        self.room()

    def close(self) -> None:
        """End the mount."""
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self.device.fd)
            self.device.close()
            self._files.let_go(self._channel)

    # Data in transit

    def gathers(self, file: OpenFile) -> None:
        """``file`` has small writes to send soon."""
        self._gathering.append(file)
        self._soon()

    def _soon(self) -> None:
        if not self._timed:
            self._timed = True
            self._loop.after(_GATHER_S, self._on_time)

    def _on_time(self) -> None:
        self._timed = False
        self._push()
        self._release_all()

    def _release_all(self) -> None:
        if self._released:
            released, self._released = self._released, []
            self.ask(RELEASE_FILE, 0, 0, b"".join(map(HANDLE.pack, released)), lambda *_: None)

    def _push(self) -> None:
        if self._gathering:
            gathering, self._gathering = self._gathering, []
            for file in gathering:
                file.push()

    def may_fetch(self, size: int) -> bool:
        """True if ``size`` more bytes may be read ahead."""
        return self.under_way + size <= self._files.window

    def when_room(self, then: "Callable[[], None]") -> None:
        """Call ``then`` as soon as less data than the limit is in transit."""
        if self.under_way <= self._files.window and not self._room:
            then()
        else:
            self._push()
            self._room.append(then)

    def room(self) -> None:
        """Data in transit has been answered."""
        while self._room and (self.under_way <= self._files.window or self._lost):
            self._room.popleft()()

    # Names

    def _attributes(self, data: memoryview) -> Attributes:
        ino, size, blocks, mode, nlink, uid, gid, dev, atime, mtime, ctime = STATUS.unpack_from(data)
        owner = self._owner
        return Attributes(
            ino, size, blocks, mode, nlink,
            owner.uid if uid == OWN_ID or owner.alone else uid, owner.gid if gid == OWN_ID or owner.alone else gid,
            dev, atime, mtime, ctime,
        )  # fmt: skip

    def _name(self, inode: Inode, name: bytes = b"") -> bytes:
        return self._place + self._inodes.path(inode, name)

    def _lookup(self, unique: int, number: int, body: memoryview) -> None:
        parent, name = self._inodes[number], fuse.names(body)[0]
        self._after_writes(ATTRIBUTES, 0, 0, self._name(parent, name), self._entry(unique, parent, name))

    def _entry(self, unique: int, parent: Inode, name: bytes) -> Answer:
        """A callback that replies with the inode of ``name``."""

        def answer(code: int, _value: int, data: memoryview) -> None:
            if code:
                if code == errno.ENOENT:
                    self._inodes.removed(parent, name)
                self.device.fail(unique, code)
                return
            found = self._attributes(data)
            self.device.reply(unique, fuse.entry_out(self._inodes.found(parent, name, found).number, found))

        return answer

    def _plain(self, unique: int, then: "Optional[Callable[[], None]]" = None) -> Answer:
        """A callback that replies with success or an errno."""

        def answer(code: int, _value: int, _data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
                return
            if then is not None:
                then()
            self.device.reply(unique)

        return answer

    def _attr(self, unique: int, inode: Inode) -> Answer:
        """A callback that replies with attributes of ``inode``."""

        def answer(code: int, _value: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
            else:
                found = self._attributes(data)
                inode.told = found.size, found.mtime, found.ctime
                self.device.reply(unique, fuse.attr_out(found))

        return answer

    def _forget(self, _unique: int, number: int, body: memoryview) -> None:
        self._inodes.forget(number, fuse.FORGET_IN.unpack_from(body)[0])

    def _forget_many(self, _unique: int, _number: int, body: memoryview) -> None:
        count = fuse.OPEN_IN.unpack_from(body)[0]
        for number, lookups in fuse.FORGET_ONE.iter_unpack(body[8 : 8 + count * fuse.FORGET_ONE.size]):
            self._inodes.forget(number, lookups)

    def _handle_for(self, inode: Inode) -> int:
        """A handle through which a file without a name can be reached, or 0."""
        return 0 if inode.known or not inode.opened else next(iter(inode.opened)).handle

    def _getattr(self, unique: int, number: int, body: memoryview) -> None:
        inode = self._inodes[number]
        flags, _, at = fuse.GETATTR_IN.unpack_from(body)
        file = self._handles.get(at) if flags & fuse.GETATTR_HANDLE else None
        handle = file.handle if isinstance(file, OpenFile) else self._handle_for(inode)
        self._after_writes(ATTRIBUTES, handle, 0, self._name(inode), self._attr(unique, inode))

    def _setattr(self, unique: int, number: int, body: memoryview) -> None:
        inode = self._inodes[number]
        bits, _, at, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = (
            fuse.SETATTR_IN.unpack_from(body)
        )
        file = self._handles.get(at) if bits & fuse.SET_HANDLE else None
        handle = file.handle if isinstance(file, OpenFile) else self._handle_for(inode)
        bits = bits | fuse.SET_HANDLE if handle else bits & ~fuse.SET_HANDLE
        if bits & fuse.SET_SIZE:
            for opened in inode.opened:
                opened.drop_fetched()
        owner = self._owner
        changes = CHANGES.pack(
            bits, handle, mode, OWN_ID if uid == owner.uid else uid, OWN_ID if gid == owner.gid else gid, size,
            _nanoseconds(atime, atime_ns), _nanoseconds(mtime, mtime_ns),
        )  # fmt: skip
        self._after_writes(
            SET_ATTRIBUTES, 0, 0, self._place + changes + self._inodes.path(inode), self._attr(unique, inode)
        )

    def _readlink(self, unique: int, number: int, _body: memoryview) -> None:
        def answer(code: int, _value: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
            else:
                self.device.reply(unique, data)

        self.ask(READ_LINK, 0, 0, self._name(self._inodes[number]), answer)

    def _make(self, unique: int, parent: Inode, name: bytes, mode: int, target: bytes = b"") -> None:
        data = self._name(parent, name) + (b"\0" + target if target else b"")
        self._after_writes(MAKE, mode, 0, data, self._entry(unique, parent, name))

    def _symlink(self, unique: int, number: int, body: memoryview) -> None:
        name, target = fuse.names(body)
        self._make(unique, self._inodes[number], name, stat.S_IFLNK, target)

    def _mknod(self, unique: int, number: int, body: memoryview) -> None:
        mode = fuse.MKNOD_IN.unpack_from(body)[0]
        self._make(unique, self._inodes[number], fuse.names(body[fuse.MKNOD_IN.size :])[0], mode)

    def _mkdir(self, unique: int, number: int, body: memoryview) -> None:
        mode = fuse.MKDIR_IN.unpack_from(body)[0] & 0o7777 | stat.S_IFDIR
        self._make(unique, self._inodes[number], fuse.names(body[fuse.MKDIR_IN.size :])[0], mode)

    def _remove(self, unique: int, number: int, body: memoryview, is_directory: int) -> None:
        parent, name = self._inodes[number], fuse.names(body)[0]
        removed = self._plain(unique, lambda: self._inodes.removed(parent, name))
        self._after_writes(REMOVE, is_directory, 0, self._name(parent, name), removed)

    def _rename2(self, unique: int, number: int, body: memoryview) -> None:
        _, flags, _ = fuse.RENAME2_IN.unpack_from(body)
        self._rename(unique, number, body, fuse.RENAME2_IN.size, flags)

    def _rename(self, unique: int, number: int, body: memoryview, head: int, flags: int) -> None:
        if flags:
            self.device.fail(unique, errno.EINVAL)
            return
        parent, to = self._inodes[number], self._inodes[fuse.RENAME_IN.unpack_from(body)[0]]
        name, new = fuse.names(body[head:])
        data = self._name(parent, name) + b"\0" + self._inodes.path(to, new)
        renamed = self._plain(unique, lambda: self._inodes.renamed(parent, name, to, new))
        self._after_writes(RENAME, 0, 0, data, renamed)

    def _link(self, unique: int, number: int, body: memoryview) -> None:
        inode, parent = self._inodes[fuse.FORGET_IN.unpack_from(body)[0]], self._inodes[number]
        name = fuse.names(body[fuse.FORGET_IN.size :])[0]
        data = self._name(inode) + b"\0" + self._inodes.path(parent, name)
        entered = self._entry(unique, parent, name)

        def answer(code: int, value: int, data: memoryview) -> None:
            if not code:
                self.device.forget_attributes(inode.number)  # its number of links has increased
            entered(code, value, data)

        self._after_writes(LINK, 0, 0, data, answer)

    def _access(self, unique: int, number: int, body: memoryview) -> None:
        mask = fuse.ACCESS_IN.unpack_from(body)[0]
        self.ask(ACCESS, 0, mask, self._name(self._inodes[number]), self._plain(unique))

    def _statfs(self, unique: int, _number: int, _body: memoryview) -> None:
        def answer(code: int, _value: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
                return
            numbers = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 64, 8)]
            self.device.reply(unique, fuse.STATFS_OUT.pack(*numbers, 0, *[0] * 6))

        self._after_writes(SPACE, 0, 0, self._place, answer)

    # Open files

    def _add(self, handle: "Union[OpenFile, _Listing]") -> int:
        self._last_handle += 1
        self._handles[self._last_handle] = handle
        return self._last_handle

    def _file(self, number: int) -> OpenFile:
        found = self._handles[number]
        if not isinstance(found, OpenFile):
            raise TypeError("a directory")
        return found

    def _opened(
        self, inode: Inode, flags: int, handle: int, found: Attributes, content: "Optional[memoryview]"
    ) -> bytes:
        """``struct fuse_open_out`` for a file that yod has opened."""
        appends = bool(flags & os.O_APPEND)
        file = OpenFile(self, inode, handle, appends=appends, content=content)
        seen = found.size, found.mtime, found.ctime
        same, shrunk, inode.seen = seen == inode.seen, bool(inode.seen) and found.size < inode.seen[0], seen
        if not same and content is not None and not shrunk and not appends and not inode.opened:
            self.device.store(inode.number, content)  # so that reads need no request
            same = True
        for other in inode.opened:
            other.drop_fetched()
        inode.opened.add(file)
        # Other nodes append too, so the offset of our bytes is unknown here, and no page may cache them.
        how = fuse.DIRECT_IO if appends else fuse.KEEP_CACHE if same else 0
        if flags & os.O_ACCMODE == os.O_RDONLY:
            how |= fuse.NO_FLUSH
        return fuse.OPEN_OUT.pack(self._add(file), how, 0)

    def _open(self, unique: int, number: int, body: memoryview) -> None:
        inode = self._inodes[number]
        flags = fuse.OPEN_IN.unpack_from(body)[0]

        def answer(code: int, handle: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
                return
            found = self._attributes(data)
            if inode.identity not in ((), _identity(found)):
                self.ask(RELEASE_FILE, 0, 0, HANDLE.pack(handle), lambda *_: None)
                # another file has the name now, so the kernel must look it up again
                self.device.fail(unique, errno.ESTALE)
                return
            if (found.size, found.mtime, found.ctime) != inode.told:
                self.device.forget_attributes(number)
            content = data[STATUS.size :]
            whole = content if content and len(content) == found.size else None
            self.device.reply(unique, self._opened(inode, flags, handle, found, whole))

        self._after_writes(OPEN_FILE, flags, 0, self._name(inode), answer)

    def _create(self, unique: int, number: int, body: memoryview) -> None:
        flags, mode, _, _ = fuse.CREATE_IN.unpack_from(body)
        parent, name = self._inodes[number], fuse.names(body[fuse.CREATE_IN.size :])[0]

        def answer(code: int, handle: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
                return
            found = self._attributes(data)
            inode = self._inodes.found(parent, name, found)
            opened = self._opened(inode, flags, handle, found, None)
            self.device.reply(unique, fuse.entry_out(inode.number, found), opened)

        self._after_writes(CREATE_FILE, flags, mode & 0o7777, self._name(parent, name), answer)

    def _read(self, unique: int, _number: int, body: memoryview) -> None:
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        file = self._file(handle)
        self._push()
        file.read(unique, offset, size)

    def _write(self, unique: int, _number: int, body: memoryview) -> None:
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        self._file(handle).write(unique, offset, body[fuse.READ_IN.size : fuse.READ_IN.size + size])

    def _flush(self, unique: int, _number: int, body: memoryview) -> None:
        file = self._file(fuse.HANDLE_IN.unpack_from(body)[0])
        file.settle(lambda: self._tell_error(unique, file))

    def _tell_error(self, unique: int, file: OpenFile) -> None:
        code = file.take_error()
        if code:
            self.device.fail(unique, code)
        else:
            self.device.reply(unique)

    def _fsync(self, unique: int, _number: int, body: memoryview) -> None:
        file = self._file(fuse.HANDLE_IN.unpack_from(body)[0])

        def synced(code: int, _value: int, _data: memoryview) -> None:
            file.error = file.error or code
            self._tell_error(unique, file)

        self._after_writes(SYNC_FILE, 0, 0, HANDLE.pack(file.handle), synced)

    def _release(self, unique: int, _number: int, body: memoryview) -> None:
        number = fuse.HANDLE_IN.unpack_from(body)[0]
        file = self._file(number)
        del self._handles[number]
        file.inode.opened.discard(file)
        self.device.reply(unique)
        self._released.append(file.handle)
        flags = fuse.RELEASE_IN.unpack_from(body)[1]
        if flags & os.O_ACCMODE != os.O_RDONLY or len(self._released) >= _RELEASED:
            self._push()
            self._release_all()  # at once, because a program that is open for writing cannot be executed there
        else:
            self._soon()

    def _fallocate(self, unique: int, _number: int, body: memoryview) -> None:
        handle, offset, length, mode, _ = fuse.FALLOCATE_IN.unpack_from(body)
        if mode:
            self.device.fail(unique, errno.EOPNOTSUPP)
            return
        file = self._file(handle)
        file.changed()
        data = HANDLE.pack(file.handle) + length.to_bytes(8, "big")
        self._after_writes(RESERVE, offset, 0, data, self._plain(unique))

    # Directories

    def _opendir(self, unique: int, number: int, _body: memoryview) -> None:
        self.device.reply(unique, fuse.OPEN_OUT.pack(self._add(_Listing(self._inodes[number])), 0, 0))

    def _releasedir(self, unique: int, _number: int, body: memoryview) -> None:
        self._handles.pop(fuse.HANDLE_IN.unpack_from(body)[0], None)
        self.device.reply(unique)

    def _readdir(self, unique: int, body: memoryview, *, plus: bool) -> None:
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        listing = self._handles[handle]
        if not isinstance(listing, _Listing):
            raise TypeError("a file")
        if listing.entries is not None and offset:
            self.device.reply(unique, self._entries(listing, offset, size, plus=plus))
            return
        entries: "List[Tuple[bytes, Attributes]]" = []

        def answer(code: int, following: int, data: memoryview) -> None:
            if code:
                self.device.fail(unique, code)
                return
            at = 0
            while at < len(data):
                end = at + STATUS.size + 2
                length = int.from_bytes(data[end - 2 : end], "big")
                entries.append((bytes(data[end : end + length]), self._attributes(data[at:])))
                at = end + length
            if following:
                self.ask(READ_DIRECTORY, following, 0, self._name(listing.inode), answer)
                return
            listing.entries = entries
            self.device.reply(unique, self._entries(listing, offset, size, plus=plus))

        self._after_writes(READ_DIRECTORY, 0, 0, self._name(listing.inode), answer)

    def _entries(self, listing: _Listing, offset: int, size: int, *, plus: bool) -> bytes:
        assert listing.entries is not None
        parts: "List[bytes]" = []
        used = 0
        for at in range(offset, len(listing.entries) + 2):
            name, found = (b".", b"..")[at] if at < 2 else b"", None
            if at >= 2:
                name, found = listing.entries[at - 2]
            ino, mode = (found.ino, found.mode) if found is not None else (listing.inode.number, stat.S_IFDIR)
            entry = fuse.directory_entry(ino, at + 1, mode, name)
            used += len(entry) + (len(fuse.NO_ENTRY) if plus else 0)
            if used > size:
                break
            if plus and found is not None:
                parts.append(fuse.entry_out(self._inodes.found(listing.inode, name, found).number, found))
            elif plus:
                parts.append(fuse.NO_ENTRY)
            parts.append(entry)
        return b"".join(parts)


def _identity(found: Attributes) -> "Tuple[int, int, int]":
    return found.dev, found.ino, found.mode & 0o170000


def _nanoseconds(seconds: int, more: int) -> int:
    return (seconds - (1 << 64) if seconds >> 63 else seconds) * 10**9 + more
