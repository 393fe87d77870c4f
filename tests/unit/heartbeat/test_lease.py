"""The lease of a node on another machine, to the last transition."""

import itertools

import pytest

from agents.pct.heartbeat.lease import TRANSITIONS, Action, Event, Lease, State


@pytest.mark.parametrize(("state", "event"), list(itertools.product(list(State), list(Event))))
def test_a_lease_follows_its_table(state: State, event: Event) -> None:
    lease = Lease(0.0, 10.0)
    lease.state = state
    expected = TRANSITIONS.get((state, event), (state, Action.NONE))
    assert lease._handle(event) is expected[1]
    assert lease.state is expected[0]


def test_a_node_that_was_told_it_is_down_ends_every_launch_before_it_begins_anew() -> None:
    # whatever else happens meanwhile, the only way out of RESETTING is that nothing is left
    for event in list(Event):
        state, action = TRANSITIONS.get((State.RESETTING, event), (State.RESETTING, Action.NONE))
        if event is Event.CLEARED:
            assert (state, action) == (State.HELD, Action.BEGIN_ANEW)
        else:
            assert state is State.RESETTING and action in (Action.NONE, Action.CLEAR)
    assert all(action is Action.CLEAR for (_, event), (_, action) in TRANSITIONS.items() if event is Event.TOLD_DOWN)


def test_what_counts_is_when_the_beat_was_sent_not_when_the_answer_came() -> None:
    lease = Lease(100.0, 10.0)
    lease.acknowledged(sent_at=101.0)
    assert lease.tick(111.0) is Action.NONE
    assert lease.tick(111.1) is Action.END_ORPHANS
    assert lease.state is State.LAPSED


def test_acknowledgements_that_overtake_each_other_never_shorten_it() -> None:
    lease = Lease(100.0, 10.0)
    lease.acknowledged(sent_at=105.0)
    lease.acknowledged(sent_at=101.0)
    assert lease.tick(114.9) is Action.NONE


def test_launches_are_looked_at_again_and_again_while_it_has_lapsed() -> None:
    lease = Lease(100.0, 10.0)
    assert [lease.tick(now) for now in (111.0, 111.5, 112.0)] == [Action.END_ORPHANS] * 3
    assert lease.acknowledged(sent_at=111.9) is Action.NONE
    assert lease.state is State.HELD
    assert lease.tick(112.5) is Action.NONE


def test_a_node_that_cannot_be_cleared_tries_again() -> None:
    lease = Lease(100.0, 10.0)
    assert lease.told_down() is Action.CLEAR
    assert lease.cleared(False, 101.0) is Action.CLEAR
    assert lease.cleared(True, 102.0) is Action.BEGIN_ANEW
    assert lease.state is State.HELD


def test_nothing_can_lapse_before_the_time_that_it_tells() -> None:
    lease = Lease(100.0, 10.0)
    assert lease.idle_s(100.0) == 10.0
    lease.acknowledged(sent_at=104.0)
    until = 107.0 + lease.idle_s(107.0)
    assert lease.tick(until) is Action.NONE and lease.tick(until + 0.001) is Action.END_ORPHANS
    assert lease.idle_s(until + 0.001) == 0.0  # now somebody may be lost at any moment
    lease.acknowledged(sent_at=120.0)
    assert lease.idle_s(121.0) == 9.0
    lease.told_down()
    assert lease.idle_s(121.0) == 0.0
