"""Stages files in before the ranks start, and out when they have ended, one after another."""

from __future__ import annotations

import errno
import json
import os
import stat

from agents.pct.errors import OF_ROOM, LoadFailed, advice
from agents.pct.files.remote_io import CLOSE, READ_AT, STAGE_FAILED, STAGE_IN, STAGE_OUT, WRITE_AT, Application
from agents.wire.control import to_bytes
from redmesh.byte_text import from_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    from agents.pct.launch.context import LaunchContext

PIECE = 256 << 10
DEPTH = 4  # pieces in transit


class Staging:
    """``directory()`` is the place of files without a stated place."""

    def __init__(self, launch: LaunchContext, files: Application, directory: Callable[[], str]) -> None:
        self._launch, self._files, self._directory = launch, files, directory
        self._jobs: List[Tuple[int, int]] = []
        self._then: Optional[Callable[[], None]] = None
        self._done: Set[str] = set()
        self._failed = False
        self._lost = False
        self._fetch: Optional[_Fetch] = None

    def bring(self, count: int, then: Callable[[], None]) -> None:
        """Fetch the ``count`` stage-ins of every rank, then call ``then``; a failure fails the launch."""
        self._begin(count, then, self._next_in)

    def take(self, count: int, then: Callable[[], None]) -> None:
        """Send the ``count`` stage-outs of every rank, then call ``then``; failures are reported."""
        self._done.clear()
        self._begin(count, then, self._next_out)

    def _begin(self, count: int, then: Callable[[], None], following: Callable[[], None]) -> None:
        self._jobs = [(number, rank) for number in range(count) for rank in self._launch.load.ranks]
        self._then = then
        if self._lost:
            self.abandon()
        else:
            following()

    def _finished(self) -> None:
        then, self._then = self._then, None
        if then is not None and not self._failed:
            then()

    def abandon(self) -> None:
        """The launcher is unreachable."""
        self._lost = True
        self._jobs = []
        then, self._then = self._then, None
        if then is not None:
            self._launch.loop.after(0, then)

    # Stage-in

    def _next_in(self) -> None:
        if not self._jobs:
            self._finished()
            return
        number, rank = self._jobs.pop(0)
        channel = self._files.channel()
        self._files.ask(
            channel, 0, STAGE_IN, number, rank, b"", lambda code, size, data: self._found(channel, code, size, data)
        )

    def _found(self, channel: int, code: int, size: int, data: memoryview) -> None:
        if self._lost:
            return
        try:
            if code:
                raise OSError(code, bytes(data).decode("utf-8", "replace") or os.strerror(code))
            told: Dict[str, Any] = json.loads(bytes(data))
            target = self._target(told)
            if target in self._done or _is(target, told["file"]):
                self._files.let_go(channel)
                self._next_in()
                return
            self._done.add(target)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._fetch = _Fetch(self, channel, target, size, int(told["mode"]))
            self._fetch.go()
        except OSError as error:
            self.in_failed(error)

    def _target(self, told: Dict[str, Any]) -> str:
        if told["to"]:
            return os.path.join(os.fsdecode(self._launch.program.cwd), os.fsdecode(to_bytes(told["to"])))
        return os.path.join(self._directory(), os.fsdecode(to_bytes(told["name"])))

    def close(self) -> None:
        """Remove incomplete files."""
        self._lost = True
        if self._fetch is not None:
            self._fetch.drop()

    def in_failed(self, error: OSError) -> None:
        """A stage-in failed: the launch cannot start."""
        self._failed = True
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        text = f"{self._launch.node}: stage-in: {name}{error.strerror}"
        of_room = error.errno in OF_ROOM
        hint = advice(error.errno or 0) if of_room else ""
        if error.errno == errno.ENOENT:
            hint = "-stage-in SRC:DST: SRC is a file of yod's machine; the directory of DST has to exist on the node"
        self._launch.fail(LoadFailed(text, "program", hint=hint, of_room=of_room))

    def fetched(self, channel: int) -> None:
        """A file has arrived."""
        self._files.let_go(channel)
        self._next_in()

    # Stage-out

    def _next_out(self) -> None:
        if not self._jobs:
            self._finished()
            return
        number, rank = self._jobs.pop(0)
        channel = self._files.channel()
        self._files.ask(
            channel, 0, STAGE_OUT, number, rank, b"",
            lambda code, _value, data: self._wanted(channel, number, rank, code, data),
        )  # fmt: skip

    def _wanted(self, channel: int, number: int, rank: int, code: int, data: memoryview) -> None:
        if self._lost:
            return
        try:
            if code:
                raise OSError(code, bytes(data).decode("utf-8", "replace") or os.strerror(code))
            told: Dict[str, Any] = json.loads(bytes(data))
            source = os.path.join(os.fsdecode(self._launch.program.cwd), os.fsdecode(to_bytes(told["from"])))
            if f"{source}\0{told['to']}" in self._done:
                self._files.let_go(channel)
                self._next_out()
                return
            self._done.add(f"{source}\0{told['to']}")
            fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "it is not a regular file", source)
            _Sending(self, channel, fd, source, os.fsdecode(to_bytes(told["to"]))).begin(number, rank)
        except OSError as error:
            self.out_failed(channel, error)

    def out_failed(self, channel: int, error: OSError) -> None:
        """Report a failed stage-out and continue with the others."""
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        text = from_system(f"{self._launch.node}: stage-out: {name}{error.strerror}").encode()
        self._files.ask(channel, 1, STAGE_FAILED, 0, 0, text, lambda *_: self.sent(channel))

    def sent(self, channel: int) -> None:
        """A file has been sent."""
        if not self._lost:
            self._files.let_go(channel)
            self._next_out()

    @property
    def files(self) -> Application:
        """The connection to the launcher's files."""
        return self._files

    @property
    def lost(self) -> bool:
        """True if the launcher is unreachable."""
        return self._lost


class _Fetch:
    """A file that is being fetched; it gets its name only when it is complete."""

    def __init__(self, staging: Staging, channel: int, target: str, size: int, mode: int) -> None:
        self._staging, self._channel, self._target, self._size = staging, channel, target, size
        self._part = f"{target}.part-{os.urandom(8).hex()}"  # hosts that share the directory may have equal pids
        # Never follow a link: others may be able to create files in the directory.
        self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode | 0o200)
        self._asked = self._received = self._number = 0
        self._mode = mode

    def go(self) -> None:
        """Request more; at the end, finish."""
        while self._asked < self._size and self._asked - self._received < DEPTH * PIECE:
            offset, length = self._asked, min(PIECE, self._size - self._asked)
            self._number += 1
            self._asked += length
            self._staging.files.ask(
                self._channel, self._number, READ_AT, offset, length, b"",
                lambda code, _value, data, offset=offset, length=length: self._came(code, data, offset, length),  # type: ignore[misc]
            )  # fmt: skip
        if self._received >= self._size and self._fd >= 0:
            os.fchmod(self._fd, self._mode)
            os.close(self._fd)
            self._fd = -1
            os.rename(self._part, self._target)
            self._staging.fetched(self._channel)

    def _came(self, code: int, data: memoryview, offset: int, length: int) -> None:
        if self._fd < 0 or self._staging.lost:
            return
        try:
            if code or len(data) != length:
                raise OSError(code, os.strerror(code) if code else "it became shorter while it was read", self._target)
            while data:
                count = os.pwrite(self._fd, data, offset)
                data, offset = data[count:], offset + count
            self._received += length
            self.go()
        except OSError as error:
            self.drop()
            self._staging.in_failed(OSError(error.errno, error.strerror, self._target))

    def drop(self) -> None:
        """Remove an incomplete file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            os.unlink(self._part)


class _Sending:
    """A file that is being sent to the launcher."""

    def __init__(self, staging: Staging, channel: int, fd: int, source: str, to: str) -> None:
        self._staging, self._channel, self._fd, self._source, self._to = staging, channel, fd, source, to
        found = os.fstat(fd)
        self._size, self._mode = found.st_size, found.st_mode & 0o777
        self._sent = self._taken = 0
        self._number = 1

    def begin(self, number: int, rank: int) -> None:
        """Have the launcher open the target."""
        told = json.dumps({"size": self._size, "mode": self._mode}).encode()
        self._staging.files.ask(self._channel, 1, STAGE_OUT, number, rank, told, lambda *answer: self._next(0, *answer))

    def _next(self, count: int, code: int, _value: int, data: memoryview) -> None:
        if self._fd < 0 or self._staging.lost:
            return
        if code:
            self._refused(code, data)
            return
        self._taken += count
        while self._sent < self._size and self._sent - self._taken < DEPTH * PIECE:
            try:
                piece = os.pread(self._fd, min(PIECE, self._size - self._sent), self._sent)
            except OSError as error:
                self._end(OSError(error.errno, error.strerror, self._source))
                return
            if not piece:
                self._end(OSError(5, "it became shorter while it was read", self._source))
                return
            self._ask(WRITE_AT, self._sent, piece)
            self._sent += len(piece)
        if self._taken >= self._size:
            self._ask(CLOSE, 0, b"")

    def _ask(self, op: int, offset: int, piece: bytes) -> None:
        self._number += 1
        count = len(piece)
        self._staging.files.ask(
            self._channel, self._number, op, offset, count, piece,
            self._closed if op == CLOSE else lambda *answer: self._next(count, *answer),
        )  # fmt: skip

    def _closed(self, code: int, _value: int, data: memoryview) -> None:
        if code:
            self._refused(code, data)
        else:
            self._end(None)

    def _refused(self, code: int, data: memoryview) -> None:
        """The launcher cannot create the copy; the error names its path there."""
        self._end(
            OSError(code, bytes(data).decode("utf-8", "replace") or f"{self._to}: {os.strerror(code)}", self._source)
        )

    def _end(self, error: Optional[OSError]) -> None:
        os.close(self._fd)
        self._fd = -1
        if error is None:
            self._staging.sent(self._channel)
        else:
            self._staging.out_failed(self._channel, error)


def _is(target: str, told: List[int]) -> bool:
    """True if the target is the same file, on a shared file system or on this machine."""
    try:
        found = os.stat(target)
    except OSError:
        return False
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns] == told
