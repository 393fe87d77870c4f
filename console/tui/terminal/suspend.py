"""Gives the terminal to the shell or to ``mesh debug``, and takes it back."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual.app import App, SuspendNotSupported

from redmesh.start_command import start_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.driver import Driver

#: Debuggers, what each shows, and how to leave it.
TOOLS = {
    "gdb": "stops it: C frames and values; quit leaves",
    "pdb": "stops it: Python frames, if it called redmesh.debug_on_request() or has Python 3.14; q leaves",
    "strace": "its system calls; ^C leaves",
    "py-spy": "its Python frames once",
}


def can_stop() -> bool:
    """True if a shell with job control waits for this process: nothing else continues a process that stops itself.

    Under a script, ``ssh -t host mesh console`` or ``xterm -e`` there is none, and the terminal would be dead.
    """
    parent = os.getppid()
    try:
        return os.getpgid(parent) != os.getpgrp() and os.getsid(parent) == os.getsid(0)
    except OSError:  # another pid namespace, or it has just exited
        return False


def continued(base: type[Driver]) -> type[Driver]:
    """A driver that takes the terminal back after SIGSTOP too, of which nothing is known before SIGCONT.

    Textual (8.2.8) would begin a second time: two threads read keys then, and the modes that it restores at the end are
    its own. An application that ends does not begin again: it would leave its modes to the shell.

    Both signals are answered by the event loop. Textual writes to the terminal in their handlers, which may interrupt
    such a write while it holds the lock of the writer's queue: the console stood still for ever.
    """

    class Continued(base):  # type: ignore[misc, valid-type]
        def _sigtstp_application(self, *words: Any) -> None:
            self._soon(super()._sigtstp_application)

        def _sigcont_application(self, *words: Any) -> None:
            self._soon(self._take_back)

        def _soon(self, answer: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(answer)

        def _take_back(self) -> None:
            if self._app._exit:
                return
            stopped_itself = self._must_signal_resume  # type: ignore[has-type]
            if self._auto_restart and not stopped_itself and self._writer_thread is not None:
                self.suspend_application_mode()
                self._must_signal_resume = True
            super()._sigcont_application()

    return Continued


def lend(app: App[Any], launcher: int, rank: int, tool: str) -> str:
    """Run the tool on a rank in this terminal until it ends; returns the error, or "".

    The console is suspended meanwhile; no launch waits for it.
    """
    words = [*start_command("mesh"), "debug", str(launcher), str(rank), tool]
    try:
        with app.suspend():
            print(f"mesh debug {launcher} {rank} {tool}   (leaving it leads back to the console)", flush=True)
            # ^C is for the tool: this handler makes the console ignore it; exec resets it to the default in the tool.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                status = subprocess.run(words, check=False).returncode
                if status:
                    input(f"it ended with status {status}; Enter goes back ")
            except (EOFError, KeyboardInterrupt):
                pass
            finally:
                signal.signal(signal.SIGINT, before)
    except SuspendNotSupported:
        return "this terminal cannot be lent (a browser?): run mesh debug in a shell"
    except OSError as error:
        return f"mesh debug could not be started: {error.strerror}"
    return ""
