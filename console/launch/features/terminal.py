"""``-pty``: one rank uses yod's terminal."""

from __future__ import annotations

import os
import signal

from console.launch.features.feature import Feature
from console.launch.options.run import window
from console.launch.stdio.tty import RawTerminal


class LentTerminal(Feature):
    """Sets the terminal raw from GO to the end of the ranks, and restores it in every case."""

    def __init__(self) -> None:
        self._terminal: RawTerminal | None = None

    @property
    def lent(self) -> bool:
        """True if a rank uses the terminal."""
        return self._terminal is not None

    def after_go(self, *, reads_input: bool) -> None:
        """Set the terminal raw and send its size, if standard input is a terminal."""
        if not os.isatty(0):
            return
        try:
            self._terminal = RawTerminal(0)
        except OSError as error:
            self.context.front.status(f"the terminal cannot be lent: {error}")
            return
        self.context.front.newline = b"\r\n"
        self.context.loop.on_signal(signal.SIGWINCH, self._tell_size)
        self._tell_size()  # the size may have changed meanwhile

    def _tell_size(self) -> None:
        rows, columns = window()
        self.context.send({"op": "winsize", "rows": rows, "columns": columns})

    def before_completion(self) -> None:
        """Restore the terminal, because yod prints its own lines now."""
        self.close()

    def close(self) -> None:
        if self._terminal is not None:
            self._terminal.restore()
            self.context.front.newline = b"\n"
