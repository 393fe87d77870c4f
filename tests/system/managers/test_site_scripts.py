"""The scripts for a site's prolog and epilog, run as batch systems run them, on a mesh."""

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.waiting import PATIENCE_S

ME = pwd.getpwuid(os.getuid()).pw_name
QSTAT = """#!/bin/sh
test "$1 $2" = "-f 7.host" || exit 1
cat <<'END'
Job Id: 7.host
    Job_Name = x
    exec_host = n0/0*2+
\tn1/0*2
    Hold_Types = n
END
"""


@pytest.fixture
def site() -> Iterator[PrivateMesh]:
    mesh = PrivateMesh(4, 2)
    try:
        # the scripts' commands get no variable but HOME
        (mesh.home / ".local").mkdir()
        (mesh.home / ".local" / "state").symlink_to(mesh.home / "state")
        mesh.run("mesh", "up", "--processors", "4", "--nodes", "2", check=True)
        yield mesh
    finally:
        mesh.close()


def written(mesh: PrivateMesh, batch_system: str) -> dict[str, Path]:
    """The scripts, made by the command, by their names."""
    jobs, place = mesh.home / "jobs", mesh.home / "scripts"
    place.mkdir(exist_ok=True)
    where = ("--directory", str(place), "--jobs", str(jobs))
    told = json.loads(
        mesh.run("mesh", "manager", "install", batch_system, "--print", "--json", *where, check=True).stdout
    )
    for script in told["scripts"]:
        Path(script["path"]).write_text(script["text"])
        os.chmod(script["path"], 0o755)
    return {Path(script["path"]).name: Path(script["path"]) for script in told["scripts"]}


def run(mesh: PrivateMesh, script: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(mesh.home / "evil"), **environ}
    return subprocess.run([str(script), *words], env=clean, capture_output=True, text=True, timeout=PATIENCE_S)


def partitions(mesh: PrivateMesh) -> list[tuple[str, str]]:
    return [(one["batch_job"], one["processors"]) for one in mesh.json("mesh", "partition", "list")]


def test_a_job_of_slurm_has_a_partition_of_its_nodes_as_long_as_it_runs(site: PrivateMesh) -> None:
    made = written(site, "slurm")
    job = {"SLURM_JOB_ID": "12", "SLURM_JOB_USER": ME, "SLURM_JOB_NODELIST": "n[1]"}
    done = run(site, made["redmesh-prolog"], **job)
    assert done.returncode == 0, done.stderr
    assert partitions(site) == [("slurm.12", "2..3")]
    assert (site.home / "jobs" / "12").stat().st_mode & 0o777 == 0o600
    lines = run(site, made["redmesh-task"], SLURM_JOB_ID="12").stdout.splitlines()
    assert all(line.startswith("export ") for line in lines), lines
    given = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    assert set(given) == {"REDMESH_PARTITION", "REDMESH_ALLOCATION_COOKIE"}
    inside = site.run("yod", "-sz", "2", "sh", "-c", "echo $YOD_NODE", env=given, check=True)
    assert inside.stdout.split() == ["n1", "n1"]
    assert site.run("yod", "-sz", "3", "true", env=given).returncode != 0, "the partition has two processors"
    assert run(site, made["redmesh-task"], SLURM_JOB_ID="13").stdout == "", "another job's"
    again = run(site, made["redmesh-prolog"], **{**job, "SLURM_JOB_ID": "13"})
    assert again.returncode != 0 and partitions(site) == [("slurm.12", "2..3")], "its nodes are taken"
    assert run(site, made["redmesh-epilog"], **{**job, "SLURM_JOB_ID": "13"}).returncode == 0, "it had no partition"
    assert run(site, made["redmesh-epilog"], **job).returncode == 0
    assert partitions(site) == [] and os.listdir(site.home / "jobs") == []


def test_jobs_of_pbs_and_grid_engine_have_one_too(site: PrivateMesh) -> None:
    made = written(site, "pbs")
    qstat = site.home / "scripts" / "qstat"
    qstat.write_text(QSTAT)
    qstat.chmod(0o755)
    for name in ("prologue", "epilogue"):  # as qstat stands where the site has its commands
        text = made[name].read_text()
        made[name].write_text(text.replace("\nPATH=", f"\nPATH={qstat.parent}:", 1))
    done = run(site, made["prologue"], "7.host", ME, "group")
    assert done.returncode == 0, done.stderr
    assert partitions(site) == [("pbs.7.host", "0..3")]
    assert run(site, made["epilogue"], "7.host", ME).returncode == 0 and partitions(site) == []

    made = written(site, "sge")
    spool = site.home / "spool"
    spool.mkdir()
    (spool / "pe_hostfile").write_text("n1.example.org 2 all.q@n1 UNDEFINED\nn0 2 all.q@n0 UNDEFINED\n")
    (spool / "environment").write_text("JOB_ID=5\n")
    done = run(site, made["redmesh-prolog"], ME, "5", "3", SGE_JOB_SPOOL_DIR=str(spool))
    assert done.returncode == 0, done.stderr
    assert partitions(site) == [("sge.5.3", "0..3")]
    assert "REDMESH_PARTITION=" in (spool / "environment").read_text()
    assert run(site, made["redmesh-epilog"], ME, "5", "3").returncode == 0 and partitions(site) == []
