"""The addresses of CPAs on other login processors, and the order in which they are tried.

First those that were granted to this login processor. Then, in case their processor is lost, the first CPA of every
other login processor with an RCA; the connection is refused if it has no CPA. The addresses are stored in RUN, so that
an RCA that restarts while the first login processor is lost finds another.
"""

from __future__ import annotations

import os

from agents.wire.address import parse
from agents.wire.errors import AgentError
from agents.wire.heartbeat import split_address

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UP = "up"
#: Seconds for which a failed address is tried after the others: doubled each time, up to the second value.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
_UDP = "udp://"


class Routes:
    """The addresses. ``own`` is this login processor, ``port`` the port of others' CPAs (0: unknown).

    ``now`` is monotonic seconds, always given by the caller.
    """

    def __init__(self, granted: Sequence[str], own: str, port: int, run: str) -> None:
        self._granted, self._own, self._port = list(granted), own, port
        self._names = {parse(address).name for address in granted}
        self._path = os.path.join(run, "cpas-afar")
        self._learned = self._remembered()
        # failed addresses: until when they come last, and the length of the pause
        self._pauses: dict[str, tuple[float, float]] = {}

    def learn(self, logins: Iterable[tuple[str, str, str]]) -> None:
        """Set the login processors, as in *nodes_out*: name, address of the RCA, state."""
        if not self._port:
            return
        found = []
        for name, place, state in logins:
            if name != self._own and name not in self._names:
                host = split_address(place.removeprefix(_UDP))[0].strip("[]")
                shown = f"[{host}]" if ":" in host else host
                found.append((state != UP, name, f"tls://{shown}:{self._port}/cpa/{name}"))
        learned = [address for _, _, address in sorted(found)]
        if learned != self._learned:
            self._learned = learned
            self._remember()

    def order(self, first: int, now: float) -> list[str]:
        """All addresses, the ``first`` granted ones first; those that failed recently come last."""
        turned = [*self._granted[first:], *self._granted[:first], *self._learned]
        return sorted(turned, key=lambda address: now < self._pauses.get(address, (0.0, 0.0))[0])

    def failed(self, address: str, now: float) -> None:
        """Nobody answered at that address."""
        until, pause_s = self._pauses.get(address, (0.0, FIRST_PAUSE_S / 2))
        if now >= until:
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            self._pauses[address] = (now + pause_s, pause_s)

    def works(self, address: str) -> None:
        """A CPA answered at that address."""
        self._pauses.pop(address, None)

    def _remembered(self) -> list[str]:
        try:
            with open(self._path, encoding="ascii") as file:
                addresses = file.read(1 << 16).split()
            return [address for address in addresses if parse(address).role == "cpa"]
        except (OSError, ValueError, AgentError):
            return []

    def _remember(self) -> None:
        try:
            with open(self._path + ".new", "w", encoding="ascii") as file:
                file.write("".join(address + "\n" for address in self._learned))
            os.replace(self._path + ".new", self._path)
        except OSError:
            pass  # the disk is full; this RCA still has them in memory
