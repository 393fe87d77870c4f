"""A load that fails because of a node: tried on others, or one line that names it, nothing left."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.link.client import Client
from tests.support.look import states, times_down
from tests.support.mesh import MakeMesh, PrivateMesh, Run, while_up
from tests.support.waiting import freeze, wait_until
from tests.support.yods import wait_until_nothing_is_left, yods

__all__ = ["yods"]

SOON = {"REDMESH_FAILED_S": "1"}  # a node that was reported and lives is back after a second
SAY = ("sh", "-c", "echo $YOD_NODE $YOD_RANK")


@contextmanager
def stopped(mesh: PrivateMesh, node: str) -> Iterator[int]:
    """The PCT of ``node`` stands still; afterwards it goes on, if it lives."""
    pid = mesh.pid_of(node)
    freeze(pid)
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Eight processors on four nodes, which are back soon after they were reported."""
    with while_up(PrivateMesh(8, 4, **SOON)) as private:
        yield private


def ran_elsewhere(done: Run, without: str, size: int) -> None:
    assert done.returncode == 0, done.stderr
    places = [line.split() for line in done.stdout.splitlines()]
    assert sorted(int(rank) for _, rank in places) == list(range(size))
    assert without not in {node for node, _ in places}


@pytest.mark.parametrize(("node", "size"), [("n1", 4), ("n0", 4)])
def test_a_pct_that_stands_still(yods: PrivateMesh, node: str, size: int) -> None:
    with stopped(yods, node):
        began = time.monotonic()
        process = yods.start("yod", "-sz", str(size), *SAY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        outstanding = process.stderr.readline()
        assert time.monotonic() - began > 1.5 and node in outstanding, "after two seconds it says who is awaited"
        again = process.stderr.readline()
        assert node in again and "trying other nodes (1 of 3)" in again
        out, rest = process.communicate()
        ran_elsewhere(subprocess.CompletedProcess((), process.returncode, out, rest), node, size)
        down = [name for name, state in states(yods).items() if state == "down"]
        assert down == [node], "the CPA has taken it out, and it alone"


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_a_pct_that_dies_with_the_load(yods: PrivateMesh, node: str) -> None:
    with stopped(yods, node) as pid:
        process = yods.start("yod", "-sz", "4", *SAY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None and node in process.stderr.readline(), "the load is on its way"
        os.kill(pid, signal.SIGKILL)
        out, said = process.communicate()
    assert process.returncode == 0, said
    assert len(out.splitlines()) == 4
    assert node in said and "trying other nodes" in said


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_a_pct_that_cannot_be_reached(yods: PrivateMesh, node: str) -> None:
    socket = yods.run_dir / f"{node}.sock"
    with stopped(yods, node):  # so that it does not make its socket anew
        socket.rename(yods.run_dir / "away")
        done = yods.run("yod", "-sz", "4", *SAY)
        (yods.run_dir / "away").rename(socket)
    ran_elsewhere(done, node, 4)
    yods.kill(node)  # nobody could tell it that it was reported: it is out until it has another life


def launch_child(mesh: PrivateMesh, node: str) -> int:
    """The launch child on ``node``, once it holds its ranks."""

    def held() -> int:
        with Client(str(mesh.run_dir / f"{node}.sock"), "admin") as client:
            launches = client.call({"op": "status"})["launches"]
        return int(launches[0]["pid"]) if launches and launches[0]["ranks"] else 0

    return wait_until(held, f"a launch has ranks on {node}")


def test_a_launch_child_that_stands_still_before_go(mesh: MakeMesh) -> None:
    """Its ranks are held, and nobody hears of it: the tree cannot clear it away, its PCT can. A user can do that on
    every node, so none is taken out of service."""
    private = mesh(10, 5)
    with stopped(private, "n3"):  # n2's child, for which n2 waits before it says that it is ready
        command = ("yod", "-fanout", "2", "-sz", "8", *SAY)
        process = private.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        freeze(launch_child(private, "n2"))
    out, said = process.communicate()
    ran_elsewhere(subprocess.CompletedProcess((), process.returncode, out, said), "n2", 8)
    assert "n2: its launch child has been silent for 6 s, and its PCT answers; trying other nodes (1 of 3)" in said
    wait_until_nothing_is_left(private)
    assert times_down(private) == 0


@pytest.mark.parametrize("node", ["n0", "n1"], ids=["root", "leaf"])
def test_the_processors_of_a_stopped_launch_child_are_free_when_it_is_gone(mesh: MakeMesh, node: str) -> None:
    """With no other node, the launch fails, and says why; the node stays in service, with a new launch at once."""
    private = mesh(4, 2)
    command = ("yod", "-sz", "4", "-sleep", "after-exec:3600", "true")
    process = private.start(*command, stderr=subprocess.PIPE, text=True, env={"YODRETRYCOUNT": "0"})
    child = launch_child(private, node)
    freeze(child)
    waits = ("yod", "--wait-for-nodes", "600", "-sz", "4", "sh", "-c", f"kill -0 {child} && echo there; echo ran")
    after = private.start(*waits, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate()
    assert process.returncode == 125 and f"{node}: its launch child has been silent for 6 s, and its PCT" in said
    assert "SIGSTOP" in said and "given up" not in said
    out, said = after.communicate()
    assert (after.returncode, out) == (0, "ran\n" * 4), f"nothing of the first launch is left: {said}"
    assert times_down(private) == 0
    wait_until_nothing_is_left(private)


def test_a_launch_that_needs_more_descriptors_than_there_are_takes_no_node_out(mesh: MakeMesh) -> None:
    """Both nodes were down for everybody, and launches that fit were refused too."""
    private = mesh(32, 2, up=False)
    private.run("sh", "-c", "ulimit -n 64; exec mesh up --processors 32 --nodes 2", check=True)
    for more in ((), ("-input", "all")):
        done = private.run("yod", "-sz", "16", *more, "true")
        assert done.returncode == 125 and len(done.stderr.splitlines()) == 1, done.stderr
        assert "Too many open files (start fewer ranks on a node, or" in done.stderr
    assert times_down(private) == 0
    assert private.run("yod", "-sz", "2", "-placement", "default", "echo", "ran", check=True).stdout == "ran\n" * 2
    wait_until_nothing_is_left(private)


def test_a_yod_without_descriptors_takes_no_node_out(yods: PrivateMesh) -> None:
    """It said of every node that it cannot be reached, with the limit of its own shell."""
    said, before = "", times_down(yods)
    for limit in range(8, 16):
        done = yods.run("sh", "-c", f"ulimit -n {limit}; exec yod -sz 4 true")
        assert "Traceback" not in done.stderr, done.stderr
        said += done.stderr
        wait_until_nothing_is_left(yods)
    assert "n0 cannot be reached: Too many open files (yod itself" in said and "trying other nodes" not in said
    assert times_down(yods) == before


@pytest.mark.parametrize(("node", "number"), [("n0", signal.SIGSEGV), ("n1", signal.SIGBUS), ("n1", signal.SIGKILL)])
def test_a_launch_child_that_dies_is_no_nodes_fault(yods: PrivateMesh, node: str, number: signal.Signals) -> None:
    """Whoever could kill it on one node could on all of them."""
    before = times_down(yods)
    process = yods.start("yod", "-sz", "4", "-sleep", "after-exec:3600", "true", stderr=subprocess.PIPE, text=True)
    os.kill(launch_child(yods, node), number)
    _, said = process.communicate()
    assert process.returncode == 125 and said.count("\n") == 1
    assert said.startswith(f"yod: {node}: its launch child") and number.name in said
    assert times_down(yods) == before


def test_a_launch_child_that_stands_still_while_it_is_killed(yods: PrivateMesh) -> None:
    process = yods.start(
        "yod", "-sz", "4", "sh", "-c", "touch up$YOD_RANK; sleep 3600", stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: all((yods.work / f"up{rank}").exists() for rank in range(4)), "every rank runs")
    freeze(launch_child(yods, "n1"))
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None and "^C again" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode in (130, 137) and "no word yet from n1" in said and "given up" in said


def test_with_no_other_nodes_one_line_names_it(yods: PrivateMesh) -> None:
    with stopped(yods, "n0"):
        done = yods.run("yod", "-quiet", "-sz", "8", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1 and "n0: silent for 6 s" in done.stderr


def test_no_retries_when_none_are_wanted(yods: PrivateMesh) -> None:
    with stopped(yods, "n1"):
        done = yods.run("yod", "-sz", "4", "true", env={"YODRETRYCOUNT": "0"})
    assert done.returncode == 125
    assert "trying" not in done.stderr and "n1" in done.stderr.splitlines()[-1]


def test_an_interrupt_between_two_tries(yods: PrivateMesh) -> None:
    with stopped(yods, "n1"):
        process = yods.start("yod", "-sz", "4", *SAY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while "trying other nodes" not in (line := process.stderr.readline()):
            assert line, "it ended before it tried again"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
        assert process.returncode in (0, 130) and bool(out) is (process.returncode == 0)


def test_half_a_program_is_not_the_nodes_fault(yods: PrivateMesh) -> None:
    half, before = yods.work / "half", times_down(yods)
    half.write_bytes(Path("/bin/bash").read_bytes()[:400_000])  # its segments end beyond the file
    half.chmod(0o755)
    done = yods.run("yod", str(half))
    assert done.returncode == 126 and "cannot load the program" in done.stderr and "trying" not in done.stderr
    assert times_down(yods) == before
