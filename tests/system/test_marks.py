"""What a killed launch child leaves is found by the mark in its environment, by whatever PCT comes next."""

import os
import signal
from collections.abc import Iterator

import pytest

from agents.pct import processes
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until


@pytest.fixture
def mesh() -> Iterator[PrivateMesh]:
    mesh = PrivateMesh(processors=1, nodes=1)
    try:
        mesh.up()
        yield mesh
    finally:
        mesh.close()


def test_strays_of_a_pct_and_a_launch_child_that_were_killed_together(mesh: PrivateMesh) -> None:
    pct = next(one["pid"] for one in mesh.keeper()["daemons"] if one["name"] == "n0")
    yod = mesh.start("yod", "-sz", "1", "sh", "-c", "setsid sleep 4720 & sleep 4720")
    wait_until(lambda: mesh.json("showmesh")["states"]["busy"] == 1, "it runs")
    (child,) = [pid for pid in processes.children(pct) if processes.alive(pid)]
    strays = wait_until(lambda: _sleepers(processes.descendants(child)), "both sleep")
    os.kill(pct, signal.SIGSTOP)  # so that it cannot clean up behind its child
    os.kill(child, signal.SIGKILL)
    os.kill(pct, signal.SIGKILL)
    wait_until(lambda: not any(processes.alive(pid) for pid in strays), "the next PCT has found them")
    yod.wait(30)


def _sleepers(pids: list[int]) -> list[int]:
    found = [pid for pid in pids if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in ("sleep", "coreutils")]
    return found if len(found) == 2 else []
