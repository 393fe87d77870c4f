"""Managers and limits of a real mesh: ``[[manager]]`` in mesh.toml, yods and jobs."""

from __future__ import annotations

import json

import pytest

from db.views.viewer import open_viewer
from tests.support.look import processors
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until

CONFIGURATION = """
[[manager]]
name = "imaging"
applications = ["sh"]
nodes = ["n0", "n1"]
max_processors = 2

[[manager]]
name = "one"
applications = ["sleep"]
max_jobs = 1
"""


@pytest.fixture
def managed(mesh: MakeMesh) -> PrivateMesh:
    """Eight processors on four nodes, two CPAs."""
    made = mesh(8, 4, 2, up=False)
    (made.work / "mesh.toml").write_text(CONFIGURATION)
    made.up()
    return made


def wait_for_line(mesh: PrivateMesh, *managers: str) -> None:
    """Wait until requests of these managers wait, and no other."""
    with open_viewer(mesh.database) as viewer:
        wait_until(lambda: [row.manager for row in viewer.waiting()] == [*managers], f"requests of {managers} wait")


def test_parts_limits_and_why_a_job_waits(managed: PrivateMesh) -> None:
    assert managed.run("mesh", "up", check=True).stderr == ""
    (managed.work / "mesh.toml").write_text("max_jobs = 3\n" + CONFIGURATION.replace("= 2", "= 1"))
    told = managed.run("mesh", "up", check=True).stderr
    assert "[[manager]], max_jobs: the mesh that is up has the values it began with (mesh down, then mesh up)" in told
    (managed.work / "mesh.toml").write_text(CONFIGURATION)
    refused = managed.run("yod", "-sz", "3", "sh", "-c", ":")
    assert refused.returncode == 125
    assert "3 processors asked for; the limit of manager imaging is 2 for a user (ask for fewer)" in refused.stderr
    assert "4 are free (" in managed.run("yod", "-sz", "5", "hostname").stderr  # n0 and n1 are another manager's
    script = "until test -e go; do sleep 0.1; done"
    job = managed.run("mesh", "submit", "--array", "1-3", "--", "sh", "-c", script, check=True).stdout.strip()

    def why() -> str:
        return str(next(one for one in managed.json("mesh", "queue") if one["uuid"] == job)["why"])

    wait_for_line(managed, "imaging")
    wait_until(lambda: "uses 2 of 2 processors, the limit of manager imaging for a user" in why(), "why it waits")
    assert "2 of 2 processors" in managed.run("mesh", "queue", check=True).stdout
    live = managed.json("showmesh")["launchers"]
    assert sum(one["size"] for one in live) == 2
    # its request waits, and requests for other parts, and of others here, go on
    assert managed.run("yod", "-sz", "4", "hostname").returncode == 0
    (managed.work / "go").touch()
    assert managed.run("mesh", "wait", job).returncode == 0

    sleeper = managed.start("yod", "sleep", "30")
    wait_until(lambda: processors(managed, "busy") == 1, "the first runs")
    second = managed.run("yod", "sleep", "0")
    assert "runs 1 of 1 job, the limit of manager one for a user" in second.stderr and second.returncode == 125
    waits = managed.start("yod", "-wait-for-nodes", "60", "sleep", "0")
    wait_for_line(managed, "one")
    sleeper.terminate()
    sleeper.wait()
    assert waits.wait() == 0  # whoever freed the limit has served it


def test_what_is_wrong_is_said_before_anything_starts(mesh: MakeMesh) -> None:
    made = mesh(4, 2, up=False)
    for text, told in (
        ('[[manager]]\nname = "a"\nnodes = ["gpu*"]\n', "manager 'a' has no processor: no node of this mesh has gpu*"),
        ('[[manager]]\nname = "a"\nmax_job = 3\n', "manager 'a': no key is called 'max_job'"),
        ("max_jobs = -1\n", "max_jobs must be at least 0"),
    ):
        (made.work / "mesh.toml").write_text(text)
        done = made.run("mesh", "up")
        assert done.returncode == 2 and told in done.stderr and "mesh.toml" in done.stderr, done.stderr
    assert json.loads(made.run("mesh", "status", "--json").stdout or "{}").get("healthy") is not True
