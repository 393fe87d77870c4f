"""Serves file requests of ranks below the directories of ``--io``, and of nodes that stage files.

Requests are served one at a time, in order, while the link accepts the answers.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections import deque
from functools import partial

from agents.pct.files.remote_io import (  # fmt: skip
    ANSWER,
    CLOSE,
    GONE,
    LIST,
    OPEN,
    OWN,
    READ_AT,
    REQUEST,
    ROUTE,
    STAGE_FAILED,
    STAGE_IN,
    STAGE_OUT,
    STAT,
    STATE,
    TRUNCATE,
    WRITE_AT,
)
from agents.wire.control import decode, to_bytes
from agents.wire.errors import WireError
from agents.wire.frames import FILE, MAX_DATA
from console.launch.options.transfer import io_directory
from console.launch.transfer.file_system import FileSystem
from console.launch.transfer.sandbox import Roots
from console.launch.transfer.staging import Staged
from redmesh.byte_text import from_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.link import Link
    from console.launch.options.request import Request, StateOptions
    from console.launch.plan import Plan

    Reply = tuple[int, bytes]  # value, data

SENDING = 1 << 20  # while the link's queue has more bytes than this, no request is served
_LONGEST = MAX_DATA - 1024
_PAGE = 1000  # names of a directory in one answer
_MODES = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


class Open:
    """An open file of a channel. ``finish`` is called when the rank closes it, but not if its connection breaks."""

    __slots__ = ("append", "fd", "finish")

    def __init__(self, fd: int, append: bool = False, finish: Callable[[int], None] | None = None) -> None:
        self.fd, self.append, self.finish = fd, append, finish


class Files:
    """Serves the file requests that arrive on the link ``root``. ``say(text)`` reports a failed stage-out."""

    def __init__(self, request: Request, plan: Plan, launcher: int, root: Link, say: Callable[[str], None]) -> None:
        self._root, self._say = root, say
        self._roots = Roots([io_directory(text) for text in request.transfer.io])
        self._file_system = FileSystem(self._roots.roots)
        self._staged = Staged(request, plan, launcher)
        self._state, self._plan = request.state, plan
        self._open: dict[tuple[int, int], Open] = {}
        self._waiting: deque[bytes] = deque()
        self._do: dict[int, Callable[[tuple[int, int], int, int, memoryview], Reply]] = {
            OPEN: self._do_open,
            READ_AT: self._do_read,
            WRITE_AT: self._do_write,
            CLOSE: self._do_close,
            STAT: self._do_stat,
            LIST: self._do_list,
            TRUNCATE: self._do_truncate,
            STAGE_IN: self._do_stage_in,
            STAGE_OUT: self._do_stage_out,
            STAGE_FAILED: self._do_stage_failed,
        }
        self._serving = False
        self.failed = False

    def take(self, payload: bytes) -> None:
        """Queue and serve a FILE frame from the tree."""
        if len(payload) < 8 + REQUEST.size:
            raise WireError("no request for a file")
        self._waiting.append(payload)
        self.push()

    def push(self) -> None:
        """Serve waiting requests, if the link accepts more."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._waiting and self._root.out_bytes < SENDING:
                self._serve(memoryview(self._waiting.popleft()))
        finally:
            self._serving = False

    def _serve(self, payload: memoryview) -> None:
        key = int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")
        op, number, offset, length = REQUEST.unpack_from(payload, 8)
        if op == GONE:
            self._forget(key)
            if key[1] >= OWN:
                self._file_system.forget(key)
            if self._state is not None and self._state.relay is not None:
                self._state.relay.gone(key)
            return
        if op == STATE and self._state is not None and self._ask_owner(self._state, key, number, payload):
            return
        code, value, data = 0, 0, b""
        try:
            do = self._do.get(op)
            if op >= GONE and key[1] < OWN:
                do = None
            elif self._file_system.serves(op):
                do = partial(self._file_system.serve, op)
            if do is None:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            value, data = do(key, offset, length, payload[8 + REQUEST.size :])
        except OSError as error:
            code = error.errno or errno.EIO
            # The node's kernel knows the standard error texts, so they are not sent.
            data = b"" if error.strerror == os.strerror(code) else from_system(str(error.strerror)).encode()
        except (WireError, ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error):
            # A malformed request of a rank must not end the launch. (An offset may be larger than the kernel supports.)
            code = errno.EINVAL
        self._answer(key, number, code, value, data)

    def _ask_owner(self, state: StateOptions, key: tuple[int, int], number: int, payload: memoryview) -> bool:
        """Pass a rank's request to the owner of its job; return False if the launch has no owner."""
        node = self._plan.nodes[key[0]].name if key[0] < len(self._plan.nodes) else ""
        told = bytes(payload[8 + REQUEST.size :])

        def reply(data: bytes) -> None:
            self._answer(key, number, 0, 0, data)

        if state.relay is not None:
            state.relay.ask(key, told, node, reply)
        elif state.owner is not None:
            state.owner.ask(told, node, reply)
        else:
            return False
        return True

    def _answer(self, key: tuple[int, int], number: int, code: int, value: int, data: bytes) -> None:
        head = ROUTE.pack(FILE, 8 + ANSWER.size + len(data), *key) + ANSWER.pack(number, code, value)
        self._root.send_parts(head, data)

    def _of(self, key: tuple[int, int]) -> Open:
        found = self._open.get(key)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def _forget(self, key: tuple[int, int]) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            os.close(found.fd)

    # Operations

    def _do_open(self, key: tuple[int, int], _offset: int, _length: int, data: memoryview) -> Reply:
        asked = decode(bytes(data))
        mode = asked["mode"]
        self._forget(key)
        fd = self._roots.open(to_bytes(asked["path"]), _MODES[mode])
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind):
            os.close(fd)
            code = errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO
            raise OSError(code, os.strerror(code))
        self._open[key] = Open(fd, append=mode.startswith("a"))
        return 0, b""

    def _do_read(self, key: tuple[int, int], offset: int, length: int, _data: memoryview) -> Reply:
        data = os.pread(self._of(key).fd, min(length, _LONGEST), offset)
        return len(data), data

    def _do_write(self, key: tuple[int, int], offset: int, _length: int, data: memoryview) -> Reply:
        found = self._of(key)
        while data:
            if found.append:
                count = os.write(found.fd, data)
                offset = os.lseek(found.fd, 0, os.SEEK_CUR)
            else:
                count = os.pwrite(found.fd, data, offset)
                offset += count
            data = data[count:]
        return offset, b""  # after the last written byte

    def _do_close(self, key: tuple[int, int], _offset: int, length: int, _data: memoryview) -> Reply:
        found = self._of(key)
        del self._open[key]
        try:
            if found.finish is not None:
                found.finish(length)
        finally:
            os.close(found.fd)
        return 0, b""

    def _do_stat(self, key: tuple[int, int], _offset: int, _length: int, data: memoryview) -> Reply:
        if not data:
            return os.fstat(self._of(key).fd).st_size, b""
        fd = self._roots.open(to_bytes(decode(bytes(data))["path"]), os.O_PATH)
        try:
            return 0, _json([_entry("", os.fstat(fd))])
        finally:
            os.close(fd)

    def _do_list(self, _key: tuple[int, int], offset: int, _length: int, data: memoryview) -> Reply:
        fd = self._roots.open(to_bytes(decode(bytes(data))["path"]), os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = sorted(os.listdir(fd))
            entries = []
            for name in names[offset : offset + _PAGE]:
                try:
                    entries.append(_entry(name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
                except FileNotFoundError:
                    pass  # removed meanwhile
            following = offset + _PAGE
            return (following if following < len(names) else 0), _json(entries)
        finally:
            os.close(fd)

    def _do_truncate(self, key: tuple[int, int], offset: int, _length: int, _data: memoryview) -> Reply:
        os.ftruncate(self._of(key).fd, offset)
        return offset, b""

    def _do_stage_in(self, key: tuple[int, int], offset: int, length: int, _data: memoryview) -> Reply:
        fd, told = self._staged.source(offset, length)
        self._forget(key)
        self._open[key] = Open(fd)
        return os.fstat(fd).st_size, _json(told)

    def _do_stage_out(self, key: tuple[int, int], offset: int, length: int, data: memoryview) -> Reply:
        if not data:
            return 0, _json(self._staged.wanted(offset, length))
        fd, finish = self._staged.destination(offset, length, decode(bytes(data)))
        self._forget(key)
        self._open[key] = Open(fd, finish=finish)
        return 0, b""

    def _do_stage_failed(self, _key: tuple[int, int], _offset: int, _length: int, data: memoryview) -> Reply:
        self.failed = True
        self._say(bytes(data).decode("utf-8", "replace"))
        return 0, b""

    def close(self) -> None:
        """Close all files and directories, at the end of the launch."""
        for key in list(self._open):
            self._forget(key)
        self._file_system.close()
        self._staged.close()
        self._roots.close()


def _entry(name: str, found: os.stat_result) -> list[Any]:
    kind = "dir" if stat.S_ISDIR(found.st_mode) else "file" if stat.S_ISREG(found.st_mode) else "other"
    return [os.fsencode(name).decode("latin-1"), kind, found.st_size, int(found.st_mtime)]


def _json(value: Any) -> bytes:
    import json  # already imported for control frames

    return json.dumps(value).encode()
