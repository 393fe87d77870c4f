"""TLS 1.3 below the wire protocol: a connection with the interface of a stream socket, for Link and Client.

TLS works on two memory buffers; this module moves bytes between them and the socket. One read takes everything that has
arrived, a whole flight leaves in one write, and decrypted data that is not consumed yet stays with the object in a
forked child. Of the module ``ssl`` only the C part is imported: the rest costs every yod 10 ms
(docs/decisions/0011; ``python -m tests.bench.handwork``: what TLS loads takes 22 ms so, 35 ms with ``ssl``).
"""

from __future__ import annotations

import errno
import os
import struct
import time

from agents.link.lean import Socket, socket
from agents.link.loop import READ, WRITE
from agents.link.tcp import FullWindow, resolve, tune
from agents.link.trust import Trust, why_refused
from agents.wire.address import Peer, parse

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import ssl
    from typing import Any, Callable, List, Optional, Sequence, Tuple

    from agents.link.loop import Loop
else:
    import _ssl as ssl

_AT_ONCE = 256 << 10  # bytes to read from the socket at once
#: Bytes to encrypt at once, four whole records with their headers: this stays in the cache, and is less than what
#: malloc would take from the kernel and return each time.
_MOST_WRITTEN = (64 << 10) + 17
_RECORD = 16 << 10
_HELD = 17 << 10  # the library buffers at most this much of an incomplete record


class Refused(OSError):
    """One side refused the handshake; ``strerror`` has the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EACCES, reason)


class Secured:
    """A TLS connection over ``sock``, which it owns.

    Call ``shake`` until it returns; ``wants`` is the event to wait for before the next call. Afterwards ``peer`` is the
    peer's identity. Raises Refused (an OSError) if either side refuses the other.
    """

    __slots__ = (
        "_away",
        "_connecting",
        "_dry",
        "_expected",
        "_incoming",
        "_left",
        "_outgoing",
        "_owed",
        "_raw",
        "_sock",
        "_tls",
        "begun",
        "failure",
        "peer",
        "shaking",
        "since",
        "wants",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, trust: Trust, *, server: bool, expected: str = "", hint: bytes = b""
    ) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = trust.server() if server else trust.client()
        self._tls: Any = context._wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=hint.decode("ascii") or None
        )
        self.since = time.monotonic()  # the trusted CAs are fixed from now on
        self._expected = expected  # the URI that the peer's certificate must contain
        self._left: Any = b""  # decrypted, not consumed
        self._away: Any = b""  # encrypted, not accepted by the socket
        self._raw: Optional[memoryview] = None  # the buffer for large data, allocated when needed
        self._dry = False  # the last read took everything that had arrived
        self._owed = 0  # plaintext bytes in ``_away`` that are not reported to the caller yet
        self._connecting = not server
        self.shaking, self.begun = True, False
        self.wants = WRITE if self._connecting else READ
        self.failure: Optional[OSError] = None
        self.peer = Peer(0, -1, -1)

    # The handshake

    def shake(self) -> None:
        """Continue the handshake. Raises BlockingIOError if it must wait for data, OSError if it fails."""
        try:
            self._shake()
        except BlockingIOError:
            raise
        except OSError as error:
            self.failure = error
            raise

    def _shake(self) -> None:
        self.begun = True
        if self._connecting:
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connecting = False
        while True:
            try:
                self._flush()
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self._last_words()
                raise Refused(why_refused(error)) from None
            self._flush()
            self.wants = READ
            data = self._sock.recv(_RECORD)
            if not data:
                raise Refused("the connection ended in the handshake")
            self._incoming.write(data)
        self._know()
        self.shaking, self.wants = False, READ
        self._flush_or_later()

    def _know(self) -> None:
        found: Any = self._tls.getpeercert() or {}
        names = frozenset(str(value) for kind, value in found.get("subjectAltName", ()) if kind == "URI")
        if self._expected and self._expected not in names:
            told = ", ".join(sorted(names)) or "nobody"
            raise Refused(f"its certificate says {told[:200]}, not {self._expected}")
        self.peer = Peer(0, -1, -1, names)

    def _last_words(self) -> None:
        # Send the alert with the reason, the only information the other side gets.
        try:
            self._flush()
        except OSError:
            pass

    def _flush(self) -> None:
        if self._outgoing.pending:
            more = self._outgoing.read()
            self._away = memoryview(bytes(self._away) + more if self._away else more)
        while self._away:
            try:
                self._away = self._away[self._sock.send(self._away) :]
            except BlockingIOError:
                self.wants = WRITE
                raise

    def _flush_or_later(self) -> None:
        try:
            self._flush()
        except BlockingIOError:
            pass  # it goes with the next data

    # The interface of a stream socket

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    @property
    def silent_s(self) -> float:
        """Seconds since the peer's kernel was last heard (tcpi_last_data_recv, tcpi_last_ack_recv)."""
        told = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        heard: Tuple[int, int] = struct.unpack_from("II", told, 52)
        return min(heard) / 1000

    @property
    def delivered(self) -> int:
        """Bytes that the peer's kernel has acknowledged while more are in transit; -1 if none are."""
        told = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        unacked, acked = struct.unpack_from("I", told, 24)[0], struct.unpack_from("Q", told, 120)[0]
        return acked if unacked or self._away else -1

    def full_window(self, loop: Loop, lost: Callable[[str], None]) -> FullWindow:
        """Keeps this connection while the peer's kernel answers though the peer does not read; call its ``sent``."""
        return FullWindow(loop, self._sock, lost)

    def setblocking(self, blocking: bool) -> None:
        """As socket.setblocking."""
        self._sock.setblocking(blocking)

    def settimeout(self, seconds: Optional[float]) -> None:
        """As socket.settimeout."""
        self._sock.settimeout(seconds)

    @property
    def pending(self) -> bool:
        """True if there is data to read of which the descriptor will not report an event."""
        return bool(self._left) or self._incoming.pending > 0 or bool(self._tls.pending())

    @property
    def dry(self) -> bool:
        """True if there is nothing to read before the next event of the descriptor, as far as is known."""
        return self._dry and not self.pending

    def expect(self, count: int) -> None:
        """Delay the descriptor's events until ``count`` bytes have arrived, or the end: fewer wake-ups in a long
        stream."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def recv(self, most: int) -> bytes:
        """Data that has arrived, at most ``most`` bytes; empty at the end. Raises BlockingIOError if there is none."""
        while True:
            data = bytes(self._left[:most])
            self._left = self._left[most:]
            data += self._decrypted(most - len(data))
            if data:
                return data
            # Read so little that no more than ``most`` bytes result, because no event would announce data that stays
            # here.
            arrived = self._sock.recv(max(most - _HELD, _RECORD))
            if not arrived:
                return b""
            self._incoming.write(arrived)

    def recv_into(self, buffer: memoryview) -> int:
        """As socket.recv_into; decrypts directly into ``buffer``. If the buffer is full, check ``pending``."""
        if self._left:
            count = min(len(self._left), len(buffer))
            buffer[:count], self._left = self._left[:count], self._left[count:]
            return count
        while True:
            # an empty poll costs as much as one that returns a record
            count = self._decrypt(buffer) if self.pending else 0
            if count:
                return count
            if self._raw is None:
                self._raw = memoryview(bytearray(_AT_ONCE))
            arrived = self._sock.recv_into(self._raw)
            if not arrived:
                return 0
            self._dry = arrived < len(self._raw)
            self._incoming.write(self._raw[:arrived])

    def _decrypted(self, most: int) -> bytes:
        pieces, read = [], self._tls.read
        try:
            while most > 0 and (piece := read(min(most, _RECORD))):
                pieces.append(piece)
                most -= len(piece)
        except ssl.SSLError as error:
            self._stop(error)
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def _decrypt(self, buffer: memoryview) -> int:
        at, size, read = 0, len(buffer), self._tls.read
        try:
            while at < size and (count := read(size - at, buffer[at:])):  # a thousand records in 16 MB
                at += count
        except ssl.SSLError as error:
            self._stop(error)
        return at

    def _stop(self, error: OSError) -> None:
        # No record is complete, or the peer has closed its side.
        if not isinstance(error, (ssl.SSLWantReadError, ssl.SSLZeroReturnError)):
            raise Refused(why_refused(error)) from None
        if self._outgoing.pending:  # the answer to a key update
            self._flush_or_later()

    def unread(self, data: bytes) -> None:
        """Put data back at the front."""
        self._left = data + bytes(self._left)

    def sendmsg(self, parts: Sequence[Any]) -> int:
        """Returns how many bytes were sent. Raises BlockingIOError if none were; the next call must begin with the
        same bytes."""
        if self.shaking:
            raise BlockingIOError
        if self._away:
            self._flush()
            if self._owed:
                sent, self._owed = self._owed, 0
                return sent
        try:
            for data in _gathered(parts):
                self._owed += self._tls.write(data)  # all of it, into memory
        except ssl.SSLError as error:
            raise Refused(why_refused(error)) from None
        self._flush()
        sent, self._owed = self._owed, 0
        return sent

    def send(self, data: Any) -> int:
        """As socket.send, with the condition of sendmsg."""
        return self.sendmsg((data,))

    def sendall(self, data: Any) -> None:
        """Send everything, on a blocking connection."""
        view = memoryview(data)
        while view:
            view = view[self.sendmsg((view,)) :]

    def close(self) -> None:
        """Close the socket without a TLS close alert, because every protocol here has its own last message."""
        self._sock.close()

    def __enter__(self) -> "Secured":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _gathered(parts: Sequence[Any]) -> List[Any]:
    """The first of ``parts`` to encrypt at once: small ones joined, large ones without a copy."""
    room, some = _MOST_WRITTEN, []
    for part in parts:
        if len(part) > room:
            part = memoryview(part)[:room]
        if len(part):
            some.append(part)
        room -= len(part)
        if not room:
            break
    return some if _MOST_WRITTEN - room > len(some) * _RECORD else [b"".join(some)] if len(some) > 1 else some


def connect(address: str, trust: Trust, timeout_s: float, hint: bytes = b"") -> Secured:
    """A blocking connection to a daemon on another machine. Raises OSError or NoTrust."""
    secured = _begin(address, trust, timeout_s, hint)
    try:
        secured.shake()
    except BaseException:
        secured.close()
        raise
    return secured


def connect_now(address: str, trust: Trust, hint: bytes = b"") -> Secured:
    """A connection whose handshake has not begun: :meth:`Secured.shake` continues it. Raises OSError or NoTrust."""
    return _begin(address, trust, 0.0, hint)


def _begin(address: str, trust: Trust, timeout_s: float, hint: bytes = b"") -> Secured:
    wanted = parse(address)
    family, place = resolve(wanted.host, wanted.port)
    sock = Socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        tune(sock)
        try:
            sock.connect(place)
        except BlockingIOError:
            pass
        expected = f"redmesh://{trust.mesh}/{wanted.role}/{wanted.name}"
        return Secured(sock, trust, server=False, expected=expected, hint=hint)
    except BaseException:
        sock.close()
        raise
