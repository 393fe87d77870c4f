"""Run a function in a forked process, which then pauses until it is killed."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def forks() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Yield ``start(what)``: fork, call ``what`` in the child, then return its pid. Kill all children at the end."""
    begun: list[int] = []

    def start(what: Callable[[], object]) -> int:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                what()
                os.write(writer, b"k")
                signal.pause()
            finally:
                os._exit(1)
        begun.append(pid)
        os.close(writer)
        assert os.read(reader, 1) == b"k"
        os.close(reader)
        return pid

    try:
        yield start
    finally:
        for pid in begun:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
