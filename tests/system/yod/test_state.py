"""yod --state: what happens to a launch is in its state object, during it and afterwards, through the real commands."""

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from console.errors import ConsoleError
from console.jobs.objects import directory_of, summary, uuids
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]


def jobs(mesh: PrivateMesh) -> list[dict[str, Any]]:
    """What ``mesh job list --json`` prints, without the start of a command."""
    directory, found = directory_of(str(mesh.state)), []
    for uuid in uuids(directory):
        with suppress(ConsoleError):  # it is being made or deleted
            found.append(summary(f"{directory}/{uuid}.job").as_json())
    return sorted(found, key=lambda job: job["created_at"])


def newest(mesh: PrivateMesh) -> dict[str, Any]:
    return jobs(mesh)[-1]


def sql(job: dict[str, Any], query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{job['path']}?mode=ro", uri=True)) as store:
        store.row_factory = sqlite3.Row
        return [dict(row) for row in store.execute(query)]


def test_ranks_exits_values_and_report_are_in_the_object(yods: PrivateMesh) -> None:
    script = "yodstate set k$YOD_RANK v && yodstate log hello && yodstate progress 50% && echo last && exit $YOD_RANK"
    done = yods.run("yod", "-state", "-sz", "4", "sh", "-c", script)
    assert done.returncode == 3 and "mesh job show" in done.stderr
    job = yods.json("mesh", "job", "list")[-1]
    assert job == newest(yods), "the other tests look by themselves"
    assert (job["state"], job["exit_status"], job["counts"]) == ("failed", 3, {"done": 1, "failed": 3})
    assert job["command"][:2] == ["sh", "-c"] and "rank 3 on n1: exit 3" in job["report"]
    rows = sql(job, "SELECT first, last, state, node, exit, progress, lines FROM task ORDER BY first")
    assert [(row["first"], row["last"], row["node"], row["exit"]) for row in rows] == [
        (rank, rank, f"n{rank // 2}", rank) for rank in range(4)
    ]
    assert {(row["progress"], row["lines"]) for row in rows} == {(0.5, "last\n")}
    said = sql(job, "SELECT key, value, node, task FROM value ORDER BY key")
    assert said == [{"key": f"k{n}", "value": "v", "node": f"n{n // 2}", "task": n} for n in range(4)]
    query = "SELECT count(*) AS n FROM log WHERE text = 'hello'"
    asked = yods.run("mesh", "job", "sql", "--json", job["uuid"], query, check=True)
    assert sql(job, query) == [json.loads(asked.stdout)] == [{"n": 4}]
    assert sql(job, "SELECT node, processors FROM resource WHERE freed_at IS NOT NULL") == [
        {"node": "n0", "processors": "0-1"},
        {"node": "n1", "processors": "2-3"},
    ]
    assert "hello" in yods.run("mesh", "job", "log", job["uuid"][:8], check=True).stdout
    assert yods.run("mesh", "job", "tasks", job["uuid"][:8], check=True).stdout.count("failed") == 3
    assert "exit:       3" in yods.run("mesh", "job", "show", job["uuid"], check=True).stdout


def test_a_python_program_has_its_job_and_a_plain_launch_has_none(yods: PrivateMesh) -> None:
    program = "import yodstate; j = yodstate.job(); j.set('a', '1'); print(j.get('a'), j.get('b', 'none'), j.path())"
    done = yods.run("yod", "-quiet", "-state", "python3", "-c", program, check=True)
    job = newest(yods)
    assert done.stdout == f"1 none {job['path']}\n" and job["state"] == "done"
    refused = yods.run("yod", "-quiet", "-io", ".", "yodstate", "get", "a")
    assert (refused.returncode, refused.stderr) == (1, "yodstate: this program has no job: yod --state\n")
    moved = yods.run("yod", "-quiet", "-state", "yodstate", "move", "n1")
    assert moved.returncode == 1 and "cannot move while its owner runs" in moved.stderr


def test_it_can_be_asked_and_copied_while_the_launch_runs(yods: PrivateMesh) -> None:
    before = len(jobs(yods))
    yod = yods.start(
        "yod", "-quiet", "-state", "-sz", "2", "sh", "-c", "yodstate set phase 1; cat", stdin=subprocess.PIPE
    )
    assert yod.stdin is not None
    wait_until(lambda: len(jobs(yods)) > before and newest(yods)["state"] == "running", "the launch runs")
    job = newest(yods)
    wait_until(lambda: sql(job, "SELECT value FROM value"), "the value is recorded")
    assert job["counts"] == {"running": 2} and "owner_lost" not in job
    (yods.work / "copy.job.part").write_text("of another command that fetches to this file")
    yods.run("mesh", "job", "fetch", job["uuid"], "copy.job", check=True)
    assert (yods.work / "copy.job.part").read_text() == "of another command that fetches to this file"
    assert not list(yods.work.glob("copy.job.part-*"))
    nodes = yods.state / "jobs" / ".nodes"
    nodes.unlink(missing_ok=True)
    nodes.mkdir()  # the file cannot be written
    try:
        yods.run("mesh", "job", "show", job["uuid"], "--at", "n0")
        assert not list(nodes.parent.glob(".nodes.*"))
    finally:
        nodes.rmdir()
    copy = sqlite3.connect(yods.work / "copy.job")
    assert copy.execute("SELECT key, value FROM value").fetchall() == [("phase", "1")]
    copy.close()
    again = yods.run("mesh", "job", "fetch", job["uuid"], "copy.job")
    assert again.returncode == 1 and "exists already" in again.stderr
    kept = yods.run("mesh", "job", "purge", job["uuid"])
    assert kept.returncode == 1 and "has not ended: its owner process runs" in kept.stderr
    yod.stdin.close()
    assert yod.wait() == 0
    assert yods.run("mesh", "job", "watch", job["uuid"], check=True).stdout.endswith("done  2 done\n")
    for command in (("mesh", "purge"), ("mesh", "job", "purge")):
        asked = yods.run(*command, "--all")
        assert asked.returncode == 2 and "--yes" in asked.stderr and os.path.exists(job["path"])
    yods.run("mesh", "job", "purge", job["uuid"], check=True)
    assert not os.path.exists(job["path"])


def test_a_yod_that_is_killed_leaves_an_object_that_says_so(yods: PrivateMesh) -> None:
    before = len(jobs(yods))
    yod = yods.start("yod", "-quiet", "-state", "-sz", "2", "sleep", "100")
    wait_until(lambda: len(jobs(yods)) > before and newest(yods)["state"] == "running", "the launch runs")
    os.kill(yod.pid, signal.SIGKILL)
    yod.wait()
    job = newest(yods)
    assert job["owner_lost"] and job["counts"] == {"running": 2}
    refused = yods.run("mesh", "job", "purge", job["uuid"])
    assert refused.returncode == 1 and "--force" in refused.stderr
    assert "(owner lost)" in yods.run("mesh", "job", "show", job["uuid"], check=True).stdout
    yods.run("mesh", "job", "purge", "--force", job["uuid"], check=True)
    assert [name for name in os.listdir(os.path.dirname(job["path"])) if job["uuid"] in name] == []


def test_what_is_kept_and_what_is_deleted(yods: PrivateMesh) -> None:
    before = len(jobs(yods))
    yods.run("yod", "-quiet", "-state", "-purge", "true", check=True)
    assert len(jobs(yods)) == before
    yods.run("yod", "-quiet", "-state", "-purge", "false")
    assert len(jobs(yods)) == before + 1, "of a launch that failed it stays"
    yods.run("yod", "-quiet", "-state", "-keep", "true", check=True)
    bad, kept = jobs(yods)[-2:]
    for job in (bad, kept):
        os.utime(job["path"], (1.0, 1.0))
    yods.run("yod", "-quiet", "-state", "true", check=True)
    left = [job["uuid"] for job in jobs(yods)]
    assert bad["uuid"] not in left and kept["uuid"] in left


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-purge", "true"), "-purge is about a state object (yod -state -purge …)"),
        (("-state", "-keep", "-purge", "true"), "-keep and -purge exclude each other"),
    ],
)
def test_options_without_sense_are_refused(yods: PrivateMesh, words: tuple[str, ...], told: str) -> None:
    done = yods.run("yod", *words)
    assert done.returncode == 2 and told in done.stderr


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def test_unknown_jobs_and_bad_queries_are_one_line(yods: PrivateMesh) -> None:
    yods.run("yod", "-quiet", "-state", "true", check=True)
    job = newest(yods)
    (Path(yods.work) / "text.job").write_text("no object")
    for words, told in (
        (("show", "0000"), "there is no job '0000' on this host (mesh job list"),
        (("sql", job["uuid"], "DELETE FROM task"), "attempt to write a readonly database (docs/state-object.md"),
        (("sql", "--limit", "0.1", job["uuid"], ENDLESS), "the query has not ended within 0.1 s (--limit SECONDS"),
        (("show", "text.job"), "text.job is not a state object (a job's file is named UUID.job)"),
    ):
        done = yods.run("mesh", "job", *words)
        assert done.returncode in (1, 2, 125) and told in done.stderr and "Traceback" not in done.stderr


MANY = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000)"
    " SELECT x, printf('%0100d', x) FROM c"
)


def test_a_slow_reader_of_a_query_takes_none_of_its_time(yods: PrivateMesh) -> None:
    """``mesh job sql … | less``: a page is read for longer than ``--limit``."""
    yods.run("yod", "-quiet", "-state", "true", check=True)
    script = f'mesh job sql --limit 2 {newest(yods)["uuid"]} "$0" | {{ sleep 3; wc -l; }}'
    done = yods.run("sh", "-c", script, MANY)
    assert done.stdout.strip() == "20001" and done.stderr == ""
