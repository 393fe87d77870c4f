"""A terminal that is hung up, or gone without a word: the console leaves, and leaves it as it was where it can."""

import os
import select
import signal
import time
from pathlib import Path

from tests.support.fixed_database import busy_machine
from tests.tui.test_escapes import Terminal


def test_a_hangup_puts_the_terminal_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("ring")
        terminal.process.send_signal(signal.SIGHUP)
        terminal.until("\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h")  # no other screen, no mouse, a cursor
        assert terminal.process.wait() == 129


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
