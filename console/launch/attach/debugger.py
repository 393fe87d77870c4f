"""The user's side of a debugger on one rank: connects this terminal to the debugger.

The node's side is agents/pct/debug/debugger.py.
"""

from __future__ import annotations

import os
import signal

from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.wire.control import decode
from agents.wire.frames import CONTROL
from agents.wire.messages import check_hello, hello
from console.errors import ConsoleError
from console.launch.attach.client import reach_launch
from console.launch.attach.stacks import tools
from console.launch.options.run import window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.launch.stdio.tty import RawTerminal

_PIECE = 4096
_AGAIN_S = 0.5
_END = "\x04"  # ^D, the only EOF that a terminal has


class Debugging:
    """A debug session; ``run`` returns when the debugger, or the launch, has ended."""

    def __init__(self, run_dir: str, launcher: int, rank: int, words: list[str]) -> None:
        sock = reach_launch(run_dir, launcher)
        if sock is None:
            raise ConsoleError(f"launcher {launcher} is over", "mesh history shows how it ended")
        self._launcher = launcher
        self._loop = Loop()
        self._terminal: RawTerminal | None = None
        self._greeted = self._over = self._from_file = False
        self._error: ConsoleError | None = None
        self._link = Link(self._loop, sock, self._on_frame, self._on_end)
        rows, columns = window()
        begin = {"op": "debug", "rank": rank, "command": words, "rows": rows, "columns": columns}
        self._link.send(hello("observer"))
        self._link.send({**begin, "term": os.environ.get("TERM", "dumb"), "tools": tools()})

    def run(self) -> int:
        """Run the session. Raises ConsoleError if the rank or the debugger does not exist."""
        try:
            self._lend()
            while not self._over:
                self._loop.run_once(None)
        finally:
            if self._terminal is not None:
                self._terminal.restore()
            self._link.close()
        if self._error is not None:
            raise self._error
        return 0

    def _lend(self) -> None:
        if os.isatty(0):
            from console.launch.stdio.tty import RawTerminal

            self._terminal = RawTerminal(0)
            self._loop.on_signal(signal.SIGWINCH, self._resized)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self._loop.on_signal(number, self._leave)
        try:
            self._loop.watch(0, READ, self._on_typed)
        except PermissionError:  # a file is always ready
            self._from_file = True
            self._loop.after(0, lambda: self._on_typed(READ))

    def _resized(self) -> None:
        rows, columns = window()
        self._link.send({"op": "debug_size", "rows": rows, "columns": columns})

    def _leave(self) -> None:
        self._over = True  # the node notices the end of the connection

    def _on_typed(self, _events: int) -> None:
        try:
            data = os.read(0, _PIECE)
        except OSError:
            data = b""
        if not data:
            self._loop.unwatch(0)
            self._end_input()
            return
        self._link.send({"op": "debug_type", "data": data.decode("latin-1")})
        if self._from_file:
            self._loop.after(0, lambda: self._on_typed(READ))

    def _end_input(self) -> None:
        # Send ^D repeatedly: a debugger may take the first one as the answer to a question.
        self._link.send({"op": "debug_type", "data": _END})
        self._loop.after(_AGAIN_S, self._end_input)

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            return
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
            return
        name = message.get("event")
        if name == "debug_said":
            self._write(message["data"].encode("latin-1", "replace"))
        elif name == "debug_over":
            self._end(str(message.get("message", "")), str(message.get("hint", "")))
        elif name == "refused":
            self._end(str(message.get("text", "")), "")

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(1, view) :]
        except OSError:
            self._over = True
            return
        self._link.send({"op": "debug_taken", "bytes": len(data)})

    def _end(self, message: str, hint: str) -> None:
        self._over = True
        if message:
            self._error = ConsoleError(message, hint)

    def _on_end(self, _link: Link, _reason: str) -> None:
        if not self._over:
            self._end(f"launcher {self._launcher} has ended", "")
