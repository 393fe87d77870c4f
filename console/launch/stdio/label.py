"""``-label``: whole lines as bytes, each prefixed with its rank."""

from __future__ import annotations

#: Longer lines are broken; so is the longest held line if all held data exceeds MOST.
LONGEST = 64 << 10
MOST = 4 << 20


class Labeller:
    """Turns output into whole labelled lines, holding one unfinished line for each rank and stream."""

    def __init__(self, size: int) -> None:
        self._width = len(str(max(0, size - 1)))
        self._held: dict[tuple[int, int], bytearray] = {}
        self._bytes = 0

    def _prefix(self, rank: int) -> bytes:
        return b"%*d: " % (self._width, rank)

    def feed(self, kind: int, rank: int, data: bytes | memoryview) -> bytes:
        """The lines completed by ``data``; the rest after the last newline is held."""
        whole, newline, rest = bytes(data).rpartition(b"\n")
        out = b""
        if newline:
            held = self._take(kind, rank)
            prefix = self._prefix(rank)
            out = prefix + (held + whole).replace(b"\n", b"\n" + prefix) + b"\n"
        if rest:
            line = self._held.setdefault((kind, rank), bytearray())
            line += rest
            self._bytes += len(rest)
            while len(line) > LONGEST:
                out += self._prefix(rank) + line[:LONGEST] + b"\n"
                del line[:LONGEST]
                self._bytes -= LONGEST
        return out

    def relieve(self) -> list[tuple[int, int, bytes]]:
        """``(stream, rank, bytes)`` to write now because too much data is held."""
        freed = []
        while self._bytes > MOST:
            kind, rank = max(self._held, key=lambda key: len(self._held[key]))
            freed.append((kind, rank, self._end(kind, rank)))
        return freed

    def end(self) -> list[tuple[int, int, bytes]]:
        """``(stream, rank, bytes)`` of unfinished lines; a newline is added."""
        return [(kind, rank, self._end(kind, rank)) for kind, rank in sorted(self._held)]

    def _end(self, kind: int, rank: int) -> bytes:
        held = self._take(kind, rank)
        return self._prefix(rank) + held + b"\n" if held else b""

    def _take(self, kind: int, rank: int) -> bytes:
        held = bytes(self._held.pop((kind, rank), b""))
        self._bytes -= len(held)
        return held
