"""Ranks that the batch system starts itself (``yod --parent=rank``). The clients are stood in for."""

import os
import signal
from collections.abc import Iterator

import pytest

from agents.linux import processes
from agents.pct.ranks import managed
from tests.support.managers.job import Job
from tests.support.managers.levels import assert_the_client_is_the_parent
from tests.support.managers.shared_job import kept, shared_job
from tests.support.waiting import wait_until

__all__ = ["kept", "shared_job"]


@pytest.fixture
def job() -> Iterator[Job]:
    yield from _job("slurm")


@pytest.fixture
def grid_engine() -> Iterator[Job]:
    yield from _job("grid_engine")


def _job(kind: str) -> Iterator[Job]:
    one = Job(kind)
    try:
        yield one
        assert not one.refused.exists(), one.refused.read_text()
    finally:
        one.close()


def test_directory_environment_input_descriptors_and_signal(shared_job: Job) -> None:
    script = (
        'pwd; echo "$SPECIAL"; umask; cat; ls /proc/self/fd | tr "\\n" " "; echo; echo $REDMESH_QUERY_FD; kill -9 $$'
    )
    where = ("-chdir", "/usr", "-umask", "027", "-export", "ALL,SPECIAL=a b", "-stdin", "/dev/null", "-mpi", "none")
    done = shared_job.run("yod", "--parent=rank", *where, "-sz", "1", "sh", "-c", script)
    directory, special, mask, descriptors, query = done.stdout.splitlines()
    assert (directory, special, mask) == ("/usr", "a b", "0027")
    assert set(descriptors.split()) <= {"0", "1", "2", "3", query}, "nothing else of ours is open in a rank"
    assert done.returncode == 128 + signal.SIGKILL and "SIGKILL" in done.stderr


def test_what_forks_twice_ends_with_the_launch_and_no_file_is_left(job: Job) -> None:
    script = "setsid sh -c 'sleep 313 & exec env -i sleep 314' & sleep 1; test $YOD_RANK = 0 || sleep 315"
    assert job.run("yod", "--parent=rank", "-kill", "-sz", "2", "sh", "-c", script + "; exit 3").returncode == 3
    wait_until(lambda: not _sleeping("313", "314", "315"), "nothing of the ranks is left")
    job.end()
    wait_until(lambda: not job.left(), "nothing of the job is left")


def test_qrsh_is_the_parent_and_a_rank_that_dies_of_a_signal_does_not_end_the_job(grid_engine: Job) -> None:
    """Grid Engine kills a job whose task dies of a signal."""
    job = grid_engine
    assert_the_client_is_the_parent(job, "qrsh")
    done = job.run("yod", "--parent=rank", "-sz", "2", "sh", "-c", "test $YOD_RANK = 0 || kill -9 $$")
    assert done.returncode == 128 + signal.SIGKILL and "SIGKILL" in done.stderr, done.stderr
    done = job.run("yod", "--parent=rank", "-sz", "2", "sh", "-c", "echo alive; kill $$")
    assert done.stdout.split() == ["alive", "alive"] and "SIGTERM" in done.stderr, done.stderr
    assert job.script.stdin is not None
    job.script.stdin.write(b"qrsh -inherit n0 sh -c 'kill -9 $$'\n")
    job.script.stdin.flush()
    assert job.script.wait() == -signal.SIGKILL, "the stand-in has that rule"
    wait_until(lambda: not job.left(), "nothing of the job is left")


def test_held_ranks_stand_at_their_first_instruction(shared_job: Job) -> None:
    job = shared_job
    begun = job.run("yod", "--parent=rank", "--hold", "--detach", "-sz", "2", "sleep", "316")
    assert begun.returncode == 0, begun.stderr
    wait_until(lambda: [processes.state(pid) for pid in _sleeping("316")] == ["T", "T"], "both are held")
    assert job.run("yod", "--release", begun.stdout.strip()).returncode == 0
    wait_until(lambda: [processes.state(pid) for pid in _sleeping("316")] == ["S", "S"], "both were released")
    launcher = job.run("sh", "-c", "showmesh --json").stdout
    assert launcher
    for pid in _sleeping("316"):
        processes.send_signal(pid, signal.SIGTERM)
    wait_until(lambda: not _sleeping("316"), "both have ended")


def test_ranks_are_killed_when_the_batch_system_no_longer_supervises_them(shared_job: Job) -> None:
    begun = shared_job.run("yod", "--parent=rank", "--detach", "-sz", "2", "sleep", "317")
    assert begun.returncode == 0, begun.stderr
    wait_until(lambda: len(_sleeping("317")) == 2, "both run")
    for pid in {processes.nearest_ancestor(pid, "slurmstepd")[0] for pid in _sleeping("317")}:
        processes.send_signal(pid, signal.SIGKILL)
    wait_until(lambda: not _sleeping("317"), "both have ended")


def test_the_mesh_ends_when_the_batch_system_no_longer_supervises_the_script() -> None:
    for job in _job_under("slurmstepd"):
        assert job.run("yod", "-sz", "1", "true").returncode == 0
        job.script.kill()
        wait_until(lambda: not any(processes.is_agent(pid) for pid in job.left()), "no agent is left")  # noqa: B023


def _job_under(supervisor: str) -> Iterator[Job]:
    one = Job("slurm", supervisor=supervisor)
    try:
        yield one
    finally:
        one.close()


def test_a_program_that_is_not_there_and_a_client_that_fails(shared_job: Job) -> None:
    job, client = shared_job, shared_job.directory / "bin" / "srun"
    script = job.directory / "script"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    done = job.run("yod", "--parent=rank", "-sz", "2", str(script))
    assert done.returncode == 127 and "interpreter" in done.stderr, done.stderr
    kept_client = client.rename(client.with_name("srun that works"))
    try:
        client.write_text("#!/bin/sh\necho srun: error: no such luck >&2\nexit 1\n")
        client.chmod(0o755)
        done = job.run("yod", "--parent=rank", "-sz", "2", "true")
        assert done.returncode == 125 and "no such luck" in done.stderr, done.stderr
    finally:
        kept_client.replace(client)
    done = job.run("yod", "--manager", "none", "--parent=rank", "-sz", "1", "true")
    assert done.returncode == 2 and "not a job" in done.stderr, done.stderr
    done = job.run("yod", "--parent=rank", "-bt", "-sz", "1", "true")
    assert done.returncode == 2 and "excludes" in done.stderr, done.stderr


def test_how_a_process_ended_is_told_before_and_after_somebody_waited_for_it() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    pidfd = os.pidfd_open(pid)
    wait_until(lambda: processes.state(pid) == "Z", "it has ended")
    assert processes.exit_code(pid) == 7 << 8
    os.waitpid(pid, 0)
    assert processes.exit_code(pid) is None
    assert managed.exit_status(pidfd) == (7 << 8 if managed.exits_are_told() else None)
    os.close(pidfd)


def _sleeping(*seconds: str) -> list[int]:
    found = []
    for pid in processes.pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")[:-1]
        except OSError:
            continue
        if words[:1] == [b"sleep"] and words[1:] and words[1].decode() in seconds:
            found.append(pid)
    return sorted(found)
