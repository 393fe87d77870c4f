"""Events are kept, in order, until they are acknowledged: drawn at random against a plain list."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agents.rca.outbox import LONGEST_S, Event, Outbox

ABOUT: dict[str, object] = {}


def subjects(events: Sequence[Event]) -> list[object]:
    return [event.subject for event in events]


def test_events_leave_in_order_and_once_while_in_flight() -> None:
    box = Outbox()
    for name in ("a", "b", "c"):
        box.put(name, {"op": name}, ABOUT, 0.0)
    assert subjects(list(box.due(0.0))) == ["a", "b", "c"]
    assert box.due(50.0) == []


def test_a_refused_event_comes_again_later_and_later() -> None:
    box = Outbox()
    box.put("a", {"op": "a"}, ABOUT, 0.0)
    now, waits = 0.0, []
    due = box.due(now)
    for _ in range(5):
        box.refused(due[0], "unclean", now)
        asked = now
        while not (due := box.due(now)):
            now += 0.125
        waits.append(now - asked)
    assert waits == [1.0, 2.0, 4.0, LONGEST_S, LONGEST_S]


def test_a_database_that_is_down_is_asked_every_second() -> None:
    box = Outbox()
    box.put("a", {"op": "a"}, ABOUT, 0.0)
    for second in range(10):
        (event,) = box.due(float(second))
        assert not box.refused(event, "database", float(second))
        assert box.due(second + 0.9) == []


def test_what_no_repetition_changes_is_given_up() -> None:
    box = Outbox()
    box.put("a", {"op": "a"}, ABOUT, 0.0)
    (event,) = box.due(0.0)
    assert box.refused(event, "invalid", 0.0) and len(box) == 0


def test_a_lost_cpa_gives_everything_back_at_once_and_in_order() -> None:
    box = Outbox()
    for name in ("a", "b", "c"):
        box.put(name, {"op": name}, ABOUT, 0.0)
    first, *_ = box.due(0.0)
    box.acknowledged(first)
    box.disconnected(7.0)
    assert subjects(list(box.due(7.0))) == ["b", "c"]


def test_the_newest_word_about_a_node_is_the_one_that_counts() -> None:
    box = Outbox()
    box.put("n1", {"op": "node_suspect"}, ABOUT, 0.0)
    box.put("n2", {"op": "node_up"}, ABOUT, 0.0)
    stale, _ = box.due(0.0)
    box.put("n1", {"op": "node_up"}, ABOUT, 1.0)
    box.acknowledged(stale)  # an answer to the old word does not take the new one away
    assert [event.message["op"] for event in box.due(1.0)] == ["node_up"]


def test_the_same_word_again_changes_nothing() -> None:
    box = Outbox()
    box.put("n1", {"op": "node_up"}, ABOUT, 0.0)
    box.due(0.0)
    box.put("n1", {"op": "node_up"}, ABOUT, 1.0)
    assert box.due(1.0) == [] and len(box) == 1


def test_a_node_that_comes_up_hastens_what_was_unclean() -> None:
    box = Outbox()
    box.put("lost", {"op": "launcher_lost"}, ABOUT, 0.0)
    (event,) = box.due(0.0)
    box.refused(event, "unclean", 0.0)
    box.hasten(0.3)
    assert box.due(0.3) == [event]


@given(st.lists(st.tuples(st.sampled_from("pardx"), st.integers(0, 5)), max_size=60))
def test_nothing_is_lost_without_an_acknowledgement(steps: list[tuple[str, int]]) -> None:
    box, kept, flying, now = Outbox(), list[int](), list[object](), 0.0
    for what, number in steps:
        now += 1.0
        if what == "p":
            box.put(number, {"op": number}, ABOUT, now)
            if number not in kept:
                kept.append(number)
        elif what == "x":
            box.disconnected(now)
            flying = []
        elif what == "d":
            flying += box.due(now)
        elif flying and what == "a":
            event = flying.pop(0)
            box.acknowledged(event)  # type: ignore[arg-type]
            kept.remove(event.subject)  # type: ignore[attr-defined]
        elif flying and what == "r":
            box.refused(flying.pop(0), "database", now)  # type: ignore[arg-type]
    assert len(box) == len(kept)
    box.disconnected(now)
    assert subjects(list(box.due(now))) == kept


def test_only_so_many_are_in_flight_and_the_next_follows_an_answer() -> None:
    box = Outbox()
    for number in range(5):
        box.put(number, {"op": "node_up", "node": number}, ABOUT, 0.0)
    first = box.due(0.0, most=2)
    assert subjects(first) == [0, 1] and box.due(0.0, most=2) == []
    box.put(0, {"op": "node_down", "node": 0}, ABOUT, 0.0)  # newer than what is in flight: behind the others
    box.acknowledged(first[0])
    assert subjects(box.due(0.0, most=2)) == [2]
    box.refused(first[1], "database", 0.0)
    assert subjects(box.due(0.0, most=9)) == [3, 4, 0]
    assert subjects(box.due(1.0, most=9)) == [1]
