"""How many tasks a worker has ahead."""

from agents.job.tasks.pace import MOST_AHEAD, Pace


def test_short_tasks_go_in_batches_long_ones_alone_and_the_last_ones_are_shared() -> None:
    pace = Pace()
    assert pace.ahead(1000, 2) == 1  # the first may take hours
    pace.took(0.001)
    assert pace.ahead(1000, 2) == 100
    assert pace.ahead(10, 4) == 3  # others have theirs
    for _ in range(100):
        pace.took(0.0)
    assert pace.ahead(10_000, 2) == MOST_AHEAD
    for _ in range(100):
        pace.took(2.0)
    assert pace.ahead(10_000, 2) == 1
