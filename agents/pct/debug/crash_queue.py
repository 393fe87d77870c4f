"""Ranks that are dying of a signal, whose stacks are read first (``yod -bt``): the order, and the reports up the
tree.

agents/pct/debug/crash.py decides what a stop means. A helper process reads the stack, so the launch child continues.
"""

from __future__ import annotations

from agents.link.loop import READ, Loop
from agents.linux import prctl
from agents.pct.debug import crash

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

#: The most ranks of a node and launch whose stacks are read; further ones die as without -bt.
MOST = 64


class Faults:
    """Handles the stops of all traced threads. ``rank_of(pid)`` gives a rank's number; ``tell`` and ``note`` send
    messages up."""

    def __init__(
        self,
        loop: Loop,
        node: str,
        at_once: int,
        rank_of: "Callable[[int], Optional[int]]",
        tell: "Callable[[Dict[str, Any]], None]",
        note: "Callable[[str], None]",
    ) -> None:
        self._loop, self._node, self._at_once = loop, node, at_once
        self._rank_of, self._tell, self._note = rank_of, tell, note
        self._known: Set[int] = set()
        self._queue: List[Tuple[int, int]] = []
        self._looking: List[crash.Looking] = []
        self._looked = 0

    def know(self, pid: int) -> None:
        """Register a rank that has started: its first stop has been handled."""
        self._known.add(pid)

    def ended(self, tid: int) -> None:
        """A thread or process has been reaped."""
        self._known.discard(tid)

    def stopped(self, tid: int, status: int) -> None:
        """waitpid has reported that ``tid`` stopped."""
        look, number = crash.decide(tid, status, known=tid in self._known)
        self._known.add(tid)
        if not look:
            prctl.resume(tid, number)
            return
        self._queue.append((tid, number))
        self._begin()

    def _begin(self) -> None:
        while self._queue and len(self._looking) < self._at_once:
            tid, number = self._queue.pop(0)
            self._looked += 1
            if self._looked > MOST:
                if self._looked == MOST + 1:
                    self._note(f"stack traces of the first {MOST} ranks that died here, and no more")
                prctl.resume(tid, number)
                continue
            try:
                looking = crash.begin(tid, number)
            except OSError as error:
                self._note(f"no stack trace of process {tid}: {error.strerror}")
                continue
            self._looking.append(looking)
            self._watch(looking)

    def _watch(self, looking: "crash.Looking") -> None:
        fd = looking.fd

        def on_readable(_events: int) -> None:
            if looking not in self._looking:
                return
            taken = looking.result()
            if taken is None:
                return
            self._loop.unwatch(fd)
            self._looking.remove(looking)
            rank = self._rank_of(looking.pid)
            if rank is not None:
                message = {"op": "backtrace", "rank": rank, "node": self._node, "signal": looking.number}
                self._tell(dict(message, trace=taken.as_message()))
            self._begin()

        self._loop.watch(fd, READ, on_readable)

    def cancel(self) -> None:
        """Stop reading stacks, because everything is being killed."""
        self._queue = []
        for looking in self._looking:
            self._loop.unwatch(looking.fd)
            looking.cancel()
        self._looking = []
