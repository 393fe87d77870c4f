"""A rank with a terminal of its own (``yod --pty``): the launch child holds the other end of it."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from agents.pct.stdio.stdin import PipeSink

_END = b"\x04"  # what ends the input of a program that reads a terminal line by line


class TerminalSink(PipeSink):
    """What is typed for the rank. Its end is a character: a terminal has no other."""

    def end(self) -> None:
        self.give(_END)
        super().end()


class Terminal:
    """A new terminal of so many rows and columns: ``master`` is ours, ``slave`` the rank's."""

    __slots__ = ("master", "slave")

    def __init__(self, rows: int, columns: int) -> None:
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """The window at the other end has another size; the kernel tells the program (SIGWINCH)."""
        size = struct.pack("HHHH", max(0, min(rows, 0xFFFF)), max(0, min(columns, 0xFFFF)), 0, 0)
        try:
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
        except OSError:
            pass  # its program has ended
