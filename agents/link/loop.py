"""A small event loop over epoll: descriptors, timers, signals. Single-threaded; it can be abandoned after a fork."""

from __future__ import annotations

import os
import select
import time

from agents.link.lean import heappop, heappush, signal

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple


READ, WRITE = select.EPOLLIN, select.EPOLLOUT
BROKEN = select.EPOLLHUP | select.EPOLLERR
#: A timer this late means that this process was stopped: then data that arrived meanwhile is read first, with at most
#: this many polls.
_LATE_S, _MOST_POLLS = 0.5, 16


class Timer:
    """A call due at ``due`` (monotonic seconds), unless it is cancelled."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback: Optional[Callable[[], None]] = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None


class Loop:
    """Waits for events and calls back. ``run`` returns after ``stop``."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: Dict[int, Callable[[int], None]] = {}
        self._masks: Dict[int, int] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = 0
        self._running = False
        self._signals: Dict[int, Callable[[], None]] = {}
        self._wakeup: Optional[Tuple[int, int]] = None
        #: Links that are closed when their peers have taken the last data, oldest first (agents/link/link.py).
        self.closing: Dict[Any, None] = {}

    def watch(self, fd: int, mask: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(events)`` whenever ``fd`` is ready; replaces an earlier watch of the same fd."""
        if fd in self._watched:
            if self._masks[fd] != mask:
                self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._watched[fd] = callback
        self._masks[fd] = mask

    def unwatch(self, fd: int) -> None:
        """Stop watching ``fd``; call this before the descriptor is closed."""
        if self._watched.pop(fd, None) is not None:
            del self._masks[fd]
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # already closed

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, ``delay_s`` seconds from now."""
        timer = Timer(time.monotonic() + delay_s, callback)
        self._count += 1
        heappush(self._timers, (timer.due, self._count, timer))
        return timer

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` from the loop (never from the signal handler) when the signal arrives."""
        if self._wakeup is None:
            reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._wakeup = (reader, writer)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            self.watch(reader, READ, self._on_wakeup)
        self._signals[number] = callback
        # a forked child inherits the parent's handlers unless they were reset
        if signal.getsignal(number) is not _nothing:
            signal.signal(number, _nothing)

    def _on_wakeup(self, _events: int) -> None:
        assert self._wakeup is not None
        try:
            arrived = os.read(self._wakeup[0], 4096)
        except BlockingIOError:
            return
        for number in dict.fromkeys(arrived):
            callback = self._signals.get(number)
            if callback is not None:
                callback()

    def run(self) -> None:
        """Run until :meth:`stop`."""
        self._running = True
        while self._running:
            self.run_once(None)

    def stop(self) -> None:
        """Have :meth:`run` return after this round's callbacks."""
        self._running = False

    def run_once(self, timeout_s: Optional[float]) -> None:
        """Wait for events for at most ``timeout_s`` (None: for ever), then make the calls that are due."""
        wait = self._until_timer()
        if timeout_s is not None:
            wait = timeout_s if wait is None else min(wait, timeout_s)
        self._poll(-1 if wait is None else wait)
        now = time.monotonic()
        if self._timers and now - self._timers[0][0] > _LATE_S:
            # The epoll.poll() of a process that was stopped for longer than its time-out returns nothing, even if
            # events are ready.
            for _ in range(_MOST_POLLS):
                if not self._poll(0):
                    break
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)[2]
            due, timer.callback = timer.callback, None
            if due is not None:
                due()

    def _poll(self, wait_s: float) -> bool:
        ready = self._epoll.poll(wait_s)
        for fd, events in ready:
            callback = self._watched.get(fd)
            if callback is not None:
                callback(events)
        return bool(ready)

    def _until_timer(self) -> Optional[float]:
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def close(self) -> None:
        """Release everything, and restore default signal actions."""
        for number in self._signals:
            signal.signal(number, signal.SIG_DFL)
        self._signals.clear()
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: release the parent's loop without affecting the descriptors that the parent watches.

        The signals it handled are ignored until a loop handles them again.
        """
        self._epoll.close()
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for fd in self._wakeup:
                os.close(fd)
            self._wakeup = None
        self._watched.clear()
        self._timers.clear()
        self.closing.clear()


def _nothing(_number: int, _frame: object) -> None:
    pass
