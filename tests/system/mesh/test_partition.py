"""What a batch system and an administrator do with a mesh."""

import os
import pwd
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.look import look, processors
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.shared_mesh import borrowed
from tests.support.waiting import wait_until

ME = pwd.getpwuid(os.geteuid()).pw_name


def variables(text: str) -> dict[str, str]:
    """What ``eval`` would make of the lines, by a real shell."""
    script = 'eval "$1"; echo "$REDMESH_PARTITION"; echo "$REDMESH_ALLOCATION_COOKIE"'
    words = subprocess.run(["sh", "-c", script, "sh", text], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(("REDMESH_PARTITION", "REDMESH_ALLOCATION_COOKIE"), words, strict=True))


@pytest.fixture(scope="module")
def kept() -> Iterator[list[PrivateMesh]]:
    """The mesh of `batch`, if a test has begun one."""
    meshes: list[PrivateMesh] = []
    yield meshes
    left = [line for one in meshes for line in one.close()]
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def batch(kept: list[PrivateMesh]) -> Iterator[PrivateMesh]:
    """A mesh of several tests: eight processors, and the caller is the batch system.

    It has no partitions and reservations, its processors are interactive, its nodes in service. If that cannot be had
    after a test, the test fails, and the next has a new mesh: what is wrong may be in the database.
    """
    try:
        if not kept:
            kept.append(PrivateMesh(8, 2, REDMESH_BATCH_ACCOUNTS=ME))
            kept[0].up()
        with borrowed(kept[0]) as mesh:
            yield mesh
            _undo(mesh)
    except BaseException:
        kept.pop().close()
        raise


def _undo(mesh: PrivateMesh) -> None:
    """Take back what a test may have done to the machine."""
    nodes = look(mesh)["nodes"]
    if any(one["mode"] != "interactive" for node in nodes for one in node["processors"]):
        mesh.run("mesh", "mode", "interactive", "0..7", check=True)
    if processors(mesh, "reserved"):
        mesh.run("mesh", "unreserve", "0..7", check=True)
    if any(node["state"] != "up" for node in nodes):
        mesh.run("mesh", "resume", "n[0-1]", check=True)
    for path in (mesh.state / "partitions").glob("*"):
        mesh.run("mesh", "partition", "destroy", path.name, "--force", check=True)


def test_a_batch_job_from_partition_to_the_end(batch: PrivateMesh) -> None:
    made = batch.run("mesh", "partition", "create", "--batch-job", "42.pbs", "-sz", "4", check=True)
    inside = variables(made.stdout)
    number = inside["REDMESH_PARTITION"]
    [row] = batch.json("mesh", "partition", "list")
    assert (str(row["id"]), row["batch_job"], row["size"], row["batch_job_error"]) == (number, "42.pbs", 4, False)
    assert inside["REDMESH_ALLOCATION_COOKIE"] not in batch.run("mesh", "partition", "list", check=True).stdout
    assert batch.run("yod", "-sz", "4", "true", env=inside).returncode == 0
    more = batch.run("yod", "-sz", "5", "true", env=inside)
    assert more.returncode == 125 and "4" in more.stderr
    assert batch.run("yod", "-sz", "5", "true").returncode == 125, "the others have the rest alone"
    assert batch.run("yod", "-sz", "4", "true").returncode == 0
    assert batch.json("mesh", "partition", "list")[0]["max_in_use"] == 4
    batch.run("mesh", "partition", "destroy", number, check=True)
    assert batch.json("mesh", "partition", "list") == []
    assert batch.run("mesh", "partition", "list", check=True).stdout == "no partitions\n"
    gone = batch.run("yod", "true", env=inside)
    assert gone.returncode == 125 and gone.stderr.count("\n") == 1


def test_the_administration_cookie_is_kept_privately(batch: PrivateMesh) -> None:
    batch.run("mesh", "partition", "create", "--batch-job", "1", "-sz", "1", check=True)
    [kept] = (batch.state / "partitions").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    cookie = kept.read_text().strip()
    assert len(cookie) == 16 and cookie not in batch.logs(10_000)
    wrong = batch.run("mesh", "partition", "destroy", "99")
    assert wrong.returncode == 1 and "not created on this login processor" in wrong.stderr


def test_a_partition_with_a_launch_in_it_goes_by_force_alone(batch: PrivateMesh) -> None:
    made = batch.run("mesh", "partition", "create", "--batch-job", "1", "--list", "n1", check=True)
    inside = variables(made.stdout)
    yod = batch.start("yod", "-sz", "2", "sleep", "100", env=inside, stderr=subprocess.DEVNULL)
    wait_until(lambda: processors(batch, "busy") == 2, "the launch runs")
    refused = batch.run("mesh", "partition", "destroy", inside["REDMESH_PARTITION"])
    assert refused.returncode != 0 and yod.poll() is None
    batch.run("mesh", "partition", "destroy", inside["REDMESH_PARTITION"], "--force", check=True)
    assert yod.wait() != 0
    wait_until(lambda: processors(batch, "free") == 8, "all is free")


@pytest.mark.parametrize(
    "words", [["--batch-job", "1"], ["-sz", "2"], ["--batch-job", "", "-sz", "2"], ["--batch-job", "1", "--list", ","]]
)
def test_a_partition_that_means_nothing(mesh: MakeMesh, words: list[str]) -> None:
    got = mesh(2, 1, up=False).run("mesh", "partition", "create", *words)
    assert got.returncode == 2 and got.stdout == "" and got.stderr.count("\n") == 1


def test_modes_and_reservations_show_and_bind(batch: PrivateMesh) -> None:
    batch.run("mesh", "mode", "batch", "n0", check=True)
    batch.run("mesh", "mode", "reserved", "7", check=True)
    batch.run("mesh", "reserve", "nobody", "6", check=True)
    shown = look(batch)
    assert shown["states"]["reserved"] == 2
    modes = [one["mode"] for node in shown["nodes"] for one in node["processors"]]
    assert modes == ["batch"] * 4 + ["interactive"] * 3 + ["reserved"]
    short = batch.run("yod", "-sz", "3", "true")
    assert short.returncode == 125 and "2 are free" in short.stderr
    assert batch.run("yod", "-sz", "2", "true").returncode == 0
    batch.run("mesh", "unreserve", "6", check=True)
    batch.run("mesh", "mode", "interactive", "0..7", check=True)
    assert batch.run("yod", "-sz", "8", "true").returncode == 0


def test_a_list_that_names_what_is_not_there(batch: PrivateMesh) -> None:
    for words in (["mode", "batch", "0..99"], ["reserve", "ada", "n9"]):
        got = batch.run("mesh", *words)
        assert got.returncode == 125 and got.stderr.count("\n") == 1, got.stderr


def test_without_a_mesh_one_line_says_so(mesh: MakeMesh) -> None:
    got = mesh(2, 1, up=False).run("mesh", "mode", "batch", "0")
    assert got.returncode == 125 and got.stderr == "mesh: no mesh is up (mesh up) [RM-1045]\n"


def test_nodes_are_taken_out_with_a_reason_and_put_back(batch: PrivateMesh) -> None:
    with batch.start("yod", "-sz", "8", "sleep", "600") as yod:
        wait_until(lambda: processors(batch, "busy") == 8, "it runs")
        batch.run("mesh", "drain", "n1", "--reason", "bad fan", check=True)
        node = look(batch)["nodes"][1]
        assert node["state"] == "draining" and node["reason"].startswith("bad fan (")
        batch.run("pingd", "-kill", "-all")
        yod.kill()
    wait_until(lambda: look(batch)["nodes"][1]["state"] == "drained", "it is drained")
    shown = batch.run("mesh", "status")
    assert shown.returncode == 1 and "n1 is drained" in shown.stdout and "bad fan" in shown.stdout
    assert batch.run("yod", "-sz", "5", "true").returncode == 125
    assert batch.run("mesh", "resume", "n[0-1]").stderr == "mesh: n0 was in service\n"
    assert batch.run("yod", "-sz", "8", "true").returncode == 0
    refused = batch.run("mesh", "drain", "0..1")
    assert refused.returncode == 2 and "whole" in refused.stderr
    assert "no node 'n9'" in batch.run("mesh", "drain", "n9").stderr
