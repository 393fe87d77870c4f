"""``-label``: turns output into whole lines, each prefixed with its rank."""

from __future__ import annotations

#: A line longer than LONGEST is split; so is the longest unfinished line if all unfinished lines exceed MOST bytes.
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
        """Return the labelled lines that ``data`` completes; hold the rest after the last newline."""
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
        """Return ``(stream, rank, bytes)`` of unfinished lines that must be written now, to limit the held data."""
        freed = []
        while self._bytes > MOST:
            kind, rank = max(self._held, key=lambda key: len(self._held[key]))
            freed.append((kind, rank, self._end(kind, rank)))
        return freed

    def end(self) -> list[tuple[int, int, bytes]]:
        """Return ``(stream, rank, bytes)`` of all unfinished lines, with a newline added."""
        return [(kind, rank, self._end(kind, rank)) for kind, rank in sorted(self._held)]

    def _end(self, kind: int, rank: int) -> bytes:
        held = self._take(kind, rank)
        return self._prefix(rank) + held + b"\n" if held else b""

    def _take(self, kind: int, rank: int) -> bytes:
        held = bytes(self._held.pop((kind, rank), b""))
        self._bytes -= len(held)
        return held
