"""An open file of a mounted directory: gathers writes, sends them without waiting for answers, and reads ahead."""

from __future__ import annotations

import time

from agents.pct.files.fuse import LARGEST, WRITE_OUT
from agents.pct.files.remote_io import HANDLE, READ_FILE, WRITE_FILE

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Protocol, Tuple, Union

    from agents.pct.files.fuse import FuseDevice
    from agents.pct.files.inodes import Inode
    from agents.pct.files.remote_io import Answer

    class Mount(Protocol):
        """The part of a mount that a file needs (agents/pct/files/mounted.py)."""

        device: FuseDevice
        under_way: int

        def ask(self, op: int, offset: int, length: int, data: bytes, then: Answer) -> None: ...

        def gathers(self, file: "OpenFile") -> None: ...

        def may_fetch(self, size: int) -> bool: ...

        def when_room(self, then: "Callable[[], None]") -> None: ...

        def room(self) -> None: ...

    Waiting = Tuple[int, int, int]  # unique, offset, size of a read

PIECE = LARGEST
_AHEAD = 4  # pieces to read ahead for a sequential reader
_GATHERED = 256 << 10  # bytes of gathered writes that are sent at once
_FRESH_S = 1.0  # how long a piece that was read ahead may be used


class _Piece:
    """A piece that was read ahead; ``content`` is None until it has arrived."""

    __slots__ = ("content", "fetched", "waiting")

    def __init__(self) -> None:
        self.content: "Optional[memoryview]" = None
        self.fetched = 0.0
        self.waiting: "List[Waiting]" = []


class OpenFile:
    """``handle`` is yod's handle; 0 while unknown. ``content``: the whole file, if it is small."""

    __slots__ = (
        "_at", "_content", "_content_ends", "_gathered", "_gathered_size", "_last_piece", "_mount", "_on_settled",
        "_pieces", "_runs", "_unanswered", "appends", "error", "handle", "inode",
    )  # fmt: skip

    def __init__(
        self, mount: Mount, inode: Inode, handle: int, *, appends: bool, content: "Optional[memoryview]"
    ) -> None:
        self._mount, self.inode, self.handle, self.appends, self._content = mount, inode, handle, appends, content
        self._content_ends = time.monotonic() + _FRESH_S
        self._gathered: "List[bytes]" = []
        self._at = self._gathered_size = self._unanswered = 0
        self._on_settled: "List[Callable[[], None]]" = []
        self.error = 0  # the error of a write that was answered early; reported by the next write, fsync or close
        self._pieces: "Dict[int, _Piece]" = {}
        self._last_piece, self._runs = -2, 0

    # Writes

    def write(self, unique: int, offset: int, data: memoryview) -> None:
        """Take a program's write, and reply as soon as there is room for more."""
        if self.error:
            self._mount.device.fail(unique, self.error)
            return
        count = len(data)
        self.changed()
        if self._gathered and not (self.appends or offset == self._at + self._gathered_size):
            self.push()
        if not self._gathered:
            self._at = offset
            self._mount.gathers(self)
        self._gathered.append(bytes(data))
        self._gathered_size += count
        if self._gathered_size >= _GATHERED:
            self.push()
        self._mount.when_room(lambda: self._mount.device.reply(unique, WRITE_OUT.pack(count, 0)))

    def push(self) -> None:
        """Send the gathered writes."""
        if not self._gathered:
            return
        parts, size = self._gathered, self._gathered_size
        self._gathered, self._gathered_size = [], 0
        data = HANDLE.pack(self.handle) + b"".join(parts)
        self._unanswered += size
        self._mount.under_way += size
        self._mount.ask(WRITE_FILE, self._at, size, data, lambda code, _value, _data: self._written(size, code))

    def _written(self, size: int, code: int) -> None:
        self._unanswered -= size
        self._mount.under_way -= size
        if code:
            self.error = code
        if not self._unanswered:
            then, self._on_settled = self._on_settled, []
            for call in then:
                call()
        self._mount.room()

    def settle(self, then: "Callable[[], None]") -> None:
        """Call ``then`` when yod has answered every write."""
        self.push()
        if self._unanswered:
            self._on_settled.append(then)
        else:
            then()

    def take_error(self) -> int:
        """The errno of a failed write, reported once; 0 if none failed."""
        code, self.error = self.error, 0
        return code

    # Reads

    def changed(self) -> None:
        """Pieces that were read ahead are out of date."""
        for file in self.inode.opened:
            file.drop_fetched()

    def drop_fetched(self) -> None:
        """Discard all pieces."""
        self._content = None
        if self._pieces:
            self._pieces = {at: piece for at, piece in self._pieces.items() if piece.waiting}
            for piece in self._pieces.values():
                piece.fetched = -1.0  # only for readers that already wait

    def read(self, unique: int, offset: int, size: int) -> None:
        """Answer a read: from memory at once, otherwise when the data arrives."""
        content = self._content
        if content is not None and time.monotonic() > self._content_ends:
            content = self._content = None
        if content is not None:
            self._mount.device.reply(unique, content[offset : offset + size])
            return
        at = offset // PIECE
        if (offset + size - 1) // PIECE != at or not self._goes_on(at):
            self._read_exactly(unique, offset, size)
            return
        self._use(at, (unique, offset, size))
        if self._runs > 1:
            for following in range(at + 1, at + 1 + _AHEAD):
                if following not in self._pieces and self._mount.may_fetch(PIECE):
                    self._fetch(following)

    def _goes_on(self, at: int) -> bool:
        if at in (self._last_piece, self._last_piece + 1):
            self._runs += 1
        elif at != self._last_piece - 1:
            self._runs = 0
        self._last_piece = at
        for old in [old for old, piece in self._pieces.items() if old < at - 1 and not piece.waiting]:
            del self._pieces[old]
        return self._runs > 0 or at in self._pieces

    def _read_exactly(self, unique: int, offset: int, size: int) -> None:
        def answer(code: int, _value: int, data: memoryview) -> None:
            if code:
                self._mount.device.fail(unique, code)
            else:
                self._mount.device.reply(unique, data)

        self._mount.ask(READ_FILE, offset, size, HANDLE.pack(self.handle), answer)

    def _use(self, at: int, wanted: Waiting) -> None:
        piece = self._pieces.get(at)
        if piece is not None and (
            piece.fetched < 0 or (piece.content is not None and time.monotonic() - piece.fetched > _FRESH_S)
        ):
            piece = None
        if piece is None:
            piece = self._fetch(at)
        if piece.content is None:
            piece.waiting.append(wanted)
        else:
            self._give(piece.content, at, wanted)

    def _fetch(self, at: int) -> _Piece:
        piece = self._pieces[at] = _Piece()
        self._mount.under_way += PIECE

        def here(code: int, _value: int, data: memoryview) -> None:
            self._mount.under_way -= PIECE
            waiting, piece.waiting = piece.waiting, []
            if code or len(data) < PIECE or piece.fetched < 0:  # the end of the file may change soon
                if self._pieces.get(at) is piece:
                    del self._pieces[at]
            else:
                piece.content, piece.fetched = data, time.monotonic()
            for wanted in waiting:
                if code:
                    self._mount.device.fail(wanted[0], code)
                else:
                    self._give(data, at, wanted)
            self._mount.room()

        self._mount.ask(READ_FILE, at * PIECE, PIECE, HANDLE.pack(self.handle), here)
        return piece

    def _give(self, content: "Union[bytes, memoryview]", at: int, wanted: Waiting) -> None:
        unique, offset, size = wanted
        begin = offset - at * PIECE
        self._mount.device.reply(unique, content[begin : begin + size])
