"""Fetches images from node to node, from the nearest ancestor in the data tree that makes progress.

The node that needs an image requests it, so a stopped node delays nobody else: its clients go to the next ancestor and
continue where they were. The serving side keeps no queue (agents/pct/images/serve.py).
"""

from __future__ import annotations

import errno
import time

from agents.link.loop import READ, Loop
from agents.link.sockets import connect_now
from agents.pct.images.chunks import STEP, Reader
from agents.pct.images.states import Sources
from agents.wire.address import FETCH
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Optional

    from agents.pct.images.chunks import MappedFile, OnFile, OnPiece

#: Bytes in a link's own queue above which nothing is added.
SENDING = 512 << 10
#: Seconds: without a byte before the next source is asked; between two checks; to wait for a socket to appear.
STALL_S, LOOK_S, APPEAR_S = 1.5, 0.25, 1.0
_AGAIN_S = 0.01
_AT_ONCE = 16  # reads before the loop serves other events
#: Bytes of a stream from another machine that must arrive before it is read: few at first, so that lower nodes begin
#: soon, and near its end.
GATHERED = 16 << 10, 128 << 10


class Receiver:
    """The consumer of a fetched image.

    ``received()`` is how many bytes are here; ``on_piece(offset, data)`` takes more, and ``on_file(file, offset,
    count)`` takes from a file and returns how much it found; ``on_end(reason, answered)``: ``answered`` is true if a
    living source lacks it.
    """

    __slots__ = ("on_end", "on_file", "on_piece", "received")

    def __init__(
        self, received: Callable[[], int], on_piece: OnPiece, on_file: OnFile, on_end: Callable[[str, bool], None]
    ) -> None:
        self.received, self.on_piece, self.on_file, self.on_end = received, on_piece, on_file, on_end


class Pull:
    """Fetches an image from ``sources``, each at ``address(place)``, into ``to``."""

    def __init__(
        self, loop: Loop, sources: Sources, address: Callable[[int], str], request: Message, to: Receiver,
        step: int = STEP,
    ) -> None:  # fmt: skip
        self._loop, self._sources, self._address, self._request, self._to = loop, sources, address, request, to
        self._step = step
        self._sock: Optional[socket.socket] = None
        self._reader: Optional[Reader] = None
        self._greeted = self._over = False
        self._size = 0  # as the source reports it
        self._gathers = 1
        self._moved = 0.0
        self._had = -1  # how many bytes were here when the last source was asked
        self._reason, self._answered = "", False
        self._life = 0
        loop.after(0, self._next)
        loop.after(LOOK_S, self._look)

    def wait(self) -> None:
        """No source has data, so silence is not held against them."""
        self._moved = time.monotonic()

    def close(self) -> None:
        """Stop fetching."""
        self._over = True
        self._drop()

    def _drop(self) -> None:
        self._life += 1
        if self._sock is not None and self._reader is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._reader.close()
            self._sock = self._reader = None

    def _next(self) -> None:
        if self._over:
            return
        self._drop()
        if self._to.received() > self._had >= 0:
            self._sources.renew()
            self._answered = False
        self._had = self._to.received()
        place = self._sources.next()
        if place < 0:
            self._over = True
            self._to.on_end(self._reason or "nobody has it", self._answered)
            return
        self._moved = time.monotonic()
        self._connect(self._address(place), self._moved + APPEAR_S, self._life)

    def _connect(self, path: str, until: float, life: int) -> None:
        if self._over or life != self._life:
            return
        try:
            sock = connect_now(path, FETCH)
            begin = self._to.received()
            ask = dict(self._request, op="fetch", id=1, offset=begin)
            words = control(hello("child")) + control(ask)
            if not getattr(sock, "shaking", False):
                sock.sendall(words)  # a new socket accepts this much at once
        except OSError as error:
            # The source's launch child may not have started yet.
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN) and time.monotonic() < until:
                self._loop.after(_AGAIN_S, lambda: self._connect(path, until, life))
            else:
                self._pass_over(error.strerror or str(error))
        except AgentError as error:
            self._pass_over(error.message)
        else:
            self._greeted, self._gathers = False, 1
            self._sock = sock
            self._reader = Reader(sock, self._on_message, self._take, self._take_file, begin, self._step)
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
                elif reader.dry:
                    break
            if reader is None or reader is not self._reader:
                return
            if not reader.pending:
                reader.hand_on()
            else:
                self._loop.after(0, lambda: self._on_ready(READ))
        except BlockingIOError:
            pass
        except OSError as error:
            self._pass_over(error.strerror or str(error))
        except WireError as error:
            self._answered = True
            self._pass_over(error.message)

    def _take(self, offset: int, data: memoryview) -> None:
        self._moved = time.monotonic()
        self._gather(offset + len(data))
        self._to.on_piece(offset, data)

    def _take_file(self, file: MappedFile, offset: int, count: int) -> int:
        self._moved = time.monotonic()
        return self._to.on_file(file, offset, count)

    def _gather(self, come: int) -> None:
        # Each wake-up costs as much as the bytes it is for, so a long stream should have few. Data that arrives without
        # a wake-up is found by the stall check, so a slow source does not count as stalled.
        expect = getattr(self._sock, "expect", None)
        first, most = GATHERED
        count = min(max(come // 4, first), most) if self._size - come > 2 * most else 1
        if expect is not None and count != self._gathers:
            self._gathers = count
            expect(count)

    def _on_message(self, payload: bytes) -> None:
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
        elif "error" in message:
            self._answered = True
            self._pass_over(AgentError.from_message(message["error"]).message)
        else:
            self._size = int(message.get("size", 0))

    def _look(self) -> None:
        if self._gathers > 1 and self._sock is not None:
            self._on_ready(READ)
        if self._over:
            return
        still_s = time.monotonic() - self._moved
        if self._sock is not None and still_s > STALL_S:
            self._pass_over("it stands still")
        # Only a stream from another machine may have data without an event.
        often = hasattr(self._sock, "expect")
        self._loop.after(LOOK_S if often else max(LOOK_S, STALL_S - still_s), self._look)


def description(image: Any, launcher: int) -> Message:
    """The request for an image; ``launcher`` is for a PCT that has several."""
    return {"number": image.number, "digest": image.digest, "launcher": launcher}
