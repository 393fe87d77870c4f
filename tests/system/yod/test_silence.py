"""Launch children that stand still in the middle of each phase: named, tried again or waited for."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from tests.support.mesh import PrivateMesh, while_up
from tests.support.slow_files import slow_file
from tests.support.waiting import freeze, wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["yods"]


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Thirteen nodes, which are back some time after they were reported."""
    with while_up(PrivateMesh(13, 13, REDMESH_FAILED_S="20")) as private:
        yield private


def launch_child(mesh: PrivateMesh, node: str, state: str) -> int:
    """The launch child on ``node``, once its launch is there in this state."""

    def found() -> int:
        with Client(str(mesh.run_dir / f"{node}.sock"), "admin") as client:
            launches = client.call({"op": "status"})["launches"]
        return int(launches[0]["pid"]) if launches and launches[0]["state"] == state else 0

    return wait_until(found, f"the launch on {node} is {state}")


def until_said(path: Path, text: str) -> None:
    wait_until(lambda: text in path.read_text(), lambda: f"{text!r} in {path.read_text()!r}")


def test_stopped_in_every_phase(yods: PrivateMesh) -> None:
    """Five launches on ten nodes, one launch child of each stopped; three nodes are left to try again on."""
    phases = [  # who, its options, the state at which a child of its is stopped, and that child's node
        ("starting", ["-sleep", "before-exec:60", "-sz", "2", "-list", "n0,n1,n10"], "starting", "n1"),
        ("held", ["-sleep", "before-go:60", "-sz", "2", "-list", "n2,n3,n11"], "held", "n3"),
        ("held-root", ["-sleep", "before-go:60", "-sz", "2", "-list", "n4,n5,n12"], "held", "n4"),
        ("running", ["-list", "n6,n7"], "running", "n7"),
        ("running-root", ["-list", "n8,n9"], "running", "n8"),
    ]
    begun: dict[str, subprocess.Popen[Any]] = {}
    stopped = []
    try:
        for who, options, _state, _node in phases:
            with open(yods.work / who, "w") as told:
                begun[who] = yods.start("yod", *options, "sleep", "3600", stderr=told)
        for _who, _options, state, node in phases:
            stopped.append(launch_child(yods, node, state))
            freeze(stopped[-1])
        for who, _options, state, node in phases:
            if state == "running":
                until_said(yods.work / who, f"{node} has been silent for 6 s")
            else:
                until_said(
                    yods.work / who, f"{node}: its launch child has been silent for 6 s, and its PCT answers; trying"
                )
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    for who, _options, state, node in phases:
        if state == "running":
            until_said(yods.work / who, f"{node} answers again")
            assert begun[who].poll() is None, "slow is not dead"
    for yod in begun.values():
        yod.send_signal(signal.SIGINT)
    for yod in begun.values():
        assert yod.wait() == 130


def test_a_stopped_rank_is_no_silence(yods: PrivateMesh) -> None:
    """A debugger's business: its launch child answers."""
    yod = yods.start("yod", "-sz", "2", "sh", "-c", "kill -STOP $$; exit 3", stderr=subprocess.PIPE, text=True)
    pid = launch_child(yods, "n1", "running")
    rank = wait_until(lambda: [one for one in ranks_left(yods) if _parent(one) == pid], "the rank runs")[0]
    wait_until(lambda: _state(rank) == "T", "it has stopped itself")
    told = yods.work / "other"
    with open(told, "w") as file:
        other = yods.start("yod", "sleep", "3600", stderr=file)
    freeze(launch_child(yods, "n2", "running"))
    until_said(told, "n2 has been silent for 6 s")  # of one that is really silent, and was it for a shorter time
    other.kill()
    assert yod.poll() is None
    for one in ranks_left(yods):
        os.kill(one, signal.SIGCONT)
    _, said = yod.communicate()
    assert yod.returncode == 3 and "silent" not in said


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_program_on_a_slow_file_system_is_waited_for(yods: PrivateMesh, tmp_path: Path) -> None:
    """Each exec takes longer than a launch child may be silent."""
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting a file system of our own needs root and /dev/fuse")
    with slow_file(tmp_path / "slow", Path("/bin/true"), 1e9, exec_s=7.0) as program:
        done = yods.run("yod", "-sz", "4", str(program))
    assert done.returncode == 0 and "no word yet" in done.stderr and "silent" not in done.stderr, done
