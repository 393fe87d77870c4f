"""A mesh inside a batch system's job. The clients are stood in for (tests/support/managers/stand_in.py)."""

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.managers.job import Job, arguments
from tests.support.managers.shared_job import kept, ranks, shared_job
from tests.support.waiting import freeze, silence, wait_until

__all__ = ["kept", "shared_job"]


@pytest.fixture
def job() -> Iterator[Job]:
    one = Job("slurm")
    try:
        yield one
        assert not one.refused.exists(), one.refused.read_text()
    finally:
        one.close()


def test_ranks_descend_from_what_the_manager_started(shared_job: Job) -> None:
    job = shared_job
    first = job.run("yod", "-sz", "1", "--detach", "sleep", "60")
    assert first.returncode == 0, first.stderr
    [sleeper] = [pid for pid in processes.pids() if arguments(pid) == ["sleep", "60"] and pid in job.left()]
    above = processes.ancestors(sleeper)
    clients = [pid for pid in job.left() if "srun" in " ".join(arguments(pid)) and pid in above]
    assert clients, "the client of the manager is an ancestor of the rank"


def test_two_yods_at_once_start_one_mesh_and_after_mesh_down_the_next_yod_begins_anew(job: Job) -> None:
    (job.directory / "mesh.toml").write_text('hosts = ["nowhere.invalid"]\n')  # the job's mesh goes before it
    done = job.run(
        "sh", "-c", "yod -sz 2 true & first=$!; yod -sz 2 true; test $? = 0 && wait $first && mesh status --json"
    )
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(job.jobs)) == 1
    unwanted = job.run("yod", "--manager", "none", "-sz", "1", "true")
    assert unwanted.returncode != 0 and "nowhere.invalid" in unwanted.stderr, "unless none is wanted"
    down = job.run("mesh", "down")
    assert (down.returncode, down.stdout) == (0, "mesh down\n"), down.stderr
    wait_until(lambda: job.left() == [job.script.pid], "the manager's clients have ended: only the script is left")
    done = job.run("yod", "-sz", "1", "sh", "-c", "echo here")
    assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
    assert "starting one" in done.stderr


def test_ranks_exit_when_the_manager_terminates_the_job_s_steps(shared_job: Job) -> None:
    job = shared_job
    assert job.run("yod", "-sz", "4", "--detach", "sleep", "300").returncode == 0
    _signal_steps(job)
    wait_until(
        lambda: not [pid for pid in job.left() if arguments(pid)[:1] == ["sleep"]], "the ranks have ended", step_s=0.1
    )


CHECKPOINT = "trap 'sleep 1; echo saved >>{out}; exit 0' TERM; echo ready >>{out}; while :; do sleep 0.2; done"
DEAF = "trap '' TERM; echo ready >>{out}; while :; do sleep 0.2; done"


def _launched(job: Job, script: str) -> Path:
    """Start four ranks in the background; returns the file that they write to."""
    out = job.directory / "said"
    out.unlink(missing_ok=True)
    done = job.run("yod", "-sz", "4", "--detach", "sh", "-c", script.format(out=out))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: out.exists() and out.read_text().count("ready") == 4, "every rank waits")
    return out


def _signal_steps(job: Job, number: int = signal.SIGTERM) -> None:
    """Send a signal as Slurm does, to all processes of the job's steps."""
    [client] = [pid for pid in job.left() if any(word.endswith("/srun") for word in arguments(pid)[:3])]
    for pid in processes.descendants(client):
        processes.send_signal(pid, number)


#: What a batch system may send to a job's processes and a program may catch.
FOR_RANKS = ("USR1", "USR2", "ALRM", "XCPU", "VTALRM", "PROF", "IO", "PWR", "INT", "HUP", "QUIT")


def test_signals_for_the_ranks_leave_the_mesh_up(shared_job: Job) -> None:
    traps = "; ".join(f"trap 'echo SIG{name} >>{{out}}' {name}" for name in FOR_RANKS)
    out = _launched(shared_job, f"{traps}; echo ready >>{{out}}; while :; do sleep 0.2; done")
    # a child that an agent has just forked has its name
    alone = "a keeper and a PCT on each of two hosts, and no child of theirs"
    agents = wait_until(lambda: len(found := _agents(shared_job)) == 5 and found, alone, step_s=0.1)
    for name in FOR_RANKS:
        _signal_steps(shared_job, signal.Signals[f"SIG{name}"])
        wait_until(
            lambda: out.read_text().split().count(f"SIG{name}") == 4,  # noqa: B023
            f"every rank has caught SIG{name}, the last of {FOR_RANKS[: FOR_RANKS.index(name) + 1]}",
        )
        assert agents <= _agents(shared_job), f"SIG{name} has ended an agent"
    for pid in ranks(shared_job):
        processes.send_signal(pid, signal.SIGKILL)
    _starts_in_the_same_mesh(shared_job)


def test_a_user_s_sigterm_leaves_ranks_time_to_finish_and_the_mesh_up(shared_job: Job) -> None:
    out = _launched(shared_job, CHECKPOINT)
    _signal_steps(shared_job)
    wait_until(lambda: out.read_text().count("saved") == 4, "every rank has written its checkpoint")
    _starts_in_the_same_mesh(shared_job)


def _starts_in_the_same_mesh(job: Job) -> None:
    again = job.run("yod", "-sz", "4", "--wait-for-nodes", "30", "true")
    assert again.returncode == 0 and "starting one" not in again.stderr, again.stderr


def _agents(job: Job) -> set[int]:
    """The manager's client, and the agents on the job's hosts."""
    [client] = [pid for pid in job.left() if any(word.endswith("/srun") for word in arguments(pid)[:3])]
    names = ("redmesh-keeper ", "redmesh-pct ")
    return {client, *(p for p in processes.descendants(client) if "".join(arguments(p)[:1]).startswith(names))}


@pytest.mark.parametrize(("script", "saved"), [(CHECKPOINT, 4), (DEAF, 0)], ids=["checkpoint", "deaf"])
def test_a_cancelled_job_leaves_ranks_time_to_finish_and_then_nothing(job: Job, script: str, saved: int) -> None:
    out = _launched(job, script)
    (job.directory / "refused.state").write_text("CG")
    _signal_steps(job)
    # With proctrack/cgroup, Slurm kills yod as soon as the script has died of its SIGTERM.
    for pid in (pid for pid in job.left() if "yod" in " ".join(arguments(pid)[:4])):
        processes.send_signal(pid, signal.SIGKILL)
    job.script.terminate()
    job.script.wait()
    job.wait_until_gone()
    assert out.read_text().count("saved") == saved


def test_ranks_keep_their_time_if_the_batch_system_s_process_exits_after_the_script() -> None:
    """With proctrack/linuxproc, Slurm leaves yod alone when the script has died, and its slurmstepd exits."""
    job = Job("slurm", supervisor="slurmstepd")
    try:
        out = _launched(job, CHECKPOINT)
        (job.directory / "refused.state").write_text("CG")
        _signal_steps(job)
        [script] = processes.children(job.script.pid)
        processes.send_signal(script, signal.SIGTERM)
        job.script.wait()
        job.wait_until_gone()
        assert out.read_text().count("saved") == 4
    finally:
        job.close()


def test_a_manager_that_does_not_answer_when_the_job_ends_is_asked_again(job: Job) -> None:
    assert job.run("yod", "-sz", "4", "true").returncode == 0
    state, asked = job.directory / "refused.state", job.directory / "refused.asked"
    state.touch()
    _signal_steps(job)
    keepers = [pid for pid in job.left() if "keeper" in arguments(pid)]
    for pid in keepers:
        processes.send_signal(pid, signal.SIGTERM)
    wait_until(asked.exists, "somebody has asked in vain")
    state.write_text("CG")
    wait_until(lambda: not any(processes.alive(pid) for pid in keepers), "the mesh has ended")
    assert job.script.poll() is None


def test_no_directory_is_left_if_the_hosts_agents_end_before_the_job_s_keeper(job: Job) -> None:
    assert job.run("yod", "-sz", "4", "true").returncode == 0
    [client] = [pid for pid in job.left() if any(word.endswith("/srun") for word in arguments(pid)[:3])]
    [keeper] = {pid for pid in job.left() if "keeper" in arguments(pid)} - set(processes.descendants(client))
    (job.directory / "refused.state").write_text("CG")
    freeze(keeper)
    try:
        _signal_steps(job)
        wait_until(lambda: not processes.descendants(client), "the hosts' agents have ended", step_s=0.1)
        job.end()
    finally:
        processes.send_signal(keeper, signal.SIGCONT)
    job.wait_until_gone()


def test_signals_of_the_manager_reach_the_ranks(shared_job: Job) -> None:
    caught = "trap 'echo caught >>{out}; exit 0' USR1; echo ready >>{out}; while :; do sleep 0.2; done"
    out = _launched(shared_job, caught)
    [client] = [pid for pid in shared_job.left() if any(word.endswith("/srun") for word in arguments(pid)[:3])]
    processes.send_signal(client, signal.SIGUSR1)
    wait_until(lambda: out.read_text().count("caught") == 4, "every rank has caught the manager's signal")
    _starts_in_the_same_mesh(shared_job)


def test_ranks_have_the_variables_of_the_job_but_none_of_srun(shared_job: Job) -> None:
    given = {"SLURM_PROCID": "0", "SLURM_STEP_ID": "4", "SLURMD_NODENAME": "n0", "SLURM_SUBMIT_DIR": "/here"}
    done = shared_job.run("yod", "-sz", "4", "sh", "-c", 'echo "$YOD_NODE $SLURMD_NODENAME"; env', **given)
    lines = done.stdout.splitlines()
    assert lines.count("n0 n0") == lines.count("n1 n1") == 2, "SLURMD_NODENAME is that node's"
    assert lines.count("SLURM_JOB_ID=17") == lines.count("SLURM_SUBMIT_DIR=/here") == 4
    assert not [line for line in lines if line.startswith(("SLURM_PROCID", "SLURM_STEP", "SLURM_NTASKS="))]


def test_a_job_that_is_suspended_for_longer_than_down_s_keeps_its_launches(job: Job) -> None:
    down_s = silence(2.0)
    (job.directory / "mesh.toml").write_text(f"suspect_s = {silence(1.0)}\ndown_s = {down_s}\n")
    assert job.run("yod", "-sz", "4", "--detach", "sleep", "317").returncode == 0
    # Slurm stops the script and what its daemons started, and does not know of the login processor's RCA and CPA.
    [client] = [pid for pid in job.left() if any(word.endswith("/srun") for word in arguments(pid)[:3])]
    stopped = [job.script.pid, *processes.descendants(client)]
    [state] = job.jobs.iterdir()
    log = state / "log" / "rca.jsonl"
    before = len(log.read_text())
    for pid in stopped:
        freeze(pid)
    until = time.monotonic() + 2 * down_s
    wait_until(lambda: time.monotonic() > until, "twice down_s is over")
    for pid in stopped:
        processes.send_signal(pid, signal.SIGCONT)
    until = time.monotonic() + 1.5 * down_s
    wait_until(lambda: time.monotonic() > until, "longer than down_s is over again")
    assert "node_down" not in log.read_text()[before:]
    assert len(_named(job, "sleep")) == 4, "the ranks live"


def test_the_managers_are_listed_and_checked(shared_job: Job) -> None:
    job = shared_job
    done = job.run("mesh", "manager", "list", "--json")
    told = json.loads(done.stdout)
    assert [row["name"] for row in told["managers"] if row["detected"]] == ["slurm"]
    assert told["job"] == "slurm-here.17" and told["state"].startswith(str(job.jobs))
    done = job.run("mesh", "manager", "check", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["hosts"], told["missing"]) == (0, [["n0", 2], ["n1", 2]], "")


def test_a_second_shell_sees_the_job_s_mesh(shared_job: Job) -> None:
    job = shared_job
    state = json.loads(job.run("mesh", "manager", "list", "--json").stdout)["state"]
    done = job.run("env", "-u", "SLURM_JOB_ID", "-u", "TMPDIR", f"REDMESH_JOB={state}", "showmesh", "--json")
    assert json.loads(done.stdout)["states"]["free"] == 4, done.stderr


def test_state_objects_outlive_the_job_and_are_gone_on_with_in_another(job: Job) -> None:
    gate, other = job.directory / "gate", Job("slurm")
    try:
        script = f"yodstate log task $0; test $0 = 1 || while ! test -e {gate}; do sleep 0.1; done"
        [uuid] = job.run("mesh", "submit", "--array", "1-3", "--", "sh", "-c", script, "{}").stdout.split()
        first = '"done": 1'
        wait_until(
            lambda: first in job.run("mesh", "job", "show", uuid, "--json").stdout, "one task is done", step_s=0.5
        )
        job.end()
        job.wait_until_gone()
        kept = job.directory / "state" / "redmesh" / "jobs" / f"{uuid}.job"
        assert [path.name for path in kept.parent.iterdir()] == [kept.name]
        gate.touch()
        mine = {"XDG_STATE_HOME": str(job.directory / "state")}
        resumed = other.run("mesh", "job", "resume", uuid, **mine)
        assert resumed.returncode == 0 and not kept.exists(), resumed.stderr
        assert other.run("mesh", "wait", uuid, **mine).returncode == 0
        down = other.run("mesh", "down", **mine)
        assert f"state objects of 1 job are kept in {kept.parent}" in down.stdout, down.stderr
        told = other.run("mesh", "job", "log", uuid, REDMESH_MANAGER="none", **mine).stdout
        assert "the batch job of its mesh ended" in told and "resumed in batch job slurm-here.17" in told
    finally:
        other.close()


def test_no_socket_is_left_if_an_object_in_use_delays_the_keeper_s_end(job: Job) -> None:
    """The keeper looks every 2 s whether its sockets are there, and waits 5 s for the object."""
    [uuid] = job.run("mesh", "submit", "--wait", "--", "true").stdout.split()
    [path] = job.jobs.glob(f"*/jobs/{uuid}.job")
    reader = sqlite3.connect(path)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        job.end()
        wait_until(lambda: not job.left(), "nothing of the job runs", step_s=0.1)
        assert path.exists(), "it was waited for in vain"
        assert os.listdir(job.jobs.parent) == ["jobs"]
    finally:
        reader.close()


def test_the_standby_copy_outlives_a_job_whose_first_host_is_lost(job: Job) -> None:
    [uuid] = job.run("mesh", "submit", "--array", "1-9", "--", "sleep", "60").stdout.split()
    wait_until(lambda: [*job.jobs.rglob(f"{uuid}.job.standby")], "there is a copy on another host", step_s=0.1)
    [owner] = [pid for pid in job.left() if " ".join(arguments(pid)).startswith(f"redmesh-job {uuid}")]
    processes.send_signal(owner, signal.SIGKILL)
    wait_until(lambda: not processes.alive(owner), "the owner has ended")  # until then it may rename its files
    for path in job.jobs.glob(f"*/jobs/{uuid}.job*"):
        path.unlink(missing_ok=True)  # the owner that takes its place may do so too
    job.end()
    job.wait_until_gone()
    kept = job.directory / "state" / "redmesh" / "jobs"
    assert [path.name for path in kept.iterdir()] == [f"{uuid}.job"]


def _named(job: Job, name: str) -> list[int]:
    return [pid for pid in job.left() if arguments(pid)[:1] == [name]]
