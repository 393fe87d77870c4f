"""The order of the tabs of launches and jobs, and which finished ones close by themselves. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

#: Seconds after which the tab of a launch or job that succeeded closes, unless it was in front meanwhile.
KEPT_S = 600.0


class Tab(NamedTuple):
    """A tab of a launch or job."""

    mode: str  # the name of its screen in the application
    running: bool
    succeeded: bool  # finished without a failure


def in_order(tabs: Iterable[Tab]) -> list[Tab]:
    """Running ones first; among both, in the order in which they were opened."""
    return sorted(tabs, key=lambda tab: not tab.running)


class Finished:
    """For each tab that succeeded, since when it has not been in front."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def due(self, tabs: Iterable[Tab], used: Collection[str], now: float) -> list[str]:
        """The tabs to close. ``used``: those in front, or in which the user has set something up. Call it every few
        seconds; ``now`` is monotonic."""
        since = {tab.mode: self._since.get(tab.mode, now) for tab in tabs if tab.succeeded and tab.mode not in used}
        self._since = since
        return [mode for mode, began in since.items() if now - began >= KEPT_S]
