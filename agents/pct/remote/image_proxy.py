"""A process between a launch child and a node on another machine that fetches an image from it.

The fetcher connects to the PCT's port, and a TLS connection cannot be passed to an existing process. So a fork of the
PCT, which has the connection, gets the file's descriptor from the launch child and sends its bytes as they arrive; the
PCT itself is not involved. A used image proxy waits a few seconds for the next fetcher, whose connection it gets before
the first byte, as launch children do (agents/pct/launch_child/spares.py): a fork costs as much as sending 4 MB.
"""

from __future__ import annotations

import gc
import select
import time

from agents.link.sockets import connect
from agents.link.tls import Secured
from agents.link.trust import ours
from agents.linux import prctl
from agents.pct.images.chunks import HEAD, PIECE, Reader, head
from agents.pct.launch.paths import launch_socket
from agents.pct.launch_child.spares import handed
from agents.pct.remote.listener import PATIENCE_S, need_believed, wanted
from agents.pct.remote.spare_handshake import next_message, refuse, wait
from agents.wire.control import control, encode
from agents.wire.errors import AgentError, Refusal, WireError
from agents.wire.frames import CONTROL, frame
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import NoReturn, Tuple

    from agents.link.journal import Journal
    from agents.pct.images.chunks import MappedFile
    from agents.wire.control import Message

#: Seconds: without progress on either side (the fetcher has then gone to another source); for a launch child to appear.
STILL_S, APPEAR_S = 3.0, 1.0
_AGAIN_S = 0.01
#: In TLS a separate record for a header would cost as much as a full one; four records are sent at once.
_RECORD, _BLOCK = 16 << 10, 64 << 10


class ImageProxy:
    """Forwards messages and data of the launch child at the other end of ``source``, until either end closes."""

    def __init__(self, secured: Secured, source: socket.socket, request: Message) -> None:
        self._secured, self._source, self._number = secured, source, int(request["number"])
        self._reader = Reader(source, self._say, self._pass_on, self._pass_on_file, int(request["offset"]))
        secured.setblocking(False)
        source.setblocking(False)
        self._idle, self._full = select.poll(), select.poll()
        self._idle.register(source, select.POLLIN)
        self._idle.register(secured, select.POLLIN)
        self._full.register(secured, select.POLLOUT)

    def carry(self) -> None:
        """Forward until nothing is left. Raises OSError or AgentError."""
        fetcher, reader = self._secured.fileno(), self._reader
        while True:
            ready = [fd for fd, _ in self._idle.poll(STILL_S * 1000)]
            if not ready or fetcher in ready:
                return  # a fetcher sends only one message, so it has all it wants
            try:
                if not reader.read():
                    return
                while reader.pending:
                    reader.read()
            except WireError as error:  # the file was truncated: say so, so that it is not mistaken for a broken link
                self._say(encode({"re": 1, "error": error.as_message()}))
                return

    def close(self) -> None:
        """Close the launch child's connection and its file."""
        self._reader.close()
        self._source.close()

    def _say(self, message: bytes) -> None:
        self._send(frame(CONTROL, message))

    def _pass_on_file(self, file: MappedFile, offset: int, count: int) -> int:
        data = file.piece(offset, min(count, PIECE))
        if data:
            self._pass_on(offset, data)
        return len(data)

    def _pass_on(self, offset: int, data: memoryview) -> None:
        first = _RECORD - HEAD.size
        rest = first + _BLOCK - _RECORD
        self._send(head(self._number, offset, len(data)) + data[:first], data[first:rest])
        for at in range(rest, len(data), _BLOCK):
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


class ImageSource:
    """The node whose images are served, with its PCT's data."""

    __slots__ = ("log", "mesh", "node", "run")

    def __init__(self, run: str, node: str, mesh: str, log: Journal) -> None:
        self.run, self.node, self.mesh, self.log = run, node, mesh, log


def be_image_proxy(images: ImageSource, line: socket.socket, secured: Secured, request: Message) -> NoReturn:
    """In a forked process: serve this fetcher, and further ones as long as the PCT keeps us; ``line`` is the socket
    to it."""
    prctl.set_name(b"redmesh-courier")
    prctl.forbid_core()  # a user who truncates the file kills it by SIGBUS, and in system mode its memory is root's
    while True:
        try:
            with secured:
                carry(images, secured, request)
        except (OSError, AgentError):
            pass  # the fetcher asks the next source
        gc.collect()  # releases the file
        secured, request = _next(images, line)


def carry(images: ImageSource, secured: Secured, request: Message) -> None:
    """Ask the right launch child, and forward what comes. Raises OSError or AgentError."""
    source = _reach(launch_socket(images.run, images.node, request["launcher"]))
    proxy = ImageProxy(secured, source, request)
    try:
        source.sendall(control(hello("child")) + control(request))
        proxy.carry()
    finally:
        proxy.close()


def _reach(path: str) -> socket.socket:
    until = time.monotonic() + APPEAR_S
    while True:
        try:
            return connect(path, STILL_S)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)  # this process has nothing else to do


def _next(images: ImageSource, line: socket.socket) -> "Tuple[Secured, Message]":
    while True:
        sock, _ = handed(line)
        try:
            who = str(sock.getpeername()[0])
            sock.setblocking(False)
            secured = Secured(sock, ours(), server=True)
        except (OSError, AgentError):
            sock.close()
            continue
        try:
            return secured, _received(images, secured, time.monotonic() + PATIENCE_S)
        except AgentError as refusal:
            reason, names = getattr(refusal, "reason", "protocol"), sorted(secured.peer.names)
            images.log.write("refused", reason=reason, peer=who, names=names, message=refusal.message)
            refuse(secured, refusal)
        except OSError as error:
            images.log.write("refused", reason="handshake", peer=who, error=error.strerror or str(error))
        secured.close()


def _received(images: ImageSource, secured: Secured, until: float) -> Message:
    # The first byte of TLS is ours to read, as with a launch child (agents/pct/remote/spare_handshake.py).
    wait(secured, secured.shake, until)
    greeting, rest = next_message(secured, b"", until)
    if check_hello(greeting) != "child":
        raise Refusal("wrong_role", "only a launch child of another node may fetch an image")
    request, _ = next_message(secured, rest, until)
    need_believed(secured, ours())
    return wanted(request, secured.peer.names, images.mesh)
