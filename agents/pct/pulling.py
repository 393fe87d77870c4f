"""Images from node to node: fetched from the nearest ancestor in the data tree that moves, served as they arrive.

The node that needs an image asks, so a node that stands still holds up nobody but itself: who waits for it goes to the
next ancestor, and goes on where it was. The server sends from its RAM disk, whole or not yet: no queue to overflow.
"""

from __future__ import annotations

import errno
import os
import struct
import time

from agents.link.loop import READ, WRITE, Loop
from agents.link.server import Session
from agents.link.sockets import connect_now
from agents.pct.image_states import Sources
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, HEADER_SIZE, IMAGE, LIMITS
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Dict, List, Optional, Tuple

    OnPiece = Callable[[int, memoryview], None]

PIECE = 256 << 10
#: Bytes in a link's own queue above which nothing is added.
SENDING = 512 << 10
#: Seconds without a byte after which the next source is asked; between two looks; to wait for a socket to appear.
STALL_S, LOOK_S, APPEAR_S = 1.5, 0.25, 1.0
_AGAIN_S = 0.01
_LONGEST_MESSAGE = 64 << 10  # a hello, an answer
_AT_ONCE = 8  # reads before the loop serves others

HEAD = struct.Struct("!BIIQ")  # kind, length, number of the image, offset
PLACE = struct.Struct("!IQ")


def piece(number: int, offset: int, data: bytes) -> Tuple[bytes, bytes]:
    """One IMAGE frame, in two parts."""
    return HEAD.pack(IMAGE, PLACE.size + len(data), number, offset), data


def read_piece(payload: bytes) -> "Tuple[int, int, memoryview]":
    """Number, offset and bytes of an IMAGE payload."""
    if len(payload) < PLACE.size:
        raise WireError("a piece of an image without number and offset")
    number, offset = PLACE.unpack_from(payload)
    return number, offset, memoryview(payload)[PLACE.size :]


class Reader:
    """The frames of one connection, control messages whole, images in the pieces that the socket gives.

    agents/wire's Decoder would copy each byte twice more; of 20 MB to 64 nodes on one machine that is half the time.
    """

    def __init__(self, sock: socket.socket, on_message: Callable[[bytes], None], on_piece: OnPiece) -> None:
        self._sock, self._on_message, self._on_piece = sock, on_message, on_piece
        self._head = bytearray()
        self._left = self._at = 0  # of the IMAGE frame that is being read
        self._buffer = memoryview(bytearray(PIECE))

    def read(self) -> bool:
        """Take something of what is there; False at the end of the connection. BlockingIOError when nothing is."""
        if self._left:
            count = self._sock.recv_into(self._buffer[: min(self._left, PIECE)])
            self._left -= count
            self._at += count
            if count:
                self._on_piece(self._at - count, self._buffer[:count])
            return bool(count)
        data = self._sock.recv(self._wanted() - len(self._head))
        self._head += data
        if len(self._head) == self._wanted():
            self._parse()
        return bool(data)

    def _wanted(self) -> int:
        if len(self._head) < HEADER_SIZE:
            return HEADER_SIZE
        kind, length = self._head[0], int.from_bytes(self._head[1:HEADER_SIZE], "big")
        if kind == IMAGE and PLACE.size < length <= LIMITS[IMAGE]:
            return HEADER_SIZE + PLACE.size
        if kind == CONTROL and length <= _LONGEST_MESSAGE:
            return HEADER_SIZE + length
        raise WireError(f"a frame of kind {kind} and {length} bytes where an image was expected")

    def _parse(self) -> None:
        kind, length = self._head[0], int.from_bytes(self._head[1:HEADER_SIZE], "big")
        payload = bytes(self._head[HEADER_SIZE:])
        self._head.clear()
        if kind == IMAGE:
            _, self._at = PLACE.unpack(payload)
            self._left = length - PLACE.size
        else:
            self._on_message(payload)


class Pull:
    """Fetches one image. ``received()`` bytes are here; ``on_piece(offset, data)`` takes more; ``on_end(reason)``."""

    def __init__(
        self,
        loop: Loop,
        sources: Sources,
        address: Callable[[int], str],
        request: Message,
        received: Callable[[], int],
        on_piece: OnPiece,
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._sources, self._address, self._request = loop, sources, address, request
        self._received, self._on_piece, self._on_end = received, on_piece, on_end
        self._sock: Optional[socket.socket] = None
        self._reader: Optional[Reader] = None
        self._greeted = self._over = False
        self._moved = 0.0
        self._reason = ""
        self._life = 0
        loop.after(0, self._next)
        loop.after(LOOK_S, self._look)

    def close(self) -> None:
        """Fetch no more."""
        self._over = True
        self._drop()

    def _drop(self) -> None:
        self._life += 1
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = self._reader = None

    def _next(self) -> None:
        if self._over:
            return
        self._drop()
        place = self._sources.next()
        if place < 0:
            self._over = True
            self._on_end(self._reason or "nobody has it")
            return
        self._moved = time.monotonic()
        self._connect(self._address(place), self._moved + APPEAR_S, self._life)

    def _connect(self, path: str, until: float, life: int) -> None:
        if self._over or life != self._life:
            return
        try:
            sock = connect_now(path)
            ask = dict(self._request, op="fetch", id=1, offset=self._received())
            words = control(hello("child")) + control(ask)
            if not getattr(sock, "shaking", False):
                sock.sendall(words)  # a new socket takes so much at once
        except OSError as error:
            # its launch child may not have begun yet
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN) and time.monotonic() < until:
                self._loop.after(_AGAIN_S, lambda: self._connect(path, until, life))
            else:
                self._pass_over(error.strerror or str(error))
        except AgentError as error:
            self._pass_over(error.message)
        else:
            self._greeted = False
            self._sock, self._reader = sock, Reader(sock, self._on_message, self._take)
            if getattr(sock, "shaking", False):
                self._shake(sock, words)
            else:
                self._loop.watch(sock.fileno(), READ, self._on_ready)

    def _shake(self, sock: Any, words: bytes) -> None:
        try:
            sock.shake()
            sock.sendall(words)
        except BlockingIOError:
            self._loop.watch(sock.fileno(), sock.wants, lambda _events: self._shake(sock, words))  # until it is dropped
        except OSError as error:
            self._pass_over(error.strerror or str(error))
        else:
            self._loop.watch(sock.fileno(), READ, self._on_ready)
            self._on_ready(READ)

    def _pass_over(self, reason: str) -> None:
        self._reason = reason
        self._drop()
        self._loop.after(0, self._next)

    def _on_ready(self, _events: int) -> None:
        reader = self._reader
        try:
            for _ in range(_AT_ONCE):
                if reader is None or reader is not self._reader:
                    return
                if not reader.read():
                    self._pass_over("the connection ended")
            if getattr(self._sock, "pending", False):
                self._loop.after(0, lambda: self._on_ready(READ))
        except BlockingIOError:
            pass
        except OSError as error:
            self._pass_over(error.strerror or str(error))
        except WireError as error:
            self._pass_over(error.message)

    def _take(self, offset: int, data: memoryview) -> None:
        self._moved = time.monotonic()
        self._on_piece(offset, data)

    def _on_message(self, payload: bytes) -> None:
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
        elif "error" in message:
            self._pass_over(AgentError.from_message(message["error"]).message)

    def _look(self) -> None:
        if self._over:
            return
        if self._sock is not None and time.monotonic() - self._moved > STALL_S:
            self._pass_over("it stands still")
        self._loop.after(LOOK_S, self._look)


class Serving:
    """One image on its way to one node, by sendfile(2). ``available()`` bytes of the file ``fd`` are good."""

    def __init__(self, session: Session, number: int, offset: int, fd: int, available: Callable[[], int]) -> None:
        self._session, self._number, self._offset, self._fd = session, number, offset, fd
        self._available = available
        self._loop = session.server.loop
        sock = session.link.sock
        assert sock is not None
        # A descriptor of our own for writing, once the link has sent its answer; the link goes on reading.
        self._out = os.dup(sock.fileno())
        self._head = b""
        self._left = 0  # bytes of the frame under way
        self._watched = False

    @property
    def open(self) -> bool:
        """Whether there is somebody to serve."""
        return self._out >= 0

    def push(self, _events: int = 0) -> None:
        """Send what is here and was not sent."""
        try:
            while self.open and self._begin():
                if self._session.link.sock is None:
                    self.close()
                    return
                if self._session.link.out_bytes:
                    raise BlockingIOError  # the answer goes first
                if self._head:
                    self._head = self._head[os.write(self._out, self._head) :]
                    continue
                sent = os.sendfile(self._out, self._fd, self._offset, self._left)
                self._offset += sent
                self._left -= sent
                if not sent:
                    self.close()
            self._watch(False)
        except BlockingIOError:
            self._watch(True)
        except OSError:
            self.close()

    def _begin(self) -> bool:
        if not self._left:
            self._left = min(PIECE, self._available() - self._offset)
            if self._left <= 0:
                self._left = 0
                return False
            self._head = HEAD.pack(IMAGE, PLACE.size + self._left, self._number, self._offset)
        return True

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watched:
            self._loop.watch(self._out, WRITE, self.push)
        elif self._watched and not wanted and self._out >= 0:
            self._loop.unwatch(self._out)
        self._watched = wanted

    def close(self) -> None:
        """Send no more; who waits for more asks somebody else."""
        if self._out >= 0:
            self._watch(False)
            os.close(self._out)
            os.close(self._fd)
            self._out = self._fd = -1
        self._session.link.close()


class Counter:
    """All servings of a node, by image."""

    def __init__(self) -> None:
        self._servings: Dict[int, List[Serving]] = {}

    def add(self, number: int, serving: Serving) -> None:
        """One more, and its first bytes."""
        self._servings.setdefault(number, []).append(serving)
        serving.push()

    def push(self, number: int) -> None:
        """More of an image has come."""
        for serving in self._servings.get(number, ()):
            serving.push()

    def stop(self, number: int) -> None:
        """An image will not come."""
        for serving in self._servings.pop(number, ()):
            serving.close()

    def close(self) -> None:
        """Everybody goes."""
        for number in list(self._servings):
            self.stop(number)


def description(image: Any, launcher: int) -> Message:
    """What a fetch says of the image it wants; ``launcher`` for a PCT that has several."""
    return {"number": image.number, "digest": image.digest, "launcher": launcher}
