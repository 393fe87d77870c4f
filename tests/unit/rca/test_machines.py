"""The RCA's machines to the last transition, with a clock of our own."""

import itertools

import pytest

from agents.rca import launchers, nodes
from agents.rca.launchers import Action, Event, Launcher, State

SILENT_S = 10.0


def launcher(state: State = State.REGISTERED) -> Launcher:
    made = Launcher(4711, 99, None, now=100.0)
    made.state = state
    return made


def test_every_pair_of_state_and_event_has_a_transition_or_is_over() -> None:
    for state, event in itertools.product(State, Event):
        assert ((state, event) in launchers.TRANSITIONS) == (state not in launchers.OVER)


@pytest.mark.parametrize(("state", "event"), list(launchers.TRANSITIONS))
def test_a_launcher_follows_its_table(state: State, event: Event) -> None:
    machine = launcher(state)
    expected_state, expected_actions = launchers.TRANSITIONS[state, event]
    assert machine.handle(event, 101.0, "why") == expected_actions
    assert machine.state is expected_state


@pytest.mark.parametrize(("state", "event"), itertools.product(sorted(launchers.OVER, key=str), Event))
def test_what_is_over_stays_over(state: State, event: Event) -> None:
    machine = launcher(state)
    assert machine.handle(event, 101.0) == ()
    assert machine.state is state


def test_no_way_through_the_table_loses_a_launcher_twice_or_silently() -> None:
    # whoever becomes LOST is reported exactly then; nobody else ever is
    for (_, _), (after, actions) in launchers.TRANSITIONS.items():
        assert (Action.REPORT_LOST in actions) == (after is State.LOST)


def test_only_a_word_of_its_own_ends_a_launcher_without_an_event() -> None:
    for (before, event), (after, _) in launchers.TRANSITIONS.items():
        if after is State.GONE:
            assert event is Event.UNREGISTER or before is State.ENDING


def test_silence_is_counted_from_the_last_beat() -> None:
    machine = launcher()
    assert not machine.wants_look(101.9) and machine.wants_look(102.0)
    assert machine.seen(True, False, SILENT_S, 105.0) == () and machine.state is State.REGISTERED
    machine.handle(Event.BEAT, 109.0)
    assert machine.seen(True, False, SILENT_S, 118.9) == ()
    assert machine.seen(True, False, SILENT_S, 119.0) == (Action.REPORT_LOST,)
    assert machine.reason == "silent for 10 s"


def test_a_dead_process_is_lost_before_its_silence_is_long() -> None:
    machine = launcher()
    assert machine.seen(False, False, SILENT_S, 102.5) == (Action.REPORT_LOST,)


def test_a_launcher_stopped_by_job_control_is_left_alone_and_gets_its_time_when_it_goes_on() -> None:
    machine = launcher()
    assert machine.seen(True, True, SILENT_S, 103.0) == () and machine.state is State.STOPPED
    assert machine.seen(True, True, SILENT_S, 4000.0) == () and machine.wants_look(4000.0)
    assert machine.seen(True, False, SILENT_S, 4001.0) == () and machine.state is State.REGISTERED
    assert machine.seen(True, False, SILENT_S, 4010.9) == ()
    assert machine.seen(True, False, SILENT_S, 4011.0) == (Action.REPORT_LOST,)


def test_a_stopped_launcher_that_is_killed_is_lost() -> None:
    machine = launcher(State.STOPPED)
    assert machine.seen(False, False, SILENT_S, 103.0) == (Action.REPORT_LOST,)


def test_time_in_which_the_rca_did_not_run_is_forgiven() -> None:
    machine = launcher()
    machine.forgive(30.0)
    assert machine.seen(True, False, SILENT_S, 131.0) == ()


# --- nodes

#: What cannot be seen in a state, and why: a detached PCT has no link to beat or end, and only it has a grace.
IMPOSSIBLE = {
    *((state, nodes.Event.GRACE_OVER) for state in nodes.State if state is not nodes.State.DETACHED),
    (nodes.State.DETACHED, nodes.Event.BEAT),
    (nodes.State.DETACHED, nodes.Event.SILENT),
    (nodes.State.DETACHED, nodes.Event.SILENT_LONG),
    (nodes.State.DETACHED, nodes.Event.LINK_ENDED),
    # a node of this machine has no keeper of its own, and whoever cleans up can always look at it
    *((state, nodes.Event.PCT_DIED) for state in nodes.State),
    *((state, nodes.Event.GIVEN_UP) for state in nodes.State),
    # nor can it speak to another login processor
    *((state, nodes.Event.HEARD_ELSEWHERE) for state in nodes.State),
    *((nodes.State.ELSEWHERE, event) for event in nodes.Event),
}
#: Nodes on other machines have no link.
FAR_STATES = set(nodes.State) - {nodes.State.DETACHED}
FAR_EVENTS = set(nodes.Event) - {nodes.Event.LINK_ENDED, nodes.Event.GRACE_OVER}


def node(state: nodes.State) -> nodes.Node:
    return nodes.Node(100.0, state)


def test_every_pair_of_node_state_and_event_is_in_the_table_or_impossible() -> None:
    every = set(itertools.product(nodes.State, nodes.Event))
    assert set(nodes.TRANSITIONS) == every - IMPOSSIBLE


def test_every_pair_of_a_far_node_is_in_its_table() -> None:
    assert set(nodes.FAR_TRANSITIONS) == set(itertools.product(FAR_STATES, FAR_EVENTS))


def test_nothing_but_a_registration_brings_a_far_node_back() -> None:
    for event in FAR_EVENTS - {nodes.Event.REGISTER, nodes.Event.HEARD_ELSEWHERE}:
        machine = nodes.Node(100.0, nodes.State.DOWN, far=True)
        assert machine.handle(event, 101.0) == ()
        assert machine.state is nodes.State.DOWN


@pytest.mark.parametrize(("state", "event"), list(nodes.TRANSITIONS))
def test_a_node_follows_its_table(state: nodes.State, event: nodes.Event) -> None:
    machine = node(state)
    expected_state, expected_actions = nodes.TRANSITIONS[state, event]
    assert machine.handle(event, 101.0) == expected_actions
    assert machine.state is expected_state


def test_every_change_that_the_mesh_can_see_is_told() -> None:
    for (before, _), (after, actions) in nodes.TRANSITIONS.items():
        if after is not before and after is not nodes.State.DETACHED:
            assert actions == (nodes.TELLING[after],)


def test_a_silent_node_is_suspect_then_down_then_up_with_its_next_beat() -> None:
    machine = node(nodes.State.UP)
    assert machine.tick(104.9, 5.0, 15.0) == ()
    assert machine.tick(105.0, 5.0, 15.0) == (nodes.Action.TELL_SUSPECT,)
    assert machine.tick(106.0, 5.0, 15.0) == ()
    assert machine.tick(115.0, 5.0, 15.0) == (nodes.Action.TELL_DOWN,)
    assert machine.tick(999.0, 5.0, 15.0) == ()
    assert machine.handle(nodes.Event.BEAT, 1000.0) == (nodes.Action.TELL_UP,)
    assert machine.tick(1004.0, 5.0, 15.0) == ()


def test_time_in_which_the_rca_did_not_run_makes_no_node_silent_nor_heard_of_in_the_future() -> None:
    machine = node(nodes.State.UP)
    machine.handle(nodes.Event.BEAT, 118.0)  # read before the gap was noticed
    machine.forgive(20.0, 120.0)
    assert machine.tick(124.9, 5.0, 15.0) == ()
    assert machine.tick(125.0, 5.0, 15.0) == (nodes.Action.TELL_SUSPECT,)
    machine.handle(nodes.Event.BEAT, 130.0)
    assert machine.handle(nodes.Event.BEAT, 127.0) == () and machine.heard_at == 130.0


def test_a_pct_that_connects_again_at_once_was_never_down() -> None:
    machine = node(nodes.State.UP)
    machine.handle(nodes.Event.LINK_ENDED, 101.0)
    assert machine.tick(101.4, 5.0, 15.0) == ()
    assert machine.handle(nodes.Event.REGISTER, 101.45) == (nodes.Action.TELL_UP,)
    assert machine.tick(102.0, 5.0, 15.0) == ()


def test_a_pct_that_does_not_is_down_after_the_grace() -> None:
    machine = node(nodes.State.UP)
    machine.handle(nodes.Event.LINK_ENDED, 101.0)
    assert machine.tick(101.5, 5.0, 15.0) == (nodes.Action.TELL_DOWN,)
    assert machine.reason == "its PCT is gone"
