"""Jobs on the move go on by processes that an RCA starts: for those that concern it, until the tracker has no more."""

import os
import subprocess
from pathlib import Path

import pytest

from agents.link.journal import Journal
from agents.rca.moving_jobs import AGAIN_S, MOST_OF_ONE, MovingJob, MovingJobs, as_user
from tests.support.waiting import wait_until

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_command_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDMESH_SECRET", "of root")
    monkeypatch.setenv("XDG_STATE_HOME", "/root/state")
    done = subprocess.run(
        ["sh", "-c", "id -u; id -ru; id -G; env"], stdout=subprocess.PIPE, text=True, **as_user(NOBODY)
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == [str(NOBODY)] * 2 and "0" not in lines[2].split()
    names = {line.partition("=")[0] for line in lines[3:]}
    assert {"HOME", "USER", "LOGNAME"} <= names and not names & {"REDMESH_SECRET", "XDG_STATE_HOME"}
    files = subprocess.run(["sh", "-c", "umask; readlink /proc/self/fd/2"], stdout=subprocess.PIPE,
                           text=True, **as_user(NOBODY))  # fmt: skip
    assert files.stdout.split() == ["0077", "/dev/null"], "root's log is not open for the user"
    with pytest.raises(KeyError):
        as_user(4_000_000_000)


def test_a_process_runs_for_each_job_that_concerns_this_login_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = 0.0
    log = tmp_path / "started"
    log.touch()
    words = ["sh", "-c", 'echo "$*" >> "$0"; read line < "$0.gate"', str(log)]
    os.mkfifo(f"{log}.gate")
    monkeypatch.setattr("agents.rca.moving_jobs.start_command", lambda _name, _installed: words)
    jobs = MovingJobs("login1", "/somewhere", Journal(str(tmp_path / "rca.jsonl"), "rca"), lambda: now)

    def learn(*rows: tuple[str, str, str]) -> None:
        jobs.learn([MovingJob(uuid, os.geteuid(), node, goes_to) for uuid, node, goes_to in rows])

    moving = ("a", "login1", "login2"), ("b", "n3", "login1"), ("c", "login2", "login3")
    learn(*moving)
    wait_until(lambda: len(log.read_text().split()) == 6, "two have begun")
    now = 10 * AGAIN_S
    learn(*moving)
    assert sorted(log.read_text().splitlines()) == ["job take-over a", "job take-over b"], "they run"
    with open(f"{log}.gate", "w") as gate:
        gate.write("\n\n")
    wait_until(lambda: all(one.process.poll() is not None for one in jobs._started.values()), "they have ended")
    learn(moving[1])
    wait_until(lambda: log.read_text().count("take-over b") == 2, "another one, because the job is not there yet")
    with open(f"{log}.gate", "w") as gate:
        gate.write("\n")
    wait_until(lambda: all(one.process.poll() is not None for one in jobs._started.values()), "it has ended")
    learn(moving[1])
    assert log.read_text().count("take-over b") == 2, "not at once"
    now += AGAIN_S
    learn()
    learn(moving[1])
    wait_until(lambda: log.read_text().count("take-over b") == 3, "later")
    with open(f"{log}.gate", "w") as gate:
        gate.write("\n")


def test_many_jobs_of_one_user_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 100.0
    log = tmp_path / "started"
    log.touch()
    words = ["sh", "-c", 'echo "$3" >> "$0"; read line < "$0.gate"', str(log)]
    os.mkfifo(f"{log}.gate")
    monkeypatch.setattr("agents.rca.moving_jobs.start_command", lambda _name, _installed: words)
    jobs = MovingJobs("login1", "/somewhere", Journal(str(tmp_path / "rca.jsonl"), "rca"), lambda: now)
    moving = [MovingJob(f"{number:02}", os.geteuid(), "login1", "login2") for number in range(2 * MOST_OF_ONE)]

    def begun(count: int) -> list[str]:
        wait_until(lambda: len(log.read_text().split()) >= count, "they have begun")
        return sorted(log.read_text().split())

    def end() -> None:
        for one in jobs._started.values():
            one.process.kill()
            one.process.wait()

    try:
        jobs.learn(moving)
        jobs.learn(moving)
        assert begun(MOST_OF_ONE) == [job.uuid for job in moving[:MOST_OF_ONE]], "no more at once"
        end()
        now += AGAIN_S
        jobs.learn(moving)
        assert begun(2 * MOST_OF_ONE) == [job.uuid for job in moving], "then those that had no turn"
    finally:
        end()
