"""The handling of a crash: restores the terminal, writes a report to the state directory, and prints a line that
names it.

Errors that Python notices end the application in order (ConsoleApp). For all others (a segmentation fault, ``kill -9``,
no memory) a guard process notices the console's end and restores the terminal.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import platform
import re
import signal
import termios
import time
import traceback
from typing import TYPE_CHECKING, Any

from redmesh.sanitise import clean
from redmesh.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many reports are kept, so that repeated crashes do not fill the disk.
KEPT = 10
_PREFIX = "console-crash-"
#: Undoes what Textual's driver and widgets switch on: bracketed paste, reports of size, mouse and focus, the keyboard
#: protocol, colours, the alternate screen; enables line wrapping and the cursor.
_RESET = (
    b"\x1b[?2004l\x1b[?2048l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2026l"
    b"\x1b[<u\x1b[0m\x1b[?1049l\x1b[?7h\x1b[?25h\r"
)
_DONE = b"done"
_TIMED_OUT = "Timeout"  # what faulthandler writes first when its time is over
_PASSWORD = re.compile(r"(\b[\w+]+://[^\s:/@]*:)[^\s@]+@")
_COOKIE = re.compile(r"\b[0-9a-fA-F]{16,}\b")  # no id, pid or address (0x…) looks like this
_SECRET_NAMES = ("COOKIE", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "_KEY")


def write_report(state_dir: str, what: str, error: BaseException | None) -> str:
    """Write a report; returns a text about where it is, or why there is none. ``what``: one line about the crash."""
    stack = "".join(traceback.format_exception(error)) if error is not None else ""
    return write_text(state_dir, what, stack)


def write_text(state_dir: str, what: str, stack: str) -> str:
    """Like :func:`write_report`, for a stack that is text already."""
    name = time.strftime(f"{_PREFIX}%Y%m%d-%H%M%S-{os.getpid()}.txt")
    path = os.path.join(state_dir, name)
    text = "\n".join([
        f"mesh console {VERSION}: {without_secrets(what)}",
        time.strftime("at %Y-%m-%d %H:%M:%S %z"),
        f"Python {platform.python_version()}, Textual {_version('textual')}, Rich {_version('rich')}",
        f"{platform.platform()}, TERM={os.environ.get('TERM', '')}",
        "",
        without_secrets(stack) or "No traceback: the process ended without a word (killed, or no memory left).",
        "",
    ])  # fmt: skip
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        _remove_old(state_dir)
    except OSError as failed:
        return f"no report: {path} cannot be written: {failed.strerror}"
    return f"the report is in {path}"


def without_secrets(text: str) -> str:
    """``text`` without passwords, cookies and similar values of the environment."""
    for name, value in os.environ.items():
        if len(value) >= 6 and any(word in name.upper() for word in _SECRET_NAMES):
            text = text.replace(value, "***")
    return _COOKIE.sub("***", _PASSWORD.sub(r"\1***@", text))


def fault(what: str) -> str:
    """The message about an uncaught error."""
    return f"a fault of the console itself: {what}"


def told(what: str, where: str) -> str:
    """The one line for the user."""
    return clean(f"mesh console: {without_secrets(what)} ({where})")


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _remove_old(state_dir: str) -> None:
    found = sorted(name for name in os.listdir(state_dir) if name.startswith(_PREFIX))
    for name in found[:-KEPT]:
        os.unlink(os.path.join(state_dir, name))


class TerminalGuard:
    """Restores the terminal if the console dies of something that Python does not notice. Call ``stand_down`` at a
    normal end.

    The guard is a process that is forked before there are any threads. It reads from a pipe until the console closes it
    by its end; faulthandler writes the stack of a fatal signal into the same pipe.
    """

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._ends = False
        try:
            self._before: list[Any] | None = termios.tcgetattr(0)
        except termios.error:
            self._before = None
        reader, self._line = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._line)
                self._watch(reader)
            finally:
                os._exit(0)
        os.close(reader)
        faulthandler.enable(self._line, all_threads=True)

    def end_after(self, seconds: float) -> None:
        """End the console that soon if it has not ended by itself; the report then says what it was doing. A second
        call changes nothing. It works without the interpreter's lock."""
        if self._line >= 0 and not self._ends:
            self._ends = True
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._line)

    def stand_down(self) -> None:
        """End the guard without an action: the terminal has been restored."""
        if self._line < 0:
            return
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
        line, self._line = self._line, -1
        with contextlib.suppress(OSError):
            os.write(line, _DONE)
        with contextlib.suppress(OSError):
            os.close(line)
            os.waitpid(self._pid, 0)

    def put_back(self) -> None:
        """Restore the terminal."""
        put_back(0, 2, self._before)

    def _watch(self, reader: int) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH,
                       signal.SIGTTOU, signal.SIGTTIN, signal.SIGPIPE):  # fmt: skip
            signal.signal(number, signal.SIG_IGN)
        # Close all other descriptors inherited from the console: other processes see by them that it has ended.
        line = fcntl.fcntl(reader, fcntl.F_DUPFD, 100)
        os.closerange(3, line)
        os.closerange(line + 1, 1 << 16)
        said = b""
        while piece := os.read(line, 65536):
            said += piece
        if said.endswith(_DONE):
            return
        put_back(0, 2, self._before)
        stack = said.decode("utf-8", "replace")
        first = stack.partition("\n")[0]
        what = fault(first) if first else "the console was killed; its terminal was put back"
        if first.startswith(_TIMED_OUT):
            what = fault("it was asked to end, and handled nothing any more")
        with contextlib.suppress(OSError):
            line_of_text = told(what, write_text(self._state_dir, what, stack))
            os.write(2, line_of_text.encode("utf-8", "replace") + b"\r\n")


def discard_typed(terminal: int) -> None:
    """Discard what was typed for the console: the shell would take it for commands."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(terminal, termios.TCIFLUSH)


def put_back(terminal: int, output: int, before: Sequence[Any] | None) -> None:
    """Undo what a full-screen application did to the terminal. A closed terminal is left alone."""
    with contextlib.suppress(OSError, termios.error):
        # A shell in control of the terminal may have changed it: restore only what is still raw.
        if before is not None and not termios.tcgetattr(terminal)[3] & (termios.ICANON | termios.ECHO):
            termios.tcsetattr(terminal, termios.TCSANOW, list(before))
            discard_typed(terminal)
    with contextlib.suppress(OSError):
        os.write(output, _RESET)
