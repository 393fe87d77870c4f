"""Jobs of tasks through the real commands: submit, queue, wait, cancel, hold, retry; and what survives kill -9."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redmesh.state import StateFull, StateObject, owned
from tests.support.look import asked, queue
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import PATIENCE_S, SLOWNESS, freeze, wait_until
from tests.support.yods import free, one_mesh, yods

__all__ = ["one_mesh", "yods"]


def submit(mesh: PrivateMesh, *words: str) -> str:
    return mesh.run("mesh", "submit", *words, check=True).stdout.strip()


def sql(mesh: PrivateMesh, job: str, query: str) -> list[dict[str, Any]]:
    """What ``mesh job sql`` prints (tests/system/yod/test_state.py), without a command."""
    return asked(mesh.state / "jobs" / f"{job}.job", query)


def row(mesh: PrivateMesh, job: str) -> dict[str, Any]:
    return next(one for one in queue(mesh, ended=True) if one["uuid"] == job)


def workers(mesh: PrivateMesh) -> list[int]:
    return [pid for pid, command in mesh.processes().items() if "/yodwork job " in command]


def at_work(mesh: PrivateMesh, command: str) -> list[int]:
    """The workers one of whose children runs ``command``."""
    found = [pid for pid, words in mesh.processes().items() if words.startswith("sh -c ") and command in words]
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in found}
    return [pid for pid in workers(mesh) if pid in parents]


def ran(mesh: PrivateMesh, name: str = "ran") -> list[int]:
    path = Path(mesh.work / name)
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def test_results_exits_limits_and_last_lines_are_in_the_object(yods: PrivateMesh) -> None:
    limit_s = round(2 * SLOWNESS)
    script = "echo task {} of $REDMESH_JOB try $REDMESH_TASK_ATTEMPT $GIVEN; test {} != 3 || exit 7"
    done = yods.run(
        "mesh", "submit", "--array", "1-20", "--retries", "1", "--time", f"{limit_s}s", "--env", "GIVEN=x",
        "--wait", "--", "sh", "-c", script + "; test {} != 4 || sleep 600",
    )  # fmt: skip
    job = done.stdout.strip()
    assert done.returncode == 1 and "2 tasks failed: 18 done, 2 failed" in done.stderr
    assert re.search(rf"mesh: task 3 failed first: exit 7 on n\d: task 3 of {job} try 2 x", done.stderr), done.stderr
    log = yods.run("mesh", "job", "log", job, check=True).stdout
    assert re.search(
        rf"task 4: failed: exit 124 \(the time limit of {limit_s} s is reached\) on n\d: task 4 of", log
    ), log
    assert sql(yods, job, "SELECT first, attempt, exit FROM task WHERE state = 'failed'") == [
        {"first": 3, "attempt": 2, "exit": 7},
        {"first": 4, "attempt": 2, "exit": 124},
    ]
    assert sql(yods, job, "SELECT lines FROM task WHERE first = 9") == [{"lines": f"task 9 of {job} try 1 x\n"}]
    assert sql(yods, job, "SELECT count(*) AS n FROM resource WHERE freed_at IS NULL") == [{"n": 0}]
    [asked] = sql(yods, job, "SELECT count(*) AS n FROM request")
    assert asked["n"] > 1, "the first request and further ones"
    assert row(yods, job)["state"] == "failed" and not yods.json("mesh", "queue")


def test_a_long_task_behind_short_ones_keeps_no_others_from_idle_processors(yods: PrivateMesh) -> None:
    """Each of the two last tasks waits for the other one: a worker that has both in advance gives one back."""
    meets = "touch met.$REDMESH_TASK; while [ $(ls met.* | wc -l) -lt 2 ]; do sleep 0.05; done"
    (yods.work / "mixed").write_text("true\n" * 30 + f"{meets}\n" * 2)
    others = yods.start("yod", "-sz", "7", "sleep", "1000")
    try:
        wait_until(lambda: free(yods) == 1, "one processor is free")
        job = submit(yods, "--tasks", "mixed", "--time", "60s")
        wait_until((yods.work / "met.31").exists, "the first long task runs")
    finally:
        others.terminate()
        others.wait()
    yods.run("mesh", "wait", job, check=True)
    assert sql(yods, job, "SELECT state, max(attempt) AS tries, count(*) AS n FROM task GROUP BY state") == [
        {"state": "done", "tries": 1, "n": 32}
    ]


def test_a_cancelled_job_that_is_tried_again_before_its_tasks_have_ended_runs_them_again(yods: PrivateMesh) -> None:
    stays = "trap '' TERM; touch began.$REDMESH_TASK_ATTEMPT; while :; do sleep 0.1; done"
    job = submit(yods, "--", "sh", "-c", f"test $REDMESH_TASK_ATTEMPT != 3 || exit 0; {stays}")
    for attempt in (1, 2):
        wait_until((yods.work / f"began.{attempt}").exists, f"attempt {attempt} runs")
        yods.run("mesh", "cancel", job, check=True)
        done = yods.run("mesh", "retry", job, check=True)
        assert "1 task to run again" in done.stderr, done.stderr
    yods.run("mesh", "wait", job, check=True)
    assert sql(yods, job, "SELECT state, attempt FROM task") == [{"state": "done", "attempt": 3}]


def test_no_output_of_a_task_is_written_over_by_another(yods: PrivateMesh) -> None:
    lines = ["echo one", "echo two >&2", "echo one"]
    (yods.work / "alike").write_text("\n".join(lines))
    refused = yods.run("mesh", "submit", "--tasks", "alike", "--output", "new/{}.txt", "--wait")
    assert refused.returncode == 2 and "tasks 1 and 3 would write one file" in refused.stderr
    assert "{#}" in refused.stderr
    submit(yods, "--tasks", "alike", "--output", "new/{#}.out", "--error", "new/{#}.err", "--wait")
    found = {path.name: path.read_text() for path in (yods.work / "new").iterdir()}
    assert found == {"1.out": "one\n", "1.err": "", "2.out": "", "2.err": "two\n", "3.out": "one\n", "3.err": ""}
    refused = yods.run("mesh", "submit", "--array", "3-4", "--output", "one", "--", "echo", "{}")
    assert refused.returncode == 2 and "every task would write the same file" in refused.stderr
    submit(yods, "--array", "3", "--output", "one", "--wait", "--", "echo", "{}")  # one task, with the input 3
    assert (yods.work / "one").read_text() == "3\n"
    job = submit(yods, "--array", "7-8", "--wait", "--", "echo", "{#}", "{}")
    assert [one["lines"] for one in sql(yods, job, "SELECT lines FROM task")] == ["7 7\n", "8 8\n"]


def test_tasks_are_listed_with_their_inputs_and_their_attempts_as_a_job_log(yods: PrivateMesh) -> None:
    (yods.work / "three").write_text("a b\nc\nd\n")
    script = "test '{}' = c && kill -SEGV $$; test '{}' != d || exit $((REDMESH_TASK_ATTEMPT + 2))"
    job = yods.run("mesh", "submit", "--tasks", "three", "--retries", "1", "--wait", "--", "sh", "-c", script)
    uuid = job.stdout.strip()
    told = yods.run("mesh", "job", "tasks", uuid, check=True).stdout.splitlines()
    assert "a b" in told[1] and told[2].split()[-2:] == ["c", "SIGSEGV"]
    assert [line.split()[0] for line in yods.run("mesh", "job", "tasks", uuid, "3").stdout.splitlines()[1:]] == ["3"]
    assert yods.run("mesh", "job", "tasks", uuid, "4").returncode == 2
    (one,) = [json.loads(line) for line in yods.run("mesh", "job", "tasks", uuid, "2", "--json").stdout.splitlines()]
    assert one["input"] == "c" and one["command"].startswith("sh -c 'test ")
    log = [line.split("\t") for line in yods.run("mesh", "job", "tasks", uuid, "--joblog").stdout.splitlines()[1:]]
    ended = sorted((int(line[0]), int(line[6]), int(line[7])) for line in log)  # sequence, exit value, signal
    assert ended == [(1, 0, 0), (2, 0, 11), (2, 0, 11), (3, 3, 0), (3, 4, 0)]
    assert all(line[8].startswith("sh -c 'test ") for line in log)


def test_a_job_log_on_a_terminal_has_no_escape_sequences_of_commands(yods: PrivateMesh) -> None:
    job = submit(yods, "--wait", "--quiet", "--", "true", "\x1b[2J")
    words = ["mesh", "job", "tasks", job, "--joblog"]
    assert "\x1b[2J" in yods.run(*words, check=True).stdout
    shown = yods.run(sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *words, check=True).stdout
    assert "\x1b" not in shown and "[2J" in shown


def test_a_retry_may_allow_more_failures_and_the_time_before_it_does_not_count(yods: PrivateMesh) -> None:
    words = ["--array", "1-9", "--limit", "1", "--max-fails", "1", "--wait", "--quiet", "--"]
    job = yods.run("mesh", "submit", *words, "sh", "-c", "test -e good{} || exit 5").stdout.strip()
    assert "failed, 1 may (--max-fails)" in yods.run("mesh", "wait", job).stderr
    told = yods.run("mesh", "retry", "--max-fails", "3", job, check=True).stderr
    assert "9 tasks to run again" in told
    assert "failed, 3 may (--max-fails)" in yods.run("mesh", "wait", job).stderr
    for number in range(1, 10):
        (yods.work / f"good{number}").touch()
    yods.run("mesh", "retry", job, check=True)
    assert yods.run("mesh", "wait", job).returncode == 0
    ran_s, whole_s = _times(yods, job)
    assert abs(9 / row(yods, job)["rate"] - ran_s) < 0.1 < whole_s - ran_s
    assert "every task is done" in yods.run("mesh", "retry", job, check=True).stderr


def _times(mesh: PrivateMesh, job: str) -> tuple[float, float]:
    """The seconds in which a job was running, and those from its begin to its end."""
    rows = sql(mesh, job, "SELECT at, state FROM transition WHERE first IS NULL ORDER BY id")
    runs = [(one["at"], after["at"]) for one, after in pairwise(rows) if one["state"] == "running"]
    return sum(till - at for at, till in runs), runs[-1][1] - runs[0][0]


def test_a_retry_goes_on_under_the_limit_of_now_and_a_list_that_fills_the_object_is_refused(yods: PrivateMesh) -> None:
    small = yods.work / "small.toml"
    small.write_text("job_limit_mb = 1\n")
    words = ["mesh", "--config", str(small), "submit", "--wait", "--quiet", "--tasks"]
    (yods.work / "lines").write_text("yes\n")
    job = yods.run(*words, "lines", "--", "test", "-e").stdout.strip()
    limit = "SELECT value FROM meta WHERE key = 'limit'"
    assert sql(yods, job, limit) == [{"value": 1 << 20}]
    (yods.work / "yes").touch()
    yods.run("mesh", "retry", job, check=True)
    assert yods.run("mesh", "wait", job).returncode == 0 and sql(yods, job, limit) == [{"value": 1 << 30}]
    (yods.work / "lines").write_text("".join(f"{number:0550}\n" for number in range(20_000)))
    assert "its limit is 1 MiB" in yods.run(*words, "lines", "--", "true").stderr


def test_a_job_whose_object_is_full_when_it_begins_fails_with_that_reason(yods: PrivateMesh) -> None:
    """Its owner exited before it had recorded anything: the job was "suspended", and named a useless command."""
    uuid = submit(yods, "--hold", "--", "true")
    path = yods.state / "jobs" / f"{uuid}.job"
    with contextlib.closing(StateObject(str(path))) as job:
        job.set_meta(held=0, limit=path.stat().st_size)
    job = StateObject(str(path))
    with pytest.raises(StateFull):
        while True:
            job._write("INSERT INTO transition (at, state) VALUES (0, 'waiting')", ())
            job.commit()
    job.close()
    yods.run("mesh", "job", "resume", uuid, check=True)
    told = yods.run("mesh", "wait", uuid)
    assert told.returncode == 1 and f"job {uuid} is full: its limit is" in told.stderr, told.stderr
    assert row(yods, uuid)["state"] == "failed"
    yods.run("mesh", "retry", uuid, check=True)
    yods.run("mesh", "wait", uuid, check=True)


def test_a_submission_that_was_killed_is_no_job(yods: PrivateMesh) -> None:
    """Half of its tasks are not run, nor does it count as done."""
    before = {path.stem for path in (yods.state / "jobs").glob("*.job")}
    process = yods.start("mesh", "submit", "--tasks", "-", "--", "echo", stdin=subprocess.PIPE)
    try:
        wait_until(lambda: {path.stem for path in (yods.state / "jobs").glob("*.job")} - before, "the object is made")
    finally:
        process.kill()
        process.wait()
    (job,) = {one["uuid"] for one in queue(yods)} - before
    yods.run("mesh", "job", "resume", job, check=True)
    told = yods.run("mesh", "wait", job)
    assert told.returncode == 1 and "submit it again" in told.stderr


def test_what_only_sections_know_is_named_when_a_job_is_submitted(yods: PrivateMesh) -> None:
    refused = yods.run("mesh", "submit", "--", "touch", "{}", ":::", "a", "b")
    assert refused.returncode == 2 and "mesh sections run" in refused.stderr
    (yods.work / "few").write_text("a.b\n")
    told = yods.run("mesh", "submit", "--tasks", "few", "--wait", "--", "true", "{.}")
    assert told.returncode == 0 and "{.} stays as it is" in told.stderr
    numbers = yods.run("mesh", "submit", "--array", "1-2", "--wait", "--", "true")
    assert "$REDMESH_TASK alone" in numbers.stderr
    quoted = yods.run("mesh", "submit", "--tasks", "few", "--wait", "--", "cat {} > out")
    assert quoted.returncode == 1 and "no shell reads it: sh -c" in quoted.stderr


def test_lines_of_a_file_are_inputs_or_shell_commands_and_output_goes_to_files(yods: PrivateMesh) -> None:
    (yods.work / "list").write_text("a b\n\nc/d\n")
    (yods.work / "out").mkdir(exist_ok=True)
    submit(yods, "--tasks", "list", "--output", "out/{}.txt", "--wait", "--", "printf", "<%s>")
    assert {path.name: path.read_text() for path in (yods.work / "out").iterdir()} == {
        "a b.txt": "<a b>",
        "c_d.txt": "<c/d>",
    }
    (yods.work / "list").write_text("echo one\ncat && exit 5\n")
    (yods.work / "in").write_text("given")
    done = yods.run("mesh", "submit", "--tasks", "list", "--stdin", "in", "--wait", "--json")
    job = json.loads(done.stdout)["uuid"]
    assert done.returncode == 1
    assert [(one["exit"], one["lines"]) for one in sql(yods, job, "SELECT exit, lines FROM task")] == [
        (0, "one\n"),
        (5, "given"),
    ]


def test_a_job_that_is_held_while_its_last_tasks_run_ends_with_them(yods: PrivateMesh) -> None:
    waits = "touch runs-{}; until [ -e done ]; do sleep 0.05; done"
    job = submit(yods, "--array", "1-2", "--limit", "2", "--", "sh", "-c", waits)
    wait_until(lambda: len(list(yods.work.glob("runs-*"))) == 2, "both run, neither behind the other")
    yods.run("mesh", "hold", job, check=True)
    (yods.work / "done").touch()
    assert yods.run("mesh", "wait", job).returncode == 0 and row(yods, job)["state"] == "done"


def test_jobs_are_held_released_cancelled_wait_for_others_and_are_tried_again(yods: PrivateMesh) -> None:
    held = submit(yods, "--hold", "--name", "first", "--", "test", "-e", "there")
    after = submit(yods, "--after", held[:8], "--", "true")
    either = submit(yods, "--after", f"{held}:any", "--", "true")
    assert [(one["state"], one["owner"]) for one in yods.json("mesh", "queue")] == [
        ("held", ""),
        (f"after {held[:8]} (held)", ""),
        (f"after {held[:8]} (held)", ""),
    ]
    yods.run("mesh", "release", held, check=True)
    assert yods.run("mesh", "wait", held).returncode == 1
    assert yods.run("mesh", "wait", after).returncode == 1
    assert sql(yods, after, "SELECT value FROM meta WHERE key = 'why'") == [
        {"value": f"job {held[:8]} before it ended: failed"}
    ]
    yods.run("mesh", "wait", either, check=True)
    (yods.work / "there").touch()
    yods.run("mesh", "retry", held, after, check=True)
    assert sql(yods, after, "SELECT value FROM meta WHERE key = 'why' AND value IS NOT NULL") != [
        {"value": f"job {held[:8]} before it ended: failed"}
    ], "the reason of the former end stays"
    yods.run("mesh", "wait", held, check=True)
    long = submit(yods, "--array", "1-100", "--limit", "2", "--", "sleep", "1000")
    wait_until(lambda: len(workers(yods)) == 2, "two workers run")
    wait_until(lambda: row(yods, long)["state"] == "running", "the job runs")
    assert yods.run("mesh", "down").returncode == 1  # it would interrupt the job
    yods.run("mesh", "cancel", long, check=True)
    assert yods.run("mesh", "wait", long).returncode == 130
    assert sql(yods, long, "SELECT DISTINCT state FROM task") == [{"state": "cancelled"}]
    wait_until(lambda: not workers(yods), "the workers have exited")
    assert yods.run("mesh", "cancel", long).returncode == 1


def test_no_job_waits_for_ever_for_one_that_was_deleted_held_retried_or_is_a_launch(yods: PrivateMesh) -> None:
    first = submit(yods, "--hold", "--", "true")
    second, released = submit(yods, "--after", first, "--", "true"), submit(yods, "--after", first, "--", "true")
    third = submit(yods, "--after", f"{second}:any", "--", "true")
    yods.run("mesh", "release", released, check=True)
    yods.run("mesh", "wait", released, check=True)  # it does not wait for the first one
    yods.run("mesh", "job", "purge", "--force", first, check=True)
    yods.run("mesh", "wait", third, check=True)
    done = yods.run("mesh", "wait", second)
    assert done.returncode == 1 and f"job {first[:8]} was deleted" in done.stderr

    launch = yods.start("yod", "-state", "cat", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    uuid = launch.stderr.readline().split()[2].decode()
    held = submit(yods, "--hold", "--after", uuid, "--", "true")
    yods.run("mesh", "cancel", held, check=True)
    yods.run("mesh", "retry", held, check=True)
    assert row(yods, held)["state"] == f"after {uuid[:8]}"
    launch.stdin.close()
    yods.run("mesh", "wait", held, check=True)


def test_a_launch_whose_yod_was_killed_has_ended(yods: PrivateMesh) -> None:
    """Nothing continues it. Its state object says that it runs, for ever."""
    launch = yods.start("yod", "-state", "sleep", "1000", stderr=subprocess.PIPE)
    uuid = launch.stderr.readline().split()[2].decode()
    strict, either = submit(yods, "--after", uuid, "--", "true"), submit(yods, "--after", f"{uuid}:any", "--", "true")
    for command in (("wait",), ("job", "resume"), ("sections", "watch")):
        done = yods.run("mesh", *command, uuid)
        assert done.returncode == 1 and f"{uuid[:8]} is a launch, not a job of tasks" in done.stderr, done.stderr
    launch.kill()
    launch.wait()
    assert {row(yods, one)["state"] for one in (strict, either)} == {"owner lost"}
    yods.run("mesh", "job", "resume", check=True)
    yods.run("mesh", "wait", either, check=True)
    done = yods.run("mesh", "wait", strict)
    assert done.returncode == 1 and f"job {uuid[:8]} is a launch whose yod was killed" in done.stderr, done.stderr


def test_what_a_job_waits_for_cannot_be_read_which_is_no_end(yods: PrivateMesh) -> None:
    first = submit(yods, "--hold", "--", "true")
    second = submit(yods, "--after", f"{first}:any", "--", "true")
    path = yods.state / "jobs" / f"{first}.job"
    kept = path.read_bytes()
    path.write_bytes(b"x" * len(kept))
    yods.run("mesh", "job", "resume", second, check=True)
    said, told = path.with_name(f"{second}.err"), f"job {first[:8]}, after which this job starts, cannot be read"
    wait_until(lambda: told in said.read_text(), "the process that would have started the job says so")
    path.write_bytes(kept)
    yods.run("mesh", "release", first, check=True)
    yods.run("mesh", "wait", first, second, check=True)


def test_a_worker_that_is_killed_loses_nothing_and_only_its_task_runs_twice(yods: PrivateMesh) -> None:
    waits = "test {} -le 2 || until test -e go; do sleep 0.1; done"
    job = submit(yods, "--array", "1-12", "--", "sh", "-c", f"{waits}; echo {{}} >> ran")
    wait_until(lambda: len(ran(yods)) == 2, "the first two tasks have ended")
    busy = wait_until(lambda: at_work(yods, "until test -e go"), "a worker has a task")
    os.kill(busy[0], signal.SIGKILL)
    (yods.work / "go").touch()
    yods.kill("n1")  # a PCT: another adopts what runs
    yods.run("mesh", "wait", job, check=True)
    twice = sql(yods, job, "SELECT first FROM task WHERE attempt > 1")
    assert sql(yods, job, "SELECT DISTINCT state FROM task") == [{"state": "done"}] and twice
    assert set(ran(yods)) == set(range(1, 13))
    assert len(ran(yods)) <= 12 + len(twice)


def test_an_owner_that_is_killed_has_a_successor_that_goes_on(yods: PrivateMesh) -> None:
    job = submit(yods, "--array", "1-30%3", "--", "sh", "-c", "sleep 0.5; echo {} >> owned")
    wait_until(lambda: len(ran(yods, "owned")) > 2, "some tasks have ended")
    os.kill(int(row(yods, job)["owner"].rpartition(":")[2]), signal.SIGKILL)
    wait_until(lambda: row(yods, job)["state"] == "owner lost", "the owner is lost")
    assert yods.run("mesh", "job", "resume", check=True).stdout.strip() == job
    yods.run("mesh", "wait", job, check=True)
    twice = sql(yods, job, "SELECT first FROM task WHERE attempt > 1")
    assert set(ran(yods, "owned")) == set(range(1, 31))
    assert len(ran(yods, "owned")) <= 30 + len(twice)


def test_a_task_that_has_begun_is_known_to_the_successor_of_an_owner_killed_at_once(yods: PrivateMesh) -> None:
    waits = "test {} != 1 || until test -e owner; do sleep 0.1; done; echo {} >> struck"
    kills = "test {} != 3 || test -e killed || { read pid < owner; : > killed; kill -9 $pid; }"
    job = submit(yods, "--array", "1-5%1", "--", "sh", "-c", f"{waits}; {kills}")
    wait_until(lambda: at_work(yods, "until test -e owner"), "its first task runs")
    (yods.work / "pid").write_text(row(yods, job)["owner"].rpartition(":")[2] + "\n")
    (yods.work / "pid").rename(yods.work / "owner")
    wait_until(lambda: row(yods, job)["state"] == "owner lost", "the owner is lost")
    yods.run("mesh", "job", "resume", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    [attempts] = sql(yods, job, "SELECT attempt FROM task WHERE first = 3")
    assert ran(yods, "struck").count(3) == 2 and attempts == {"attempt": 2}


@pytest.mark.parametrize("what", ["deleted", "replaced by another file"])
def test_an_owner_whose_object_is_gone_ends_its_tasks_and_says_so(yods: PrivateMesh, what: str) -> None:
    job = submit(yods, "--array", "1-1000", "--", "sh", "-c", f"echo $0 >> {what[:3]}; sleep 0.1", "{}")
    wait_until(lambda: len(ran(yods, what[:3])) >= 2, "tasks run")
    path = yods.state / "jobs" / f"{job}.job"
    aside = yods.work / "aside"
    aside.write_bytes(path.read_bytes())
    other = aside.read_bytes()
    if what == "deleted":
        path.unlink()
    else:
        aside.rename(path)
    errors = path.with_suffix(".err")
    wait_until(lambda: f"{path} was {what} while its job ran: its tasks were ended" in errors.read_text(), "it is told")
    wait_until(lambda: not workers(yods), "no worker is left")
    assert path.exists() == (what != "deleted") and (not path.exists() or path.read_bytes() == other)


def test_a_first_submission_makes_the_state_directory_its_users_alone(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    state = Path(private.env["XDG_STATE_HOME"]) / "redmesh"
    assert not state.exists()
    private.run("mesh", "submit", "--hold", "--", "true", check=True)
    assert state.stat().st_mode & 0o777 == 0o700 == (state / "jobs").stat().st_mode & 0o777


def test_a_stopped_yod_of_an_owner_that_was_lost_is_named(yods: PrivateMesh) -> None:
    job = submit(yods, "--array", "1-3%1", "--", "sh", "-c", "test {} = 1 && sleep 1000; echo {} >> named")
    wait_until(lambda: at_work(yods, "sleep 1000"), "its first task runs")
    [yod] = [pid for pid, words in yods.processes().items() if " yod " in words and f"{job}.sock" in words]
    freeze(yod)
    os.kill(int(row(yods, job)["owner"].rpartition(":")[2]), signal.SIGKILL)
    wait_until(lambda: row(yods, job)["state"] == "owner lost", "the owner is lost")
    yods.run("mesh", "job", "resume", job, check=True)
    told = f"waits for yod {yod} of the owner before, which is stopped: kill -CONT {yod}"
    wait_until(lambda: row(yods, job)["state"] == told, "it says what it waits for")
    os.kill(yod, signal.SIGCONT)
    wait_until(lambda: row(yods, job)["state"] == "running", "the job goes on")
    yods.run("mesh", "cancel", job, check=True)


def test_a_job_that_can_never_have_its_processors_fails_at_once_and_says_why(yods: PrivateMesh) -> None:
    job = submit(yods, "--gpus-per-task", "2", "--", "true")
    assert yods.run("mesh", "wait", job).returncode == 1
    [why] = sql(yods, job, "SELECT value FROM meta WHERE key = 'why'")
    assert why["value"].startswith("no processors: no node of this mesh has a gpu (`gpus` in the configuration")


def test_a_damaged_description_is_named_by_who_resumes_the_job_and_hides_no_other(yods: PrivateMesh) -> None:
    jobs = [submit(yods, "--hold", "--", "true") for _ in range(2)]
    paths = [yods.state / "jobs" / f"{job}.job" for job in jobs]
    for path in paths:
        wait_until(lambda path=path: not owned(str(path)), "a held job has no owner")  # type: ignore[misc]
    with contextlib.closing(sqlite3.connect(paths[0])) as db, db:
        told = db.execute("SELECT value FROM meta WHERE key = 'tasks'").fetchone()[0]
        db.execute("UPDATE meta SET value = ? WHERE key = 'tasks'", (json.dumps({**json.loads(told), "cpus": "x"}),))
    try:
        done = yods.run("mesh", "job", "resume", *jobs)
        assert done.returncode == 1 and "cannot be read: meta: tasks: cpus is 'x'" in done.stderr, done.stderr
        assert done.stdout.split() == [jobs[1]]
    finally:
        yods.run("mesh", "cancel", *jobs)
        yods.run("mesh", "job", "purge", "--force", *jobs)


def test_a_command_that_waits_names_a_node_that_does_not_answer(yods: PrivateMesh) -> None:
    """A launch child that somebody stops is not gone: the job waits for it, and says so."""
    script = "until test -e thawed; do sleep 0.1; done"
    said = yods.work / "waits.said"
    with open(said, "wb") as errors:
        waits = yods.start("mesh", "submit", "--wait", "--", "sh", "-c", script, stderr=errors)
    try:
        [worker] = wait_until(lambda: at_work(yods, script), "its task runs")
        launch_child = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        freeze(launch_child)
        try:
            told = r"no word from n\d for seconds"
            wait_until(lambda: re.search(told, said.read_text()), "the command says why it waits")
        finally:
            os.kill(launch_child, signal.SIGCONT)
        (yods.work / "thawed").touch()
        assert waits.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        waits.kill()
        waits.wait()
