"""Who may pass in a line: nobody who came before starts later by it."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from db.allocation.scheduling.backfill import Asked, End, Profile, may_start
from tests.support.chance import examples

TOTAL = 8
SIZES = st.integers(1, TOTAL)
REQUESTS = st.lists(
    st.builds(Asked, SIZES, st.none() | st.integers(1, 20).map(float), st.just(False)), min_size=1, max_size=8
)


def starts(now: float, free: int, ends: list[End], line: list[Asked]) -> list[float]:
    """When each would start, first come first served and each with its reservation."""
    profile, found = Profile(now, free, ends), []
    for asked in line:
        time_s = math.inf if asked.time_s is None else asked.time_s
        found.append(profile.earliest(asked.size, time_s))
        if found[-1] == math.inf:
            break
        profile.hold(found[-1], time_s, asked.size)
    return found


@st.composite
def machines(draw: st.DrawFn) -> tuple[int, list[End]]:
    """What is free of eight processors, and when those in use come free, as far as it is known."""
    ends, left = [], TOTAL - draw(st.integers(0, TOTAL))
    free = TOTAL - left
    while left:
        size = draw(st.integers(1, left))
        ends.append(End(draw(st.none() | st.integers(101, 120).map(float)), size))
        left -= size
    return free, ends


@settings(max_examples=examples(40), deadline=None)
@given(machines(), REQUESTS)
def test_nobody_starts_later_because_another_passed(machine: tuple[int, list[End]], line: list[Asked]) -> None:
    free, ends = machine
    chosen = may_start(100.0, free, ends, line)
    before = starts(100.0, free, ends, line)
    assert 0 not in chosen and all(line[place].time_s is None or line[place].time_s > 0 for place in chosen)
    taken = sum(line[place].size for place in chosen)
    now = [place for place in range(len(before)) if before[place] == 100.0]
    assert set(chosen) <= set(now) and taken <= free, "nothing is granted twice"
    left = [asked for place, asked in enumerate(line[: len(before)]) if place not in chosen]
    running = [End(None if (s := line[place].time_s) is None else 100.0 + s, line[place].size) for place in chosen]
    after = starts(100.0, free - taken, [*ends, *running], left)
    kept = [start for place, start in enumerate(before) if place not in chosen]
    assert after[: len(kept)] == kept, "as it was reserved, or the head and others are delayed"


@settings(max_examples=examples(25), deadline=None)
@given(REQUESTS, st.lists(st.integers(1, 20), min_size=8, max_size=8))
def test_nobody_starves(line: list[Asked], takes: list[int]) -> None:
    """A machine that runs: everybody starts, whoever says how long it takes starts no later than was reserved."""
    line = [
        asked if asked.time_s is not None else asked._replace(time_s=float(take))
        for asked, take in zip(line, takes, strict=False)
    ]
    reserved = starts(0.0, TOTAL, [], line)
    waiting, running, started, now = list(enumerate(line)), [], {}, 0.0
    while waiting:
        free = TOTAL - sum(end.size for end in running)
        while waiting and waiting[0][1].size <= free:  # first come, first served
            place, asked = waiting.pop(0)
            started[place] = now
            free -= asked.size
            running.append(End(now + (asked.time_s or 0), asked.size))
        for index in reversed(may_start(now, free, running, [asked for _, asked in waiting])):
            place, asked = waiting.pop(index)
            started[place] = now
            running.append(End(now + (asked.time_s or 0), asked.size))
        assert sum(end.size for end in running) <= TOTAL
        if waiting:
            now = min(end.at for end in running if end.at is not None)
            running = [end for end in running if end.at is not None and end.at > now]
    assert all(started[place] <= reserved[place] for place in range(len(line)))


def test_where_nothing_is_known_nobody_passes() -> None:
    ends = [End(None, 6)]
    assert may_start(0.0, 2, ends, [Asked(8, 10.0), Asked(1, 1.0)]) == [], "the head's start is not known"
    ends = [End(50.0, 6)]
    assert may_start(0.0, 2, ends, [Asked(8, 10.0), Asked(1, 50.0), Asked(1, 51.0), Asked(1, None)]) == [1]
    assert may_start(0.0, 2, ends, [Asked(4, 10.0, True), Asked(1, 1.0)]) == [], "it takes what comes free"
    assert may_start(60.0, 2, ends, [Asked(8, 10.0), Asked(1, 1.0)]) == [], "it runs longer than it said"
