"""A standby copy: the owner's statements, run again, leave the same rows; a gap or a strange statement is refused."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agents.job.tasks.adding import checked, write
from agents.job.tasks.new_tasks import NewTask
from agents.objects.holder import Holder
from agents.objects.replica import Replica, commits_of, copy
from agents.objects.states import Action, State
from agents.wire.errors import AgentError
from redmesh.state import GRAPH_FORMAT, StateFull, StateObject, encode_commit, new_uuid
from redmesh.state_reader import StateReader


def rows(path: str) -> list[str]:
    """Everything that a file says."""
    db = sqlite3.connect(path)
    try:
        return list(db.iterdump())
    finally:
        db.close()


def change(job: StateObject, chance: random.Random, number: int) -> None:
    """One of the things that owners do."""
    what = chance.randrange(8)
    if what == 0:
        job.add_array(number * 100, number * 100 + chance.randrange(1, 50))
    elif what == 1:
        job.add_list([f"input {one} \udcff".encode("utf-8", "replace").decode() for one in range(3)], number * 100 + 60)
    elif what == 2:
        for task in job.take(chance.randrange(1, 9), "n1", 1):
            if chance.random() < 0.7:
                job.ended(task.number, task.attempt, 0, started_at=1.0, ended_at=2.0, lines="äö\n")
    elif what == 3:
        job.add_file(f"file {number}", os.urandom(20))
    elif what == 4:
        job.set(f"key {number % 5}", str(number), node="n2", task=number)
    elif what == 5:
        job.granted(job.requested(3, partial=True), "n1", "0-2", 3)
    elif what == 6:
        job.freed()
    else:
        job.log(f"line {number}")


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_stays_the_same(tmp_path: Path, seed: int) -> None:
    chance, uuid = random.Random(seed), new_uuid()
    source, target = f"{tmp_path}/{uuid}.job", f"{tmp_path}/copy"
    job = StateObject.create(source, {"uuid": uuid, "kind": "job"})
    sent: list[bytes] = []
    replica: Replica | None = None
    for number in range(1, 120):
        change(job, chance, number)
        if number == 20:
            job.follow(lambda *commit: sent.append(encode_commit(*commit)))
        if number == 40:  # begins in the middle: what the copy has already is left out
            Path(target).touch()
            assert copy(source, target) == job.commits
            replica = Replica(target)
        if chance.random() < 0.4:
            job.commit()
        if replica is not None and chance.random() < 0.2:
            replica.apply(b"".join(sent))
            sent.clear()
    job.finish("done")
    assert replica is not None
    replica.apply(b"".join(sent))
    replica.close()
    job.close()
    assert rows(target) == rows(source) and commits_of(target) == job.commits


def test_a_gap_and_a_strange_statement_are_refused(tmp_path: Path) -> None:
    uuid = new_uuid()
    source, target = f"{tmp_path}/{uuid}.job", f"{tmp_path}/copy"
    job = StateObject.create(source, {"uuid": uuid})
    job.set("a", "1")
    job.commit()
    Path(target).touch()
    copy(source, target)
    replica = Replica(target)
    said: list[Any] = []
    job.follow(lambda *commit: said.append(commit))
    for number in range(3):
        job.set("a", str(number))
        job.commit()
    with pytest.raises(AgentError, match="came after 1"):
        replica.apply(encode_commit(*said[1]))
    with pytest.raises(AgentError, match="not authorized"):
        replica.apply(encode_commit(2, [(f"ATTACH '{tmp_path}/other' AS other", [[]])]))
    with pytest.raises(AgentError, match="cannot be applied"):
        replica.apply(b"nonsense\n")
    replica.apply(b"".join(encode_commit(*one) for one in said))
    job.limit = 1 << 16  # a statement that fails: nothing more is told, and that is said
    job._limit_pages(20)
    with pytest.raises(StateFull):
        for number in range(200):
            job.set(f"key {number}", "x" * 4000)
    assert said[-1] == (0, [])
    replica.close()
    job.close(abandon=True)


def test_a_copy_is_promoted_once_and_an_old_object_is_fenced(tmp_path: Path) -> None:
    uuid = new_uuid()
    old, new = Holder(f"{tmp_path}/old", "old"), Holder(f"{tmp_path}/new", "new")
    for holder in (old, new):
        os.makedirs(holder.directory)
    job = StateObject.create(old.path(uuid), {"uuid": uuid, "host": "old"})
    aside = f"{tmp_path}/aside"
    Path(aside).touch()
    copy(job.path, aside)
    assert new.promote(uuid, 1) is Action.NONE  # there is no copy
    new.stand_by(uuid, 0, aside, "old")
    assert new.uuids() == [] and new.entry(uuid).place.state is State.ABSENT
    assert new.promote(uuid, 1) is Action.PROMOTE and new.uuids() == [uuid]
    assert new.promote(uuid, 1) is Action.NONE and new.promote(uuid, 2) is Action.NONE
    job.close()
    assert not old.fence(uuid, 0, "new", "")  # no newer counter: no evidence
    assert old.fence(uuid, 1, "new", "tls://h:1/new")
    assert (old.uuids(), old.entry(uuid).forwards, old.entry(uuid).other) == ([], True, "new")
    assert os.path.exists(old.path(uuid) + ".fenced")
    taken = StateObject(new.path(uuid))
    assert (taken.meta("counter"), taken.meta("host")) == (1, "new")
    taken.close()


def test_a_copy_follows_when_the_first_task_with_an_id_is_added(tmp_path: Path) -> None:
    uuid = new_uuid()
    source, target = f"{tmp_path}/{uuid}.job", f"{tmp_path}/copy"
    job = StateObject.create(source, {"uuid": uuid})
    Path(target).touch()
    copy(source, target)
    replica = Replica(target)
    job.follow(lambda *commit: replica.apply(encode_commit(*commit)))
    write(job, checked(job, [NewTask("a", [], "x"), NewTask("b", ["a"], "y")]))
    job.close()
    replica.close()
    assert rows(target) == rows(source)
    with StateReader(target) as reader:
        assert reader.read("PRAGMA user_version") == [(GRAPH_FORMAT,)]
