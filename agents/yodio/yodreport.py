"""The server for reports of a section's program: an INET socket on the node's loopback, in the worker that runs the
section.

Short ASCII lines, each answered (docs/sections.md): ``TOKEN started ID``, ``TOKEN progress ID 0.42 text``, ``TOKEN
finished ID``, ``TOKEN error ID text``. Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import hmac
import math
import os
import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, NamedTuple, Optional

    class Report(NamedTuple):
        """A program's report about its section. ``part``: 0 to 1, for ``progress``."""

        kind: str
        part: Optional[float]
        text: str

else:
    from collections import namedtuple

    Report = namedtuple("Report", "kind part text")

STARTED, PROGRESS, FINISHED, ERROR = "started", "progress", "finished", "error"
KINDS = (STARTED, PROGRESS, FINISHED, ERROR)
#: The most bytes of a line, including its end; the most connections, and the most that have sent no valid line yet:
#: every user of the node reaches the socket, and only the section's programs know the token.
LONGEST, MOST, MOST_UNKNOWN = 512, 64, 32
#: What is read of a connection, and how many connections are accepted, before the worker's other events are handled.
_PIECE, _AT_ONCE = 4096, 16
#: Environment variables of a section's process.
ADDRESS, SECTION, TOKEN = "REDMESH_REPORT", "REDMESH_SECTION", "REDMESH_TOKEN"


class Refused(Exception):
    """An invalid line; the message is the answer."""


def parse(line: bytes, token: str, section: str) -> Report:
    """Parse a line. Raises Refused."""
    try:
        text = line.decode("ascii").strip()
    except UnicodeDecodeError:
        raise Refused("a report is one line of ASCII") from None
    given, _, rest = text.partition(" ")
    if not token or not hmac.compare_digest(given.encode(), token.encode()):
        raise Refused(f"this is not the token of the section that runs here: send the value of {TOKEN} first")
    kind, _, rest = rest.strip().partition(" ")
    if kind not in KINDS:
        raise Refused(f"the second word is one of {' '.join(KINDS)}")
    # An id may contain blanks.
    rest = rest.strip()
    if rest != section and not rest.startswith(section + " "):
        raise Refused(f"the section that runs here is {section}")
    rest = rest[len(section) :].strip()
    part = None
    if kind == PROGRESS:
        number, _, rest = rest.partition(" ")
        try:
            part = float(number)
        except ValueError:
            part = math.nan
        if not 0 <= part <= 1:
            raise Refused("progress takes a number from 0 to 1")
    return Report(kind, part, rest.strip())


class Connection:
    """A connection; ``known`` since its first valid line."""

    __slots__ = ("known", "pending", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.pending, self.known = sock, b"", False


class ReportServer:
    """Serves the present section. Its descriptors are in ``poll``, whose owner calls :meth:`handle` with ready ones.

    ``told(report)`` gets each report; it may raise Refused. No call reads without a limit, whatever programs send: the
    worker also has to end a section at its time limit.
    """

    def __init__(self, poll: select.poll, told: Callable[[Report], None]) -> None:
        """Raises OSError if this node has no loopback interface."""
        self._poll, self._told = poll, told
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen(MOST)
        self.address = "127.0.0.1:%d" % self._sock.getsockname()[1]
        self._poll.register(self._sock, select.POLLIN)
        self._connections: Dict[int, Connection] = {}  # the oldest first
        self._token = self._section = ""

    def begin(self, section: str) -> Dict[str, str]:
        """Serve ``section`` from now on; returns variables for its process."""
        self._token, self._section = os.urandom(8).hex(), section
        return {ADDRESS: self.address, SECTION: section, TOKEN: self._token}

    def end(self) -> None:
        """The section's process has exited: handle what has arrived, and no more."""
        for _ in range(MOST // _AT_ONCE + 1):
            self._accept()
        for fd in list(self._connections):
            for _ in range(_AT_ONCE):
                if fd not in self._connections or not self._read(fd):
                    break
        for fd in list(self._connections):
            self._close(fd)
        self._token = self._section = ""

    def handle(self, fd: int) -> bool:
        """Handle a ready descriptor; False if it is not one of the server's."""
        if fd == self._sock.fileno():
            self._accept()
        elif fd in self._connections:
            self._read(fd)
        else:
            return False
        return True

    def close(self) -> None:
        """Stop serving."""
        self.end()
        self._poll.unregister(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _address = self._sock.accept()
            except OSError as error:
                if error.errno in (errno.ECONNABORTED, errno.EINTR):
                    continue
                return
            sock.setblocking(False)
            self._make_room()
            if len(self._connections) >= MOST:
                self._answer(sock, f"refused: {MOST} connections of this section are open; close some")
                sock.close()
                continue
            self._connections[sock.fileno()] = Connection(sock)
            self._poll.register(sock, select.POLLIN)

    def _make_room(self) -> None:
        """If no place is left, close the oldest connection that has sent no valid line."""
        unknown = [fd for fd, connection in self._connections.items() if not connection.known]
        for fd in unknown if len(unknown) >= MOST_UNKNOWN or len(self._connections) >= MOST else ():
            self._read(fd)  # its line may have arrived
            if fd not in self._connections:
                return
            if not self._connections[fd].known:
                self._close(fd)
                return

    def _read(self, fd: int) -> bool:
        """Handle a piece of what has arrived; False if nothing has, or the connection is closed now."""
        connection = self._connections[fd]
        try:
            data = connection.sock.recv(_PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        # the last line of a client may lack its newline
        *lines, rest = (connection.pending + data + (b"" if data else b"\n")).split(b"\n")
        for line in lines:
            if len(line) >= LONGEST:
                rest = line
                break
            if line.strip():
                self._answer(connection.sock, self._take(line, connection))
        connection.pending = rest
        if len(rest) >= LONGEST:
            self._answer(connection.sock, f"refused: a report has {LONGEST} bytes at most")
            data = b""
        if not data:
            self._close(fd)
        return bool(data)

    def _take(self, line: bytes, connection: Connection) -> str:
        try:
            report = parse(line, self._token, self._section)
            connection.known = True
            self._told(report)
        except Refused as refused:
            return f"refused: {refused}"
        return "ok"

    @staticmethod
    def _answer(sock: socket.socket, text: str) -> None:
        try:
            sock.send(text.encode("ascii", "replace") + b"\n", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # a client that does not read its answers: its report counts

    def _close(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._connections.pop(fd).sock.close()
