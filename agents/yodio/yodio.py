"""Files on the login processor, for the ranks of a launch: ``yod --io DIR program``.

    import yodio
    with yodio.open("/data/input.txt") as file:        # text; "rb" for bytes, "w", "a", "x", "r+" as with open()
        for line in file: ...
    names = yodio.listdir("/data")

On the command line: ``yodio cat FILE…``, ``yodio get FILE [HERE]``, ``yodio put HERE FILE``, ``yodio ls [-l] [DIR]``.
A relative name is one below the first DIR. Errors are OSError, as with files. Standard library only, Python 3.9.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import socket
import struct
import sys
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Union

    Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
    Bytes = Union[bytes, bytearray, memoryview]

__all__ = ["YodFile", "listdir", "open", "stat"]

_FILE = 6  # the kind of frame (docs/protocol.md)
_OPEN, _READ, _WRITE, _CLOSE, _STAT, _LIST, _TRUNCATE = range(1, 8)
_FRAME = struct.Struct("!BI")
_REQUEST = struct.Struct("!BIQI")
_ANSWER = struct.Struct("!BIIiQ")  # kind, length, number, errno, value
_APPEND = (1 << 64) - 1  # the offset that means: after the last byte
_PIECE = 256 << 10
_DEPTH = 6  # requests in transit: the next ones are sent while one is used


class Channel:
    """A connection to the node's launch child, and through it to yod, with one open file.

    ``timeout_s``: for each operation of the socket; None: no limit.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        path = os.environ.get("YOD_IO", "")
        if not path:
            raise OSError(errno.ENOTCONN, "this launch was not given any directory: yod --io DIR")
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout_s)
        self._next = 0
        self._answers: dict[int, tuple[int, int, bytearray]] = {}
        self._forgotten: set[int] = set()
        try:
            if len(os.fsencode(path)) > 107:  # sun_path is short, so go through the directory
                folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
                try:
                    self._sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
                finally:
                    os.close(folder)
            else:
                self._sock.connect(path)
        except OSError:
            self._sock.close()
            raise

    def send(self, op: int, offset: int = 0, length: int = 0, data: Bytes = b"") -> int:
        """Send a request; returns its number for ``wait``."""
        self._next = (self._next + 1) & 0xFFFFFFFF
        head = _FRAME.pack(_FILE, _REQUEST.size + len(data)) + _REQUEST.pack(op, self._next, offset, length)
        if len(data) > 4096:
            sent = self._sock.sendmsg([head, data])
            if sent < len(head):
                self._sock.sendall(head[sent:])
                sent = len(head)
            if sent < len(head) + len(data):
                self._sock.sendall(memoryview(data)[sent - len(head) :])
        else:
            self._sock.sendall(head + data)
        return self._next

    def wait(self, number: int, name: Any = "") -> tuple[int, bytearray]:
        """Value and bytes of the answer. Raises yod's OSError."""
        while number not in self._answers:
            self._receive()
        code, value, data = self._answers.pop(number)
        if code:
            raise OSError(code, data.decode("utf-8", "replace") if data else os.strerror(code), name or None)
        return value, data

    def forget(self, number: int) -> None:
        """Discard the answer of a request."""
        if self._answers.pop(number, None) is None:
            self._forgotten.add(number)

    def fileno(self) -> int:
        """The descriptor that becomes readable when an answer arrives."""
        return self._sock.fileno()

    def arrived(self) -> list[tuple[int, bytearray]]:
        """Wait for an answer; returns number and bytes of all that have arrived. Raises yod's OSError."""
        self._receive()
        numbers = list(self._answers)
        return [(number, self.wait(number)[1]) for number in numbers]

    def _receive(self) -> None:
        head = self._exactly(_ANSWER.size)
        kind, length, number, code, value = _ANSWER.unpack(head)
        if kind != _FILE or length < _ANSWER.size - _FRAME.size:
            raise OSError(errno.EPROTO, "no answer to a request for a file")
        data = self._exactly(length - (_ANSWER.size - _FRAME.size))
        if number in self._forgotten:
            self._forgotten.discard(number)
        else:
            self._answers[number] = (code, value, data)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self._sock.recv_into(view, 0, socket.MSG_WAITALL)
            if not got:
                raise OSError(errno.ECONNRESET, "the launch has ended, or yod has gone")
            view = view[got:]
        return data

    def close(self) -> None:
        """Close the file."""
        self._sock.close()


class YodFile(io.RawIOBase):
    """An open file on the login processor. It reads ahead, and sends writes without waiting for earlier ones.

    The error of a write may be raised by a later write, or by ``flush`` or ``close``.
    """

    def __init__(self, path: Path, mode: str = "r") -> None:
        self._open_channel: Channel | None = None
        self.name, self.mode = os.fspath(path), mode
        if set(mode) - set("rwaxbt+") or sum(mode.count(letter) for letter in "rwax") != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        self._mode = mode.replace("b", "").replace("t", "")
        channel = Channel()
        try:
            request = json.dumps({"path": os.fsencode(self.name).decode("latin-1"), "mode": self._mode})
            channel.wait(channel.send(_OPEN, data=request.encode()), self.name)
        except BaseException:
            channel.close()
            raise
        self._open_channel = channel
        self._position = self.size() if self._mode[0] == "a" else 0
        self._expected = -1  # the next offset of a sequential reader
        self._short = False  # the last answer had less than was asked for: the file ends there
        self._ahead: deque[tuple[int, int, int]] = deque()  # offset and number of reads in transit
        self._spare = (0, memoryview(b""))
        self._writes: deque[int] = deque()

    @property
    def _channel(self) -> Channel:
        if self._open_channel is None:
            raise ValueError("I/O operation on closed file")
        return self._open_channel

    def readable(self) -> bool:
        return self._mode[0] == "r" or "+" in self._mode

    def writable(self) -> bool:
        return self._mode != "r"

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._settle()
        return self._position

    def size(self) -> int:
        """The present size of the file in bytes."""
        return self._channel.wait(self._channel.send(_STAT), self.name)[0]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._settle()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        position = (self.size() if base is None else base) + offset
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        self._check(self.readable(), "read")
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view):  # all of it, as from a file here: what a buffer above holds depends on it
            data = self._take(len(view) - done)
            view[done : done + len(data)] = data
            done += len(data)
            if not data or self._short:
                break
        return done

    def readall(self) -> bytes:
        self._check(self.readable(), "read")
        parts: list[memoryview] = []
        while True:
            data = self._take(_PIECE)
            if not data:
                return b"".join(parts)
            parts.append(data)

    def _take(self, count: int) -> memoryview:
        """At most ``count`` bytes at the position, as available; empty at the end."""
        if not count:
            return memoryview(b"")
        self._settle()
        start, spare = self._spare
        at = self._position - start
        if not 0 <= at < len(spare):
            spare, at = self._fetch(count), 0
            self._spare = (self._position, spare)
        data = spare[at : at + count]
        self._position += len(data)
        return data

    def _fetch(self, count: int) -> memoryview:
        going_on = self._position == self._expected
        while self._ahead and self._ahead[0][0] != self._position:
            self._channel.forget(self._ahead.popleft()[1])
        if not self._ahead:
            self._ask(self._position, _PIECE if going_on else min(count, _PIECE))
        if going_on:
            while len(self._ahead) < _DEPTH and self._ahead[-1][2] == _PIECE:
                self._ask(self._ahead[-1][0] + _PIECE, _PIECE)
        _, number, length = self._ahead.popleft()
        data = memoryview(self._channel.wait(number, self.name)[1])
        self._expected = self._position + len(data)
        self._short = len(data) < length
        if self._short:  # the end: discard what was read ahead
            self._forget_ahead()
        return data

    def _ask(self, offset: int, length: int) -> None:
        self._ahead.append((offset, self._channel.send(_READ, offset, length), length))

    def _forget_ahead(self) -> None:
        while self._ahead:
            self._channel.forget(self._ahead.popleft()[1])
        self._spare = (0, memoryview(b""))

    def write(self, data: Any) -> int:
        self._check(self.writable(), "write")
        view = memoryview(data).cast("B")
        self._forget_ahead()
        for at in range(0, len(view), _PIECE):
            part = view[at : at + _PIECE]
            offset = _APPEND if self._mode[0] == "a" else self._position
            self._writes.append(self._channel.send(_WRITE, offset, len(part), part))
            self._position += len(part)
            self._settle(_DEPTH)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._check(self.writable(), "truncate")
        self._settle()
        self._forget_ahead()
        size = self._position if size is None else size
        self._channel.wait(self._channel.send(_TRUNCATE, size), self.name)
        return size

    def flush(self) -> None:
        super().flush()
        self._settle()

    def _settle(self, under_way: int = 0) -> None:
        while len(self._writes) > under_way:
            behind = self._channel.wait(self._writes.popleft(), self.name)[0]
            if self._mode[0] == "a":
                self._position = behind  # after others' data and our bytes

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(f"not open to {what}")

    def close(self) -> None:
        if self.closed or self._open_channel is None:
            super().close()
            return
        try:
            try:
                super().close()  # flushes
            finally:
                if self.writable():
                    self._channel.wait(self._channel.send(_CLOSE), self.name)
        finally:
            self._channel.close()


def open(
    path: Path,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Open a file on the login processor, like the built-in ``open``."""
    binary = "b" in mode
    if binary and (encoding or errors or newline):
        raise ValueError("binary mode takes no encoding, errors or newline")
    raw = YodFile(path, mode)
    if buffering == 0:
        if not binary:
            raw.close()
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else _PIECE
    buffered: Any
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size) if raw.writable() else io.BufferedReader(raw, size)
    return buffered if binary else io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)


def _asked(op: int, path: Path) -> list[list[Any]]:
    name = os.fspath(path)
    channel = Channel()
    try:
        request = json.dumps({"path": os.fsencode(name).decode("latin-1")}).encode()
        found: list[list[Any]] = []
        offset = 0
        while True:
            offset, data = channel.wait(channel.send(op, offset, 0, request), name)
            found += json.loads(data.decode())
            if not offset:
                return found
    finally:
        channel.close()


def listdir(path: Path = ".") -> list[str]:
    """The sorted names in a directory there."""
    return sorted(os.fsdecode(entry[0].encode("latin-1")) for entry in _asked(_LIST, path))


def stat(path: Path) -> dict[str, Any]:
    """``kind`` (file, dir, other), ``size`` in bytes and ``mtime`` in seconds of a file there."""
    _, kind, size, mtime = _asked(_STAT, path)[0]
    return {"kind": kind, "size": size, "mtime": mtime}


def _copy(read: Callable[[int], Bytes], write: Callable[[memoryview], int]) -> None:
    while True:
        data = read(_PIECE)
        if not data:
            return
        view = memoryview(data)
        while view:
            view = view[write(view) :]


def _cat(paths: list[str]) -> None:
    for path in paths:
        with YodFile(path) as file:
            file._expected = 0  # sequentially from the beginning
            _copy(file._take, lambda view: os.write(1, view))


def _get(path: str, here: str = "") -> None:
    here = here or os.path.basename(path)
    with YodFile(path) as file, builtins.open(here, "wb", buffering=0) as copy:
        file._expected = 0
        _copy(file._take, copy.write)


def _put(here: str, path: str) -> None:
    with builtins.open(0 if here == "-" else here, "rb", 0, closefd=here != "-") as source, YodFile(path, "w") as file:
        _copy(source.read, file.write)


def _list(*arguments: str) -> None:
    long = arguments[:1] == ("-l",)
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    for path in arguments[long:] or (".",):
        for name, kind, size, mtime in sorted(_asked(_LIST, path)):
            shown = os.fsdecode(name.encode("latin-1")) + ("/" if kind == "dir" else "")
            print(f"{size:12d} {mtime:10d} {shown}" if long else shown)


_USAGE = """usage: yodio cat FILE…           print files of the login processor
       yodio get FILE [HERE]     copy a file to this node
       yodio put HERE FILE       copy a file there; HERE may be - for standard input
       yodio ls [-l] [DIR]…      list directories there (-l: bytes and time of the last change)
FILE and DIR: below the directories of yod --io; a relative name is below the first of them."""


def main() -> int:
    """Run the command; returns the exit status."""
    words = sys.argv[1:]
    command = words[0] if words else ""
    count = len(words) - 1
    try:
        if command == "cat" and count:
            _cat(words[1:])
        elif command == "get" and 1 <= count <= 2:
            _get(*words[1:])
        elif command == "put" and count == 2:
            _put(*words[1:])
        elif command == "ls":
            _list(*words[1:])
        elif command in ("-h", "--help", "help"):
            print(_USAGE)
        else:
            print(_USAGE, file=sys.stderr)
            return 2
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        print("yodio: " + told, file=sys.stderr)
        return 1
