"""Traces: what the Standard Workload Format says, and jobs that are made up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated.programs import behaviour
from simulated.traces import BadTrace, Job, generated, read_swf
from tests.support.chance import examples

LINE = "  {0} {1} 10 {2} {3} -1 -1 {4} -1 -1 1 3 1 -1 1 -1 -1 -1"


def test_a_trace_has_jobs_comments_and_jobs_that_never_ran() -> None:
    lines = [
        "; Version: 2.2", "", LINE.format(1, 0, 100, 16, 32), LINE.format(2, 5, 7, 8, -1),
        LINE.format(3, 6, -1, 8, 8), LINE.format(4, 9, 0, -1, 0) + " ; never had any",
    ]  # fmt: skip
    assert list(read_swf(lines)) == [Job(1, 0.0, 100.0, 32), Job(2, 5.0, 7.0, 8)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1 2 3", "line 1 has 3 of a job's 18 fields"),
        ("a" * 99, "line 1"),
        ("nan " * 18, "line 1: 'nan.* none of a job's"),
        ("1 0 -1 1e300 4" + " 1" * 13, "line 1: '1 0 -1 1e300.* none of a job's"),
    ],
)
def test_a_line_that_is_no_job_is_named(line: str, told: str) -> None:
    with pytest.raises(BadTrace, match=told):
        list(read_swf([line]))


@settings(max_examples=examples(20), deadline=None)
@given(processors=st.integers(1, 20_000), jobs=st.integers(1, 200), seed=st.integers(0, 99))
def test_made_up_jobs_fit_the_machine_and_are_the_same_for_the_same_seed(processors: int, jobs: int, seed: int) -> None:
    made = generated(processors, jobs, seed=seed)
    assert made == generated(processors, jobs, seed=seed) and len(made) == jobs
    assert all(0 < job.size <= max(1, processors // 10) and job.run_s > 0 for job in made)
    assert [job.submit_s for job in made] == sorted(job.submit_s for job in made)


def test_made_up_jobs_keep_the_machine_as_busy_as_asked() -> None:
    for load in (0.3, 0.9):
        made = generated(10_368, 4000, load=load)
        offered = sum(job.size * job.run_s for job in made) / (made[-1].submit_s * 10_368)
        assert load * 0.7 < offered < load * 1.4


def test_simulated_programs_sleep_write_and_fail() -> None:
    assert behaviour(b"/bin/sleep", [b"sleep", b"2.5"], "n1").seconds == 2.5
    assert behaviour(b"/bin/sleep", [b"sleep", b"nan"], "n1").seconds == 0.0
    assert behaviour(b"/bin/hostname", [b"hostname"], "n1").output == b"n1\n"
    assert behaviour(b"/bin/false", [b"false"], "n1").status == 256
    assert behaviour(b"/opt/solver", [b"solver"], "n1").status == 0
