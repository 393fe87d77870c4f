"""Running jobs give processors back to requests that wait, each after the task at hand, and get them back."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from db.views.viewer import open_viewer
from tests.support.look import processors, queue
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until

#: A program with an Executor whose workers have no call until a line comes.
IDLE = """
import sys, redmesh
def twice(n):
    return 2 * n
with redmesh.Executor(4, hold_processors={hold}) as executor:
    print(list(executor.map(twice, range(64))), flush=True)
    sys.stdin.readline()
    print(list(executor.map(twice, range(3))), flush=True)
"""


@pytest.fixture(scope="module")
def four() -> Iterator[PrivateMesh]:
    with while_up(PrivateMesh(4, 2, 2)) as private:
        yield private


@contextmanager
def an_array(mesh: PrivateMesh, tasks: int, seconds: str, *options: str) -> Iterator[str]:
    """Yield a job that has all four processors; cancel it afterwards."""
    words = ("mesh", "submit", "--quiet", "--array", f"1-{tasks}", *options, "--", "sleep", seconds)
    job = mesh.run(*words, check=True).stdout.strip()
    try:
        wait_until(lambda: processors(mesh, "busy") == 4, "the array has every processor")
        yield job
    finally:
        mesh.run("mesh", "cancel", job)
        mesh.run("mesh", "wait", job)
        wait_until(lambda: processors(mesh, "free") == 4, "every processor is free again")


def done_of(mesh: PrivateMesh, job: str) -> int:
    (row,) = (one for one in queue(mesh) if one["uuid"] == job)
    assert not row["failed"]
    return int(row["ended"])


def waiting(mesh: PrivateMesh) -> list[int]:
    """The sizes of the requests that wait."""
    with open_viewer(mesh.database) as viewer:
        return [one.size for one in viewer.waiting()]


def test_a_launch_that_waits_gets_what_it_lacks_from_an_array_which_gets_it_back(four: PrivateMesh) -> None:
    with an_array(four, 100_000, "0.1") as job:
        for size in (4, 1):
            done = four.run("yod", "-wait-for-nodes", "3600", "-sz", str(size), "echo", "x", check=True)
            assert done.stdout == "x\n" * size
            wait_until(lambda: processors(four, "busy") == 4, "the array has every processor again")
        before = done_of(four, job)
        wait_until(lambda: done_of(four, job) > before, "its tasks go on")


def test_a_small_launch_takes_no_processor_that_a_large_one_in_front_collects(four: PrivateMesh) -> None:
    with an_array(four, 100_000, "0.5"):
        large = four.start("yod", "-wait-for-nodes", "3600", "-sz", "4", "date", "+%s%N",
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
        wait_until(lambda: 4 in waiting(four), "the large one waits")
        small = four.run("yod", "-wait-for-nodes", "3600", "-sz", "1", "date", "+%s%N", check=True)
        began = [int(line) for line in large.communicate()[0].split()]
        assert len(began) == 4 and max(began) < int(small.stdout)


def test_a_job_that_holds_its_processors_keeps_them_to_its_last_task(four: PrivateMesh) -> None:
    with an_array(four, 40, "0.2", "--hold-processors") as job:
        four.run("yod", "-wait-for-nodes", "3600", "-sz", "4", "true", check=True)
        assert job not in {one["uuid"] for one in queue(four)}, "it has ended first"


@pytest.mark.parametrize("hold", [False, True])
def test_idle_workers_of_an_executor_are_given_at_once(four: PrivateMesh, hold: bool) -> None:
    program = four.start(sys.executable, "-c", IDLE.format(hold=hold), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)  # fmt: skip
    try:
        assert program.stdout is not None and program.stdin is not None
        assert program.stdout.readline() == f"{[2 * n for n in range(64)]}\n"
        held = processors(four, "busy")
        assert held
        waits = four.start("yod", "-wait-for-nodes", "3600", "-sz", "4", "true")
        if not hold:
            assert waits.wait() == 0, "before the program makes another call"
        program.stdin.write("\n")
        program.stdin.close()
        assert program.stdout.read() == "[0, 2, 4]\n" and not program.wait()
        assert waits.wait() == 0
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
