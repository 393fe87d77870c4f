"""``-detach``: the launch goes on in a session of its own, and its launcher id is all that is left here."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def detach(launch: Callable[[Callable[[int], None]], int]) -> int:
    """Run ``launch(on_running)`` in a child of its own session; returns when it runs (0, its id on stdout) or failed.

    Nothing may have been connected before: a launcher is known by its process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_child(launch, writer)
    os.close(writer)
    try:
        told = _read_all(reader)
        if told:
            sys.stdout.write(told.decode("ascii"))
            sys.stdout.flush()
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        return 128 + signal.SIGINT


def _be_child(launch: Callable[[Callable[[int], None]], int], writer: int) -> None:
    status = 125
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

        def on_running(launcher: int) -> None:
            os.write(writer, b"%d\n" % launcher)
            os.close(writer)

        status = launch(on_running)
    finally:
        os._exit(status)


def _read_all(fd: int) -> bytes:
    told = b""
    while piece := os.read(fd, 64):
        told += piece
        if told.endswith(b"\n"):
            break
    os.close(fd)
    return told
