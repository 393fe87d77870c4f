"""Runs the clean-up executable beside the dispatch loop: start, input, reaping, and kill after a time-out."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agents.link.loop import Loop, Timer

if TYPE_CHECKING:
    from agents.linux.attempt import Attempt

LIMIT_S = 10.0
ENDED_WITH = "the clean-up ended with"
#: The begin of a reason of the built-in clean-up: the node has no PCT now.
NO_PCT = "its PCT does not answer"
AT_ONCE = 8  # after a reboot of a login processor, hundreds may be lost together

Then = Callable[[bool, str], None]


class _Run:
    __slots__ = ("began", "errors", "launcher", "nodes", "process", "thens", "timer")

    def __init__(self, launcher: int, nodes: list[dict[str, str]], then: Then) -> None:
        self.launcher, self.nodes, self.thens = launcher, nodes, [then]
        self.process: Attempt | None = None
        self.timer: Timer | None = None
        self.errors = -1
        self.began = 0.0


class Cleanups:
    """Running clean-ups, one for each launcher. ``command`` gets the launcher's id as its last argument."""

    def __init__(
        self, loop: Loop, command: list[str], limit_s: float = LIMIT_S, variables: Mapping[str, str] | None = None
    ) -> None:
        self._loop, self._command, self._limit_s = loop, command, limit_s
        self._environment = {**os.environ, **(variables or {})}
        self._runs: dict[int, _Run] = {}
        self._queue: deque[_Run] = deque()
        loop.on_signal(signal.SIGCHLD, self._reap)

    def run(self, launcher: int, nodes: list[dict[str, str]], then: Then) -> None:
        """Clean up ``launcher``; calls ``then(clean, stderr)``. A clean-up that already runs is shared."""
        running = self._runs.get(launcher)
        if running is not None:
            running.thens.append(then)
            return
        run = self._runs[launcher] = _Run(launcher, nodes, then)
        if sum(each.process is not None for each in self._runs.values()) >= AT_ONCE:
            self._queue.append(run)
        else:
            self._start(run)

    def stop(self) -> None:
        """Kill running clean-ups; nobody is told, because the RCA repeats its events."""
        for run in self._runs.values():
            self._kill(run)

    def _start(self, run: _Run) -> None:
        import subprocess  # 6 ms of a CPA's start

        from agents.linux.attempt import Attempt

        run.began = time.monotonic()
        feed = os.memfd_create("nodes")  # a pipe would block if the list is long and the child does not read
        run.errors = os.memfd_create("errors")
        try:
            os.write(feed, json.dumps(run.nodes).encode())
            os.lseek(feed, 0, os.SEEK_SET)
            # It ends with this CPA: the next one runs it again, and only the CPA that started it knows its time limit.
            run.process = Attempt(
                [*self._command, str(run.launcher)],
                stdin=feed,
                stdout=subprocess.DEVNULL,
                stderr=run.errors,
                start_new_session=True,
                env=self._environment,
            )
        except OSError as error:
            reason = f"{self._command[0]}: {error.strerror}"
            self._loop.after(0, lambda: self._end(run, False, reason))
            return
        finally:
            os.close(feed)
        run.timer = self._loop.after(self._limit_s, lambda: self._kill(run))

    def _kill(self, run: _Run) -> None:
        if run.process is not None and run.process.guard.poll() is None:
            run.process.kill()

    def _reap(self) -> None:
        for run in list(self._runs.values()):
            if run.process is None or run.process.guard.poll() is None:
                continue
            try:
                status = run.process.wait()
            except OSError as error:
                self._end(run, False, f"{self._command[0]}: {error.strerror}")
                continue
            said = os.pread(run.errors, 2000, 0).decode("utf-8", "replace").strip()
            if status < 0:
                took = time.monotonic() - run.began
                said = f"the clean-up was ended by signal {-status} after {took:.1f} s {said}".strip()
            elif status:
                said = f"{ENDED_WITH} {status}: {said}"
            self._end(run, status == 0, said)

    def _end(self, run: _Run, clean: bool, said: str) -> None:
        if run.timer is not None:
            run.timer.cancel()
        if run.errors >= 0:
            os.close(run.errors)
        del self._runs[run.launcher]
        if self._queue:
            self._start(self._queue.popleft())
        for then in run.thens:
            then(clean, said)
