"""Images on a connection: pieces of one, or its file and notices of how much of it has arrived; and their reader.

A frame of kind IMAGE holds a piece: number of the image, offset, bytes. Without bytes it is a notice: so much of the
file is good as the offset says. The descriptor of that file comes with the first notice (SCM_RIGHTS).
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


# A file that another process writes, as whoever was handed its descriptor reads it: in place.
#
# Its owner may cut it short at any time, and a touch of a mapped page that is no more ends a process. So the pages of a
# piece are asked for before they are touched, by a call that fails instead; what is cut in the moment between the two
# still ends us, which is told as what it is (agents/pct/launch/deaths.py). Where the kernel does not know that call
# (before 5.14), or the file cannot be mapped, pieces are read into memory of our own.


#: MADV_POPULATE_READ, which Python has no name for before 3.14.
_POPULATE = 22
#: The kernel does not know it; the file system does not map (FUSE, some of the network), or may not so much.
_NOT_IN_PLACE = (errno.EINVAL, errno.ENODEV, errno.ENOMEM)


class MappedFile:
    """The file behind the descriptor ``fd``, which is ours from now on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: Optional[mmap.mmap] = None
        self._view = memoryview(b"")
        self._buffer: Optional[memoryview] = None

    def piece(self, offset: int, count: int) -> memoryview:
        """The ``count`` bytes at ``offset``, or fewer where it ends; good until the next piece is asked for.

        OSError when it cannot be read.
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
            except ValueError:  # Python's own look at the file found it shorter than ours
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
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # unmapped when the last piece of it is let go of
        self._view, self._map = memoryview(b""), None


PIECE = 256 << 10
#: Taken at once of a file that was handed over, before those who wait further down are told: where processors wait for
#: work, and where they do not.
STEP, LONG_STEP = 1 << 20, 4 << 20
#: Nodes for each processor of a machine above which none of these waits.
_BUSY = 8
_LONGEST_MESSAGE = 64 << 10  # a hello, an answer

HEAD = struct.Struct("!BIIQ")  # kind, length, number of the image, offset
PLACE = struct.Struct("!IQ")
_NOTICES = 64 * HEAD.size  # read at once


def step(nodes: int) -> int:
    """Bytes to take at once where so many nodes of a launch are on this machine.

    Each step costs whoever waits for it a wake-up, behind which nothing of its is in a processor's cache any more; and
    it lets the next level of the tree begin sooner, which is worth nothing where every processor is busy anyway.
    """
    return LONG_STEP if nodes > _BUSY * len(os.sched_getaffinity(0)) else STEP


def head(number: int, offset: int, count: int) -> bytes:
    """What stands before ``count`` bytes of image ``number``."""
    return HEAD.pack(IMAGE, PLACE.size + count, number, offset)


def piece(number: int, offset: int, data: bytes) -> Tuple[bytes, bytes]:
    """One IMAGE frame, in two parts."""
    return head(number, offset, len(data)), data


def notice(number: int, here: int) -> bytes:
    """``here`` bytes of image ``number`` are in its file."""
    return head(number, here, 0)


def read_piece(payload: bytes) -> "Tuple[int, int, memoryview]":
    """Number, offset and bytes of an IMAGE payload."""
    if len(payload) < PLACE.size:
        raise WireError("a piece of an image without number and offset")
    number, offset = PLACE.unpack_from(payload)
    return number, offset, memoryview(payload)[PLACE.size :]


class Reader:
    """The frames of one connection: control messages whole, images in pieces, from the stream or from their file.

    What comes of an image is gathered and handed on in few pieces, however the stream is cut: each costs as much time
    as its bytes. Of a file that was handed over ``on_file(file, offset, count)`` takes so much from there, and says how
    much it found. ``at``: the first byte that is wanted of an image whose file is handed over.
    """

    def __init__(
        self, sock: Any, on_message: Callable[[bytes], None], on_piece: OnPiece, on_file: OnFile, at: int = 0,
        step: int = STEP,
    ) -> None:  # fmt: skip
        self._sock, self._on_message, self._on_piece, self._on_file, self._at = sock, on_message, on_piece, on_file, at
        self._step = step
        self._local = hasattr(sock, "recvmsg")  # a connection to another machine hands nothing over
        self._head = bytearray()
        self._left = 0  # bytes of the IMAGE frame that is being read
        self._buffer: Optional[memoryview] = None
        self._held = 0  # bytes in it: those before ``_at``
        self._lent: Optional[MappedFile] = None
        self._here = 0
        #: Whether there is more of the file than was taken.
        self._copying = False
        self._dry = False
        self._under_way = False

    def read(self) -> bool:
        """Take something of what is there; False at the end of the connection. BlockingIOError when nothing is."""
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
        """Whether something is to be read that no event of the socket will tell."""
        return self._copying or bool(getattr(self._sock, "pending", False))

    @property
    def dry(self) -> bool:
        """Whether it is known that nothing more is to be read before the next event of the socket."""
        return not self._copying and (self._dry or bool(getattr(self._sock, "dry", False)))

    def hand_on(self) -> None:
        """What has been gathered, before waiting for more."""
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
        # Whoever reads late finds several notices, of which the last says all.
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
            start = bytearray(most)  # and as much as there is is taken from the socket with it
            return bytes(start[: self._sock.recv_into(memoryview(start))])
        data, handed, _, _ = self._sock.recvmsg(most, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        for level, kind, packed in handed:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.close()  # of several the last: there is one in any conversation of ours
                self._lent = MappedFile(*struct.unpack_from("i", packed))
        return data  # type: ignore[no-any-return]

    def _wanted(self) -> int:
        if len(self._head) < HEADER_SIZE:
            return HEAD.size if self._under_way else HEADER_SIZE  # behind the first of an image there is nothing else
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
        """Let go of the file that was handed over."""
        if self._lent is not None:
            self._lent.close()
            self._lent = None
        self._copying = False
