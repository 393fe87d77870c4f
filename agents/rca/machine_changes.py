"""Learns from a CPA what of the machine has changed: nodes out of service, the mesh's boot, its login processors.

The CPA announces a change, and only then its state is read (*nodes_out*). Between changes a heartbeat (*beat*) shows
that a CPA answers and what time it is. The state is read without an announcement too: when a rest ends, every
``SWEEP_S`` in case an announcement was lost with a process, and every ``BEAT_S`` while an announcement may not arrive
(``is_uncertain``), or if a CPA does not know *beat*.
"""

from __future__ import annotations

import time

from agents.link.loop import Loop, Timer
from agents.rca.cpas import Cpas
from agents.rca.moving_jobs import MovingJob
from agents.wire.control import Message
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds between heartbeats; between reads of the state that nothing announced; the least pause before a rest's end.
BEAT_S, SWEEP_S, LEAST_S = 2.0, 60.0, 0.05


class MachineState:
    """A reply to *nodes_out* (docs/protocol.md). Raises KeyError, TypeError or ValueError for another message.

    ``now``: mesh time in UTC seconds. ``rested``: nodes whose rest after a failed load is over; ``rest_s``: seconds
    until the next rest is over. ``given_up``: nodes with their boot ids. ``boot_id``: of the mesh. ``logins``: login
    processors with an RCA: name, address and state.
    """

    __slots__ = ("boot_id", "given_up", "logins", "moving", "nodes", "now", "rest_s", "rested", "suspect")

    def __init__(self, reply: Message) -> None:
        self.now = float(reply["now"])
        self.rested = [str(name) for name in reply["rested"]]
        self.suspect = [str(name) for name in reply.get("suspect", ())]
        self.given_up = [(str(name), str(boot_id)) for name, boot_id in reply["given_up"]]
        self.boot_id = str(reply["boot_id"])
        self.nodes = int(reply["nodes"])
        self.logins = [(str(name), str(address), str(state)) for name, address, state in reply["logins"]]
        rest_s = reply.get("rest_s")
        self.rest_s = None if rest_s is None else float(rest_s)
        self.moving = [MovingJob(*row) for row in reply.get("moving", ())]


class MachineChanges:
    """Asks ``cpas``. ``on_state(state, asked_at)`` gets each state, ``on_time(now, asked_at)`` the mesh time of each
    heartbeat; ``asked_at`` is monotonic seconds.

    ``near``: every node is on this machine.
    """

    def __init__(
        self,
        loop: Loop,
        cpas: Cpas,
        *,
        near: bool,
        failed_s: float,
        on_state: Callable[[MachineState, float], None],
        on_time: Callable[[float, float], None],
        is_uncertain: Callable[[], bool],
    ) -> None:
        self._loop, self._cpas, self._near, self._failed_s = loop, cpas, near, failed_s
        self._on_state, self._on_time, self._is_uncertain = on_state, on_time, is_uncertain
        self._asking = self._again = False
        self._read_at = 0.0  # when the present state was asked for; 0: it is to be read
        self._rest: Timer | None = None

    def start(self) -> None:
        """Begin the heartbeats."""
        self._loop.after(BEAT_S, self._beat)

    def disconnected(self) -> None:
        """The connection to the CPA has ended; the next CPA is asked when it answers."""
        self._asking = self._again = False
        self._read_at = 0.0

    def read(self) -> None:
        """Read the state: something has changed, or a CPA was connected."""
        if not self._cpas.connected:
            return
        if self._asking:
            self._again = True  # the answer under way may be from before the change
            return
        self._asking, asked_at = True, time.monotonic()
        message = {"op": "nodes_out", "failed_s": self._failed_s, "near": self._near}
        self._cpas.call(message, asked_at, lambda reply, _error: self._on_reply(reply, asked_at))

    def _on_reply(self, reply: Message | None, asked_at: float) -> None:
        self._asking = False
        if reply is None:
            self._read_at, self._again = 0.0, False  # it is read again at the next beat
            return
        self._read_at = asked_at
        state = MachineState(reply)
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if state.rest_s is not None:
            self._rest = self._loop.after(max(LEAST_S, state.rest_s), self._on_rest_over)
        self._on_state(state, asked_at)
        if self._again:
            self._again = False
            self.read()

    def _on_rest_over(self) -> None:
        self._rest = None
        self.read()

    def _beat(self) -> None:
        self._loop.after(BEAT_S, self._beat)
        now = time.monotonic()
        if not self._read_at or now - self._read_at >= SWEEP_S or self._is_uncertain():
            self.read()
        elif self._cpas.connected:
            self._cpas.call(
                {"op": "beat", "near": self._near}, now, lambda reply, error: self._on_beat(reply, error, now)
            )

    def _on_beat(self, reply: Message | None, error: AgentError | None, asked_at: float) -> None:
        if reply is not None:
            self._on_time(float(reply.get("now", 0.0)), asked_at)
        elif error is not None and error.code == "unknown_op":
            self.read()  # a CPA of an earlier version: it announces nothing
