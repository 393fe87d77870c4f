"""A command that waits for a job says why nothing of it runs."""

import os
import subprocess
import sys

import pytest

from tests.support.hosts import NOT_ROOT
from tests.support.look import processors, queue
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

EXECUTOR = "import redmesh; print(redmesh.Executor(1).submit(pow, 2, 3).result())"


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (("mesh", "submit", "--wait", "true"), "mesh: job {}: first in the line: 1 processor not free yet"),
        ((sys.executable, "-c", EXECUTOR), "redmesh: job {}: first in the line: 1 processor not free yet"),
    ],
    ids=["submit", "Executor"],
)
def test_while_others_have_the_processors(yods: PrivateMesh, command: tuple[str, ...], printed: str) -> None:
    held = yods.start("yod", "-sz", "8", "cat", stdin=subprocess.PIPE)
    wait_until(lambda: processors(yods, "free") == 0, "a launch has every processor")
    waits = yods.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waits.stderr is not None and held.stdin is not None
    told = waits.stderr.readline()
    (row,) = queue(yods)
    assert told.strip() == printed.format(row["uuid"][:8])
    held.stdin.close()
    waits.communicate()
    assert waits.returncode == 0 == held.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason=NOT_ROOT)
def test_while_no_worker_can_start(mesh: MakeMesh) -> None:
    """Workers travel through the RAM disk, where a file is in the way. It is no news that --quiet hides, and the end of
    the job after some tries."""
    private = mesh(1, 1, up=False)
    script = "mount -t tmpfs none /dev/shm && touch $0 && mesh up --quiet && exec mesh submit --quiet --wait true"
    place = f"/dev/shm/redmesh-{os.geteuid()}"
    waits = private.start(
        "unshare", "-m", "sh", "-c", script, place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert waits.stdout is not None and waits.stderr is not None
    uuid, told = waits.stdout.readline().strip(), waits.stderr.readline()
    assert told.startswith(f"mesh: job {uuid[:8]}: n0: {place} is not a directory of our own")
    assert waits.communicate()[1] == "" and waits.returncode == 1
    why = private.run("mesh", "job", "show", uuid).stdout
    assert f"no worker can start (4 tries on each node): n0: {place} is not a directory of our own" in why, why
