"""The phases of a job's owner: every way through them ends, and nothing is recorded after the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.job.phase import TRANSITIONS, JobPhase, Phase, Step


def _steps(phase: Phase) -> list[Step]:
    return [step for before, step in TRANSITIONS if before is phase]


@given(st.data())
def test_an_owner_that_has_recorded_the_end_or_lost_the_job_never_goes_on(data: st.DataObject) -> None:
    phase, closed = JobPhase(), False
    for _ in range(12):
        phase.go(data.draw(st.sampled_from(_steps(phase.now))))
        assert not closed or phase.closed
        assert not (phase.active and phase.closed)
        closed = phase.closed


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_can_be_suspended_or_fenced_at_any_time(phase: Phase) -> None:
    if phase is not Phase.FENCED:
        assert TRANSITIONS[phase, Step.FENCE] is Phase.FENCED
    assert (phase, Step.SUSPEND) in TRANSITIONS


def test_a_job_ends_once_and_leaves_only_while_it_gives_out_tasks() -> None:
    assert {before for before, step in TRANSITIONS if step is Step.END} == {Phase.SERVING}
    assert {before for before, step in TRANSITIONS if step is Step.LEAVE} == {Phase.SERVING}
    assert Phase.OVER not in {before for before, step in TRANSITIONS if step is Step.CLOSE}
    with pytest.raises(KeyError):
        JobPhase().go(Step.END)
