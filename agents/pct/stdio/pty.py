"""A rank with a terminal (``yod --pty``); the launch child holds its master side."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

#: Ends the input of a program that reads a terminal line by line.
END = b"\x04"


class Terminal:
    """A new terminal with this many rows and columns: ``master`` is ours, ``slave`` the rank's."""

    __slots__ = ("master", "slave")

    def __init__(self, rows: int, columns: int) -> None:
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """The window has a new size; the kernel tells the program (SIGWINCH)."""
        size = struct.pack("HHHH", max(0, min(rows, 0xFFFF)), max(0, min(columns, 0xFFFF)), 0, 0)
        try:
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
        except OSError:
            pass  # its program has exited
