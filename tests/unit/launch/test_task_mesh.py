"""A yod that is a task of srun, and started the mesh of the job, waits for the launches of the other tasks."""

import os
from pathlib import Path

import pytest

from agents.managers import slurm
from console.launch.daemons import task_mesh


def test_tasks_of_srun_and_other_steps() -> None:
    assert slurm.in_task({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"})
    for step in ("", "4294967290", "4294967291"):  # salloc's shell, the batch script
        assert not slurm.in_task({"SLURM_STEP_ID": step, "SLURM_STEP_NUM_TASKS": "4"})


def test_the_only_task_of_a_step_waits_for_nobody() -> None:
    """In ``srun --pty bash``, a launch in the background would hold each yod of the foreground."""
    for tasks in ("1", "", "x"):
        assert not slurm.in_task({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": tasks})


_TASK = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


class Settings:
    """What the function reads of the settings."""

    def __init__(self, state: Path) -> None:
        self.manager, self.state_dir, self.run_dir = "auto", str(state), str(state)


@pytest.mark.parametrize("ours", [True, False])
def test_only_the_owner_of_the_mesh_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    looked: list[str] = []
    monkeypatch.setattr(task_mesh, "connect_any", lambda run, _start: looked.append(run))
    for name, value in _TASK.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "keeper.json").write_text(
        f'{{"run": "", "state": "", "mesh": "", "boot_id": "", "login": "", "nodes": [], "cpas": 1,'
        f' "ends_with": [{os.getpid() if ours else 1 << 22}, 1]}}'
    )
    task_mesh.wait_for_others(Settings(tmp_path))  # type: ignore[arg-type]
    assert looked == ([str(tmp_path)] if ours else []), "the mesh has ended: nobody waits"
