"""Launch children that stand still in the middle of each phase: named, tried again or waited for."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.slow_files import slow_file
from tests.support.waiting import freeze, wait_until
from tests.support.yods import free, ranks_left


def launch_child(mesh: PrivateMesh, node: str, state: str) -> int:
    """The launch child on ``node``, once its launch is there in this state."""

    def found() -> int:
        with Client(str(mesh.run_dir / f"{node}.sock"), "admin") as client:
            launches = client.call({"op": "status"})["launches"]
        return int(launches[0]["pid"]) if launches and launches[0]["state"] == state else 0

    return wait_until(found, f"the launch on {node} is {state}")


def until_said(path: Path, text: str) -> None:
    wait_until(lambda: text in path.read_text(), lambda: f"{text!r} in {path.read_text()!r}")


def test_stopped_in_every_phase(mesh: MakeMesh) -> None:
    """Five launches on ten nodes, one launch child of each stopped; six nodes are left to try again on."""
    private = mesh(16, 16, REDMESH_FAILED_S="20")
    phases = [  # who, its options, the state at which a child of its is stopped, and that child's node
        ("starting", ["-sleep", "before-exec:60", "-sz", "2", "-list", "n0,n1,n10"], "starting", "n1"),
        ("held", ["-sleep", "before-go:60", "-sz", "2", "-list", "n2,n3,n11"], "held", "n3"),
        ("held-root", ["-sleep", "before-go:60", "-sz", "2", "-list", "n4,n5,n12"], "held", "n4"),
        ("running", ["-list", "n6,n7"], "running", "n7"),
        ("running-root", ["-list", "n8,n9"], "running", "n8"),
    ]
    yods: dict[str, subprocess.Popen[Any]] = {}
    stopped = []
    try:
        for who, options, _state, _node in phases:
            with open(private.work / who, "w") as told:
                yods[who] = private.start("yod", *options, "sleep", "3600", stderr=told)
        for _who, _options, state, node in phases:
            stopped.append(launch_child(private, node, state))
            freeze(stopped[-1])
        for who, _options, state, node in phases:
            if state == "running":
                until_said(private.work / who, f"{node} has been silent for 6 s")
            else:
                until_said(private.work / who, f"{node}: silent for 6 s; trying other nodes (1 of 3)")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    for who, _options, state, node in phases:
        if state == "running":
            until_said(private.work / who, f"{node} answers again")
            assert yods[who].poll() is None, "slow is not dead"
    for yod in yods.values():
        yod.send_signal(signal.SIGINT)
    for yod in yods.values():
        assert yod.wait() == 130
    wait_until(lambda: free(private) == 16, "every processor is free again")
    wait_until(lambda: not ranks_left(private), "no rank is left")


def test_a_stopped_rank_is_no_silence(mesh: MakeMesh) -> None:
    """A debugger's business: its launch child answers."""
    private = mesh(3, 3)
    yod = private.start("yod", "-sz", "2", "sh", "-c", "kill -STOP $$; exit 3", stderr=subprocess.PIPE, text=True)
    pid = launch_child(private, "n1", "running")
    rank = wait_until(lambda: [one for one in ranks_left(private) if _parent(one) == pid], "the rank runs")[0]
    wait_until(lambda: _state(rank) == "T", "it has stopped itself")
    told = private.work / "other"
    with open(told, "w") as file:
        other = private.start("yod", "sleep", "3600", stderr=file)
    freeze(launch_child(private, "n2", "running"))
    until_said(told, "n2 has been silent for 6 s")  # of one that is really silent, and was it for a shorter time
    other.kill()
    assert yod.poll() is None
    for one in ranks_left(private):
        os.kill(one, signal.SIGCONT)
    _, said = yod.communicate()
    assert yod.returncode == 3 and "silent" not in said
    wait_until(lambda: free(private) == 3, "every processor is free again")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_program_on_a_slow_file_system_is_waited_for(mesh: MakeMesh, tmp_path: Path) -> None:
    """Each exec takes longer than a launch child may be silent."""
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting a file system of our own needs root and /dev/fuse")
    with slow_file(tmp_path / "slow", Path("/bin/true"), 1e9, exec_s=7.0) as program:
        done = mesh(4, 2).run("yod", "-sz", "4", str(program))
    assert done.returncode == 0 and "no word yet" in done.stderr and "silent" not in done.stderr, done
