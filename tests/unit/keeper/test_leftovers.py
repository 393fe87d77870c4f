"""What a killed mesh of a batch job left on a host is removed, and nothing else."""

import fcntl
import json
import os
from pathlib import Path

from agents.keeper.leftovers import STARTS_S, sweep
from agents.linux import processes


def _state(path: Path, **more: object) -> Path:
    path.mkdir(parents=True)
    run = path / "run" / path.name
    run.mkdir(parents=True)
    (run / "rca.sock").touch()
    (path / "keeper.json").write_text(json.dumps({"mesh": path.name, "run": str(run), **more}))
    (path / "mesh.lock").touch()
    return path


def test_a_dead_mesh_and_those_of_its_nodes_are_removed(tmp_path: Path) -> None:
    jobs = tmp_path / "redmesh-7" / "jobs"
    mesh = _state(jobs / "slurm-c.1", ends_with=[1 << 22, 5])
    node = _state(mesh / "nodes" / "n1" / "redmesh" / "nodes" / "ab-n1", ends_with="parent")
    assert node.is_dir()
    assert sweep(str(jobs)) == [str(mesh)]
    assert not jobs.exists(), "directories that were made for jobs go with the last one"


def test_a_mesh_stays_while_a_keeper_has_its_lock_or_its_script_runs_or_somebody_starts_it(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    locked, owned, new = (jobs / f"slurm-c.{number}" for number in (1, 2, 3))
    _state(locked)
    node = _state(locked / "nodes" / "n1" / "redmesh" / "nodes" / "ab-n1", ends_with="parent")
    _state(owned, ends_with=[os.getpid(), processes.start_time(os.getpid())])
    (new / "agents").mkdir(parents=True)
    with open(node / "mesh.lock", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert sweep(str(jobs)) == []
    past = os.stat(new).st_mtime - STARTS_S - 1
    for path in (new / "agents", new):
        os.utime(path, (past, past))
    assert sweep(str(jobs)) == [str(locked), str(new)]
    assert owned.is_dir()


def test_what_cannot_be_read_stays(tmp_path: Path) -> None:
    mesh = _state(tmp_path / "slurm-c.1")
    (mesh / "keeper.json").write_text("{")
    assert sweep(str(tmp_path)) == [] and mesh.is_dir()
    assert sweep(str(tmp_path / "nowhere")) == []
