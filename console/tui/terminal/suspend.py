"""Gives the whole terminal to ``mesh debug`` and takes it back."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from textual.app import App, SuspendNotSupported

from redmesh.start_command import start_command

TOOLS = ("gdb", "pdb", "strace", "py-spy")


def lend(app: App[Any], launcher: int, rank: int, tool: str) -> str:
    """Runs the tool on a rank, on the terminal, until it ends; what went wrong, or an empty string.

    The console stands still meanwhile: nobody sees it, and no launch waits for it.
    """
    words = [*start_command("mesh"), "debug", str(launcher), str(rank), tool]
    try:
        with app.suspend():
            print(f"mesh debug {launcher} {rank} {tool}   (leaving it leads back to the console)", flush=True)
            # ^C is the tool's: a handler, which exec puts back to its default, keeps it from us
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
