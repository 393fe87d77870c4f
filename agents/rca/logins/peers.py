"""The RCAs of other login processors: asked by datagrams now and then whether they run.

A question also says how many changes this login processor has announced (news.py).

If an RCA is lost, its living nodes come here: they try the next RCA by themselves. Nobody would report the others, so a
CPA is told that the RCA is lost. :class:`Peer` does no I/O.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import Enum, socket
from agents.link.loop import READ, Loop
from agents.link.resolver import Names
from agents.rca.datagrams import ASK_S
from agents.wire import heartbeat, keys
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TOGETHER_S = 0.02  # changes within this time are announced together
LATE_S = 1.0  # a question this late means that this process itself was stopped


class State(Enum):
    """The state of another RCA."""

    THERE = "there"
    MISSED = "missed"  # for long enough to ask a CPA; if the CPA hears from it, our own connection is at fault
    SILENT = "silent"  # for longer than nodes take to come over to us
    LOST = "lost"  # for so long that nodes which have not come over count as lost


class Event(Enum):
    """An observation of another RCA."""

    ANSWER = "answer"
    LATE = "late"
    QUIET = "quiet"
    QUIET_LONG = "quiet for long"
    CONTRADICTED = "contradicted"  # a CPA hears from it, so our own connection is at fault


class Action(Enum):
    """A report to a CPA."""

    NONE = "none"
    TELL_MISSED = "missed"
    TELL_SILENT = "silent"
    TELL_LOST = "lost"


S, E, A = State, Event, Action

TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (S.THERE, E.ANSWER): (S.THERE, A.NONE),
    (S.THERE, E.LATE): (S.MISSED, A.TELL_MISSED),
    (S.THERE, E.QUIET): (S.MISSED, A.TELL_MISSED),
    (S.THERE, E.QUIET_LONG): (S.MISSED, A.TELL_MISSED),
    (S.THERE, E.CONTRADICTED): (S.THERE, A.NONE),
    (S.MISSED, E.ANSWER): (S.THERE, A.NONE),
    (S.MISSED, E.LATE): (S.MISSED, A.NONE),
    (S.MISSED, E.QUIET): (S.SILENT, A.TELL_SILENT),
    (S.MISSED, E.QUIET_LONG): (S.SILENT, A.TELL_SILENT),
    (S.MISSED, E.CONTRADICTED): (S.THERE, A.NONE),
    (S.SILENT, E.ANSWER): (S.THERE, A.NONE),
    (S.SILENT, E.LATE): (S.SILENT, A.NONE),
    (S.SILENT, E.QUIET): (S.SILENT, A.NONE),
    (S.SILENT, E.QUIET_LONG): (S.LOST, A.TELL_LOST),
    (S.SILENT, E.CONTRADICTED): (S.THERE, A.NONE),
    (S.LOST, E.ANSWER): (S.THERE, A.NONE),
    (S.LOST, E.LATE): (S.LOST, A.NONE),
    (S.LOST, E.QUIET): (S.LOST, A.NONE),
    (S.LOST, E.QUIET_LONG): (S.LOST, A.NONE),
    (S.LOST, E.CONTRADICTED): (S.THERE, A.NONE),
}


class Peer:
    """Another RCA. ``now`` is monotonic seconds, always given by the caller."""

    def __init__(self, name: str, place: str, now: float) -> None:
        self.name, self.place, self.heard_at = name, place, now
        self.state = State.THERE

    def handle(self, event: Event, now: float) -> Action:
        """Apply an event; returns the report to make."""
        self.state, action = TRANSITIONS[self.state, event]
        if event in (Event.ANSWER, Event.CONTRADICTED):
            self.heard_at = now
        return action

    def tick(self, now: float, quiet_s: float, lost_s: float) -> Action:
        """Apply the passing of time; returns the report to make."""
        silence = now - self.heard_at
        if silence < quiet_s / 2:
            return Action.NONE
        if silence < quiet_s:
            return self.handle(Event.LATE, now)
        return self.handle(Event.QUIET_LONG if silence >= quiet_s + lost_s else Event.QUIET, now)


class Peers:
    """Asks the other RCAs; ``tell(peer, action)`` gets the reports. Address families other than ``family`` are
    skipped."""

    def __init__(
        self, loop: Loop, name: str, family: int, masters: Callable[[], Sequence[bytes]],
        times: tuple[float, float], tell: Callable[[Peer, Action], None],
    ) -> None:  # fmt: skip
        self._loop, self._name, self._masters, self._tell = loop, name, masters, tell
        self._family, self._times, self._names = family, times, Names(loop)
        self._life = os.urandom(8).hex()  # answers are valid only for this run of the RCA
        self.peers: dict[str, Peer] = {}
        self._asked_at = time.monotonic()
        self._asked: dict[int, str] = {}  # sequence -> the RCA that was asked, for the last few
        self._changes, self._announcing = 1, False
        self._sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        loop.watch(self._sock.fileno(), READ, self._on_datagrams)
        loop.after(ASK_S, self._ask)

    def know(self, places: Mapping[str, str]) -> None:
        """Set the other RCAs, by name."""
        now = time.monotonic()
        for name, place in places.items():
            known = self.peers.get(name)
            if known is None or known.place != place:
                self.peers[name] = Peer(name, place, now)
        for name in set(self.peers) - set(places):
            del self.peers[name]

    def contradicted(self, name: str) -> None:
        """A CPA hears from that RCA."""
        if name in self.peers:
            self.peers[name].handle(Event.CONTRADICTED, time.monotonic())

    def announce(self) -> None:
        """Tell the others, now and with every later question, that this login processor has changed something."""
        self._changes = self._changes % heartbeat.MOST_COUNT + 1
        if not self._announcing:  # many changes at once are one announcement
            self._announcing = True
            self._loop.after(TOGETHER_S, self._announce)

    def _announce(self) -> None:
        self._announcing = False
        self._send_questions(time.monotonic())

    def _ask(self) -> None:
        now = time.monotonic()
        gap_s, self._asked_at = now - self._asked_at - ASK_S, now
        if gap_s > LATE_S:  # this process was stopped, so the others' silence does not count
            for peer in self.peers.values():
                peer.heard_at += gap_s
        self._asked = {sequence: name for sequence, name in self._asked.items() if name in self.peers}
        self._send_questions(now)
        for peer in self.peers.values():
            action = peer.tick(now, *self._times)
            if action is not Action.NONE:
                self._tell(peer, action)
        self._loop.after(ASK_S, self._ask)

    def _send_questions(self, now: float) -> None:
        while len(self._asked) > 8 * len(self.peers):
            del self._asked[next(iter(self._asked))]
        for number, peer in enumerate(self.peers.values()):
            sequence = int(now * 1e6) + number
            self._asked[sequence] = peer.name
            facts = heartbeat.Facts(address=peer.name)
            question = heartbeat.Beat(
                self._name, self._life, self._changes, sequence, kind=heartbeat.RCA, facts=facts
            )  # fmt: skip
            try:
                place = self._names.address(peer.place, self._family)
                if place is not None:  # otherwise its name is being looked up; it is asked the next time
                    self._sock.sendto(question.encode(keys.rca_key(self._masters()[0], self._name)), place[1])
            except (OSError, WireError):
                pass  # without a route there is no answer

    def _on_datagrams(self, _events: int) -> None:
        for _ in range(heartbeat.AT_ONCE):
            try:
                datagram = self._sock.recv(heartbeat.LONGEST + 1)
            except OSError:
                return
            ours = [keys.rca_key(master, self._name) for master in self._masters()]
            try:
                told = heartbeat.read_acknowledgement(datagram, ours, self._life)
            except WireError:
                continue
            peer = self.peers.get(self._asked.pop(told.sequence, ""))
            if peer is not None:
                peer.handle(Event.ANSWER, time.monotonic())

    def close(self) -> None:
        """Stop asking."""
        self._names.close()
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
