"""How long a job keeps processors that it has got back."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from db.allocation.scheduling.kept import LEAST_S, MOST_S, Life, beyond_its_share, kept


def regained(without_s: float, ago_s: float) -> list[Life]:
    """A job that had two launches, lost both, and has had one again for ``ago_s``."""
    ended_s = ago_s + without_s
    return [Life(1, 2, 5000.0, ended_s), Life(2, 2, 4000.0, ended_s + 0.1), Life(3, 2, ago_s)]


def test_a_job_keeps_processors_for_as_long_as_it_was_without_them() -> None:
    assert kept(regained(10.0, 4.0)) == {3: 6.0}
    assert kept(regained(10.0, 10.5)) == {}
    assert kept(regained(1000.0, 20.0)) == {3: MOST_S - 20.0}
    assert kept(regained(0.2, 0.25)) == {3: LEAST_S - 0.25}


def test_each_launch_counts_for_itself() -> None:
    lives = [*regained(10.0, 4.0), Life(4, 2, 1.0), Life(5, 1, 0.5)]
    assert kept(lives) == {3: 6.0, 4: 12.1}, "the job has never had five"


def test_processors_that_a_job_never_had_before_are_not_kept() -> None:
    assert kept([Life(1, 1, 9.0), Life(2, 1, 8.0), Life(3, 2, 0.1)]) == {}
    assert kept([Life(1, 4, 9.0), Life(2, 1, 8.0, 5.0), Life(3, 2, 0.1)]) == {}


_LIVES = st.lists(
    st.builds(
        lambda number, size, granted, ran: Life(number, size, granted, granted - ran if ran < granted else None),
        st.integers(0, 1000), st.integers(1, 4), st.floats(0.0, 200.0), st.floats(0.0, 300.0),
    ),
    max_size=8, unique_by=lambda one: one.launcher,
)  # fmt: skip


@given(_LIVES)
def test_only_what_runs_is_kept_and_for_a_bounded_time(lives: Sequence[Life]) -> None:
    running = {one.launcher: one for one in lives if one.ended_s is None}
    for launcher, left_s in kept(lives).items():
        assert 0.0 < left_s <= MOST_S - running[launcher].granted_s


def test_a_request_is_beyond_its_share_if_others_would_have_less() -> None:
    assert beyond_its_share(7, 4, {1: 4}, {1: 4}) == {1}
    assert beyond_its_share(7, 2, {1: 2}, {1: 4}) == set()
    assert beyond_its_share(7, 1, {1: 1}, {1: 2, 7: 1}) == {1}
    assert beyond_its_share(1, 4, {1: 4}, {1: 4}) == set(), "one's own"


def test_many_launches_are_looked_at_once_each() -> None:
    """A look took as long as there are pairs: 0.6 s for a job of 1,000 workers, in which a CPA answers nobody."""
    count = 20_000
    lives = [Life(number, 1, 90.0 + number / count, 31.0 + number / count) for number in range(count)]
    lives += [Life(count + number, 1, 1.0 + number / count) for number in range(count)]
    assert len(kept(lives)) == count
