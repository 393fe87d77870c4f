"""Launches that wait on purpose: ``--hold`` at the ranks' first instruction, ``-sleep`` at a step of the launch."""

from __future__ import annotations

import os
import signal
import time

from agents.wire.errors import WireError
from console.launch.daemons.connect import user
from console.launch.features.feature import Feature
from console.launch.states import STEP_S, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.link.loop import Timer
    from console.launch.features.terminal import LentTerminal
    from console.launch.options.run import RunOptions

_READ = 1  # EPOLLIN
_AGAIN_S = 0.5
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL))


class Sleep(Feature):
    """``-sleep``: the nodes sleep at a step of the load, or yod itself sleeps before GO."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        seconds = self._options.confirm_after_s
        if not seconds:
            return True
        context = self.context
        launcher, state = context.launch.launcher, context.launch.state
        context.front.status(f"every process is held; sleeping {seconds:g} s before GO")

        def wake() -> None:
            if context.launch.state is state and context.launch.launcher == launcher:
                go_on()

        context.loop.after(seconds, wake)
        return False

    def sleeps(self) -> bool:
        asleep = time.monotonic() - self.context.moved < self._options.sleep_s + STEP_S / 2
        return asleep and self.context.launch.state in (State.LOADING, State.CONFIRMING)


class Hold(Feature):
    """Holds ranks at their first instruction until Enter, ``yod --release``, a time-out or a signal releases them."""

    holds_input = True

    def __init__(self, options: RunOptions, terminal: LentTerminal | None) -> None:
        self._options, self._terminal = options, terminal
        self.held = False
        self._reads_input = False
        self._timer: Timer | None = None
        self._watching = False

    def after_go(self, *, reads_input: bool) -> None:
        """Print the place of every rank and how to release the ranks; then wait for that."""
        self._reads_input = reads_input
        self.held = True
        context, options = self.context, self._options
        launcher, ranks = context.launch.launcher, context.launch.ranks
        for rank, (pid, at) in enumerate(ranks.pids):
            context.front.line(f"yod: rank {rank} on {ranks.node_name(at)}: pid {pid}")
        context.stream.emit({"event": "held", "launcher": launcher})
        ways = [f"yod --release {launcher}"]
        if options.release_after_s is not None:
            self._timer = context.loop.after(options.release_after_s, self._release)
            ways.append(f"after {options.release_after_s:g} s by itself")
        lent = self._terminal is not None and self._terminal.lent
        if not lent and reads_input and os.isatty(0):
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # a read in the background then fails with EIO
            self._await_enter()
            ways.insert(0, "Enter")
        elif not os.isatty(0):
            ways[0] += f" as {user()} on {os.uname().nodename}"  # a batch job's output is read on another machine
        context.front.line(f"yod: held at the first instruction; to let them run: {', or '.join(ways)}")
        if len(ways) == 1 and not options.limited:
            told = "until then it keeps its processors (-release-after S or -time LIMIT would end that)"
            context.front.line(f"yod: {told}")

    def _await_enter(self) -> None:
        if not self.held:
            return
        try:
            if os.tcgetpgrp(0) == os.getpgrp():
                self._watching = True
                self.context.loop.watch(0, _READ, self._on_enter)
                return
        except OSError:
            pass
        self.context.loop.after(_AGAIN_S, self._await_enter)

    def _on_enter(self, _events: int) -> None:
        self._unwatch()
        try:
            line = os.read(0, 4096)
        except OSError:
            self.context.loop.after(_AGAIN_S, self._await_enter)
            return
        if line:
            self._release()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self.context.loop.unwatch(0)

    def release(self) -> bool:
        """Release the ranks. Raises WireError if they are not held."""
        self._release()
        return True

    def _release(self) -> None:
        if not self.held:
            raise WireError("this launch is not held")
        self._let_go()
        self.context.front.status("released")
        if self._reads_input:
            self.context.start_input()

    def _let_go(self) -> None:
        self.held = False
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        context = self.context
        context.send({"op": "signal", "signal": int(signal.SIGCONT), "ranks": None})
        context.stream.emit({"event": "released", "launcher": context.launch.launcher})

    def after_signal(self, number: int, ranks: list[int] | None) -> None:
        """Release the ranks after a signal that ends them, so that it reaches them."""
        if self.held and number in _ENDING:
            self._let_go()
