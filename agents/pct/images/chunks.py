"""Images on a connection: as pieces, or as a file descriptor with notices of how much has arrived; and a reader for
both.

A frame of kind IMAGE holds a piece: number of the image, offset, bytes. Without bytes it is a notice: the file is valid
up to the offset. The descriptor of the file comes with the first notice (SCM_RIGHTS).
"""

from __future__ import annotations

import errno
import mmap
import os
import struct

from agents.link.lean import socket
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, HEADER_SIZE, IMAGE, LIMITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

    OnPiece = Callable[[int, memoryview], None]
    OnFile = Callable[["MappedFile", int, int], int]


# A read-only mapping of a file that another process is still writing. Its owner may truncate it at any time, and access
# to a mapped page that no longer exists kills a process. So the pages of a piece are requested first by a call that can
# fail. A truncation between the two still kills us, and is reported as what it is (agents/pct/launch/deaths.py). If the
# kernel lacks that call (before 5.14), or the file cannot be mapped, pieces are read into our own memory.


#: MADV_POPULATE_READ, which Python has no name for before 3.14.
_POPULATE = 22
#: The kernel lacks the call, or the file system cannot map (FUSE, some network file systems), or not that much.
_NOT_IN_PLACE = (errno.EINVAL, errno.ENODEV, errno.ENOMEM)


class MappedFile:
    """The file of the descriptor ``fd``, which it owns."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: Optional[mmap.mmap] = None
        self._view = memoryview(b"")
        self._buffer: Optional[memoryview] = None

    def piece(self, offset: int, count: int) -> memoryview:
        """The ``count`` bytes at ``offset``, fewer at the end of the file; valid until the next call.

        Raises OSError if the file is unreadable.
        """
        if self._buffer is None:
            end = offset + count
            start = offset - offset % mmap.PAGESIZE
            try:
                if end > len(self._view):
                    self._look()
                if self._map is not None and offset < len(self._view):
                    self._map.madvise(_POPULATE, start, min(end, len(self._view)) - start)
                return self._view[offset:end]
            except OSError as error:
                if error.errno == errno.EFAULT:
                    return memoryview(b"")
                if error.errno not in _NOT_IN_PLACE:
                    raise
            except ValueError:  # mmap itself found the file to be shorter
                return memoryview(b"")
        return self._read(offset, count)

    def _look(self) -> None:
        size = os.fstat(self._fd).st_size
        if size > len(self._view):
            self._map = mmap.mmap(self._fd, size, prot=mmap.PROT_READ)
            self._view = memoryview(self._map)

    def _read(self, offset: int, count: int) -> memoryview:
        if self._buffer is None or len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        return self._buffer[: os.preadv(self._fd, [self._buffer[:count]], offset)]

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # It is unmapped when the last piece is released.
        self._view, self._map = memoryview(b""), None


PIECE = 256 << 10
#: Bytes to take at once from a passed file before nodes further down are notified: with idle processors, and with busy
#: ones.
STEP, LONG_STEP = 1 << 20, 4 << 20
#: With more nodes than this for each processor of a machine, all processors are busy.
_BUSY = 8
_LONGEST_MESSAGE = 64 << 10  # a hello, an answer

HEAD = struct.Struct("!BIIQ")  # kind, length, number of the image, offset
PLACE = struct.Struct("!IQ")
_NOTICES = 64 * HEAD.size  # bytes read at once


def step(nodes: int) -> int:
    """Bytes to take at once if a launch has ``nodes`` nodes on this machine.

    Each step costs every waiting process a wake-up with cold caches. It also lets the next level of the tree begin
    sooner, which is worth nothing if every processor is busy anyway.
    """
    return LONG_STEP if nodes > _BUSY * len(os.sched_getaffinity(0)) else STEP


def head(number: int, offset: int, count: int) -> bytes:
    """The header of ``count`` bytes of image ``number``."""
    return HEAD.pack(IMAGE, PLACE.size + count, number, offset)


def piece(number: int, offset: int, data: bytes) -> Tuple[bytes, bytes]:
    """An IMAGE frame, in two parts."""
    return head(number, offset, len(data)), data


def notice(number: int, here: int) -> bytes:
    """A notice that ``here`` bytes of image ``number`` are in its file."""
    return head(number, here, 0)


def read_piece(payload: bytes) -> "Tuple[int, int, memoryview]":
    """Number, offset and bytes of an IMAGE payload."""
    if len(payload) < PLACE.size:
        raise WireError("a piece of an image without number and offset")
    number, offset = PLACE.unpack_from(payload)
    return number, offset, memoryview(payload)[PLACE.size :]


class Reader:
    """Reads the frames of one connection: whole control messages, and images in pieces from the stream or their
    file.

    Image data is gathered and passed on in few pieces, because each piece costs as much time as its bytes. For a passed
    file, ``on_file(file, offset, count)`` reads from it and returns how much it found. ``at``: the first byte wanted of
    an image whose file is passed.
    """

    def __init__(
        self, sock: Any, on_message: Callable[[bytes], None], on_piece: OnPiece, on_file: OnFile, at: int = 0,
        step: int = STEP,
    ) -> None:  # fmt: skip
        self._sock, self._on_message, self._on_piece, self._on_file, self._at = sock, on_message, on_piece, on_file, at
        self._step = step
        self._local = hasattr(sock, "recvmsg")  # connections to other machines pass no descriptors
        self._head = bytearray()
        self._left = 0  # remaining bytes of the current IMAGE frame
        self._buffer: Optional[memoryview] = None
        self._held = 0  # its bytes before ``_at``
        self._lent: Optional[MappedFile] = None
        self._here = 0
        #: True if the file has more data than was taken.
        self._copying = False
        self._dry = False
        self._under_way = False

    def read(self) -> bool:
        """Read available data; False at the end of the connection. Raises BlockingIOError if there is none."""
        if self._lent is not None:
            return self._follow(self._lent)
        try:
            alive = self._read()
        except BlockingIOError:
            self.hand_on()
            raise
        if not alive:
            self.hand_on()
        return alive

    @property
    def pending(self) -> bool:
        """True if there is data to read of which no event of the socket will tell."""
        return self._copying or bool(getattr(self._sock, "pending", False))

    @property
    def dry(self) -> bool:
        """True if nothing can be read before the next event of the socket, as far as is known."""
        return not self._copying and (self._dry or bool(getattr(self._sock, "dry", False)))

    def hand_on(self) -> None:
        """Pass on gathered data before waiting for more."""
        if self._held and self._buffer is not None:
            held, self._held = self._held, 0
            self._on_piece(self._at - held, self._buffer[:held])

    def _read(self) -> bool:
        if self._left:
            return self._take()
        data = self._receive(self._wanted() - len(self._head))
        self._head += data
        if len(self._head) == self._wanted():
            self._parse()
        return bool(data)

    def _follow(self, file: MappedFile) -> bool:
        if not self._copying:
            return self._hear()
        found = self._on_file(file, self._at, min(self._here - self._at, self._step))
        if not found:
            raise WireError("the file of an image is shorter than was told")
        self._at += found
        self._copying = self._at < self._here
        return True

    def _hear(self) -> bool:
        # A slow reader finds several notices, of which the last one counts.
        data = self._receive(_NOTICES - len(self._head))
        self._dry = len(self._head) + len(data) < _NOTICES
        self._head += data
        whole = len(self._head) // HEAD.size * HEAD.size
        for kind, length, _number, place in HEAD.iter_unpack(self._head[:whole]):
            if (kind, length) != (IMAGE, PLACE.size):
                raise WireError(f"a frame of kind {kind} and {length} bytes where a notice was expected")
            self._here = place
        del self._head[:whole]
        self._copying = self._at < self._here
        return bool(data)

    def _take(self) -> bool:
        if self._buffer is None:
            self._buffer = memoryview(bytearray(PIECE))
        count: int = self._sock.recv_into(self._buffer[self._held : self._held + self._left])
        self._left -= count
        self._at += count
        self._held += count
        if self._held == len(self._buffer):
            self.hand_on()
        return count > 0

    def _receive(self, most: int) -> bytes:
        if not self._local:
            start = bytearray(most)  # and read as much as is available with it
            return bytes(start[: self._sock.recv_into(memoryview(start))])
        data, handed, _, _ = self._sock.recvmsg(most, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        for level, kind, packed in handed:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.close()  # keep the last of several; a connection has only one
                self._lent = MappedFile(*struct.unpack_from("i", packed))
        return data  # type: ignore[no-any-return]

    def _wanted(self) -> int:
        if len(self._head) < HEADER_SIZE:
            return HEAD.size if self._under_way else HEADER_SIZE  # nothing else follows the first frame of an image
        kind, length = self._head[0], int.from_bytes(self._head[1:HEADER_SIZE], "big")
        if kind == IMAGE and PLACE.size < length + (self._lent is not None) and length <= LIMITS[IMAGE]:
            return HEAD.size
        if kind == CONTROL and length <= _LONGEST_MESSAGE and not self._under_way:
            return HEADER_SIZE + length
        raise WireError(f"a frame of kind {kind} and {length} bytes where an image was expected")

    def _parse(self) -> None:
        kind, length = self._head[0], int.from_bytes(self._head[1:HEADER_SIZE], "big")
        payload = bytes(self._head[HEADER_SIZE:])
        self._head.clear()
        if kind != IMAGE:
            self._on_message(payload)
            return
        self._under_way = True
        _, place = PLACE.unpack(payload)
        if length == PLACE.size:
            self._here = place
            self._copying = self._at < self._here
            return
        if place != self._at:
            self.hand_on()
        self._at, self._left = place, length - PLACE.size

    def close(self) -> None:
        """Release the passed file."""
        if self._lent is not None:
            self._lent.close()
            self._lent = None
        self._copying = False
