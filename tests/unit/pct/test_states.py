"""The launch child's machine: its table whole, and every walk through it ends well."""

from hypothesis import given
from hypothesis import strategies as st

from agents.pct.launch_child.states import TRANSITIONS, Action, Event, LaunchMachine, State


def test_every_state_can_be_reached_and_left() -> None:
    reached, ahead = {State.LOADING}, [State.LOADING]
    while ahead:
        now = ahead.pop()
        for (state, _), (to, _) in TRANSITIONS.items():
            if state is now and to not in reached:
                reached.add(to)
                ahead.append(to)
    assert reached == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.OVER}


def test_a_lost_parent_ends_every_state() -> None:
    for state in set(State) - {State.OVER, State.ABANDONED}:
        to, actions = TRANSITIONS[state, Event.LINK_LOST]
        assert to in (State.ABANDONED, State.OVER)
        if to is State.ABANDONED and state is not State.SWEEPING:
            assert Action.SWEEP in actions
        if to is State.OVER:
            assert Action.END in actions


def test_only_go_after_ready_releases() -> None:
    releasing = [key for key, (_, actions) in TRANSITIONS.items() if Action.RELEASE in actions]
    assert releasing == [(State.HELD, Event.GO)]


def test_a_launch_from_load_to_done() -> None:
    machine = LaunchMachine()
    assert machine.loaded(2, 1) == [Action.START]
    assert machine.one_held() == machine.one_held() == []
    assert machine.one_held() == [Action.REPORT_READY]
    assert machine.handle(Event.GO) == [Action.RELEASE]
    assert machine.handle(Event.DRAINED) == [Action.SWEEP]
    assert machine.handle(Event.SWEPT) == []
    assert machine.state is State.WAITING
    assert machine.child_over() == [Action.REPORT_FINISHED]
    assert machine.handle(Event.DONE) == [Action.FORWARD_DONE, Action.END]


def test_children_may_finish_first() -> None:
    machine = LaunchMachine()
    machine.loaded(1, 1)
    machine.one_held()
    machine.one_held()
    machine.handle(Event.GO)
    assert machine.child_over() == []
    machine.handle(Event.DRAINED)
    assert machine.handle(Event.SWEPT) == [Action.REPORT_FINISHED]


STEPS = st.sampled_from(
    [*(e for e in Event if e not in (Event.LOADED, Event.ALL_HELD, Event.TREE_FINISHED)), "held", "over"]
)


@given(st.integers(0, 4), st.integers(0, 4), st.lists(STEPS, max_size=30))
def test_any_walk_keeps_its_promises(ranks: int, children: int, steps: list[object]) -> None:
    machine = LaunchMachine()
    done: list[Action] = list(machine.loaded(ranks, children))
    held, over = 0, 0
    for step in steps:
        if machine.state is State.OVER:
            break
        if step == "held":
            if held < ranks + children:
                held += 1
                done += machine.one_held()
        elif step == "over":
            if over < children:
                over += 1
                done += machine.child_over()
        else:
            assert isinstance(step, Event)
            done += machine.handle(step)
    for once in (Action.START, Action.REPORT_READY, Action.RELEASE, Action.REPORT_FAILED, Action.SWEEP,
                 Action.REPORT_FINISHED, Action.END):  # fmt: skip
        assert done.count(once) <= 1, once
    if Action.RELEASE in done:
        assert held == ranks + children, "nobody runs before all are held"
    if Action.REPORT_FINISHED in done:
        assert over == children and Action.SWEEP in done
    # and whatever happened, the parent's end ends it
    done += machine.handle(Event.LINK_LOST)
    done += machine.handle(Event.SWEPT)
    assert machine.state is State.OVER and done[-1] is Action.END
