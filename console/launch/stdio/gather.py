"""Gathers the standard output of ranks and prints identical output once (``--gather``, like clush -b).

Each rank's stream is cut into blocks at the same offsets, and equal blocks are stored once, so ranks with equal output
cost almost no memory. Blocks beyond ``memory`` go to an unnamed file; data beyond ``disk`` is discarded, and the header
of each affected group says how much.
"""

from __future__ import annotations

from agents.wire.frames import STDOUT
from console.launch.options.lists import fold
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.stdio.frontend import Front

MEMORY = 16 << 20
DISK = 1 << 30  # the same limit as for a detached launch's spool
_DIGEST = 16
_RULE = b"-" * 15 + b"\n"


class Group:
    """Ranks with equal output. ``left_out``: how many bytes of each rank were discarded."""

    __slots__ = ("digests", "left_out", "ranks", "size", "tail")

    def __init__(self, digests: bytes, tail: bytes, left_out: int, size: int) -> None:
        self.ranks: list[int] = []
        self.digests, self.tail, self.left_out, self.size = digests, tail, left_out, size

    @property
    def header(self) -> bytes:
        """Three lines in clush's format: ``ranks 0..3,7 (5)`` between rules."""
        name = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"ranks {fold(self.ranks)} ({len(self.ranks)})"
        note = (
            f"; {counted(self.left_out, 'byte')} left out: there was no more room to gather them"
            if self.left_out
            else ""
        )
        return _RULE + (name + note).encode() + b"\n" + _RULE


class _Stream:
    __slots__ = ("digests", "hasher", "left_out", "tail")

    def __init__(self) -> None:
        self.digests, self.tail, self.left_out = bytearray(), bytearray(), 0
        self.hasher: object = None  # hash of the discarded data: truncated outputs are equal only if these are


class Gather:
    """Stores the output of ranks; the groups of equal output can be read at any time, also after ^C."""

    def __init__(self, ranks: int, memory: int = MEMORY, disk: int = DISK) -> None:
        self._memory, self._disk = memory, disk
        # An incomplete block is held for every rank: together at most a quarter of the memory, or 4 KiB per rank.
        self._block = max(4096, min(65536, memory // (4 * max(1, ranks))))
        self._streams: dict[int, _Stream] = {}
        self._blocks: dict[bytes, bytes | int] = {}  # digest → the block, or its offset in the file
        self._held = self._written = 0
        self._file = -1

    def feed(self, rank: int, data: bytes | memoryview) -> None:
        """Add output of ``rank``. Raises OSError if the overflow file cannot be written."""
        stream = self._streams.get(rank)
        if stream is None:
            stream = self._streams[rank] = _Stream()
        view = memoryview(data)
        while view:
            if stream.left_out:
                self._leave_out(stream, view)
                return
            part = view[: self._block - len(stream.tail)]
            stream.tail += part
            view = view[len(part) :]
            if len(stream.tail) == self._block:
                self._keep(stream)

    def _keep(self, stream: _Stream) -> None:
        digest = _digest(stream.tail)
        if digest not in self._blocks:
            if self._held + self._block <= self._memory * 3 // 4:
                self._blocks[digest] = bytes(stream.tail)
                self._held += self._block
            elif self._written + self._block <= self._disk:
                self._blocks[digest] = self._spill(stream.tail)
            else:
                block = bytes(stream.tail)
                stream.tail.clear()
                self._leave_out(stream, memoryview(block))
                return
        stream.digests += digest
        stream.tail.clear()

    def _leave_out(self, stream: _Stream, data: memoryview) -> None:
        if stream.hasher is None:
            from hashlib import blake2b

            stream.hasher = blake2b(digest_size=_DIGEST)
        stream.hasher.update(data)  # type: ignore[attr-defined]
        stream.left_out += len(data)

    def _spill(self, block: bytearray) -> int:
        import os

        if self._file < 0:
            from tempfile import TemporaryFile

            with TemporaryFile(prefix="yod-gather-") as file:
                self._file = os.dup(file.fileno())
        at, view = self._written, memoryview(block)
        while view:
            done = os.pwrite(self._file, view, at + self._block - len(view))
            view = view[done:]
        self._written += self._block
        return at

    def groups(self) -> list[Group]:
        """The groups of ranks with equal output: the largest group first, then by first rank."""
        found: dict[tuple[bytes, bytes, int, bytes], Group] = {}
        for rank in sorted(self._streams):
            stream = self._streams[rank]
            rest: bytes = stream.hasher.digest() if stream.hasher else b""  # type: ignore[attr-defined]
            key = (bytes(stream.digests), bytes(stream.tail), stream.left_out, rest)
            if not any(key[:3]):
                continue
            if key not in found:
                size = len(key[0]) // _DIGEST * self._block + len(key[1])
                found[key] = Group(key[0], key[1], stream.left_out, size)
            found[key].ranks.append(rank)
        return sorted(found.values(), key=lambda group: (-len(group.ranks), group.ranks[0]))

    def output(self, group: Group) -> Iterator[bytes]:
        """The output of each rank of ``group``, in pieces of at most 64 KiB."""
        import os

        for at in range(0, len(group.digests), _DIGEST):
            block = self._blocks[group.digests[at : at + _DIGEST]]
            yield os.pread(self._file, self._block, block) if isinstance(block, int) else block
        if group.tail:
            yield group.tail

    def report(self) -> Iterator[bytes]:
        """The complete report: header and output of each group; a header always begins a line."""
        for group in self.groups():
            yield group.header
            last = b"\n"
            for piece in self.output(group):
                yield piece
                last = piece
            if not last.endswith(b"\n"):
                yield b"\n"

    def close(self) -> None:
        """Free the memory and the file."""
        import os

        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._streams.clear()
        self._blocks.clear()


def _digest(block: bytearray) -> bytes:
    from hashlib import blake2b  # 128 bits against accidents and against malicious ranks: 2**64 blocks for a collision

    return blake2b(block, digest_size=_DIGEST).digest()


# ``-gather``: prints standard output at the end, once for all ranks with the same output.


_AHEAD = 1 << 20  # bytes of the report that may wait to be written
_LOOK_S = 0.005


class GatherFront:
    """A frontend that holds standard output until the end; everything else goes to ``inner`` at once."""

    def __init__(
        self, inner: Front, loop: Loop, on_passed: Callable[[int], None], on_broken: Callable[[str, int], None]
    ) -> None:
        self._inner, self._loop = inner, loop
        self._on_passed, self._on_broken = on_passed, on_broken
        self._gather: Gather | None = None
        self._report: Iterator[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def planned(self, size: int) -> None:
        """Set the number of ranks."""
        self._gather = Gather(size)
        self._inner.planned(size)

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        """Gather a rank's standard output; pass its standard error to ``inner``."""
        if kind != STDOUT or self._gather is None:
            self._inner.output(kind, rank, data)
            return
        try:
            self._gather.feed(rank, data)
        except OSError as error:
            self._on_broken(f"what is gathered cannot be kept: {error.strerror}", 125)
        self._on_passed(len(data))

    def output_ended(self) -> None:
        """Start printing, because every rank has ended."""
        self._inner.output_ended()
        if self._gather is not None:
            self._report = self._gather.report()
            self._tell()

    def _tell(self) -> None:
        out = self._inner.out
        while self._report is not None and out.waiting < _AHEAD and not out.broken:
            piece = next(self._report, None)
            if piece is None:
                self._over()
                return
            out.push(piece, 0)
        if out.broken:
            self._over()
        else:
            self._loop.after(_LOOK_S, self._tell)

    def _over(self) -> None:
        self._report = None
        if self._gather is not None:
            self._gather.close()
        self._on_passed(0)  # so that the engine checks again whether everything is drained

    @property
    def drained(self) -> bool:
        """True if the report and all other output have been written."""
        return self._report is None and self._inner.drained
