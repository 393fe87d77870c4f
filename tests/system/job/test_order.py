"""Tasks that come after others, and open jobs, through the real commands; what survives kill -9 of the owner."""

import os
import random
import signal
from pathlib import Path
from typing import Any

from redmesh.state import owned
from tests.support.look import asked, queue
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

COUNT = 60


def submit(mesh: PrivateMesh, *words: str) -> str:
    return mesh.run("mesh", "submit", *words, check=True).stdout.strip()


def rows(mesh: PrivateMesh, job: str, query: str) -> list[dict[str, object]]:
    return asked(mesh.state / "jobs" / f"{job}.job", query)


def row(mesh: PrivateMesh, job: str) -> dict[str, Any]:
    return next(one for one in queue(mesh, ended=True) if one["uuid"] == job)


def causes(mesh: PrivateMesh, job: str) -> list[dict[str, object]]:
    return rows(mesh, job, "SELECT first, last, cause FROM transition WHERE state = 'cancelled' AND first IS NOT NULL")


def test_the_order_is_kept_although_the_owner_is_killed(yods: PrivateMesh) -> None:
    """Each task finds the files of those that it comes after."""
    chance, lines = random.Random(1), []
    for number in range(1, COUNT + 1):
        after = sorted({chance.randrange(1, number) for _ in range(chance.randrange(3))}) if number > 1 else []
        tests = "".join(f"test -e f{one} || exit 9; " for one in after)
        lines.append(f"t{number}: {', '.join(f't{one}' for one in after)}: {tests}sleep 0.02; echo >> f{number}\n")
    chance.shuffle(lines)  # a task may come after one of a later line
    Path(yods.work, "graph").write_text("".join(lines))
    job = submit(yods, "--graph", "graph")
    path = str(yods.state / "jobs" / f"{job}.job")
    for part in (10, 30):
        wait_until(lambda: len(list(Path(yods.work).glob("f*"))) > part, f"more than {part} tasks have ended")  # noqa: B023
        os.kill(int(str(rows(yods, job, "SELECT value FROM meta WHERE key = 'pid'")[0]["value"])), signal.SIGKILL)
        wait_until(lambda: not owned(path), "the owner has no lock")
        yods.run("mesh", "job", "resume", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    assert rows(yods, job, "SELECT state, count(*) AS n FROM task GROUP BY state") == [{"state": "done", "n": COUNT}]


def test_what_comes_after_a_failed_task_is_cancelled_with_it_and_tried_again_with_it(yods: PrivateMesh) -> None:
    text = "prepare: : test -e ok\nfit: prepare: true\nreport: fit, other: true\nother: : true\n"
    Path(yods.work, "failing").write_text(text)
    done = yods.run("mesh", "submit", "--graph", "failing", "--wait")
    job = done.stdout.strip()
    assert done.returncode == 1 and "1 task failed: 2 cancelled, 1 done, 1 failed" in done.stderr
    assert causes(yods, job) == [{"first": 2, "last": 3, "cause": "task 1 (prepare) failed"}]
    assert "not started: task 1 (prepare) failed" in yods.run("mesh", "job", "tasks", job, "3", check=True).stdout
    Path(yods.work, "ok").touch()
    yods.run("mesh", "retry", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    assert rows(yods, job, "SELECT first, attempt FROM task") == [
        {"first": 1, "attempt": 2}, *({"first": one, "attempt": 1} for one in (2, 3, 4))
    ]  # fmt: skip


def test_nothing_is_submitted_of_a_graph_with_a_cycle(yods: PrivateMesh) -> None:
    before = len(queue(yods, ended=True))
    Path(yods.work, "cycle").write_text("a: b: true\nb: a: true\n")
    done = yods.run("mesh", "submit", "--graph", "cycle")
    assert done.returncode == 2 and "--graph cycle, line 1: tasks come after each other: 1 (a), 2 (b)" in done.stderr
    assert len(queue(yods, ended=True)) == before


def test_an_open_job_keeps_no_processors_and_ends_when_it_is_closed(yods: PrivateMesh) -> None:
    job = submit(yods, "--open")
    wait_until(lambda: row(yods, job)["state"] == "open: waits for tasks", "the job runs")
    assert yods.run("mesh", "job", "add", job, "--id", "a", "--", "sh", "-c", "echo a").stdout == "1\n"
    script = "yodstate tasks add --id c --after a -- echo 'c d'; echo 'echo line' | yodstate tasks add -"
    assert yods.run("mesh", "job", "add", job, "--after", "a", "--", "sh", "-c", script).stdout == "2\n"
    wait_until(
        lambda: rows(yods, job, "SELECT count(*) AS n FROM task WHERE state = 'done'") == [{"n": 4}], "four tasks"
    )
    wait_until(
        lambda: rows(yods, job, "SELECT count(*) AS n FROM resource WHERE freed_at IS NULL") == [{"n": 0}], "free"
    )
    assert row(yods, job)["state"] == "open: waits for tasks"
    yods.run("mesh", "job", "close", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    assert rows(yods, job, "SELECT lines FROM task WHERE first IN (3, 4)") == [{"lines": "c d\n"}, {"lines": "line\n"}]
    refused = yods.run("mesh", "job", "add", job, "--", "true")
    assert refused.returncode == 1 and "has ended: done" in refused.stderr


def test_tasks_are_added_to_an_open_job_that_has_no_owner_yet(yods: PrivateMesh) -> None:
    job = submit(yods, "--open", "--hold", "--", "echo")
    assert yods.run("mesh", "job", "add", job, "--array", "5-7").stdout == "5-7\n"
    Path(yods.work, "more").write_text("a: 6: with spaces\nb: a: y\n")
    assert yods.run("mesh", "job", "add", job, "--graph", "more").stdout == "8-9\n"
    again = yods.run("mesh", "job", "add", job, "--graph", "more")
    assert again.returncode == 2 and "line 1: the job has a task with the id a already" in again.stderr
    yods.run("mesh", "release", job, check=True)
    yods.run("mesh", "job", "close", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    assert rows(yods, job, "SELECT lines FROM task WHERE first = 8") == [{"lines": "with spaces\n"}]
    assert rows(yods, job, "SELECT sum(last - first + 1) AS n FROM task WHERE state = 'done'") == [{"n": 5}]
