"""Images from node to node: fetched from the nearest ancestor in the data tree that moves, served as they arrive.

The node that needs an image asks, so a node that stands still holds up nobody but itself: who waits for it goes to the
next ancestor, and goes on where it was. The server reads from its RAM disk, whole or not yet: no queue to overflow.
"""

from __future__ import annotations

import errno
import os
import struct
import time

from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.server import Session
from agents.link.sockets import connect_now
from agents.pct.image_states import Sources
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, IMAGE
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

PIECE = 256 << 10
#: Bytes in a link's own queue above which nothing is added.
SENDING = 512 << 10
#: Seconds without a byte after which the next source is asked; between two looks; to wait for a socket to appear.
STALL_S, LOOK_S, APPEAR_S = 1.5, 0.25, 1.0
_AGAIN_S = 0.01

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


class Pull:
    """Fetches one image. ``received()`` bytes are here; ``on_piece(offset, data)`` takes more; ``on_end(reason)``."""

    def __init__(
        self,
        loop: Loop,
        sources: Sources,
        address: Callable[[int], str],
        request: Message,
        received: Callable[[], int],
        on_piece: Callable[[int, memoryview], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._sources, self._address, self._request = loop, sources, address, request
        self._received, self._on_piece, self._on_end = received, on_piece, on_end
        self._link: Optional[Link] = None
        self._greeted = self._over = False
        self._seen = -1
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
        if self._link is not None:
            self._link.close()
            self._link = None

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
            self._link = Link(self._loop, sock, self._on_frame, lambda _link, reason: self._pass_over(reason))
            ask = dict(self._request, op="fetch", id=1, offset=self._received())
            self._link.send_raw(control(hello("child")) + control(ask))

    def _pass_over(self, reason: str) -> None:
        self._reason = reason
        self._loop.after(0, self._next)

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind == IMAGE:
            _, offset, data = read_piece(payload)
            self._moved = time.monotonic()
            self._on_piece(offset, data)
            return
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where an image was expected")
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
        elif "error" in message:
            self._pass_over(AgentError.from_message(message["error"]).message)

    def _look(self) -> None:
        if self._over:
            return
        if self._link is not None and time.monotonic() - self._moved > STALL_S:
            self._pass_over("it stands still")
            self._moved = time.monotonic()
        self._loop.after(LOOK_S, self._look)


class Serving:
    """One image on its way to one node. ``available()`` bytes of the file ``fd`` are good; closes ``fd``."""

    def __init__(self, session: Session, number: int, offset: int, fd: int, available: Callable[[], int]) -> None:
        self._link, self._number, self._offset, self._fd = session.link, number, offset, fd
        self._available = available
        self._link.on_drained = self.push

    @property
    def open(self) -> bool:
        """Whether there is somebody to serve."""
        return self._fd >= 0 and self._link.sock is not None

    def push(self) -> None:
        """Send what is here and was not sent."""
        while self.open and self._link.out_bytes < SENDING:
            count = min(PIECE, self._available() - self._offset)
            if count <= 0:
                return
            data = os.pread(self._fd, count, self._offset)
            if not data:
                self.close()
                return
            self._link.send_parts(*piece(self._number, self._offset, data))
            self._offset += len(data)

    def close(self) -> None:
        """Send no more; who waits for more asks somebody else."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._link.close()


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


def description(image: Any) -> Message:
    """What a fetch says of the image it wants."""
    return {"number": image.number, "digest": image.digest}
