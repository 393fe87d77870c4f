"""The standby of a running job: it has the job when the owner's disk is gone, and the old owner stops writing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.link.client import Client
from agents.linux import processes
from redmesh.state import open_for_reading
from tests.support.far_mesh import TlsMesh
from tests.support.mesh import while_up
from tests.support.waiting import freeze, wait_until


@pytest.fixture(scope="module")
def mesh() -> Iterator[TlsMesh]:
    with while_up(TlsMesh(2, 2)) as made:
        yield made


class Job:
    """A job whose tasks run until ``gate`` exists, but for the first ten; its standby has been fed."""

    def __init__(self, mesh: TlsMesh, *words: str) -> None:
        self.mesh, self.gate, self.ran = mesh, mesh.work / "gate", mesh.work / "ran"
        self.gate.unlink(missing_ok=True)
        self.ran.unlink(missing_ok=True)
        script = f"echo $0 >> {self.ran}; test $0 -le 10 || while ! test -e {self.gate}; do sleep 0.1; done"
        made = mesh.run("mesh", "submit", "--array", "1-14", *words, "--", "sh", "-c", script, "{}", check=True)
        self.uuid = made.stdout.strip()
        self.path = mesh.state / "jobs" / f"{self.uuid}.job"
        self.old: int = 0

    def copies(self) -> list[Path]:
        """Its standby copies, on whichever node."""
        return list((self.mesh.state / "jobs").glob(f"*/{self.uuid}.job.standby"))

    def stand(self) -> Path:
        """Where the copy is, once it has the first ten tasks."""
        wait_until(lambda: any(done(path) >= 10 for path in self.copies()), "the standby has ten tasks")
        wait_until(lambda: meta(self.path, "standby"), "the tracker knows the standby")
        self.old = int(str(meta(self.path, "pid")))
        return self.copies()[0]

    def open_gate(self) -> None:
        self.gate.touch()

    def task_runs(self) -> list[int]:
        """Numbers of tasks, once for each time that one was started."""
        return sorted(map(int, self.ran.read_text().split()))


def meta(path: Path, key: str) -> object:
    """An entry of an object's meta."""
    db = open_for_reading(str(path))
    try:
        return (db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone() or (None,))[0]
    finally:
        db.close()


def done(path: Path) -> int:
    """Tasks that an object says are done."""
    return int(json.loads(str(meta(path, "counts") or "{}")).get("done", 0))


def kill_owner(job: Job) -> None:
    """End the owner, its standby process and its yods, as the loss of their host does."""
    for pid in [job.old, *processes.children(job.old)]:
        with contextlib.suppress(ProcessLookupError):  # a yod whose task has just ended
            os.kill(pid, signal.SIGKILL)


def test_a_job_goes_on_after_the_disk_of_its_owner_is_gone(mesh: TlsMesh) -> None:
    job = Job(mesh)
    copy = job.stand()
    node = copy.parent.name
    assert meta(copy, "uuid") == job.uuid
    assert f"its standby is {node}" in mesh.run("mesh", "job", "log", job.uuid).stdout
    refused = mesh.run("mesh", "job", "resume", job.uuid)
    assert refused.returncode == 1 and "is owned by a process that runs" in refused.stderr
    kill_owner(job)
    for path in job.path.parent.glob(f"{job.uuid}.*"):
        path.unlink()
    wait_until(lambda: mesh.run("mesh", "job", "resume", job.uuid).returncode == 0, "the standby goes on")
    job.open_gate()
    mesh.run("mesh", "wait", job.uuid, check=True)
    told = json.loads(mesh.run("mesh", "job", "show", job.uuid, "--json", check=True).stdout)
    assert (told["state"], told["counts"]) == ("done", {"done": 14})
    assert told["counter"] == 2  # given to the standby, fetched from there
    assert job.task_runs()[:10] == list(range(1, 11))  # what was done was not done again
    assert "the standby goes on" in mesh.run("mesh", "job", "log", job.uuid).stdout
    assert len(job.copies()) == 1, "a job that has moved leaves its last copy, for those who saw it leave"
    mesh.run("mesh", "purge", job.uuid, check=True)
    wait_until(lambda: not job.copies(), "the copy is purged with it")
    assert f"no job {job.uuid} is known here" in mesh.run("mesh", "job", "show", job.uuid).stderr


def test_an_old_owner_that_comes_back_stops_writing(mesh: TlsMesh) -> None:
    job = Job(mesh)
    copy = job.stand()
    stopped = [job.old, *processes.children(job.old)]
    for pid in stopped:
        freeze(pid)  # as the freeze of its whole host
    try:
        uid = os.geteuid()
        login = json.loads((mesh.state / "keeper.json").read_text())["login"]
        take = {"op": "state_takeover", "uuid": job.uuid, "node": login, "counter": 0, "uid": uid}
        with Client(str(next(mesh.run_dir.glob("cpa-*.sock"))), "admin") as cpa:
            with pytest.raises(Exception, match="not down"):
                cpa.call(take)  # the login processor is up: nobody says that it is lost
            assert cpa.call({**take, "witness": True, "to": login})["counter"] == 1
        # as the RCA of a login processor has it done; while its connection lasts the copy is not taken
        asked = mesh.start("mesh", "job", "take-over", job.uuid)
        wait_until(Path(f"{copy}.claim").exists, "the copy is claimed")
        assert copy.exists() and not copy.with_suffix("").exists()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert asked.wait() == 0
    wait_until(lambda: not processes.alive(job.old), "the old owner has stopped")
    fenced = Path(f"{job.path}.fenced")
    wait_until(fenced.exists, "its object is put aside")
    job.open_gate()
    mesh.run("mesh", "wait", job.uuid, check=True)
    told = json.loads(mesh.run("mesh", "job", "show", job.uuid, "--json", check=True).stdout)
    assert (told["state"], told["counts"], told["counter"]) == ("done", {"done": 14}, 2)
    assert set(job.task_runs()[:10]) == set(range(1, 11))


def test_the_standby_leaves_a_node_that_is_drained(mesh: TlsMesh) -> None:
    job = Job(mesh)
    copy = job.stand()
    node = copy.parent.name
    drained = mesh.run("mesh", "drain", node, check=True)
    try:
        assert f"the standby of job {job.uuid} leaves {node}" in drained.stderr, drained.stderr
        wait_until(lambda: [one.parent.name for one in job.copies()] not in ([], [node]), "it is on another node")
        wait_until(lambda: meta(job.path, "standby") not in (None, node), "the tracker knows it")
        assert not copy.exists()
        job.open_gate()
        mesh.run("mesh", "wait", job.uuid, check=True)
    finally:
        mesh.run("mesh", "resume", node)


def test_no_standby_is_kept_where_none_is_wanted(mesh: TlsMesh) -> None:
    job = Job(mesh, "--no-standby")
    with_one = Job(mesh)
    job.open_gate()
    mesh.run("mesh", "wait", job.uuid, with_one.uuid, check=True)
    assert not job.copies()
    wait_until(lambda: not with_one.copies(), "the copy of an ended job that never moved is dropped")
    shutil.rmtree(mesh.work / "nothing", ignore_errors=True)
    with sqlite3.connect(job.path) as db:
        assert db.execute("SELECT count(*) FROM log WHERE text LIKE 'its standby%'").fetchone() == (0,)
