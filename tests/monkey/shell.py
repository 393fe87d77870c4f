"""A shell with job control that runs nothing but the console, so that keys typed after its end run no command.

``python -m tests.monkey.shell DIRECTORY COMMAND…`` reads ``run OPTION…`` and ``fg`` from the FIFO ``orders``, and
writes to ``state``: ``running PID``, ``stopped PID``, ``ended STATUS``.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from pathlib import Path


def main(directory: str, command: list[str]) -> None:
    """Obey orders until the FIFO's directory is gone."""
    place = Path(directory)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it takes the terminal back from the background
    for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    modes = termios.tcgetattr(0)
    pid = 0
    _tell(place, "ended 0")
    while True:
        with open(place / "orders") as orders:
            order, *options = orders.read().split()
        if order == "run":
            termios.tcflush(0, termios.TCIFLUSH)
            pid = _start([*command, *options])
        elif order == "fg" and pid:
            os.tcsetpgrp(0, pid)
            os.killpg(pid, signal.SIGCONT)
        else:
            continue
        _tell(place, f"running {pid}")
        _, status = os.waitpid(pid, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if os.WIFSTOPPED(status):
            _tell(place, f"stopped {pid}")
        else:
            _tell(place, f"ended {os.waitstatus_to_exitcode(status)}")
            termios.tcsetattr(0, termios.TCSANOW, modes)


def _start(command: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGTSTP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    return pid


def _tell(place: Path, state: str) -> None:
    (place / "state.new").write_text(state)
    os.rename(place / "state.new", place / "state")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
