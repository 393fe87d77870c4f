"""What ranks have of yod's caller on every kind of mesh: the table of docs/troubleshooting.md."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.groups import inside, limited_group
from tests.support.hosts import MakeHosts
from tests.support.managers.job import Job
from tests.support.managers.shared_job import kept, shared_job
from tests.support.mariadb import Server
from tests.support.mesh import PrivateMesh, while_up
from tests.support.others import python_for_others
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.yods import yods

__all__ = ["kept", "one_mesh", "shared_job", "yods"]

PAGE = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
TITLE = "## What a launch takes from its caller"
COLUMNS = ("personal mesh", "over SSH", "system mode", "inside Slurm")
GROUP = 60060  # of no account, but ada's on the node in system mode
CALLER = 'ulimit -H -n 900; ulimit -S -n 111; umask 027; cd /usr; TAKEN=yes exec nice -n 5 yod -sz 1 sh -c "$0"'
RANK = 'ulimit -S -n; ulimit -H -n; id -G; umask; pwd; echo "$TAKEN"; nice; cat /proc/self/cgroup'
ROWS = (
    "soft limits (`ulimit -S`)", "hard limits", "groups", "umask", "directory", "environment", "priority (`nice`)",
    "control group",
)  # fmt: skip


def on_the_page(column: str) -> dict[str, bool]:
    """Whether the page says, for each row, that a launch has the caller's."""
    lines = PAGE.read_text().split(TITLE)[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert tuple(rows[0][1:]) == COLUMNS
    at = 1 + COLUMNS.index(column)
    return {row[0]: row[at] == "the caller's" for row in rows[2:]}


def observed(run: Callable[..., Any], user: int = 0) -> dict[str, bool]:
    """Whether a rank has what the caller has, and nobody else."""
    with limited_group("pids", 1000) as group:
        ids = ("--reuid", str(user), "--regid", str(user), "--groups", f"{user},{GROUP}", "--")
        done = run(*inside(group, "setpriv", *ids, "sh", "-c", CALLER, RANK))
        assert done.returncode == 0, done.stderr
        soft, hard, groups, mask, directory, environment, priority, *control_groups = done.stdout.splitlines()
        found = (
            soft == "111", hard == "900", str(GROUP) in groups.split(), mask == "0027", directory == "/usr",
            environment == "yes", priority == str(os.nice(0) + 5), any(group.name in line for line in control_groups),
        )  # fmt: skip
        return dict(zip(ROWS, found, strict=True))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="groups and control groups need root")


@needs_root
def test_a_personal_mesh(yods: PrivateMesh) -> None:
    assert observed(yods.run) == on_the_page("personal mesh")


@needs_root
def test_groups_that_ranks_do_not_have_are_named(yods: PrivateMesh) -> None:
    own = ",".join(map(str, {*os.getgroups(), os.getegid()}))
    assert yods.run("yod", "true").stderr == ""
    done = yods.run("setpriv", "--groups", f"{own},{GROUP}", "yod", "true")
    assert done.returncode == 0 and f"yod: ranks are not in group {GROUP}, as yod is" in done.stderr
    done = yods.run("setpriv", "--regid", str(GROUP), "--groups", own, "yod", "true")
    assert done.returncode == 0 and f"yod: ranks are not in group {GROUP}, as yod is" in done.stderr
    assert yods.run("setpriv", "--groups", f"{own},{GROUP}", "yod", "-quiet", "true").stderr == ""


@needs_root
def test_a_mesh_over_ssh(netns_hosts: MakeHosts) -> None:
    with while_up(FarMesh(netns_hosts(1))) as mesh:
        assert observed(mesh.run) == on_the_page("over SSH")
        assert mesh.run("yod", "true").stderr == ""
        done = mesh.run("setpriv", "--regid", str(GROUP), "--keep-groups", "yod", "true")
        assert done.returncode == 0, done.stderr
        assert f"yod: the primary group here is {GROUP} (newgrp, sg)" in done.stderr


@needs_root
def test_system_mode(netns_hosts: MakeHosts, sql_server: Server) -> None:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    hosts = netns_hosts(1, users=("ada", "bob"))
    with open(hosts[0].directory / "group", "a") as group:
        group.write(f"redmesh-test:x:{GROUP}:ada\n")
    with while_up(SystemMesh(hosts, sql_server)) as mesh:
        assert observed(lambda *words: mesh.run(*words, env=mesh.user_env("ada")), USERS["ada"]) == on_the_page(
            "system mode"
        )


@needs_root
def test_inside_slurm(shared_job: Job) -> None:
    assert observed(shared_job.run) == on_the_page("inside Slurm")


@needs_root
def test_inside_slurm_with_ranks_that_it_starts(shared_job: Job) -> None:
    """The stand-in starts them as children of its clients; Slurm's own daemons give them the job's groups and so on."""
    found = observed(lambda *words: shared_job.run(*(word.replace("yod ", "yod --parent=rank ") for word in words)))
    told = on_the_page("inside Slurm")
    assert {row: found[row] for row in ROWS if told[row]} == {row: True for row in ROWS if told[row]}
