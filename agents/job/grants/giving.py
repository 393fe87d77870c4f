"""Which launches of a job are given back because other requests wait for processors. No I/O.

A launch is given back as a whole: its workers exit when they have no task, and its processors are free when the last of
them has exited. Launches that are not chosen go on; those that a worker leaves without a task first are chosen first.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, FrozenSet, Iterable, Optional, Protocol

    from agents.wire.launch_events import GiveBack

    class Given(Protocol):
        """A launch."""

        @property
        def launcher(self) -> int:
            """Its number."""

        @property
        def processors(self) -> int:
            """How many it has."""

        @property
        def giving(self) -> bool:
            """True if it is given back."""


#: The most wishes: a job with long tasks may be asked for requests that come and go without end. Of those that still
#: wait, one in each line is asked for, the last ones that were asked for.
_MOST = 64


class _Wish:
    """Of these launchers, the job keeps ``keep`` processors at most."""

    __slots__ = ("keep", "launchers")

    def __init__(self, launchers: FrozenSet[int], keep: int) -> None:
        self.launchers, self.keep = launchers, keep


class Giving:
    """What a job was asked to give back, by the key of the request that waits. A wish ends when it is met."""

    def __init__(self) -> None:
        #: Those that are not met. Whoever asks for each task looks at this first: a call would take 0.4 µs of 60.
        self.wishes: Dict[str, _Wish] = {}

    def ask(self, wish: GiveBack) -> None:
        """Add a wish, instead of what was asked for the same request before."""
        self.wishes.pop(wish.key, None)
        self.wishes[wish.key] = _Wish(frozenset(wish.launchers), wish.keep)
        if len(self.wishes) > _MOST:
            del self.wishes[next(iter(self.wishes))]

    def chooses(self, one: Given, grants: Collection[Given]) -> bool:
        """True if ``one`` is to be given back, of a job that has ``grants``: then ``giving`` is to be set.

        It is the next one if the job then gives no more in all than it must.
        """
        for key, wish in list(self.wishes.items()):
            others = [each.processors for each in grants if each.launcher in wish.launchers and not each.giving]
            lacks = sum(others) - wish.keep
            if lacks <= 0:
                del self.wishes[key]
            elif one.launcher in wish.launchers:
                least = _least(others, lacks) or 0
                others.remove(one.processors)
                rest = _least(others, lacks - one.processors)
                if rest is not None and one.processors + rest <= least:
                    return True
        return False


def _least(sizes: Iterable[int], count: int) -> Optional[int]:
    """The smallest sum of some of ``sizes`` that is not below ``count``; None if all of them are fewer."""
    sums = 1  # the bit of every sum
    for size in sizes:
        sums |= sums << size
    above = sums >> max(count, 0)
    return max(count, 0) + (above & -above).bit_length() - 1 if above else None
