"""The output of a launch for the user: raw or labelled output, status lines, or a stream of JSON."""

from __future__ import annotations

import errno

from agents.wire.frames import STDERR, STDOUT
from console.errors import numbered
from console.launch.stdio.label import Labeller
from console.launch.stdio.sink import Sink
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.events.spool import SpoolTrimmer
    from console.launch.options.request import Request

#: The exit status of a filter whose reader has exited: 128 + SIGPIPE.
BROKEN_PIPE = 141


class Front:
    """The frontend on stdout and stderr. Ranks' output is raw; yod's own lines go to stderr, sanitised.

    ``on_passed(bytes)`` returns output credit; ``on_broken(message, exit status)`` reports that stdout is unwritable.
    """

    spool_path = ""
    dropping: SpoolTrimmer | None = None  # the trimmer of a spool
    newline = b"\n"  # the end of yod's own lines; a raw terminal also needs a carriage return

    def __init__(
        self, loop: Loop, request: Request, on_passed: Callable[[int], None], on_broken: Callable[[str, int], None]
    ) -> None:
        self._on_broken_output = on_broken
        self.quiet = request.stdio.quiet or request.stdio.batch
        self.out = Sink(loop, 1, on_passed, self._stdout_broke)
        self.err = Sink(loop, 2, on_passed, lambda _error: None)
        self._labeller: Labeller | None = None
        self._label = request.stdio.label
        self._on_passed = on_passed

    def planned(self, size: int) -> None:
        """Set the number of ranks."""
        if self._label:
            self._labeller = Labeller(size)

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        """Print a rank's output."""
        sink = self.out if kind == STDOUT else self.err
        if self._labeller is None:
            sink.push(data, len(data))
            return
        lines = self._labeller.feed(kind, rank, data)
        if lines:
            sink.push(lines, len(data))
        else:
            self._on_passed(len(data))
        for which, _rank, line in self._labeller.relieve():
            (self.out if which == STDOUT else self.err).push(line, 0)

    def output_ended(self) -> None:
        """Print unfinished labelled lines, when every rank has ended and all output has arrived."""
        if self._labeller is not None:
            for which, _rank, line in self._labeller.end():
                (self.out if which == STDOUT else self.err).push(line, 0)

    def event(self, event: dict[str, Any]) -> None:
        """Do nothing: events are not printed."""

    def complain(self, message: str, hint: str = "") -> None:
        """Print an error."""
        self.line(f"yod: {numbered(message, hint)}")

    def status(self, text: str) -> None:
        """Print a status line; not in a batch job or with -quiet."""
        if not self.quiet:
            self.line(f"yod: {text}")

    def line(self, text: str) -> None:
        """Print a sanitised line on stderr."""
        self.err.push(clean(text).encode("utf-8", "replace") + self.newline, 0)

    @property
    def drained(self) -> bool:
        """True if all output has been written."""
        return not (self.out.waiting or self.err.waiting)

    def _stdout_broke(self, error: OSError) -> None:
        if error.errno == errno.EPIPE:
            self._on_broken_output("", BROKEN_PIPE)
        else:
            self._on_broken_output(f"standard output cannot be written: {error.strerror}", 125)


class JsonFront(Front):
    """``--json``: every event, and output as base64, one object a line on stdout."""

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        import binascii

        stream = "stderr" if kind == STDERR else "stdout"
        text = binascii.b2a_base64(data, newline=False)
        self.out.push(
            b'{"event":"output","rank":%d,"stream":"%s","data":"%s"}\n' % (rank, stream.encode(), text), len(data)
        )

    def event(self, event: dict[str, Any]) -> None:
        from agents.wire.control import encode

        self.out.push(encode(event) + b"\n", 0)
