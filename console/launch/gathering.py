"""``-gather``: standard output told at the end, once for all ranks that wrote the same (gather.py keeps it)."""

from __future__ import annotations

from agents.wire.frames import STDOUT
from console.launch.gather import Gather

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.front import Front

_AHEAD = 1 << 20  # bytes of the report that may wait for our reader
_LOOK_S = 0.005


class GatherFront:
    """A front that holds standard output back; standard error and all else is the ``inner`` front's at once."""

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
        """The number of ranks is known."""
        self._gather = Gather(size)
        self._inner.planned(size)

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        """What a rank wrote."""
        if kind != STDOUT or self._gather is None:
            self._inner.output(kind, rank, data)
            return
        try:
            self._gather.feed(rank, data)
        except OSError as error:
            self._on_broken(f"what is gathered cannot be kept: {error.strerror}", 125)
        self._on_passed(len(data))

    def output_ended(self) -> None:
        """Every rank has ended: begin to tell."""
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
        self._on_passed(0)  # the engine looks again whether all is drained

    @property
    def drained(self) -> bool:
        """Whether all output has been taken."""
        return self._report is None and self._inner.drained
