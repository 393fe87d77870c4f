"""A command that waits for a job says why nothing of it runs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.hosts import NOT_ROOT
from tests.support.look import processors, queue
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import freeze, wait_until
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


@pytest.mark.parametrize("what", ["worker", "task", "yod", "owner"])
def test_while_a_process_of_the_job_is_stopped(yods: PrivateMesh, what: str) -> None:
    """Nobody said so, and the job waited for ever. It still waits: nothing is ended because of it."""
    waits = yods.start("mesh", "submit", "--wait", "sh", "-c", "echo $PPID $$ > worker; exec sleep 600",
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert waits.stdout is not None and waits.stderr is not None
    uuid = waits.stdout.readline().strip()
    worker = yods.work / "worker"
    wait_until(lambda: worker.exists() and worker.read_text().strip(), "the task runs")
    job = yods.json("mesh", "job", "show", uuid)
    assert job["stopped"] == []
    of_worker, of_task = map(int, worker.read_text().split())
    pid = {"worker": of_worker, "task": of_task, "yod": json.loads(job["yods"])[0][0], "owner": job["pid"]}[what]
    freeze(pid)
    told = waits.stderr.readline()
    name = {"owner": "the job's owner", "task": "task 1 on n"}.get(what, f"a {what} of the job")
    assert f": {name}" in told, told
    assert f"(process {pid}) is stopped (SIGSTOP)" in told and told.rstrip().endswith(f"kill -CONT {pid}"), told
    (stopped,) = yods.json("mesh", "job", "show", uuid)["stopped"]
    assert (stopped["what"], stopped["pid"]) == (what, pid)
    assert f"process {pid}) is stopped" in yods.run("mesh", "job", "show", uuid, check=True).stdout
    assert [row["stopped"] for row in queue(yods) if row["uuid"] == uuid] == [[stopped]]
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not yods.json("mesh", "job", "show", uuid)["stopped"], "it is known that the process continues")
    assert yods.json("mesh", "job", "show", uuid)["counts"] == {"running": 1}
    worker.unlink()
    yods.run("mesh", "cancel", uuid, check=True)
    assert waits.wait() == 130


CALLS = """
import os, redmesh, time
with redmesh.Executor(1) as executor:
    print(executor.uuid, executor.submit(os.getpid).result(), flush=True)
    print(executor.submit(time.sleep, 600).exception(), flush=True)
    executor.submit(time.sleep, 600).result()
"""


def test_a_stopped_call_that_is_killed_is_stopped_no_more(yods: PrivateMesh) -> None:
    """Another process runs the next call, and the killed one was named as stopped until the processors were given
    back."""
    with yods.start(sys.executable, "-c", CALLS, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        uuid, pid = program.stdout.readline().split()
        wait_until(lambda: yods.json("mesh", "job", "show", uuid)["counts"].get("running"), "the call runs")
        freeze(int(pid))
        wait_until(lambda: yods.json("mesh", "job", "show", uuid)["stopped"], "the stop is known")
        os.kill(int(pid), signal.SIGKILL)
        assert "signal 9" in program.stdout.readline()
        wait_until(lambda: not yods.json("mesh", "job", "show", uuid)["stopped"], "the process is gone")
        yods.run("mesh", "cancel", uuid, check=True)
        program.wait()


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
