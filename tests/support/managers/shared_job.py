"""One job of Slurm for several tests of a module: each leaves its mesh up and free."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agents.linux import processes
from db.views.viewer import open_viewer
from tests.support.look import seen_by
from tests.support.managers.job import Job
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def kept() -> Iterator[list[Job]]:
    """The job of `shared_job`, if a test has begun one."""
    jobs: list[Job] = []
    yield jobs
    for one in jobs:
        one.close()


@pytest.fixture
def shared_job(kept: list[Job]) -> Iterator[Job]:
    """A job of several tests, whose mesh is up. A test that does not leave the mesh up and free fails.

    If set-up or tear-down fails, the job is closed, and the next test starts a new job.
    """
    with _closed_on_failure(kept):
        if not kept:
            kept.append(Job("slurm"))
            first = kept[0].run("yod", "-sz", "4", "true")
            assert first.returncode == 0, first.stderr
        [one] = kept
        before = _keeper(one)
    yield one
    with _closed_on_failure(kept):
        for pid in ranks(one):
            processes.send_signal(pid, signal.SIGKILL)
        wait_until(lambda: not ranks(one), "no rank is left", step_s=0.1)
        assert one.run("true").returncode == 0, "the job's shell runs the next command"
        assert _keeper(one) == before, "the mesh is the same as before the test"
        wait_until(lambda: _is_free(one), "every slot is free, and every node is up", step_s=0.1)
        assert not one.refused.exists(), one.refused.read_text()


@contextmanager
def _closed_on_failure(kept: list[Job]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        while kept:
            kept.pop().close()
        raise


def _keeper(job: Job) -> object:
    """Return the state directory and the boot ID of the job's mesh: another mesh has others."""
    [state] = job.jobs.iterdir()
    return state, json.loads((state / "keeper.json").read_text())["boot_id"]


def ranks(job: Job) -> list[int]:
    """Return the pids of the ranks that the job's processes have started, and of what the ranks started."""
    return [pid for pid in job.left() if "YOD_RANK" in processes.environment(pid)]


def _is_free(job: Job) -> bool:
    [state] = job.jobs.iterdir()
    with open_viewer(f"sqlite://{state}/mesh.db") as viewer:
        return int(seen_by(viewer)["states"]["free"]) == len(job.hosts) * job.slots
