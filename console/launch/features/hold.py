"""What yod does for a launch beyond the plain way: hold it and let it go, sleep, lend its terminal, tell stacks.

Made only where the request has a manner.
"""

from __future__ import annotations

import os
import signal

from agents.wire.errors import WireError
from console.launch.daemons.connect import user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop, Timer
    from console.launch.events.crashes import Traces
    from console.launch.events.stream import Stream
    from console.launch.options.run import RunOptions
    from console.launch.states import Launch
    from console.launch.stdio.frontend import Front
    from console.launch.stdio.tty import RawTerminal

_READ = 1  # EPOLLIN
_AGAIN_S = 0.5
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL))


class Hold:
    """``down(message)`` speaks to the tree; ``feed()`` begins with standard input."""

    def __init__(
        self,
        manner: RunOptions,
        loop: Loop,
        launch: Launch,
        front: Front,
        stream: Stream,
        down: Callable[[dict[str, Any]], None],
        feed: Callable[[], None],
    ) -> None:
        self._manner, self._loop, self._launch = manner, loop, launch
        self._front, self._stream, self._down, self._feed = front, stream, down, feed
        self.held = False
        self._timer: Timer | None = None
        self._watching = False
        self._terminal: RawTerminal | None = None
        self._traces: Traces | None = None

    @property
    def mpir_file(self) -> str:
        """Where the process table is to be written; "" for nowhere."""
        return self._manner.mpir_file

    @property
    def patience_s(self) -> float:
        """Seconds that the launch may stand still longer than others."""
        return self._manner.sleep_s

    # before GO

    def confirm(self, confirm: Callable[[], None]) -> None:
        """Every process is held: ``confirm`` now, or when yod has slept."""
        if not self._manner.confirm_after_s:
            confirm()
            return
        launcher, state = self._launch.launcher, self._launch.state
        self._front.status(f"every process is held; sleeping {self._manner.confirm_after_s:g} s before GO")

        def wake() -> None:
            if self._launch.state is state and self._launch.launcher == launcher:
                confirm()

        self._loop.after(self._manner.confirm_after_s, wake)

    # GO

    def went(self, *, feeds: bool) -> None:
        """GO has been given; ``feeds``: somebody reads standard input."""
        self._feeds = feeds
        if self._manner.pty is not None:
            self._lend()
        if self._manner.hold:
            self._hold()
        elif feeds:
            self._feed()

    def _hold(self) -> None:
        self.held = True
        ranks = self._launch.ranks
        for rank, (pid, at) in enumerate(ranks.pids):
            self._front.line(f"yod: rank {rank} on {ranks.node_name(at)}: pid {pid}")
        self._stream.emit({"event": "held", "launcher": self._launch.launcher})
        ways = [f"yod --release {self._launch.launcher}"]
        if self._manner.release_after_s is not None:
            self._timer = self._loop.after(self._manner.release_after_s, self.release)
            ways.append(f"after {self._manner.release_after_s:g} s by itself")
        if self._manner.asks and self._terminal is None and self._feeds and os.isatty(0):
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # a read in the background gives EIO then
            self._await_enter()
            ways.insert(0, "Enter")
        elif not self._manner.asks:
            ways[0] += f" as {user()} on {os.uname().nodename}"  # a batch job's output is read elsewhere
        self._front.line(f"yod: held at the first instruction; to let them run: {', or '.join(ways)}")
        if len(ways) == 1 and not self._manner.limited:
            self._front.line("yod: until then it keeps its processors (-release-after S or -time LIMIT would end that)")

    def _await_enter(self) -> None:
        if not self.held:
            return
        try:
            if os.tcgetpgrp(0) == os.getpgrp():
                self._watching = True
                self._loop.watch(0, _READ, self._on_enter)
                return
        except OSError:
            pass
        self._loop.after(_AGAIN_S, self._await_enter)

    def _on_enter(self, _events: int) -> None:
        self._unwatch()
        try:
            line = os.read(0, 4096)
        except OSError:
            self._loop.after(_AGAIN_S, self._await_enter)
            return
        if line:
            self.release()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.unwatch(0)

    def release(self) -> None:
        """Let a held launch run. WireError when it is not held."""
        if not self.held:
            raise WireError("this launch is not held")
        self._let_go()
        if self._feeds:
            self._feed()

    def _let_go(self) -> None:
        self.held = False
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        self._down({"op": "signal", "signal": int(signal.SIGCONT), "ranks": None})
        self._stream.emit({"event": "released", "launcher": self._launch.launcher})
        self._front.status("released")

    def signalled(self, number: int) -> None:
        """A signal has gone to the ranks: one that is to end them has to reach them."""
        if self.held and number in _ENDING:
            self._let_go()

    # the terminal

    def _lend(self) -> None:
        if not os.isatty(0):
            return
        from console.launch.options.run import window
        from console.launch.stdio.tty import RawTerminal

        try:
            self._terminal = RawTerminal(0)
        except OSError as error:
            self._front.status(f"the terminal cannot be lent: {error}")
            return
        self._front.newline = b"\r\n"

        def resized() -> None:
            rows, columns = window()
            self._down({"op": "winsize", "rows": rows, "columns": columns})

        self._loop.on_signal(signal.SIGWINCH, resized)
        resized()  # what was meanwhile

    def close(self) -> None:
        """The end: the terminal is as it was."""
        if self._terminal is not None:
            self._terminal.restore()
            self._front.newline = b"\n"

    # stacks

    def trace(self, message: dict[str, Any]) -> None:
        """A node's ``backtrace``. ValueError, TypeError, KeyError for what is none."""
        if self._traces is None:
            from console.launch.events.crashes import Traces

            self._traces = Traces()
        trace = message["trace"]
        self._traces.add(message["rank"], message["node"], trace)
        event = {"event": "backtrace", "rank": message["rank"], "node": message["node"], "signal": message["signal"]}
        self._stream.emit({**event, "tool": trace["tool"], "note": trace["note"], "threads": trace["threads"]})

    def last_lines(self) -> list[str]:
        """What stands behind the completion lines."""
        return self._traces.rows() if self._traces is not None else []
