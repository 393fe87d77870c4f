"""How long a job keeps processors that it has got back, if a launch of another user would take more than its share.

Without this, a user who requests the whole machine and cancels again and again would have the workers of another user's
job start without end, each for a single task. No I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
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
    changes: Counter[float] = Counter()  # of the job's processors, by how long ago
    regained: dict[float, list[int]] = {}
    ends = set()
    for one in lives:
        changes[one.granted_s] += one.processors
        if one.ended_s is not None:
            changes[one.ended_s] -= one.processors
            ends.add(one.ended_s)
        elif one.granted_s < MOST_S:
            regained.setdefault(one.granted_s, []).append(one.launcher)
    # How many processors (negative) the job had just before launches ended, and how long ago. Ends are left out after
    # which it had as many again, so the numbers fall.
    had: list[tuple[int, float]] = []
    has, found = 0, {}
    for ago in sorted(changes, reverse=True):
        before, has = has, has + changes[ago]
        for launcher in regained.get(ago, ()):
            enough = bisect_right(had, -has, key=itemgetter(0))
            if enough:
                left_s = min(max(had[enough - 1][1] - ago, LEAST_S), MOST_S) - ago
                if left_s > 0:
                    found[launcher] = left_s
        if ago in ends:
            while had and -had[-1][0] <= before:
                had.pop()
            had.append((-before, ago))
    return found


def beyond_its_share(asker: int, needs: int, given: Mapping[int, int], has: Mapping[int, int]) -> set[int]:
    """The other users who would have fewer processors than the asker (uid), if it got what it needs.

    ``given``: how many of its processors each user gives; ``has``: how many each user has now.
    """
    after = has.get(asker, 0) + needs
    return {uid for uid, count in given.items() if uid != asker and has.get(uid, 0) - count < after}
