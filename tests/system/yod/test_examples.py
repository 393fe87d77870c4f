"""Every example does what its page says."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.managers.job import Job
from tests.support.mesh import PrivateMesh
from tests.support.mpis import ROOT, compiled, needs_mpich, python_with, with_mpi4py
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import silence
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("examples/heat/heat.c", tmp_path_factory.mktemp("heat"), "-O2")


@needs_mpich
def test_heat_gives_the_same_result_on_any_number_of_ranks(yods: PrivateMesh, heat: str) -> None:
    means = []
    for size in (1, 2, 3):  # ranks that wait in MPICH need whole processors
        told = yods.run("yod", "-sz", str(size), heat, "16", "40", check=True).stdout
        found = re.fullmatch(rf"16 x 16 plate on {size} ranks: mean temperature ([\d.]+) after 40 steps\n", told)
        assert found, told
        means.append(float(found[1]))
    assert max(means) - min(means) < 1e-5 and 5 < means[0] < 30
    small = yods.run("yod", "-sz", "4", heat, "3")
    assert small.returncode == 2 and "heat: 3 rows are not enough for 4 ranks" in small.stderr


@needs_mpich
def test_a_solver_and_a_watcher(yods: PrivateMesh, tmp_path: Path) -> None:
    for name in ("solver", "watcher"):
        compiled(f"examples/coupled/{name}.c", tmp_path, "-lm")
    shutil.copy(EXAMPLES / "coupled" / "load", tmp_path / "load")
    told = yods.run("yod", "load", cwd=tmp_path, check=True).stdout.splitlines()
    assert [line.split(":")[0] for line in told] == [f"step {step} of 3 solvers" for step in (5, 10, 15, 20)]
    assert told[-1].endswith("mean 1.414213562")


@needs_mpich
def test_a_deadlock_ends_with_its_time(yods: PrivateMesh, tmp_path: Path) -> None:
    deadlock = compiled("examples/deadlock/deadlock.c", tmp_path, "-g")
    one_core = ("-cpu-bind", f"map:{min(os.sched_getaffinity(0))}")  # for ranks that wait in MPICH need whole ones
    done = yods.run("yod", "-sz", "2", *one_core, "-time", f"{silence(2.0)}s", deadlock)
    assert done.returncode == 124
    assert sorted(done.stdout.splitlines()) == ["rank 0 waits for everybody", "rank 1 waits for news"]
    assert "rank 0-1 on n0: SIGTERM (Terminated) from yod" in done.stderr


def test_pi_with_mpi4py(yods: PrivateMesh) -> None:
    told = yods.run("yod", "-sz", "4", *with_mpi4py(), str(EXAMPLES / "mpi4py" / "pi.py"), check=True).stdout
    assert told == "pi is 3.1415926536, by 4 ranks\n"


def test_torch_ddp_trains_to_the_same_weights(yods: PrivateMesh) -> None:
    python = python_with("torch.distributed")
    told = yods.run("yod", "-sz", "4", python, str(EXAMPLES / "torch" / "ddp.py"), check=True).stdout
    found = re.fullmatch(r"4 ranks, the same weights: True, off by ([\d.]+), at 127.0.0.1\n", told)
    assert found and float(found[1]) < 0.05


def test_a_farm_runs_every_task_and_counts_failures(yods: PrivateMesh, tmp_path: Path) -> None:
    farm = str(EXAMPLES / "farm" / "farm.sh")
    told = yods.run("yod", "-sz", "3", farm, str(EXAMPLES / "farm" / "tasks"), check=True).stdout
    assert sorted(told.splitlines()) == sorted(
        ["one", "two", "21", "four", *(f"task {n} on n{(n - 1) % 3 // 2}: done" for n in (1, 2, 3, 4))]
    )
    (tmp_path / "bad").write_text("exit 9\ntrue\nexit 1\nfalse")
    bad = yods.run("yod", "-sz", "2", farm, str(tmp_path / "bad"))
    assert bad.returncode == 2 and "task 1 on n0: failed with 9" in bad.stderr
    assert "task 4 on n0: failed with 1" in bad.stderr, "a last line without an end counts"


def test_a_sweep_launches_from_python(yods: PrivateMesh) -> None:
    told = yods.run(sys.executable, str(EXAMPLES / "python" / "sweep.py"), check=True).stdout
    assert sorted(told.splitlines()) == ["100: 0 100", "10: 0 10", "1: 0 1"]


def test_dask_workers_compute(yods: PrivateMesh) -> None:
    python = python_with("distributed")
    ours = {"PYTHONPATH": str(EXAMPLES.parent)}  # that Python need not have redmesh
    assert (
        yods.run(python, str(EXAMPLES / "python" / "dask_workers.py"), "2", check=True, env=ours).stdout == "328350\n"
    )


def test_a_farm_with_256_failures_does_not_end_with_0(yods: PrivateMesh, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("exit 1\n" * 256)
    bad = yods.run("yod", "-sz", "1", str(EXAMPLES / "farm" / "farm.sh"), str(tmp_path / "bad"))
    assert bad.returncode == 100 and bad.stderr.count("failed with 1") == 256


@needs_mpich
def test_heat_continues_from_its_checkpoint(yods: PrivateMesh, heat: str, tmp_path: Path) -> None:
    whole = yods.run("yod", "-sz", "1", heat, "16", "30", check=True).stdout
    plate = str(tmp_path / "plate")
    yods.run("yod", "-sz", "3", heat, "16", "25", plate, "10", check=True)
    again = yods.run("yod", "-sz", "2", heat, "16", "30", plate, "10", check=True).stdout.splitlines()
    assert again[0] == "heat: continues after step 20"
    assert again[1].split("mean")[1] == whole.strip().split("mean")[1]
    other = yods.run("yod", "-sz", "2", heat, "8", "30", plate)
    assert other.returncode == 3 and "plate is of a plate of 16 x 16" in other.stderr


def test_the_cells_of_the_notebook_run(yods: PrivateMesh) -> None:
    cells = json.loads((EXAMPLES / "notebook" / "launches.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    told = yods.run(sys.executable, "-c", code, check=True).stdout.splitlines()
    assert set(told[:-1]) == {"0 rank 0", "1 rank 1", "0 exited with 0", "1 exited with 1"}
    assert "no-such-program" in told[-1]


def test_the_job_script_for_slurm_runs_in_a_job() -> None:
    job = Job("slurm")
    try:
        done = job.run("sh", "-c", (EXAMPLES / "slurm" / "job.sh").read_text())
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("rank 0 of 2") == done.stdout.count("rank 1 of 2") == 1
        assert done.stdout.endswith("mesh down\n")
    finally:
        job.close()
