"""Python stacks written by the rank itself with faulthandler, if it has called redmesh.debug_on_request().

This needs no tool and no ptrace, and works while the program is in a C call. The rank has a memory file for the stacks;
its name contains the signal that requests them (agents/yodio/yodpdb.py).
"""

from __future__ import annotations

import os

from agents.linux import processes
from agents.pct.debug import crash
from redmesh.byte_text import from_bytes, from_system

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

    from agents.link.loop import Loop
    from agents.pct.debug.stack_tree import Call

    Threads = Tuple[List[Call], Dict[int, List[Call]]]  # calls of the main thread, and of the others

_NAME = "/memfd:redmesh-stacks-"
_LOOKS_S, _LIMIT_S = 0.02, 1.0
_MOST = 1 << 20
_FILE = '  File "'


def offered(pid: int) -> "Tuple[str, int]":
    """The file to which ``pid`` writes and the signal that requests it; "" if it offers none."""
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            _, found, number = os.readlink(f"{folder}/{name}").partition(_NAME)
            if found:
                signal = int(number.split()[0])
                caught = int(crash.field(pid, "SigCgt") or "0", 16)
                # Without a handler, the signal might kill the process.
                return (f"{folder}/{name}", signal) if caught >> (signal - 1) & 1 else ("", 0)
    except (OSError, ValueError, IndexError):
        pass  # it has exited, or is closing files
    return "", 0


def read(text: str) -> "Threads":
    """The calls of all threads in faulthandler's output, the innermost first."""
    main: List[Call] = []
    others: Dict[int, List[Call]] = {}
    now = main
    for line in text.splitlines():
        if line.startswith("Current thread "):
            now = main
        elif line.startswith("Thread "):
            now = others[-1 - len(others)] = []
        elif line.startswith(_FILE):
            path, _, rest = line[len(_FILE) :].rpartition('", line ')
            number, _, function = rest.partition(" in ")
            if number.isdigit():
                name = from_system(os.path.basename(_unescaped(path)))
                now.insert(0, (_unescaped(function), name, int(number), "python"))
    return main, others


def _unescaped(text: str) -> str:
    """Undo the escapes of faulthandler, which writes ASCII alone: an é is ``\\xe9``, the byte E9 ``\\udce9``."""
    if "\\" not in text:
        return text
    import re

    def character(found: "re.Match[str]") -> str:
        return chr(int(found.group(1) or found.group(2) or found.group(3), 16))

    return re.sub(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U(00[0-9a-f]{6})", character, text)


class Asking:
    """Requests the stacks of ``pid``; ``then`` gets them, without calls if it wrote none. Raises OSError."""

    def __init__(self, loop: Loop, pid: int, then: Callable[[Threads], None]) -> None:
        self._loop, self._then = loop, then
        path, number = offered(pid)
        if not path:
            raise FileNotFoundError(pid)
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by the last check)
        self._from = self._size = os.fstat(self._file.fileno()).st_size
        self._looks = 0
        processes.send_signal(pid, number)
        self._timer = loop.after(_LOOKS_S, self._look)

    def _look(self) -> None:
        self._looks += 1
        size = os.fstat(self._file.fileno()).st_size
        whole = size == self._size and size > self._from
        if not whole and self._looks * _LOOKS_S < _LIMIT_S:
            self._size = size
            self._timer = self._loop.after(_LOOKS_S, self._look)
            return
        data = os.pread(self._file.fileno(), min(_MOST, size - self._from), self._from)
        self._file.close()
        self._then(read(from_bytes(data)))

    def cancel(self) -> None:
        """Stop waiting."""
        self._timer.cancel()
        self._file.close()
