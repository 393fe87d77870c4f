"""``-output`` and ``-error``: writes the ranks' output to files. A shared file is opened once.

Files are opened when every process is held, so that a launch that never ran truncates no file. A link as the last
component is followed, as by the shell's >, but not in a directory where other users may write.
"""

from __future__ import annotations

import errno
import os
import stat

from agents.wire.frames import STDERR, STDOUT
from console.errors import ConsoleError, next_step
from console.launch.stdio.label import Labeller
from console.launch.stdio.sink import Sink
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.options.output import OutputOptions
    from console.launch.options.patterns import Pattern
    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.stdio.frontend import Front

_MANY = 200  # descriptors that every process may have


class FilesFront:
    """A frontend whose stdout, stderr or both go to files; everything else goes to the frontend ``inner``."""

    def __init__(
        self,
        inner: Front,
        loop: Loop,
        request: Request,
        options: OutputOptions,
        on_passed: Callable[[int], None],
        on_broken: Callable[[str, int], None],
    ) -> None:
        self._inner, self._loop, self._options = inner, loop, options
        self._on_passed, self._on_broken = on_passed, on_broken
        self._label = request.stdio.label
        self._labeller: Labeller | None = None
        self._by_name: dict[str, Sink] = {}
        self._by_file: dict[tuple[int, int], Sink] = {}
        self._sinks: dict[tuple[int, int], Sink] = {}  # by kind and rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def take_inner(self, inner: Any) -> None:
        """Replace the frontend for everything that does not go to files."""
        self._inner = inner

    def open(self, plan: Plan, launcher: int) -> None:
        """Open the files of every rank's output. Raises ConsoleError for the first unwritable one."""
        if self._label:
            self._labeller = Labeller(plan.size)
        if plan.size > _MANY:
            from agents.link.acceptor import allow_many_files

            allow_many_files()
        options = self._options
        for kind, pattern in ((STDOUT, options.output), (STDERR, options.error)):
            if pattern is None:
                continue
            for node in plan.nodes:
                for local, rank in enumerate(node.ranks):
                    self._sinks[kind, rank] = self._sink(pattern, rank, node.name, launcher, local)

    def _sink(self, pattern: Pattern, rank: int, node: str, launcher: int, local: int) -> Sink:
        name = pattern.fill(rank, node, launcher, local)
        sink = self._by_name.get(name)
        if sink is None:
            try:
                sink = self._by_name[name] = self._opened(name)
            except OSError as error:
                who = f" (rank {rank})" if pattern.one_each else ""
                hint = next_step(error, writing=True)
                raise ConsoleError(f"{clean(name)}{who} cannot be opened: {_why(error)}", hint) from None
        return sink

    def _opened(self, name: str) -> Sink:
        # Do not truncate by open(): this process may have the file open under another name.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        if os.stat(os.path.dirname(name) or ".").st_mode & stat.S_IWOTH:
            flags |= os.O_NOFOLLOW
        fd = os.open(name, flags, 0o666)
        status = os.fstat(fd)
        which = (status.st_dev, status.st_ino)
        known = self._by_file.get(which)
        if known is not None:
            os.close(fd)
            return known
        if stat.S_ISREG(status.st_mode):
            os.ftruncate(fd, 0)
        sink = Sink(self._loop, fd, self._on_passed, lambda error: self._broke(name, error))
        self._by_file[which] = sink
        return sink

    def _broke(self, name: str, error: OSError) -> None:
        self._on_broken(f"{clean(name)} cannot be written: {_why(error)}", 125)

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        """Write a rank's output to its file, or pass it to ``inner``."""
        sink = self._sinks.get((kind, rank))
        if sink is None:
            self._inner.output(kind, rank, data)
            return
        if self._labeller is None:
            sink.push(data, len(data))
            return
        lines = self._labeller.feed(kind, rank, data)
        if lines:
            sink.push(lines, len(data))
        else:
            self._on_passed(len(data))
        for which, whose, line in self._labeller.relieve():
            self._sinks[which, whose].push(line, 0)

    def output_ended(self) -> None:
        """Write unfinished labelled lines, when every rank has ended and all output has arrived."""
        if self._labeller is not None:
            for which, whose, line in self._labeller.end():
                self._sinks[which, whose].push(line, 0)
        self._inner.output_ended()

    @property
    def drained(self) -> bool:
        """True if all output has been written."""
        return self._inner.drained and not any(sink.waiting for sink in self._by_name.values())


def _why(error: OSError) -> str:
    if error.errno == errno.ENXIO:
        return "it is a pipe that nobody reads"
    if error.errno == errno.ELOOP:
        return "it is a link in a directory where others may write, so it is not followed"
    return error.strerror or str(error)
