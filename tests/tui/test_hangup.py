"""The console leaves when it is asked to, whatever it does then, and leaves the terminal as it was where it can."""

import os
import select
import signal
import time
from pathlib import Path

import pytest

from tests.support.fixed_database import busy_machine
from tests.support.waiting import PATIENCE_S, freeze, wait_until
from tests.tui.test_escapes import START, Terminal

#: A console that handles nothing any more after SIGUSR1.
FREEZES = f"""
import os, signal, time
from console.tui.terminal import hangup
hangup.GRACE_S = 0.5
def freeze(*_):
    os.write(2, b"it is frozen")
    while True:
        time.sleep(0.01)
signal.signal(signal.SIGUSR1, freeze)
{START}
"""
#: A console that is continued while it puts the terminal back.
CONTINUED = f"""
import os, signal
from textual.drivers.linux_driver import LinuxDriver
enable = LinuxDriver._enable_line_wrap
def enabled(driver):
    enable(driver)
    os.kill(os.getpid(), signal.SIGCONT)
LinuxDriver._enable_line_wrap = enabled
{START}
"""
#: A console that is continued while it hands something to the thread that writes, once the file is there.
CONTINUED_IN_A_WRITE = f"""
import os, signal
from textual.drivers import _writer_thread
class Queue(_writer_thread.Queue):
    def _put(self, text):
        super()._put(text)
        if os.path.exists("interrupt"):
            os.unlink("interrupt")
            os.kill(os.getpid(), signal.SIGCONT)
_writer_thread.Queue = Queue
{START}
"""
#: No other screen, no mouse, a cursor.
PUT_BACK = ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h")


def test_a_hangup_puts_the_terminal_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("ring")
        terminal.process.send_signal(signal.SIGHUP)
        terminal.until(*PUT_BACK)
        assert terminal.process.wait() == 129


def test_a_console_that_is_continued_while_it_ends_does_not_begin_again(tmp_path: Path) -> None:
    """It left the line wrap off, or its whole screen (the monkey, seeds 105 and 106: ^C ^C, SIGSTOP, fg)."""
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url, start=CONTINUED) as terminal:
        terminal.until("ring")
        terminal.keys("q")
        with pytest.raises(OSError):  # its end closes the terminal
            terminal.read(PATIENCE_S)
        assert terminal.process.wait() == 0
        assert terminal.stream.rfind(b"\x1b[?7h") > terminal.stream.rfind(b"\x1b[?7l")
        assert terminal.stream.rfind(b"\x1b[?1049l") > terminal.stream.rfind(b"\x1b[?1049h")


def test_a_terminal_that_is_gone_is_noticed(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("ring")
        held, terminal._master = terminal._master, os.open(os.devnull, os.O_RDWR)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and select.select([held], [], [], 0.1)[0]:
            os.read(held, 65536)
        os.close(held)
        assert terminal.process.wait() in (129, -signal.SIGHUP)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "^C^C"])
def test_a_console_that_handles_nothing_any_more_ends_all_the_same(tmp_path: Path, how: str) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url, start=FREEZES) as terminal:
        terminal.until("ring")
        terminal.process.send_signal(signal.SIGUSR1)
        terminal.until("it is frozen")
        if how == "^C^C":
            terminal.keys("\x03\x03")
        else:
            terminal.process.send_signal(getattr(signal, how))
        terminal.until(*PUT_BACK, "it was asked to end, and handled nothing any more")
        assert terminal.process.wait() == 1
        [report] = tmp_path.rglob("console-crash-*.txt")
        assert "in freeze" in report.read_text()


def test_two_interrupts_leave_and_one_says_so(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("ring")
        terminal.keys("\x03")
        terminal.until("again leaves")
        terminal.keys("\x03\x03")
        terminal.until(*PUT_BACK)
        assert terminal.process.wait() == 130


def test_a_console_that_is_continued_in_the_middle_of_a_write_goes_on(tmp_path: Path) -> None:
    """It stood still for ever (the monkey, seed 1)."""
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url, start=CONTINUED_IN_A_WRITE) as terminal:
        terminal.until("ring")
        terminal.stream = b""
        (tmp_path / "interrupt").touch()
        terminal.keys("l")
        terminal.until("\x1b[?1049h")  # it has taken the terminal back
        terminal.stream = b""
        terminal.keys("q")
        terminal.until(*PUT_BACK)
        assert terminal.process.wait() == 0


def test_what_was_typed_for_a_console_that_died_does_not_reach_the_shell(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("ring")
        freeze(terminal.process.pid)  # or its thread that reads keys may still read the line
        terminal.keys("touch it\n")
        wait_until(terminal.waiting, "the line is there")
        terminal.process.kill()
        terminal.until("the console was killed")
        assert terminal.waiting() == 0


def test_it_is_suspended_and_comes_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url, group=0) as terminal:
        terminal.until("ring")
        terminal.keys("\x1a")
        terminal.until(*PUT_BACK)

        def stopped() -> bool:
            terminal.read(0.05)  # it waits until what it wrote was read
            with open(f"/proc/{terminal.process.pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "T"

        wait_until(stopped, "it is stopped")
        terminal.stream = b""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until("\x1b[?1049h", "Redmesh", "free")
        terminal.keys("q")
        terminal.until(*PUT_BACK)
        assert terminal.process.wait() == 0


def test_it_is_not_suspended_where_no_shell_would_continue_it(tmp_path: Path) -> None:
    """A script waits for the console to exit, and its shell for the script: the terminal was dead."""
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:  # in the process group of its parent
        terminal.until("ring")
        terminal.keys("\x1a")
        terminal.until("needs a shell")
        terminal.keys("q")
        terminal.until(*PUT_BACK)
        assert terminal.process.wait() == 0
