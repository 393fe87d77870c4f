"""Run a command on a new pseudo-terminal and type into it."""

import fcntl
import os
import select
import signal
import struct
import termios
import time
from pathlib import Path

from tests.support.waiting import PATIENCE_S, wait_until


class Typist:
    """Runs ``command`` with descriptors 0, 1 and 2 on a new pseudo-terminal, its controlling terminal."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path, rows: int = 30, columns: int = 100) -> None:
        # The slave stays open, so that its modes can be read after the command's exit.
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.seen = b""
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(self.slave, fd)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                    signal.signal(number, signal.SIG_DFL)
                os.chdir(cwd)
                os.execvpe(command[0], command, env)
            finally:
                os._exit(127)

    def resize(self, rows: int, columns: int) -> None:
        """Change the window size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type ``text``."""
        os.write(self.master, text.encode())

    def read(self, text: str) -> str:
        """Wait until ``text`` is written; return the output before it. AssertionError on a timeout."""
        wanted, until = text.encode(), time.monotonic() + PATIENCE_S
        while wanted not in self.seen:
            assert time.monotonic() < until, f"{text!r} did not come; there was {self.seen!r}"
            self._take()
        before, _, self.seen = self.seen.partition(wanted)
        return before.decode("utf-8", "replace")

    def _take(self) -> None:
        if select.select([self.master], [], [], 0.05)[0]:
            self.seen += os.read(self.master, 65536)

    @property
    def modes(self) -> list[object]:
        """The terminal's attributes (tcgetattr)."""
        return termios.tcgetattr(self.slave)

    @property
    def cooked(self) -> bool:
        """Whether the terminal is in cooked mode: ICANON and ISIG are set."""
        return bool(int(self.modes[3]) & termios.ICANON and int(self.modes[3]) & termios.ISIG)  # type: ignore[call-overload]

    def wait(self) -> int:
        """Wait for the command's end; return its exit status."""
        wait_until(self._ended, "the command has ended")
        assert self.status is not None
        return self.status

    def _ended(self) -> bool:
        self._take()
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def close(self) -> None:
        """Kill the command if it still runs, and close the terminal."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
        os.close(self.slave)
