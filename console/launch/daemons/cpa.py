"""yod's connection to a CPA. If the CPA exits, yod connects to another one and repeats requests with the same key."""

from __future__ import annotations

import os
import time

from agents.link.link import Caller
from agents.link.sockets import connect
from agents.wire.errors import AgentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop, Timer

    Then = Callable[[dict[str, Any] | None, AgentError | None], None]

#: Seconds after which a silent CPA is left for another, if there is one.
SILENT_S = 5.0
#: Seconds until a request for processors times out, in addition to the time for which the user waits for processors.
ALLOCATE_S = 12.0
_AGAIN_S, _LONGEST_PAUSE_S = 0.1, 0.8
#: The longest pause in seconds between attempts if a CPA refuses connections, for example because this user has too
#: many.
_BUSY_S = 1.0


def cpa_sockets(run: str) -> list[str]:
    """The paths of the CPAs' sockets in ``run``, in order, whether or not a CPA listens there."""
    try:
        names = os.listdir(run)
    except OSError:
        return []
    return [f"{run}/{name}" for name in sorted(names) if name.startswith("cpa-") and name.endswith(".sock")]


def connect_any(run: str, start: int) -> socket.socket | None:
    """A connection to a CPA, trying the ``start``-th first; None if none listens."""
    paths = cpa_sockets(run)
    for number in range(len(paths)):
        try:
            return connect(paths[(start + number) % len(paths)], SILENT_S)
        except OSError:
            continue
    return None


class _Ask:
    __slots__ = ("caller", "deadline", "message", "patient", "pause_s", "sent_at", "then", "timer")

    def __init__(self, message: dict[str, Any], then: Then, deadline: float, *, patient: bool) -> None:
        self.message, self.then, self.deadline, self.patient = message, then, deadline, patient
        self.sent_at = 0.0
        self.caller: Caller | None = None  # the connection on which it was sent, until it is answered
        self.pause_s = _AGAIN_S / 2
        self.timer: Timer | None = None


class Authority:
    """Requests to the CPAs of one mesh, each answered exactly once: by a CPA, or with code ``unreachable``."""

    def __init__(self, loop: Loop, run: str, start: int, sock: socket.socket | None = None) -> None:
        self._loop, self._run, self._start = loop, run, start
        self._asks: list[_Ask] = []
        self._caller: Caller | None = None
        self._again: Timer | None = None
        self._again_s = _AGAIN_S
        self._refusal: AgentError | None = None  # why a CPA last refused the connection
        self._closed = False
        self.asked_at = 0.0  # when the request with the last answer was sent, monotonic
        self.on_away: Callable[[str], None] = lambda text: None  # called while requests wait for the database
        if sock is not None:
            self._adopt(sock)

    def ask(self, message: dict[str, Any], then: Then, patience_s: float, *, patient: bool = False) -> None:
        """Send a request; ``then`` gets the reply or an error, after ``patience_s`` at the latest.

        ``patient``: repeat the request while the database is down.
        """
        ask = _Ask(message, then, time.monotonic() + patience_s, patient=patient)
        ask.timer = self._loop.after(patience_s, lambda: self._give_up(ask))
        self._asks.append(ask)
        if self._caller is None:
            self._connect()
        else:
            self._send(ask)

    def close(self) -> None:
        """Close the connection and drop all unanswered requests."""
        self._closed = True
        for ask in self._asks:
            if ask.timer is not None:
                ask.timer.cancel()
        self._asks.clear()
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    def _adopt(self, sock: socket.socket) -> None:
        self._caller = Caller(self._loop, sock, "launcher", self._on_end)
        self._caller.on_notice = lambda text: self.on_away(text)

    def _connect(self) -> None:
        if self._caller is not None or self._closed or not self._asks:
            return
        sock = connect_any(self._run, self._start)
        if sock is None:
            self._connect_later(_AGAIN_S)
            return
        self._adopt(sock)
        for ask in list(self._asks):
            self._send(ask)

    def _connect_later(self, seconds: float) -> None:
        if self._again is None:
            self._again = self._loop.after(seconds, self._retry)

    def _retry(self) -> None:
        self._again = None
        self._connect()

    def _send(self, ask: _Ask) -> None:
        assert self._caller is not None
        caller = ask.caller = self._caller
        ask.sent_at = time.monotonic()
        caller.call(ask.message, lambda reply, error: self._answered(ask, reply, error))
        if not ask.message.get("wait_s"):
            self._loop.after(SILENT_S, lambda: self._silent(ask, caller))

    def _silent(self, ask: _Ask, caller: Caller) -> None:
        if ask in self._asks and self._caller is caller and len(cpa_sockets(self._run)) > 1:
            caller.close()
            self._on_end(caller, "silent")

    def _answered(self, ask: _Ask, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if ask not in self._asks:
            return
        if error is not None and error.code == "gone":
            return  # repeated on the next connection
        self._again_s, self._refusal = _AGAIN_S, None
        if error is not None and error.code == "database" and ask.patient:
            ask.caller = None
            self.on_away(error.message)
            ask.pause_s = min(_LONGEST_PAUSE_S, ask.pause_s * 2)
            self._loop.after(ask.pause_s, lambda: self._ask_again(ask))
            return
        self._done(ask, reply, error)

    def _ask_again(self, ask: _Ask) -> None:
        # The request may have been sent on a new connection meanwhile. If it were sent twice to one CPA, the second
        # reply to an allocate would invalidate the cookie of the first.
        if ask in self._asks and self._caller is not None and ask.caller is not self._caller:
            self._send(ask)

    def _give_up(self, ask: _Ask) -> None:
        if ask in self._asks:
            told, hint = "no CPA answers", "mesh status shows the daemons"
            placement = ask.message.get("placement")
            if placement and self._caller is not None:  # one CPA has the request
                told = f"the CPA has not answered a request with the placement {placement}"
                hint = f"either the placement {placement} is slow (use another), or the CPA stands still (mesh status)"
            self._done(ask, None, self._refusal or AgentError(told, hint, code="unreachable"))

    def _done(self, ask: _Ask, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        self._asks.remove(ask)
        self.asked_at = ask.sent_at
        if ask.timer is not None:
            ask.timer.cancel()
        ask.then(reply, error)

    def _on_end(self, caller: Caller, _reason: str) -> None:
        if self._caller is caller:
            self._caller = None
            self._start += 1  # try the next one first
            if caller.refusal is not None:
                self._refusal = caller.refusal
                self._again_s = min(_BUSY_S, 2 * self._again_s)
                self._connect_later(self._again_s * (0.5 + os.getpid() % 16 / 16))  # spread the attempts of many yods
            else:
                self._connect()
