"""What the questions of other login processors' RCAs say besides that they run: that something has changed there.

Every question carries the number of changes that its RCA has announced, from 1 (``Beat.incarnation``); 0: it is of an
earlier version. A lost datagram is made good by the next one.
"""

from __future__ import annotations

from agents.rca.datagrams import ASK_S
from agents.wire.heartbeat import Beat

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seconds without a question from an RCA after which its changes may be unknown here.
QUIET_S = 2.5 * ASK_S


class _Heard:
    """The last question of an RCA, and the earlier lives of that RCA, whose questions are replayed ones."""

    __slots__ = ("at", "beat", "former")

    def __init__(self, beat: Beat, at: float) -> None:
        self.beat, self.at = beat, at
        self.former: set[str] = set()


class News:
    """The questions heard. ``now`` is monotonic seconds, always given by the caller."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}

    def take(self, question: Beat, now: float) -> bool:
        """Apply a verified question; returns whether its login processor has announced a change since the last
        one."""
        known = self._heard.get(question.node)
        if known is None:
            self._heard[question.node] = _Heard(question, now)
            return True
        last = known.beat
        if question.boot_id in known.former or (
            question.boot_id == last.boot_id and question.sequence <= last.sequence
        ):
            return False  # a duplicate, a late one, or a replay
        known.beat, known.at = question, now
        if question.boot_id != last.boot_id:
            known.former.add(last.boot_id)
            return True
        return question.incarnation != last.incarnation

    def is_quiet(self, names: Iterable[str], now: float) -> bool:
        """True if one of these RCAs was not heard lately, or announces nothing: its login processor may have changed
        something, or doubt this one."""
        return any(self._is_quiet(name, now) for name in names)

    def _is_quiet(self, name: str, now: float) -> bool:
        known = self._heard.get(name)
        return known is None or now - known.at > QUIET_S or not known.beat.incarnation
