"""Sets yod's terminal raw while one rank uses it, and restores it in every case."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import tty


class RawTerminal:
    """Sets the terminal ``fd`` raw; ``restore`` undoes that. A guard process restores it if this process is killed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._guard, self._line = self._start_guard()
        tty.setraw(fd, termios.TCSADRAIN)
        self.restored = False

    def _start_guard(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        guard = os.fork()
        if guard == 0:
            try:
                os.close(writer)
                self._stand_guard(reader)
            finally:
                os._exit(0)
        os.close(reader)
        return guard, writer

    def _stand_guard(self, reader: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH):
            signal.signal(number, signal.SIG_IGN)
        # Close all descriptors but the pipe and the terminal: daemons detect yod's exit by the end of its connections.
        line = fcntl.fcntl(reader, fcntl.F_DUPFD, 100)
        terminal = fcntl.fcntl(self._fd, fcntl.F_DUPFD, line + 1)
        os.closerange(0, line)
        os.closerange(line + 1, terminal)
        os.closerange(terminal + 1, 1 << 16)
        if os.read(line, 1):
            return  # yod has restored it itself
        # A shell that came to the foreground meanwhile may have changed it: restore only what is still raw.
        now = termios.tcgetattr(terminal)
        if not now[3] & (termios.ICANON | termios.ECHO | termios.ISIG):
            termios.tcsetattr(terminal, termios.TCSADRAIN, self._before)

    def restore(self) -> None:
        """Restore the terminal."""
        if self.restored:
            return
        self.restored = True
        try:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
        except termios.error:
            pass  # the terminal was hung up
        try:
            os.write(self._line, b"x")
            os.close(self._line)
            os.waitpid(self._guard, 0)
        except OSError:
            pass
