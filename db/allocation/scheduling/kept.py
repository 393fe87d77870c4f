"""How long a job keeps processors that it has got back, if a launch of another user would take more than its share.

Without this, a user who requests the whole machine and cancels again and again would have the workers of another user's
job start without end, each for a single task. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: A job keeps processors for as long as it was without them, between these seconds. The least is several starts of a
#: worker, and the most bounds the wait of a user who has taken nothing before.
LEAST_S, MOST_S = 2.0, 60.0
#: Launches that ended earlier are not looked at: it is unknown for how long the job was without their processors.
LOOK_BACK_S = 2 * MOST_S


class Life(NamedTuple):
    """A launch of workers: its processors, and how many seconds ago it was granted and ended (None: it runs)."""

    launcher: int
    processors: int
    granted_s: float
    ended_s: float | None = None


def kept(lives: Iterable[Life]) -> dict[int, float]:
    """The launchers of a job that it keeps, and for how many more seconds. ``lives``: all its launches that run or have
    ended in the last ``LOOK_BACK_S``."""
    every = list(lives)
    had = _had(every)
    found = {}
    for one in every:
        if one.ended_s is None and one.granted_s < MOST_S:
            now_has = sum(each.processors for each in every if _ran(each, one.granted_s))
            without_s = next((ago - one.granted_s for ago, count in had if ago > one.granted_s and count >= now_has), 0)
            left_s = min(max(without_s, LEAST_S), MOST_S) - one.granted_s if without_s else 0.0
            if left_s > 0:
                found[one.launcher] = left_s
    return found


def _ran(one: Life, ago_s: float) -> bool:
    return one.granted_s >= ago_s and (one.ended_s is None or one.ended_s < ago_s)


def _had(lives: Sequence[Life]) -> list[tuple[float, int]]:
    """How many processors the job had just before each of its launches ended, the last end first."""
    changes: dict[float, int] = {}
    for one in lives:
        changes[one.granted_s] = changes.get(one.granted_s, 0) + one.processors
        if one.ended_s is not None:
            changes[one.ended_s] = changes.get(one.ended_s, 0) - one.processors
    ends = {one.ended_s for one in lives if one.ended_s is not None}
    count, found = 0, []
    for ago in sorted(changes, reverse=True):
        if ago in ends:
            found.append((ago, count))
        count += changes[ago]
    return found[::-1]


def beyond_its_share(asker: int, needs: int, given: Mapping[int, int], has: Mapping[int, int]) -> set[int]:
    """The other users who would have fewer processors than the asker (uid), if it got what it needs.

    ``given``: how many of its processors each user gives; ``has``: how many each user has now.
    """
    after = has.get(asker, 0) + needs
    return {uid for uid, count in given.items() if uid != asker and has.get(uid, 0) - count < after}
