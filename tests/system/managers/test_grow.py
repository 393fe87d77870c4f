"""``mesh grow`` and ``mesh shrink``: a mesh over SSH and a batch job of stand-in clients."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.addresses import address
from tests.support.look import states
from tests.support.loopback_mesh import LoopbackMesh
from tests.support.managers.job import STAND_IN
from tests.support.waiting import PATIENCE_S, SLOWNESS, wait_until

HOST = {"name": "lo1", "address": address(1), "processors": 2}


@pytest.fixture
def standing(loopback_hosts: Any, tmp_path: Path) -> Iterator[LoopbackMesh]:
    """A mesh of one host, and stand-in clients of Slurm on PATH; afterwards nothing is left of either."""
    mesh = LoopbackMesh(loopback_hosts(1), HOST)
    clients, refused = tmp_path / "bin", tmp_path / "refused"
    clients.mkdir()
    for name in ("sbatch", "squeue", "scancel", "srun"):
        (clients / name).symlink_to(STAND_IN)
    mesh.env |= {
        "PATH": f"{clients}:{mesh.env['PATH']}", "STAND_IN_HOSTS": "b0 b1", "STAND_IN_SLOTS": "2",
        "STAND_IN_REFUSED": str(refused), "TMPDIR": str(tmp_path),
    }  # fmt: skip
    try:
        mesh.run("mesh", "up", check=True)
        yield mesh
        assert not refused.exists(), refused.read_text()
    finally:
        mesh.run("mesh", "down", "--force")
        # a cancelled job ends by itself, after `mesh shrink` and `mesh down`
        wait_until(lambda: not mesh.left_on_hosts(), "nothing of the mesh is on any host")
        # who waits for the jobs' limits ends when the record of them changes
        wait_until(lambda: not any("--when-due" in one for one in mesh.processes().values()), "no shrink waits")
        left = [str(path) for path in tmp_path.rglob("*") if path.name in ("keeper.json", "grown")] + mesh.close()
    assert not left, left


def _grown(mesh: LoopbackMesh) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(mesh.run("mesh", "grow", "--list", "--json", check=True).stdout)["grown"]
    return rows


def _job(mesh: LoopbackMesh, *words: str) -> str:
    return str(json.loads(mesh.run("mesh", "grow", "-N", "2", "--json", *words, check=True).stdout)["job"])


def test_a_mesh_grows_by_a_job_and_shrinks_again(standing: LoopbackMesh) -> None:
    job = _job(standing, "--time", "1:00:00", "--", "--nodelist=b[0-1]")
    hosts = standing.run("yod", "-sz", "6", "sh", "-c", "echo $YOD_RANK", check=True).stdout.split()
    assert sorted(hosts) == list("012345")
    kept = standing.run("mesh", "submit", "--quiet", "--wait", "--", "true", check=True).stdout.strip()
    standing.run("mesh", "job", "move", kept, "b0", check=True)
    [row] = _grown(standing)
    assert row["nodes"] == ["b0", "b1"] and 3000 < row["drain_at"] - row["began_at"] < 3600
    leaving = [node["drain_at"] for node in standing.json("showmesh")["nodes"]]
    assert leaving[0] is None and all(abs(at - row["drain_at"]) < PATIENCE_S for at in leaving[1:])
    refused = standing.run("yod", "-sz", "6", "-time", "2h", "true")
    assert refused.returncode == 125 and "2 nodes (b0, b1) will be drained" in refused.stderr
    standing.run("yod", "-sz", "2", "-time", "2h", "true", check=True)
    assert standing.run("mesh", "shrink", job, check=True).stdout == f"mesh shrank by 2 nodes of job {job}\n"
    assert _grown(standing) == []
    assert "lo1" in standing.run("mesh", "job", "show", kept, check=True).stdout, "its object left with the node"
    standing.run("mesh", "job", "purge", kept, check=True)  # or mesh down would leave it on lo1
    refused = standing.run("yod", "-sz", "6", "true")
    assert refused.returncode == 125
    again = _job(standing)  # the same hosts come back
    standing.run("yod", "-sz", "6", "true", check=True)
    assert standing.run("mesh", "shrink", "--force", again).returncode == 0


def test_nodes_are_drained_before_the_time_limit(standing: LoopbackMesh) -> None:
    limit = round(12 * SLOWNESS)
    _job(standing, "--time", f"{limit // 60}:{limit % 60:02}")
    record = standing.state / "grown.json"
    wait_until(
        lambda: not record.exists() or json.loads(record.read_text()) == [], "the job's nodes have left", step_s=0.1
    )
    assert _grown(standing) == []
    standing.run("yod", "-sz", "2", "true", check=True)


def test_nodes_are_drained_when_nobody_watches(standing: LoopbackMesh) -> None:
    limit = round(12 * SLOWNESS)
    _job(standing, "--time", f"{limit // 60}:{limit % 60:02}")
    for pid, words in standing.processes().items():
        if "--when-due" in words:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _states(standing)[1:] == ["drained"] * 2, "the nodes are drained", step_s=0.2)
    assert _grown(standing) and _states(standing)[0] == "up"
    standing.run("yod", "-sz", "2", "true", check=True)


def _states(mesh: LoopbackMesh) -> list[str]:
    return [*states(mesh).values()]


def test_what_cannot_grow_is_refused(standing: LoopbackMesh) -> None:
    for words, told in (
        (("-N", "x"), "-N needs a number of nodes"),
        (("--manager", "lsf"), "the manager lsf cannot submit jobs"),
        (("-N", "3"), "sbatch"),
    ):
        done = standing.run("mesh", "grow", *words)
        assert done.returncode and told in done.stderr and "Traceback" not in done.stderr, done.stderr
    _job(standing)
    taken = standing.run("mesh", "grow", "-N", "2")
    assert "b0 is a node of job" in taken.stderr
    standing.run("mesh", "shrink", "--force", _grown(standing)[0]["job"], check=True)
    assert "no nodes of a job 99" in standing.run("mesh", "shrink", "99").stderr
    assert _grown(standing) == [] and not os.path.exists(standing.state / "nodes")
