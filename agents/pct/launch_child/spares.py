"""Launch children between two launches: after a normal launch, one may serve the next.

Most of the cost of a fresh launch child is copying the PCT's memory page by page as it writes to it; a used launch
child has paid that. A single one is kept for a few seconds, so an idle node has none
(docs/decisions/0007-a-launch-child-serves-again.md).
"""

from __future__ import annotations

import gc
import os
import struct

from agents.link.lean import Socket, socket
from agents.link.loop import READ, Loop, Timer
from agents.linux import ending
from agents.pct.launch_child.endpoint import NodeContext

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, NoReturn, Optional, Tuple

    from agents.wire.credential import Pass

    Receive = Callable[[socket.socket, socket.socket], Optional[Tuple[Any, str, Pass]]]

_READY = b"r"
#: The first and last byte of a launch child's question to its PCT.
ASK, END = b"?", b"\n"
_LONGEST = 8192
_FD = struct.Struct("i")  # a descriptor, as SCM_RIGHTS has it


class Spares:
    """The PCT's side: a socket to every launch child, and the spare one, which is kept for ``spare_s``."""

    def __init__(self, loop: Loop, spare_s: float) -> None:
        self._loop, self._spare_s = loop, spare_s
        self._lines: Dict[int, socket.socket] = {}  # by descriptor
        self._ready: Optional[socket.socket] = None
        self._timer: Optional[Timer] = None
        #: The answer to a launch child that received a launch from another machine
        #: (agents/pct/remote/spare_handshake.py).
        self.answer: Callable[[bytes], bytes] = lambda _question: b""
        self._asking: Dict[int, bytes] = {}  # incomplete questions, by descriptor

    def __len__(self) -> int:
        return int(self._ready is not None)

    def add(self, line: socket.socket) -> None:
        """Add the socket to a launch child that has just been forked."""
        fd = line.fileno()
        line.setblocking(False)
        self._lines[fd] = line
        self._loop.watch(fd, READ, lambda _events: self._on_word(fd))

    def take(self, sock: socket.socket, role: str) -> bool:
        """Pass a new launch's connection to the spare launch child; False if there is none."""
        line, self._ready = self._ready, None
        if line is None:
            return False
        self._cancel()
        try:
            line.sendmsg([role.encode("ascii")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _FD.pack(sock.fileno()))])
            return True
        except OSError:
            self._drop(line)  # it has just died
            return False

    def _on_word(self, fd: int) -> None:
        line = self._lines[fd]
        try:
            word = line.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word[:1] == ASK or fd in self._asking:
            self._on_question(fd, word)
            return
        if word != _READY or self._ready is not None or self._spare_s <= 0:
            self._drop(line)
            return
        self._ready = line
        self._timer = self._loop.after(self._spare_s, self.dismiss)

    def _on_question(self, fd: int, data: bytes) -> None:
        line, question = self._lines[fd], self._asking.pop(fd, b"") + data
        if not question.endswith(END):
            self._asking[fd] = question
            return
        try:
            line.sendall(self.answer(question))
        except OSError:
            self._drop(line)  # it has just died

    def dismiss(self) -> None:
        """End the spare launch child."""
        if self._ready is not None:
            self._drop(self._ready)

    def _drop(self, line: socket.socket) -> None:
        if line is self._ready:
            self._ready = None
            self._cancel()
        del self._lines[line.fileno()]
        self._loop.unwatch(line.fileno())
        line.close()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """No launch child serves again: the spare one ends now, the others with their launch."""
        for line in list(self._lines.values()):
            self._drop(line)

    def forget(self) -> None:
        """In a forked child: close the PCT's sockets."""
        for line in self._lines.values():
            line.close()


def prepare() -> None:
    """Import what every launch needs, for all children forked from now on."""
    import agents.pct.launch_child.child  # noqa: F401


def serve_launches(
    host: NodeContext, line: socket.socket, sock: Any, role: str, let_in: Optional[Pass], receive: Optional[Receive]
) -> NoReturn:
    """Run as a launch child: serve a launch, and further ones for as long as the PCT keeps us.

    ``receive(line, sock)``: a launch from another machine, its role and credential data; None if it was refused.
    """
    from agents.pct.launch_child.child import (
        Launch,  # imported before our fork (prepare), unless the first launch came earlier
    )

    before, status = -1, 0
    while True:
        launch = Launch(host, sock, role, let_in)
        launch.run()
        status = launch.close() or status
        if host.system is not None:
            os._exit(status)  # it has served another user
        del launch
        ending.between_launches()
        gc.disable()
        gc.collect()
        count = len(os.listdir("/proc/self/fd"))
        if before not in (-1, count):
            os._exit(status)  # part of the launch is still open, so this process ends
        before = count
        sock, role, let_in = _next(line, status, receive)


def _next(line: socket.socket, status: int, receive: Optional[Receive]) -> "tuple[Any, str, Optional[Pass]]":
    while True:
        sock, word = handed(line, status)
        if word != "far" or receive is None:
            return sock, word, None
        received = receive(line, sock)
        if received is not None:
            return received


def handed(line: socket.socket, status: int = 0) -> "tuple[socket.socket, str]":
    """The next connection and its role. Exits with ``status`` if none comes."""
    try:
        line.send(_READY)
        word, told, _flags, _address = line.recvmsg(16, socket.CMSG_SPACE(_FD.size), socket.MSG_CMSG_CLOEXEC)
    except OSError:
        os._exit(status)  # the PCT has exited
    if not word or not told:
        os._exit(status)  # we are not needed
    return Socket(fileno=_FD.unpack(told[0][2])[0]), word.decode("ascii")
