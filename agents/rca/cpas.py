"""The RCA's connection to its CPAs: one at a time, to any that answers."""

from __future__ import annotations

from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Then = Callable[[dict[str, Any] | None, AgentError | None], None]

RETRY_S = 0.05  # seconds between attempts at all CPAs; a refused Unix connection takes some microseconds
ANSWER_S = 15.0  # longer than a clean-up (10 s) or a database time-out (5 s)


class Cpas:
    """Keeps a connection to one of ``paths``; calls ``on_connected`` and ``on_lost`` as it changes."""

    def __init__(
        self, loop: Loop, paths: list[str], on_connected: Callable[[], None], on_lost: Callable[[str], None]
    ) -> None:
        self._loop, self._paths = loop, paths
        self._on_connected, self._on_lost = on_connected, on_lost
        #: Called with what the CPA announces.
        self.on_notice: Callable[[str], None] = lambda _text: None
        self._caller: Caller | None = None
        self._at = 0
        self._asked: dict[int, float] = {}  # unanswered calls, with the time when each is overdue
        self._count = 0

    @property
    def connected(self) -> bool:
        """True if a CPA is connected, as far as is known."""
        return self._caller is not None

    @property
    def path(self) -> str:
        """The connected CPA, or the one to try next."""
        return self._paths[self._at]

    def start(self) -> None:
        """Connect to the first CPA that answers; retry until one does."""
        for _ in self._paths:
            try:
                sock = connect(self.path, timeout_s=0.1)
            except (OSError, AgentError):
                self._at = (self._at + 1) % len(self._paths)
                continue
            self._caller = Caller(self._loop, sock, "rca", self._on_end)
            self._caller.on_notice = lambda text: self.on_notice(text)
            self._asked.clear()
            self._on_connected()
            return
        self._loop.after(RETRY_S, self.start)

    def call(self, message: dict[str, Any], now: float, then: Then) -> None:
        """Send a request; ``then`` gets the reply or the error, whose code is ``gone`` if no CPA is connected (any
        more)."""
        if self._caller is None:
            then(None, AgentError("no CPA answers", code="gone"))
            return
        self._count += 1
        number = self._count
        self._asked[number] = now + ANSWER_S

        def answered(reply: dict[str, Any] | None, error: AgentError | None) -> None:
            self._asked.pop(number, None)
            then(reply, error)

        self._caller.call(message, answered)

    def tick(self, now: float) -> None:
        """Disconnect from a CPA that has not answered a call in time."""
        if self._caller is not None and self._asked and min(self._asked.values()) <= now:
            self._caller.close()
            self._on_end(self._caller, f"no answer within {ANSWER_S:.0f} s")

    def close(self) -> None:
        """Disconnect."""
        if self._caller is not None:
            self._caller.close()

    def _on_end(self, _caller: Caller, reason: str) -> None:
        self._caller = None
        self._asked.clear()
        self._on_lost(reason)
        self._at = (self._at + 1) % len(self._paths)
        self._loop.after(0, self.start)
