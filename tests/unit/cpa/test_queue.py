"""The allocates that wait at one CPA."""

from agents.cpa.line.queue import Waiter, Waiters


def waiter(key: str, session: str = "s", deadline: float = 10.0) -> Waiter:
    return Waiter(key, session, {"key": key}, deadline, None)


def test_a_key_waits_once_and_its_newest_connection_counts() -> None:
    here = Waiters()
    first, second = waiter("a", "old"), waiter("a", "new")
    assert here.add(first) is None
    assert here.add(second) is first
    assert here.of_session("old") == [] and here.of_session("new") == [second] and len(here) == 1


def test_deadlines() -> None:
    here = Waiters()
    assert here.next_deadline() is None
    here.add(waiter("a", deadline=5.0))
    here.add(waiter("b", deadline=7.0))
    assert [each.key for each in here.overdue(5.0)] == ["a"] and here.next_deadline() == 5.0
    here.remove("a")
    assert "a" not in here and here.remove("a") is None and here.next_deadline() == 7.0
