"""The state object: what is recorded stays, what is not allowed is refused, readers and the owner share the file."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from redmesh import state
from redmesh.state import DONE, FAILED, StateError, StateFull, StateObject, job_path, new_uuid, open_for_reading
from redmesh.state_reader import StateReader
from tests.support.waiting import wait_until

#: An owner that takes and ends tasks for ever, and tells on stdout how many are committed.
_OWNER = """
import sys, time
from redmesh.state import StateObject
job = StateObject(sys.argv[1])
total = 0
while True:
    for task in job.take(7, "n1"):
        job.ended(task.number, task.attempt, 0, started_at=1.0, ended_at=2.0)
        total += 1
    job.commit()
    print(total, flush=True)
"""


def made(tmp_path: Path, **meta: int) -> StateObject:
    uuid = new_uuid()
    return StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid, "kind": "job", **meta})


def ask(path: str, statement: str) -> list[tuple[object, ...]]:
    """What a reader finds."""
    db = open_for_reading(path)
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def test_a_million_tasks_are_one_row_until_they_are_taken(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.add_array(1, 1_000_000)
    taken = job.take(3, "n1")
    assert [(task.number, task.attempt) for task in taken] == [(1, 1), (2, 1), (3, 1)]
    assert job.ended(2, 1, 7, started_at=1.0, ended_at=2.0, lines="no such file")
    job.commit()
    assert job.counts == {"waiting": 999_997, "running": 2, "failed": 1}
    rows = ask(job.path, "SELECT first, last, state, exit, lines FROM task ORDER BY first")
    assert rows == [
        (1, 1, "running", None, None),
        (2, 2, "failed", 7, "no such file"),
        (3, 3, "running", None, None),
        (4, 1_000_000, "waiting", None, None),
    ]
    job.close()


def test_each_end_counts_once_and_lost_workers_give_tasks_back(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.add_list(["a", "b", "c"])
    job.take(2, "n1")
    assert job.give_back("n1", "n1 is down") == [1, 2]
    assert job.counts == {"waiting": 3}
    again = job.take(1, "n2")
    assert again == [(1, "a", 2)]
    assert not job.ended(1, 1, 0, started_at=1.0, ended_at=2.0), "the first attempt was given up"
    assert job.ended(1, 2, 0, started_at=1.0, ended_at=2.0)
    assert not job.ended(1, 2, 1, started_at=1.0, ended_at=2.0), "it has ended already"
    job.commit()
    assert ask(job.path, "SELECT state, node, attempt, exit FROM task WHERE first = 1") == [("done", "n2", 2, 0)]
    told = ask(job.path, "SELECT first, last, state, node, cause FROM transition WHERE first = 1 ORDER BY id")
    assert told == [
        (1, 2, "running", "n1", None),
        (1, 2, "waiting", None, "n1 is down"),
        (1, 1, "running", "n2", None),
        (1, 1, "done", None, None),
    ]
    job.close()


def test_ranges_split_and_count_as_a_plain_list_would(tmp_path: Path) -> None:
    chance = random.Random(20)
    for _ in range(8):
        job = made(tmp_path)
        job.add_array(0, 63)
        model = ["waiting"] * 64
        for _ in range(30):
            first = chance.randrange(64)
            last = chance.randrange(first, 64)
            to = chance.choice(("waiting", "running", "done", "cancelled"))
            job.change(first, last, to)
            model[first : last + 1] = [to] * (last - first + 1)
            if chance.random() < 0.3:
                for task in job.take(chance.randrange(1, 9), "n1"):
                    assert model[task.number] == "waiting"
                    model[task.number] = "running"
        assert job.counts == {one: model.count(one) for one in dict.fromkeys(model)}
        job.commit()
        found: list[str] = []
        for first, last, told in ask(job.path, "SELECT first, last, state FROM task ORDER BY first"):
            assert first == len(found), "rows neither overlap nor leave gaps"
            found += [told] * (last - first + 1)  # type: ignore[operator, list-item]
        assert found == model
        job.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_was_committed_survives_a_kill_at_any_moment(tmp_path: Path, seed: int) -> None:
    job = made(tmp_path)
    job.add_array(1, 1_000_000)
    job.close()
    chance, most = random.Random(seed), 0
    for _ in range(3):
        owner = subprocess.Popen([sys.executable, "-c", _OWNER, job.path], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        assert owner.stdout.readline()
        time.sleep(chance.random() * 0.1)
        owner.send_signal(signal.SIGKILL)
        told = owner.stdout.read().split("\n")[-2:]
        owner.wait()
        owner.stdout.close()
        before = most
        most += int(told[0] or 0) if told[-1] == "" else 0
        again = StateObject(job.path)
        assert again.counts.get("done", 0) >= max(before, most), "what was committed is there"
        most = again.counts.get("done", 0)
        assert "running" not in again.counts, "a batch is there as a whole, or not at all"
        again.close()


def test_others_read_while_the_owner_writes(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.add_array(1, 100_000)
    job.commit()
    owner_path = job.path
    job.close()
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, owner_path], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None and owner.stdout.readline()
        slow = open_for_reading(owner_path)  # a reader in the midst of reading holds up nobody
        counted = "SELECT sum(last - first + 1) FROM task WHERE state = 'done'"
        first = slow.execute(counted).fetchone()[0]
        wait_until(lambda: (ask(owner_path, counted)[0][0] or 0) > first + 100, "the owner writes on")  # type: ignore[operator]
        assert slow.execute(counted).fetchone()[0] == first, "one transaction is one moment"
        assert state.owned(owner_path)
        with pytest.raises(sqlite3.OperationalError):
            slow.execute("DELETE FROM task")
        slow.close()
        with pytest.raises(StateError, match="belongs to another process"):
            StateObject(owner_path)
    finally:
        owner.kill()
        owner.wait()
        assert owner.stdout is not None
        owner.stdout.close()
    assert not state.owned(owner_path)


def test_a_closed_object_is_one_file_that_can_be_read_anywhere(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.set("phase", "2")
    job.close()
    assert os.listdir(tmp_path) == [os.path.basename(job.path)]
    tmp_path.chmod(0o500)
    try:
        assert open_for_reading(job.path).execute("SELECT key, value FROM value").fetchall() == [("phase", "2")]
    finally:
        tmp_path.chmod(0o700)


def test_the_limit_of_size_has_a_clear_end(tmp_path: Path) -> None:
    job = made(tmp_path, limit=1 << 20)
    job.add_array(1, 100_000)
    with pytest.raises(StateFull, match="nearly reached its limit of 1 MiB"):
        for number in range(100_000):
            job.log("x" * 1000)
            if number % 20 == 0:
                job.commit()
    task = job.take(1, "n1")[0]
    assert job.ended(task.number, 1, 0, started_at=1.0, ended_at=2.0), "results are still recorded"
    job.commit()
    with pytest.raises(StateFull, match="is full: its limit is 1 MiB"):
        while True:
            for task in job.take(100, "n1"):
                job.ended(task.number, 1, 0, started_at=1.0, ended_at=2.0)
            job.commit()
    done = job.counts["done"]
    job.finish("failed", "the state object is full")
    job.close()
    again = StateObject(job.path)
    assert (again.meta("state"), again.counts["done"]) == ("failed", done)
    again.close()
    assert os.path.getsize(job.path) <= (1 << 20) + 65 * 4096


def test_what_is_no_object_or_a_newer_one_is_refused(tmp_path: Path) -> None:
    empty, text, other = tmp_path / "a.job", tmp_path / "b.job", tmp_path / "c.job"
    empty.touch()
    text.write_text("a text, of more than a hundred bytes" * 10)
    sqlite3.connect(other).executescript("CREATE TABLE t (a)").close()
    for path in (empty, text, other):
        for use in (StateObject, open_for_reading):
            with pytest.raises(StateError, match="is not a state object"):
                use(str(path))
    with pytest.raises(StateError, match="No such file"):
        StateObject(str(tmp_path / "d.job"))
    job = made(tmp_path)
    job.close()
    newer = sqlite3.connect(job.path)
    newer.executescript(f"PRAGMA user_version = {state.FORMAT + 1}").close()
    for use in (StateObject, open_for_reading):
        with pytest.raises(StateError, match="has format 3; this Redmesh reads formats up to 2"):
            use(job.path)
    assert not os.path.exists(job.path + ".lock")


def test_a_damaged_object_is_found_when_it_is_opened(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.add_list([f"input {number}" for number in range(2000)])
    job.close()
    with open(job.path, "r+b") as file:
        file.seek(os.path.getsize(job.path) // 2)
        file.write(b"\xff" * 5000)
    with pytest.raises(StateError, match="cannot be read"):
        StateObject(job.path)


def test_an_owner_whose_files_were_replaced_leaves_the_lock_of_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / "object")
    first = state.take_lock(path)
    os.unlink(path + ".lock")
    second = state.take_lock(path)
    state.give_lock(path, first)
    assert state.owned(path)
    state.give_lock(path, second)
    assert not state.owned(path) and not os.path.exists(path + ".lock")


def half_written(tmp_path: Path) -> str:
    """The path of an object whose owner was killed as it wrote."""
    job = made(tmp_path)
    job.set("phase", "2")
    job.close()
    half = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('PRAGMA cache_size = 1'); db.execute('BEGIN'); db.execute('UPDATE value SET value = 3');"
        "db.executemany('INSERT INTO log (at, text) VALUES (0, ?)', [('x' * 4000,)] * 100); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", half, job.path], check=True)
    assert os.path.exists(job.path + "-journal")
    return job.path


def test_what_a_killed_owner_left_half_written_is_undone_for_readers(tmp_path: Path) -> None:
    path = half_written(tmp_path)
    assert open_for_reading(path).execute("SELECT value FROM value").fetchall() == [("2",)]
    assert not os.path.exists(path + "-journal")


def test_who_may_not_undo_what_is_half_written_reads_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of root, which may write everywhere, the object of another user; else one in a directory that is read-only. The
    half-written change was read as if it were complete."""
    (objects := tmp_path / "objects").mkdir()
    (copies := tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    path = half_written(objects)
    if os.geteuid():
        objects.chmod(0o500)
    else:
        os.chown(path, 65534, 65534)
    before = sorted((one.name, one.stat().st_size) for one in objects.iterdir())
    with StateReader(path) as reader:
        assert reader.values() == {"phase": "2"} and not list(copies.iterdir())
        assert reader.log() == []
        reader.copy_to(str(tmp_path / "copy"))
    assert sorted((one.name, one.stat().st_size) for one in objects.iterdir()) == before
    with StateReader(str(tmp_path / "copy")) as reader:
        assert reader.values() == {"phase": "2"}
    copies.rmdir()
    with pytest.raises(StateError, match="half-written change, and no copy can be made"):
        open_for_reading(path)
    objects.chmod(0o700)


def test_keys_and_values_have_limits(tmp_path: Path) -> None:
    job = made(tmp_path)
    for key, value in (("", "x"), ("k" * 201, "x"), ("k", "x" * 65537)):
        with pytest.raises(StateError):
            job.set(key, value)
    job.set("k", "x" * 65536)
    assert job.get("k") == "x" * 65536 and job.get("other") is None
    job.close()
    with pytest.raises(StateError, match="is not the UUID of a job"):
        job_path(str(tmp_path), "../../etc/passwd")


def test_a_follower_that_leaves_at_a_failure_changes_neither_reason_nor_end(tmp_path: Path) -> None:
    """It asked for a commit in the middle of the failure, whose own error then stood as the job's reason."""
    uuid = new_uuid()
    job = StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid, "kind": "job"}, durable=False)
    job.add_array(1, 1000)
    job.follow(lambda number, _statements: None if number else job.follow(None))
    job._db.execute("PRAGMA max_page_count = 40")  # stands for a disk with so much room
    with pytest.raises(StateFull, match="the disk of"):
        while True:
            for task in job.take(10, "n1"):
                job.ended(task.number, 1, 0, started_at=1.0, ended_at=2.0, lines="x" * 3000)
            job.commit()
    assert not job.dirty, "what SQLite has rolled back is not committed later"
    job.finish(FAILED, "the disk is full")
    job.close()
    with StateReader(job.path) as reader:
        assert reader.meta("state") == FAILED and reader.summary()["counts"][DONE] >= 10


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("yods", "[1]"),
        ("stopped", "no JSON"),
        ("stopped", "[1]"),
        ("stopped", '[{"node": "n0", "pid": 1}]'),
        ("stopped", '[{"node": "n0", "pid": 1, "since": 1e300}]'),
        ("stopped", '[{"node": "n0", "pid": 1, "since": NaN}]'),
    ],
)
def test_processes_in_a_form_that_no_owner_writes_are_named(tmp_path: Path, key: str, value: str) -> None:
    """Commands that show the job ended with a bug report."""
    job = made(tmp_path)
    job.set_meta(**{key: value})
    job.commit()
    with StateReader(job.path) as reader, pytest.raises(StateError, match=f"cannot be read: meta: {key} is"):
        reader.summary()
    job.close()
