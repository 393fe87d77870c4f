"""A running job continues on another login processor, and comes back: one owner at a time, no task lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from console.tracker.follow import is_followed
from redmesh.state import owned
from tests.support.far_mesh import TlsMesh
from tests.support.mesh import while_up
from tests.support.waiting import PATIENCE_S, wait_until
from tests.system.remote.test_other_login import OTHER_LOGIN, OtherLogin
from tests.system.remote.test_standby import Job, kill_owner, meta


@pytest.fixture(scope="module")
def mesh() -> Iterator[TlsMesh]:
    with while_up(TlsMesh(processors=2, nodes=2)) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def other(mesh: TlsMesh) -> Iterator[OtherLogin]:
    other = OtherLogin(mesh, views=False)
    yield other
    other.close()


def login_of(mesh: TlsMesh) -> str:
    return str(json.loads((mesh.state / "keeper.json").read_text())["login"])


def shown(run, uuid: str) -> dict:  # type: ignore[no-untyped-def, type-arg]
    done = run("mesh", "job", "show", uuid, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def is_running(path: Path) -> bool:
    """Whether the object is here, and its owner runs the job."""
    return path.exists() and owned(str(path)) and meta(path, "state") == "running"


def logged(path: Path, text: str) -> bool:
    """Whether the object is here, and a line of its log has this."""
    with suppress(sqlite3.Error):
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return bool(db.execute("SELECT 1 FROM log WHERE text LIKE ?", (f"%{text}%",)).fetchone())
        finally:
            db.close()
    return False


def commands_follow(mesh: TlsMesh, uuid: str, there: Path) -> None:
    """Commands on the former login processor reach the job on the other one."""
    wait_until(lambda: shown(mesh.run, uuid)["owner_lives"], "its standby there answers")
    mesh.run("mesh", "hold", uuid, check=True)
    assert meta(there, "held")
    mesh.run("mesh", "release", uuid, check=True)
    assert not meta(there, "held")
    assert "0 tasks to run again" in mesh.run("mesh", "retry", uuid, check=True).stderr
    counted = mesh.run("mesh", "job", "sql", uuid, "SELECT sum(last - first + 1) AS tasks FROM task", check=True).stdout
    assert counted == "tasks\n14\n"
    copy = mesh.work / "copy.job"
    mesh.run("mesh", "job", "fetch", uuid, str(copy), check=True)
    assert meta(copy, "uuid") == uuid
    assert not list(there.parent.glob(".copy-*")) and not list((mesh.state / "jobs").glob(".copy-*"))
    refused = mesh.run("mesh", "purge", uuid)
    assert refused.returncode == 1 and "has not ended" in refused.stderr


def test_a_running_job_goes_to_another_login_processor_and_back(mesh: TlsMesh, other: OtherLogin) -> None:
    job = Job(mesh)
    job.stand()
    waits = mesh.start("mesh", "wait", job.uuid, stderr=subprocess.PIPE, text=True)
    there = Path(other.env["XDG_STATE_HOME"]) / "redmesh" / "jobs" / f"{job.uuid}.job"
    moved = mesh.run("mesh", "job", "move", job.uuid, OTHER_LOGIN)  # where it runs; back from there by the other way
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout == f"job {job.uuid} continues on {OTHER_LOGIN} (move 2)\n"
    wait_until(lambda: not list(job.path.parent.glob(f"{job.uuid}.job*")), "neither the object nor a copy is here")
    assert is_running(there), "it goes on there by itself, although no CPA is there"
    follows = mesh.start("mesh", "wait", job.uuid, "--json", stdout=subprocess.PIPE, text=True)
    commands_follow(mesh, job.uuid, there)
    assert shown(other.run, job.uuid)["host"] != ""
    wait_until(lambda: meta(there, "standby"), "it has a standby again")
    back = mesh.run("mesh", "job", "move", job.uuid, login_of(mesh))
    assert back.returncode == 0 and f"continues on {login_of(mesh)}" in back.stdout, back.stderr
    assert is_running(job.path), "its owner is here"
    job.open_gate()
    said = waits.communicate(timeout=PATIENCE_S)[1]
    *_, last = said.splitlines()  # before, it may have said why nothing ran for a while
    assert waits.returncode == 0 and last.startswith(f"mesh: job {job.uuid[:8]} done: 14 done"), said
    assert json.loads(follows.communicate(timeout=PATIENCE_S)[0])[0]["state"] == "done" and not follows.returncode
    told = shown(mesh.run, job.uuid)
    assert (told["state"], told["counts"], told["counter"]) == ("done", {"done": 14}, 4)
    runs = job.task_runs()
    assert runs[:10] == list(range(1, 11)), "what was done was not done again"
    tasks = [json.loads(line) for line in mesh.run("mesh", "job", "tasks", job.uuid, "--json").stdout.splitlines()]
    twice = {one["first"] for one in tasks if one["attempt"] > 1}
    assert {number for number in runs if runs.count(number) > 1} <= twice, "the object says which ran twice"
    log = mesh.run("mesh", "job", "log", job.uuid).stdout
    assert f"handed the job over to {OTHER_LOGIN}" in log and "was lost" not in log.replace("worker on", "")


def test_a_job_moves_itself_between_its_stages(mesh: TlsMesh, other: OtherLogin) -> None:
    out, stands = mesh.work / "stages", mesh.work / "stands"
    script = mesh.work / "stage.sh"
    first = f"while ! test -e {stands}; do sleep 0.1; done"
    script.write_text(
        f"test $1 != 1 || {first}; test $1 != 2 || yodstate move {OTHER_LOGIN}; sleep 1; echo $1 >> {out}"
    )
    words = ("--array", "1-6", "--limit", "1", "--file", str(script), "--", "sh", "stage.sh", "{}")
    uuid = mesh.run("mesh", "submit", *words, check=True).stdout.strip()
    script.unlink()  # its file travels in the object
    path = mesh.state / "jobs" / f"{uuid}.job"
    wait_until(lambda: meta(path, "standby"), "it has a standby, without which it cannot move")
    waits = mesh.start("mesh", "wait", uuid, "--json", stdout=subprocess.PIPE, text=True)
    stands.touch()
    wait_until(lambda: not path.exists(), "it has gone")
    wait_until(lambda: other.run("mesh", "wait", uuid).returncode == 0, "it ends there by itself")
    ended = json.loads(waits.communicate(timeout=PATIENCE_S)[0])
    assert (waits.returncode, ended[0]["state"], ended[0]["ended"]) == (0, "done", 6), "it ended there"
    assert shown(other.run, uuid)["counts"] == {"done": 6}
    assert sorted(map(int, out.read_text().split())) == list(range(1, 7)), "none ran twice"


def test_what_cannot_take_a_running_job_is_refused(mesh: TlsMesh) -> None:
    alone = Job(mesh, "--no-standby")
    refused = mesh.run("mesh", "job", "move", alone.uuid, OTHER_LOGIN)
    assert refused.returncode == 1 and "has no standby" in refused.stderr
    alone.open_gate()
    mesh.run("mesh", "wait", alone.uuid, check=True)
    job = Job(mesh)
    job.stand()
    for node, why in (("n0", "n0 is no login processor"), ("../x", "no login processor"), (login_of(mesh), "already")):
        refused = mesh.run("mesh", "job", "move", job.uuid, node)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr
    assert shown(mesh.run, job.uuid)["owner_lives"]
    job.open_gate()
    mesh.run("mesh", "wait", job.uuid, check=True)


def test_an_owner_killed_while_it_hands_over_leaves_one_object(mesh: TlsMesh, other: OtherLogin) -> None:
    job = Job(mesh)
    job.stand()
    moving = mesh.start("mesh", "job", "move", job.uuid, OTHER_LOGIN, env=mesh.env)
    wait_until(lambda: logged(job.path, "continues on"), "it has begun")
    kill_owner(job)
    moving.kill()
    moving.wait()
    job.open_gate()  # nobody resumes it: it goes on here or there
    mesh.run("mesh", "wait", job.uuid, check=True)
    told = [run("mesh", "job", "show", job.uuid, "--json") for run in (mesh.run, other.run)]
    # A job that has ended there is shown there alone.
    assert {"done": 14} in [json.loads(one.stdout)["counts"] for one in told if one.returncode == 0], told


def test_a_job_goes_on_by_itself_when_its_owner_is_killed(mesh: TlsMesh) -> None:
    job = Job(mesh)
    job.stand()
    os.kill(job.old, signal.SIGKILL)
    wait_until(lambda: owned(str(job.path)) and meta(job.path, "pid") != job.old, "another owner has begun", step_s=0.1)
    job.open_gate()
    mesh.run("mesh", "wait", job.uuid, check=True)
    assert shown(mesh.run, job.uuid)["counts"] == {"done": 14}


def _row(mesh: TlsMesh, uuid: str) -> dict[str, Any]:
    [row] = [one for one in json.loads(mesh.run("mesh", "queue", "--json").stdout) if one["uuid"] == uuid]
    return dict(row)


def _followers(mesh: TlsMesh, uuid: str) -> list[int]:
    return [pid for pid, words in mesh.processes().items() if "job follow" in words and uuid in words]


def test_a_drained_login_processor_hands_its_jobs_over_and_those_that_wait_follow(
    mesh: TlsMesh, other: OtherLogin
) -> None:
    job = Job(mesh)
    after = [mesh.run("mesh", "submit", "--after", job.uuid + how, "--", "true", check=True) for how in ("", ":any")]
    first, second = (done.stdout.strip() for done in after)
    job.stand()
    home = login_of(mesh)
    drained = mesh.run("mesh", "drain", home, "--reason", "a new disk")
    try:
        assert drained.returncode == 0, drained.stderr
        assert f"job {job.uuid} continues on {OTHER_LOGIN}" in drained.stderr, drained.stderr
        wait_until(lambda: not job.path.exists(), "the object is not here any more")
        assert _row(mesh, first)["state"] == f"after {job.uuid[:8]} (on another host)"
        # nobody can connect to its login processor: its standby answers here, and says for whom
        wait_until(lambda: mesh.run("mesh", "job", "show", job.uuid, "--json").returncode == 0, "its standby answers")
        told = shown(mesh.run, job.uuid)
        assert (told["proxied"], told["state"], told["owner_lives"]) == (OTHER_LOGIN, "running", True)
        # who follows may be killed: mesh job resume follows again
        [follower] = wait_until(lambda: _followers(mesh, first), "somebody follows for it")
        os.kill(follower, signal.SIGKILL)
        wait_until(lambda: not _followers(mesh, first), "nobody follows")
        third = mesh.run("mesh", "submit", "--after", job.uuid, "--", "true", check=True).stdout.strip()
        wait_until(
            lambda: is_followed(str(mesh.state / "jobs" / f"{third}.job")), "one submitted afterwards follows too"
        )
        assert mesh.run("mesh", "job", "resume", check=True).stdout.split() == [first]
        wait_until(lambda: all(_followers(mesh, uuid) for uuid in (first, second, third)), "all follow")
        job.open_gate()
        assert other.run("mesh", "wait", job.uuid).returncode == 0
        mesh.run("mesh", "wait", first, second, third, check=True)
        assert (shown(mesh.run, job.uuid)["state"], shown(mesh.run, job.uuid)["proxied"]) == ("done", OTHER_LOGIN)
    finally:
        mesh.run("mesh", "resume", home)
    assert not any(_followers(mesh, uuid) for uuid in (first, second, third))
    copies = list((mesh.state / "jobs").glob(f"*/{job.uuid}.job.standby"))
    assert len(copies) == 1
    ended = mesh.run("mesh", "cancel", job.uuid)
    assert ended.returncode == 1 and "has ended already: done" in ended.stderr
    assert mesh.run("mesh", "retry", job.uuid, check=True).stderr.endswith("every task is done\n"), (
        "it was brought here"
    )
    mesh.run("mesh", "purge", job.uuid, check=True)
    wait_until(lambda: not copies[0].exists(), "its copy is purged with it")
    for run in (mesh.run, other.run):
        assert "known here" in run("mesh", "job", "show", job.uuid).stderr, "and so is the tracker's row"
