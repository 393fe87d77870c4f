"""Each signal reaches the ranks once, whether the batch system sends it, a user signals yod, or both."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from agents.linux.batch_signals import HOLD_S, ONLY_ONCE, SAME_S, Copies, Fate

USR1, INT = 10, 2
MANAGER, YOD, TIMER = "manager", "yod", "timer"


def delivered(*copies: tuple[float, str], number: int = USR1) -> list[float]:
    """The times at which ranks get a signal whose copies arrive at these times from these sides."""
    machine, times = Copies(), []
    queue = [(at, order, side) for order, (at, side) in enumerate(copies)]
    heapq.heapify(queue)
    while queue:
        at, order, side = heapq.heappop(queue)
        if side == MANAGER:
            fate = machine.from_manager(number, at)
        elif side == YOD:
            fate = machine.from_yod(number, at)
        else:
            fate = machine.held_over(number, at)
        if fate is Fate.HOLD:
            heapq.heappush(queue, (at + HOLD_S, len(copies) + order, TIMER))
        elif fate is Fate.DELIVER:
            times.append(at)
    return times


def test_one_signal_to_both_arrives_once_in_either_order() -> None:
    assert delivered((0, MANAGER), (0.5, YOD)) == [0]
    assert delivered((0, YOD), (0.3, MANAGER)) == [0.3], "yod's was still held"
    assert delivered((0, YOD), (2, MANAGER)) == [HOLD_S], "the manager was late"


def test_a_signal_after_one_of_which_the_manager_s_copy_was_late_arrives() -> None:
    late = ((0.0, YOD), (1.5, MANAGER))
    assert delivered(*late, (3, MANAGER), (3.1, YOD)) == [HOLD_S, 3]
    assert delivered(*late, (3, YOD), (3.1, MANAGER)) == [HOLD_S, 3.1]


def test_signals_to_yod_alone_and_three_seconds_later_to_the_step_alone_both_arrive() -> None:
    assert delivered((0, YOD), (3, MANAGER)) == [HOLD_S, 3]
    assert delivered((0, MANAGER), (3, YOD)) == [0, 3 + HOLD_S]


def test_two_signals_to_yod_alone_that_follow_each_other_both_arrive() -> None:
    assert delivered((0, YOD), (0.5, YOD)) == [HOLD_S, 0.5 + HOLD_S]
    assert delivered((0, YOD), (0.5, YOD), (0.7, MANAGER)) == [0.7, 0.5 + HOLD_S], "one has a pair"
    assert delivered((0, MANAGER), (0.1, YOD), (0.5, YOD)) == [0, 0.5 + HOLD_S]


def test_a_signal_that_may_come_twice_is_neither_held_nor_dropped() -> None:
    assert INT not in ONLY_ONCE
    assert delivered((0, MANAGER), (0.5, YOD), (0.6, MANAGER), number=INT) == [0, 0.5, 0.6]


def test_a_node_that_was_stopped_delivers_what_it_holds() -> None:
    copies = Copies()
    assert copies.from_yod(USR1, 0) is Fate.HOLD
    assert copies.from_manager(USR1, 100) is Fate.DELIVER and copies.held_over(USR1, 100) is Fate.DROP


LAGS = st.floats(0, SAME_S, exclude_max=True)
SIGNALS = st.tuples(st.sampled_from([(YOD,), (MANAGER,), (YOD, MANAGER), (MANAGER, YOD)]), LAGS)


@given(st.lists(st.tuples(SIGNALS, st.floats(SAME_S + 0.01, 9)), max_size=12))
def test_signals_far_apart_arrive_exactly_once(signals: list[tuple[tuple[tuple[str, ...], float], float]]) -> None:
    copies, at = [], 0.0
    for (sides, lag), pause in signals:
        at += pause
        copies.append((at, sides[0]))
        if len(sides) == 2 and (at + lag) - at < SAME_S:
            at += lag
            copies.append((at, sides[1]))
    assert len(delivered(*copies)) == len(signals)


@given(st.lists(st.tuples(st.floats(0, 12), st.sampled_from([YOD, MANAGER])), max_size=30))
def test_no_fewer_arrive_than_either_side_sent(copies: list[tuple[float, str]]) -> None:
    sent = [side for _, side in copies]
    assert max(sent.count(YOD), sent.count(MANAGER)) <= len(delivered(*copies)) <= len(sent)
