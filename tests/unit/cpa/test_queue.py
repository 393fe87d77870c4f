"""Whose turn it is: first in, first out in each pool, whichever CPA holds the connection."""

from hypothesis import given
from hypothesis import strategies as st

from agents.cpa.queue import Row, Waiter, Waiters, turns

rows = st.lists(
    st.builds(Row, st.uuids().map(lambda each: each.hex), st.sampled_from([None, 5, 6])), unique_by=lambda row: row.key
)


def waiter(key: str, session: str = "s", deadline: float = 10.0) -> Waiter:
    return Waiter(key, session, {"key": key}, deadline, None)


@given(rows)
def test_one_turn_a_pool_and_nobody_before_it(queue: list[Row]) -> None:
    chosen = turns(queue)
    assert len(chosen) == len({row[1:] for row in queue})
    for key in chosen:
        place = next(i for i, row in enumerate(queue) if row.key == key)
        assert all(row[1:] != queue[place][1:] for row in queue[:place])


def test_who_waits_elsewhere_still_stands_before_ours() -> None:
    here = Waiters()
    here.add(waiter("second"))
    assert here.next([Row("first", None), Row("second", None)]) == []
    assert [each.key for each in here.next([Row("second", None)])] == ["second"]


def test_a_full_partition_holds_up_nobody_outside_it() -> None:
    here = Waiters()
    here.add(waiter("inside"))
    here.add(waiter("outside"))
    queue = [Row("inside", 5), Row("outside", None)]
    assert {each.key for each in here.next(queue)} == {"inside", "outside"}


def test_a_key_waits_once_and_its_newest_connection_counts() -> None:
    here = Waiters()
    first, second = waiter("a", "old"), waiter("a", "new")
    assert here.add(first) is None
    assert here.add(second) is first
    assert here.of_session("old") == [] and here.of_session("new") == [second] and len(here) == 1


def test_deadlines_and_rows_that_the_database_has_forgotten() -> None:
    here = Waiters()
    here.add(waiter("a", deadline=5.0))
    here.add(waiter("b", deadline=7.0))
    assert [each.key for each in here.overdue(5.0)] == ["a"]
    assert [each.key for each in here.missing(["a"])] == ["b"]
    here.remove("a")
    assert "a" not in here and here.remove("a") is None
