"""A mesh inside a job of every batch system that is known. The clients are stood in for."""

from collections.abc import Iterator

import pytest

from tests.support.managers.job import NEEDS_GCC, Job
from tests.support.managers.levels import (
    assert_every_slot_is_used,
    assert_signals_reach_each_rank_once,
    assert_the_client_is_the_parent,
)
from tests.support.waiting import wait_until

#: The client that is the parent of each rank with --parent=rank. pbsdsh starts agents only.
CLIENTS = {"slurm": "srun", "lsf": "blaunch", "pbs": "pbs_tmrsh", "pbsdsh": "", "tm": "tm.py", "flux": "flux"}


@pytest.fixture(params=[pytest.param(one, marks=NEEDS_GCC if one == "tm" else ()) for one in CLIENTS])
def any_job(request: pytest.FixtureRequest) -> Iterator[tuple[Job, str]]:
    yield from ((job, CLIENTS[request.param]) for job in _job(request.param))


@pytest.fixture
def grid_engine() -> Iterator[Job]:
    yield from _job("grid_engine")


def _job(kind: str) -> Iterator[Job]:
    one = Job(kind)
    try:
        yield one
        assert not one.refused.exists(), one.refused.read_text()
    finally:
        one.close()


def test_yod_uses_every_slot_of_the_job_at_both_levels_and_nothing_outlives_it(any_job: tuple[Job, str]) -> None:
    job, client = any_job
    assert_every_slot_is_used(job)
    if client:
        assert_the_client_is_the_parent(job, client)
        assert_signals_reach_each_rank_once(job)
    job.end()
    job.wait_until_gone()


def test_mesh_down_leaves_a_job_of_grid_engine_alive_and_nothing_outlives_it(grid_engine: Job) -> None:
    """Its clients' tasks die of SIGKILL if the clients are told to end, and the job with them."""
    job = grid_engine
    assert job.run("yod", "-sz", "2", "true").returncode == 0
    assert job.run("mesh", "down").returncode == 0
    wait_until(lambda: job.left() == [job.script.pid], "only the script is left", step_s=0.1)
    assert_every_slot_is_used(job)
    job.end()
    job.wait_until_gone()
