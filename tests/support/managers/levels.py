"""What holds for ranks at either level, in a job of any batch system."""

import signal

from agents.linux import processes
from tests.support.managers.job import Job, arguments
from tests.support.waiting import wait_until


def assert_every_slot_is_used(job: Job) -> None:
    """The first yod in a job of four slots starts its mesh, which has as many processors; ranks are its agents'."""
    done = job.run("yod", "-sz", "4", "sh", "-c", "echo $YOD_RANK; tr '\\0' '\\n' </proc/$PPID/cmdline")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.split() if line.isdigit()) == ["0", "1", "2", "3"]
    assert "starting one" in done.stderr
    again = job.run("yod", "-sz", "5", "true")
    assert again.returncode != 0 and "4" in again.stderr, "the job has four slots"


def assert_the_client_is_the_parent(job: Job, client: str) -> None:
    """``yod --parent=rank`` has each rank started by the manager's client; ``--parent=daemon`` by the launch child."""
    # Each line is written at once: yod waits 20 ms for the rest of a line, and what two programs write takes longer
    # on a busy machine.
    script = "echo \"$YOD_RANK $(head -c 99 /proc/$PPID/cmdline | tr '\\0\\n' '  ')\"; exit $YOD_RANK"
    done = job.run("yod", "--parent=rank", "-sz", "4", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    parents = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert sorted(parents) == ["0", "1", "2", "3"], done.stdout
    wanted = " -I -S -c " if client == "qrsh" else f"/{client} "  # a starter stays under Grid Engine
    assert all(wanted in parent for parent in parents.values()), parents
    assert "rank 3 on n1: exit 3" in done.stderr
    # at the other level, in the same mesh, they are the launch child's
    done = job.run("yod", "--parent=daemon", "-sz", "1", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline")
    assert done.stdout.startswith("redmesh-launch")


def assert_signals_reach_each_rank_once(job: Job) -> None:
    """The manager's signals reach each of four ranks, whichever processes it signals, and leave the mesh up."""
    out, end = job.directory / "caught", job.directory / "end"
    catches = " ".join(f"trap 'echo {name} >>{out}' {name};" for name in ("USR1", "USR2"))
    script = f"{catches} echo ready >>{out}; while [ ! -e {end} ]; do sleep 0.1; done; echo over >>{out}"
    started = job.run("yod", "-sz", "4", "--detach", "sh", "-c", script)
    assert started.returncode == 0, started.stderr
    wait_until(lambda: out.exists() and out.read_text().count("ready") == 4, "every rank waits")
    for name in ("USR1", "USR2"):
        for pid in _clients(job):
            processes.send_signal(pid, signal.Signals[f"SIG{name}"])
        wait_until(lambda: out.read_text().count(name) >= 4, f"every rank has caught SIG{name}", step_s=0.1)  # noqa: B023
    end.touch()
    wait_until(lambda: out.read_text().count("over") == 4, "every rank ends", step_s=0.1)
    assert [out.read_text().count(name) for name in ("USR1", "USR2")] == [4, 4], "once each"
    again = job.run("yod", "-sz", "4", "--wait-for-nodes", "30", "true")
    assert again.returncode == 0 and "starting one" not in again.stderr, again.stderr


def _clients(job: Job) -> list[int]:
    """The manager's clients that run the agents of the job's hosts."""
    return [
        pid
        for pid in job.left()
        if any(word.startswith(f"{job.directory}/bin/") or word.endswith("/tm.py") for word in arguments(pid)[:4])
    ]
