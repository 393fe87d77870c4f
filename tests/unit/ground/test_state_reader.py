"""StateReader: every column of the object is read by name, as of one moment."""

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from redmesh import state_reader
from redmesh.state import DONE, FAILED, RUNNING, WAITING, StateError, StateObject, job_path, new_uuid
from redmesh.state_reader import StateReader
from tests.support.chance import examples, seed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StateObject]:
    """An object whose owner writes."""
    uuid = new_uuid()
    job = StateObject.create(
        job_path(str(tmp_path), uuid), {"uuid": uuid, "kind": "job", "command": '["a", "b"]', "token": "secret"}
    )
    job.add_list(["x", "y", "z"])
    job.take(2, "n1")
    job.ended(1, 1, 0, started_at=1.0, ended_at=3.0, lines="fine\n")
    job.ended(2, 1, 7, started_at=1.0, ended_at=2.0, lines="bad\n", cause="exit 7")
    job.take(1, "n2")
    job.progress(0.25, 3)
    job.granted(job.requested(2, partial=True), "n1", "0-1", 2)
    job.set("residual", "1e-7")
    for text in ("one", "two", "three"):
        job.log(text, node="n1")
    job.set_state(RUNNING, "first task")
    job.add_file("input", b"\0data")
    job.commit()
    yield job
    job.close()


def test_rows_have_exactly_the_columns_of_the_schema(job: StateObject) -> None:
    with StateReader(job.path) as reader:
        for table, row in (("task", state_reader.TaskRow), ("transition", state_reader.Transition)):
            columns = [column[1] for column in reader.connection.execute(f"PRAGMA table_info({table})")]
            assert columns == list(row._fields)


def test_tasks(job: StateObject) -> None:
    with StateReader(job.path) as reader:
        assert [(task.first, task.state, task.input) for task in reader.tasks()] == [
            (1, DONE, "x"), (2, FAILED, "y"), (3, RUNNING, "z"),
        ]  # fmt: skip
        assert [task.first for task in reader.tasks([DONE, RUNNING], after=1)] == [3]
        assert [task.first for task in reader.tasks(limit=1)] == [1]
        assert reader.tasks([WAITING]) == []
        assert [(task.task, task.text) for task in reader.failures(5)] == [(2, "exit 7 on n1: bad")]
        assert reader.states() == [(1, 1, DONE), (2, 2, FAILED), (3, 3, RUNNING)]
        assert reader.progress() == {3: 0.25}
        found = reader.task(2)
        assert found is not None and (found.node, found.ended_at) == ("n1", 2.0)
        assert reader.task(0) is None


def test_the_job_and_what_happened(job: StateObject) -> None:
    with StateReader(job.path) as reader:
        told = reader.summary()
        assert told["command"] == ["a", "b"] and told["counts"] == {DONE: 1, FAILED: 1, RUNNING: 1}
        assert "token" not in told and reader.meta("token") == "secret" and reader.meta("none") is None
        assert reader.cause() == "first task"
        assert reader.values() == {"residual": "1e-7"}
        assert [(one.node, one.processors, one.freed_at) for one in reader.resources()] == [("n1", "0-1", None)]
        assert reader.file("input") == b"\0data" and reader.file("none") is None
        assert [line.text for line in reader.log(after=1, limit=1)] == ["two"]
        assert [line.text for line in reader.newest_log(0, 2)] == ["two", "three"]
        assert [change.state for change in reader.job_transitions()] == [WAITING, RUNNING]
        assert [change.state for change in reader.history(2, 1)] == [FAILED]
        assert reader.failure(2) == "exit 7" and reader.failure(1) == ""
        newest = reader.newest_transition()
        assert [change.first for change in reader.task_transitions()] and reader.task_transitions(newest) == []


def test_a_reader_sees_one_moment_and_closes(job: StateObject) -> None:
    with StateReader(job.path) as reader:
        assert reader.values() == {"residual": "1e-7"}
        job.set("residual", "1e-8")
        job.commit()
        assert reader.values() == {"residual": "1e-7"}
    with pytest.raises(sqlite3.ProgrammingError):
        reader.values()


def test_a_copy_is_one_file_with_everything(job: StateObject, tmp_path: Path) -> None:
    target = tmp_path / "copy.job"
    target.touch()
    with StateReader(job.path) as reader:
        reader.copy_to(str(target))
    assert not list(tmp_path.glob("copy.job-*"))
    with StateReader(str(target)) as copy:
        assert copy.file("input") == b"\0data" and len(copy.tasks()) == 3


VALUES = [
    float("inf"),
    float("-inf"),
    1e300,
    -1,
    None,
    "",
    "x",
    b"\xff",
    2**62,
    "[]",
    "{}",
    "null",
    '{"done": "x"}',
    "[1]",
]
READ = [
    StateReader.summary, StateReader.cause, StateReader.values, StateReader.resources, StateReader.tasks,
    StateReader.failures, StateReader.states, StateReader.progress, StateReader.task_transitions,
    StateReader.job_transitions, StateReader.log, lambda job: job.task(1), lambda job: job.history(1, 9),
    lambda job: job.failure(1), lambda job: job.file("input"), lambda job: job.newest_log(0, 9),
]  # fmt: skip


def test_whatever_a_column_holds_is_read_or_named(job: StateObject) -> None:
    """An object is a file that may come from anybody: readers compute with its times and numbers."""
    job.commit()
    with sqlite3.connect(job.path) as db:
        places = [
            (f"UPDATE {table} SET {column[1]} = ?", f"{table}.{column[1]}")
            for table in ("resource", "task", "transition", "log", "file", "value")
            for column in db.execute(f"PRAGMA table_info({table})")
        ]
        places += [
            (f"UPDATE meta SET value = ? WHERE key = '{key}'", key) for (key,) in db.execute("SELECT key FROM meta")
        ]
        named = set()
        for statement, place in places:
            for value in VALUES:
                db.execute("BEGIN")
                try:
                    db.execute(statement, (value,))
                except sqlite3.IntegrityError:
                    db.execute("ROLLBACK")
                    continue
                with StateReader(job.path) as reader:
                    reader.connection.close()
                    reader.connection = db
                    for read in READ:
                        try:
                            json.dumps(read(reader), allow_nan=False, default=lambda _data: "")
                        except StateError as error:
                            assert "cannot be read: " in error.message
                            named.add(place)
                    reader.connection = sqlite3.connect(":memory:")
                db.execute("ROLLBACK")
    assert {"created_at", "state", "command", "counts", "task.last", "task.ended_at", "log.at", "value.value"} <= named


@pytest.mark.storm
def test_an_object_with_damaged_pages_is_read_or_named(job: StateObject, tmp_path: Path) -> None:
    """A page is read when a query needs it, long after the object was opened."""
    job.commit()
    with StateReader(job.path) as reader:
        reader.copy_to(str(tmp_path / "whole"))
    whole, chance, named = (tmp_path / "whole").read_bytes(), random.Random(seed("REDMESH_PAGES_SEED")), 0
    for _ in range(examples(60)):
        data = bytearray(whole)
        for _ in range(30):
            at = chance.randrange(100, len(data) - 8)
            data[at : at + 8] = chance.randbytes(8)
        path = Path(job_path(str(tmp_path), new_uuid()))
        path.write_bytes(data)
        try:
            with StateReader(str(path)) as reader:
                for read in READ:
                    try:
                        read(reader)
                    except StateError as error:
                        assert "cannot be read: " in error.message
                        named += 1
        except StateError as error:
            assert "cannot be read: " in error.message or "newer" in error.message
        path.unlink()
    assert named, "some were noticed after the object was opened"
