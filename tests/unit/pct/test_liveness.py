"""The pulse of a link: every transition of its table, and what holds for any run of words and quiet ticks."""

from hypothesis import given
from hypothesis import strategies as st

from agents.pct.launch.liveness import ASK_AFTER, SILENT_AFTER, TRANSITIONS, Action, Event, Pulse, State

QUIET, WORD = False, True


def play(pulse: Pulse, ticks: list[bool]) -> list[Action]:
    actions = []
    for word in ticks:
        pulse.heard = word
        actions.append(pulse.tick())
    return actions


def test_asked_then_silent_then_back() -> None:
    pulse = Pulse()
    actions = play(pulse, [QUIET] * SILENT_AFTER)
    assert actions[ASK_AFTER - 1] is Action.ASK and actions[-1] is Action.TELL_SILENT
    assert [action for action in actions if action is not Action.NONE] == [Action.ASK, Action.TELL_SILENT]
    assert pulse.seconds == SILENT_AFTER and pulse.state is State.SILENT
    assert play(pulse, [QUIET] * 4) == [Action.NONE] * 4, "told once"
    assert play(pulse, [WORD]) == [Action.TELL_BACK] and pulse.seconds == SILENT_AFTER + 4


def test_an_answer_is_enough() -> None:
    assert Action.TELL_SILENT not in play(Pulse(), ([QUIET] * ASK_AFTER + [WORD]) * 50)


def test_who_still_receives_what_was_sent_before_is_not_silent() -> None:
    pulse = Pulse()
    begun = [pulse.tick(delivered) for delivered in range(0, 50_000, 1000)]
    assert begun == [Action.NONE] * 50
    standing = [pulse.tick(49_000) for _ in range(SILENT_AFTER)]
    assert standing[-1] is Action.TELL_SILENT or pulse.state is State.SILENT, "a full buffer that nobody reads"
    pulse = Pulse()
    assert [pulse.tick(-1) for _ in range(SILENT_AFTER)][-1] is Action.TELL_SILENT, "it has all, and does not answer"


def test_a_slow_connection_may_stand_still_often_and_not_for_long() -> None:
    pulse = Pulse()
    told = [pulse.tick(delivered) for delivered in range(1, 20) for _ in range(SILENT_AFTER - 1)]
    assert Action.TELL_SILENT not in told, told
    assert Action.TELL_SILENT in [pulse.tick(19) for _ in range(SILENT_AFTER)], "then it stands still"


def test_ticks_may_be_shorter() -> None:
    assert play(Pulse(0.5), [QUIET] * 2 * SILENT_AFTER)[-1] is Action.TELL_SILENT


@given(st.lists(st.booleans(), max_size=60))
def test_silence_and_return_take_turns(ticks: list[bool]) -> None:
    pulse = Pulse()
    told = [action for action in play(pulse, ticks) if action in (Action.TELL_SILENT, Action.TELL_BACK)]
    assert told[::2] == [Action.TELL_SILENT] * len(told[::2])
    assert told[1::2] == [Action.TELL_BACK] * len(told[1::2])
    assert (pulse.state is State.SILENT) == (len(told) % 2 == 1)


def test_every_transition_is_walked() -> None:
    walked = set()
    pulse = Pulse()
    # a pulse that is asked late: its first tick comes when it has been quiet for too long
    late = Pulse()
    late._quiet = SILENT_AFTER - 1
    for one, ticks in ((late, [QUIET, WORD]), (pulse, [QUIET] * 2 + [WORD] + [QUIET] * SILENT_AFTER + [WORD])):
        for word in ticks:
            before = one.state
            one.heard = word
            quiet = 0 if word else one._quiet + 1
            event = Event.WORD if word else Event.QUIET if quiet < SILENT_AFTER else Event.TOO_QUIET
            one.tick()
            if (before, event) in TRANSITIONS:
                walked.add((before, event))
    assert walked == set(TRANSITIONS)
