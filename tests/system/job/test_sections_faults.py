"""A migration in sections while hosts fail, and killed and resumed: the image has the bytes of the serial run.

The long forms: ``python -m tests.support.sections_storm`` (docs/sections.md).
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts, NamespaceHost
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.sections_storm import (
    FAULTS,
    KILLS,
    ON_HOSTS,
    Strike,
    Survey,
    kills,
    shared_directory,
    storm,
    tell,
)  # fmt: skip
from tests.support.stores import server

__all__ = ["server"]

pytest.importorskip("numpy")

STAGED = """
command = "sh upper.sh data/in.{{section}} {{part}}"
inputs = ["upper.sh", "data/in.{{section}}"]
stage = true
size = {size}
[sections]
count = 6
[[output]]
name = "results/whole"
part = "results/part.{{section}}"
"""

#: Its parts are in a directory that each host has for itself.
APART = """
command = '''sh -c 'mkdir -p {directory}; echo new >"{written}"' '''
[sections]
count = 2
[[output]]
name = "whole"
part = "{directory}/part.{{section}}"
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    directory = shared_directory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts) -> Iterator[FarMesh]:
    """Two hosts with two processors each, without a file system that they share."""
    with while_up(FarMesh(netns_hosts(2), processors=2)) as made:
        yield made


def test_hosts_that_are_killed_frozen_filled_up_and_cut_off_change_no_byte(
    netns_hosts: MakeHosts, shared: Path
) -> None:
    hosts = netns_hosts(len(FAULTS) + 1)
    with while_up(FarMesh(hosts, processors=1)) as faulty:
        survey = Survey(shared, 28, 500, 2, **ON_HOSTS)
        strikes = [Strike(2 + 2 * at, hosts[at], fault, 1e9) for at, fault in enumerate(FAULTS)]
        job = storm(faulty, survey, strikes, print)
        tell(job, print)
        survey.check(job)


@pytest.mark.parametrize("size", (1, 2))
def test_nodes_without_a_shared_file_system_get_inputs_and_send_parts_back(
    mesh: FarMesh, tmp_path: Path, size: int
) -> None:
    (tmp_path / "data").mkdir()
    for number in range(6):
        (tmp_path / "data" / f"in.{number}").write_text(f"line of {number}\n" * 100_000)
    (tmp_path / "upper.sh").write_text("tr a-z A-Z <$1 >$2; [ -e /tmp/ran ] || touch /tmp/ran\n")
    (tmp_path / "JOB.toml").write_text(STAGED.format(size=size))
    done = mesh.run("mesh", "sections", "run", f"{tmp_path}/JOB.toml")
    assert done.returncode == 0, done.stderr
    wanted = "".join(f"LINE OF {number}\n" * 100_000 for number in range(6))
    assert (tmp_path / "results" / "whole").read_text() == wanted
    assert not list(tmp_path.rglob("*.redmesh-*"))
    assert mesh.hosts[0].run("ls", f"{tmp_path}").returncode, "this host has not the job's directory"
    for host in mesh.hosts:
        assert "redmesh-sections-" not in host.run("ls", "/tmp").stdout, "a worker has left its directory"


def test_parts_on_the_disks_of_nodes_are_not_taken_for_files_of_an_earlier_run_here(
    mesh: FarMesh, shared: Path, tmp_path: Path
) -> None:
    for written in ("{part}", f"{tmp_path}/part.{{section}}"):
        (shared / "JOB.toml").write_text(APART.format(directory=tmp_path, written=written))
        for number in range(2):
            (tmp_path / f"part.{number}").write_text("STALE\n")
        done = mesh.run("mesh", "sections", "run", f"{shared}/JOB.toml", timeout_s=120)
        assert done.returncode and "part.0 is of an earlier run" in done.stderr, done.stderr
        assert not (shared / "whole").exists()
        assert "new\n" in [host.run("cat", f"{tmp_path}/part.1").stdout for host in mesh.hosts]


def test_what_is_killed_at_any_moment_is_resumed_to_the_same_bytes(server: Server) -> None:
    kills(server, len(KILLS), random.Random(22), print, traces=8)


def remount(host: NamespaceHost, how: str) -> None:
    for place in ("/dev/shm", "/tmp"):
        assert host.run("mount", "-o", f"remount,{how}", place).returncode == 0


def test_a_job_leaves_a_node_without_a_place_for_files_and_ends_if_no_node_has_one(mesh: FarMesh) -> None:
    submit = ("mesh", "submit", "--wait", "true")
    try:
        remount(mesh.hosts[0], "ro")
        done = mesh.run("mesh", "submit", "--wait", "--array", "4", "sleep", "1")
        assert done.returncode == 0, done.stderr
        log = mesh.run("mesh", "job", "log", done.stdout.strip(), check=True).stdout
        assert log.count("left out for 1 min while others run: ") == 1, log
        remount(mesh.hosts[1], "ro")
        done = mesh.run(*submit)
        assert done.returncode == 1 and "no worker can start (4 tries on each node): " in done.stderr, done.stderr
        assert done.stderr.count("/dev/shm/redmesh-") >= 1 and "nor instead: /tmp/redmesh-" in done.stderr
    finally:
        for host in mesh.hosts:
            remount(host, "rw")
    assert mesh.run(*submit).returncode == 0
