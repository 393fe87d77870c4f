"""A process of its own between a launch child and a node that fetches an image from it.

The fetcher came to the PCT's port, and TLS cannot be handed to a process that lives already; so a fork of the PCT,
which has it, is handed the file by the launch child and carries its bytes as they arrive. The PCT stays out of the way
of gigabytes.
"""

from __future__ import annotations

import mmap
import os
import select
import time

from agents.link.sockets import connect
from agents.link.tls import MOST_WRITTEN
from agents.pct import kernel
from agents.pct.pieces import HEAD, PIECE, Reader, head
from agents.wire.control import control
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, frame
from agents.wire.messages import hello

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Optional

    from agents.link.tls import Secured
    from agents.wire.control import Message

#: Seconds for which neither side may move (who fetches has gone to another node by then), for a launch child to appear.
STILL_S, APPEAR_S = 3.0, 1.0
_AGAIN_S = 0.01
_BLOCK = MOST_WRITTEN - HEAD.size  # encrypted and sent in one go, the first with its head


class Mapped(Reader):
    """Reads the file in place, without a copy: whoever gets it compares its digest."""

    _map: Optional[memoryview] = None

    def of_file(self, fd: int, at: int, count: int) -> memoryview:
        """As Reader has it."""
        if self._map is None:
            self._map = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        return self._map[at : at + min(count, PIECE)]


class Courier:
    """Passes on what the launch child at the other end of ``source`` says and hands over, until either end goes."""

    def __init__(self, secured: Secured, source: socket.socket, request: Message) -> None:
        self._secured, self._number = secured, int(request["number"])
        self._reader = Mapped(source, self._say, self._pass_on, int(request["offset"]))
        secured.setblocking(False)
        source.setblocking(False)
        self._idle, self._full = select.poll(), select.poll()
        self._idle.register(source, select.POLLIN)
        self._idle.register(secured, select.POLLIN)
        self._full.register(secured, select.POLLOUT)

    def carry(self) -> None:
        """Until there is nothing more to carry. OSError, AgentError."""
        while True:
            try:
                if not self._reader.read():
                    return
            except BlockingIOError:
                ready = [fd for fd, _ in self._idle.poll(STILL_S * 1000)]
                if not ready or self._secured.fileno() in ready:
                    return  # it has what it wanted, or wants no more: a fetcher says one thing only

    def _say(self, message: bytes) -> None:
        self._send(frame(CONTROL, message))

    def _pass_on(self, offset: int, data: memoryview) -> None:
        self._send(head(self._number, offset, len(data)), data[:_BLOCK])
        for at in range(_BLOCK, len(data), _BLOCK):
            self._send(data[at : at + _BLOCK])

    def _send(self, *parts: "bytes | memoryview") -> None:
        while parts:
            try:
                sent = self._secured.sendmsg(parts)
            except BlockingIOError:
                if not self._full.poll(STILL_S * 1000):
                    raise TimeoutError from None
                continue
            while parts and sent >= len(parts[0]):
                sent, parts = sent - len(parts[0]), parts[1:]
            if sent:
                parts = (memoryview(parts[0])[sent:], *parts[1:])


def carry(secured: Secured, path: str, request: Message) -> None:
    """Ask the launch child at ``path``, and pass on what comes. OSError, AgentError."""
    kernel.set_name(b"redmesh-courier")
    kernel.forbid_core()  # a user who cuts the file short has it die of SIGBUS, and in system mode it is root's
    source = _reach(path)
    source.sendall(control(hello("child")) + control(request))
    Courier(secured, source, request).carry()


def _reach(path: str) -> socket.socket:
    until = time.monotonic() + APPEAR_S
    while True:
        try:
            return connect(path, STILL_S)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)  # a process that does nothing else


def be_courier(secured: Secured, path: str, request: Message) -> None:
    """In a forked process: carry, and leave."""
    status = 0
    try:
        carry(secured, path, request)
    except (OSError, AgentError):
        pass  # who fetches asks the next
    finally:
        os._exit(status)
