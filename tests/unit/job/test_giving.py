"""Which launches a job gives back: those without a task first, and no more processors than it must."""

from hypothesis import given
from hypothesis import strategies as st

from agents.job.grants.giving import Giving
from agents.wire.launch_events import GiveBack


class Launch:
    """A launch of a job."""

    def __init__(self, launcher: int, processors: int) -> None:
        self.launcher, self.processors, self.giving = launcher, processors, False


def asked(launches: list[Launch], keep: int, key: str = "k") -> Giving:
    giving = Giving()
    giving.ask(GiveBack(key, [one.launcher for one in launches], keep, "ada", pause=False))
    return giving


def choose(giving: Giving, one: Launch, launches: list[Launch]) -> bool:
    one.giving = giving.chooses(one, launches)
    return one.giving


def test_the_first_without_a_task_is_given_if_it_is_no_more_than_enough() -> None:
    launches = [Launch(number, size) for number, size in enumerate([1, 1, 2, 4])]
    giving = asked(launches, 7)
    assert not choose(giving, launches[3], launches) and not choose(giving, launches[2], launches)
    assert choose(giving, launches[1], launches) and not choose(giving, launches[0], launches)
    assert not giving.wishes, "the wish is met"


def test_a_larger_one_is_given_if_nothing_smaller_is_enough() -> None:
    launches = [Launch(1, 2), Launch(2, 4)]
    giving = asked(launches, 3)  # three of the six
    assert not choose(giving, launches[0], launches), "with it both would go"
    assert choose(giving, launches[1], launches) and not choose(giving, launches[0], launches)


def test_others_than_those_that_were_named_stay() -> None:
    launches = [Launch(1, 1), Launch(2, 1)]
    giving = asked(launches[:1], 0)
    assert not choose(giving, launches[1], launches) and choose(giving, launches[0], launches)


def test_asking_twice_for_one_request_asks_once() -> None:
    launches = [Launch(number, 1) for number in range(4)]
    giving = asked(launches, 3)
    giving.ask(GiveBack("k", [0, 1, 2, 3], 3, "ada", pause=False))
    assert sum(choose(giving, one, launches) for one in launches) == 1


def test_requests_that_come_and_go_leave_no_more_and_more_wishes_and_the_last_one_counts() -> None:
    launches = [Launch(number, 1) for number in range(4)]
    giving = Giving()
    for number in range(10_000):
        giving.ask(GiveBack(f"k{number}", [0, 1, 2, 3], 3 if number < 9_999 else 1, "ada", pause=False))
    assert len(giving.wishes) < 100
    assert sum(choose(giving, one, launches) for one in launches) == 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 40), st.randoms(use_true_random=False))
def test_enough_and_the_least_that_is_enough(sizes: list[int], keep: int, random: object) -> None:
    launches = [Launch(number, size) for number, size in enumerate(sizes)]
    giving = asked(launches, keep)
    order = list(launches)
    random.shuffle(order)  # type: ignore[attr-defined]
    for _ in range(2):  # workers come to the end of their tasks in any order, again and again
        for one in order:
            if not one.giving:
                choose(giving, one, launches)
    given_ = sum(one.processors for one in launches if one.giving)
    lacks = max(0, sum(sizes) - keep)
    sums = {0}
    for size in sizes:
        sums |= {one + size for one in sums}
    assert given_ == min(one for one in sums if one >= lacks)
