"""Objects that are carried to their user's directory: what has to stay, stays whole."""

import os
import sqlite3
from pathlib import Path

import pytest

from agents.objects.carry import carry, carry_all, has_objects
from redmesh.state import UNSURE, StateError, StateObject, job_path, new_uuid, open_for_reading
from tests.support.forking import forks


def made(directory: Path, uuid: str, counter: int = 0) -> Path:
    path = job_path(str(directory), uuid)
    StateObject.create(path, {"uuid": uuid, "counter": counter}).close()
    return Path(path)


def carried(source: Path, target: Path) -> tuple[list[str], str]:
    found, refused = carry_all(str(source), str(target), "the batch job ended")
    return found, " ".join(refused)


def test_what_cannot_be_carried_for_certain_stays(tmp_path: Path) -> None:
    source, target, one, two = tmp_path / "from", tmp_path / "to", new_uuid(), new_uuid()
    source.mkdir()
    path, other = made(source, one), made(source, two)
    assert carried(source, target)[0] == [] and path.exists(), "there is no such directory"
    target.mkdir()
    os.rename(other, f"{other}.sent")
    owner = StateObject(str(path))
    with pytest.raises(StateError, match="which runs"):
        carry(str(path), str(target), "the batch job ended")
    owner.close()
    assert path.exists()
    assert carried(source, target) == ([one], f"{two}.job.sent: it is between two nodes")
    assert not path.exists() and [name.name for name in target.iterdir()] == [path.name]


def test_a_later_state_replaces_an_older_one(tmp_path: Path) -> None:
    source, target, uuid = tmp_path / "from", tmp_path / "to", new_uuid()
    source.mkdir()
    target.mkdir()
    made(source, uuid, counter=3)
    there = made(target, uuid, counter=2)
    assert carried(source, target) == ([uuid], "")
    job = StateObject(str(there))
    assert job.meta("counter") == 3
    job.close()


def value(path: Path | str, key: str) -> str | None:
    job = StateObject(str(path))
    found = job.get(key)
    job.close()
    return found


def test_of_two_continuations_the_later_has_the_name_and_none_is_lost(tmp_path: Path) -> None:
    source, target, uuid = tmp_path / "from", tmp_path / "to", new_uuid()
    source.mkdir()
    target.mkdir()
    there = made(target, uuid, counter=5)
    for who, counter, first in (("earlier", 4, 1), ("later", 6, 2)):
        path = made(source, uuid, counter)
        job = StateObject(str(path))
        job.set("who", who)
        job.close()
        if first == 1:
            with pytest.raises(StateError, match="has a later state"):
                carry(str(path), str(target), "resumed")  # to be resumed: nothing is put beside
        found, refused = carried(source, target)
        assert found and not refused and not path.exists()
    assert value(there, "who") == "later" and value(f"{there}.other-1", "who") == "earlier"
    assert value(f"{there}.other-2", "who") is None, "the one that was there first"
    log = open_for_reading(str(there)).execute("SELECT text FROM log").fetchall()
    assert any("tasks may have run twice" in text for (text,) in log)


def test_what_a_killed_carrier_left_is_carried_once(tmp_path: Path) -> None:
    source, target, uuid = tmp_path / "from", tmp_path / "to", new_uuid()
    source.mkdir()
    target.mkdir()
    path = made(source, uuid)
    content = path.read_bytes()
    assert carried(source, target) == ([uuid], "")
    path.write_bytes(content)  # killed before it deleted this file
    assert carried(source, target) == ([uuid], "")
    assert [name.name for name in target.iterdir()] == [path.name] and not path.exists()


def test_an_object_in_use_is_neither_replaced_nor_mixed_up(tmp_path: Path) -> None:
    """A reader keeps the log beside an object whose owner was killed: SQLite would apply it to the next file."""
    source, target, uuid = tmp_path / "from", tmp_path / "to", new_uuid()
    source.mkdir()
    target.mkdir()
    there = made(target, uuid, counter=1)

    def owner() -> None:
        job = StateObject(str(there))
        job.set("who", "old")
        job.commit()

    with forks() as start:
        start(owner)
    path = made(source, uuid, counter=2)
    reader = open_for_reading(str(there))
    with pytest.raises(StateError, match="a process reads"):
        carry(str(path), str(target), "resumed")
    reader.close()
    with pytest.raises(StateError, match="runs"):
        owned = StateObject(str(there))
        try:
            carry(str(path), str(target), "resumed")
        finally:
            owned.close()
    assert value(there, "who") == "old" and path.exists()


@pytest.mark.parametrize("first", ["copy", "object"])
def test_a_standby_copy_is_carried_for_an_object_whose_host_is_lost(tmp_path: Path, first: str) -> None:
    source, node, target, uuid = tmp_path / "from", tmp_path / "node", tmp_path / "to", new_uuid()
    for directory in (source, node, target):
        directory.mkdir()
    path, there = made(source, uuid), Path(job_path(str(target), uuid))
    job = StateObject(str(path))
    job.log("its standby is n1")
    job.close()
    (node / f"{uuid}.job.standby").write_bytes(path.read_bytes())
    if first == "copy":
        assert carried(node, target) == ([uuid], "") and not list(node.iterdir())
        job = StateObject(str(there))
        assert job.meta(UNSURE) == 1, "tasks may have begun since"
        job.close()
    assert carried(source, target) == ([uuid], "") and carried(node, target)[1] == ""
    assert [name.name for name in target.iterdir()] == [path.name] and not list(node.iterdir())
    with open_for_reading(str(there)) as db:
        texts = [text for (text,) in db.execute("SELECT text FROM log ORDER BY id")]
        assert texts == ["its standby is n1", "the batch job ended"]
        assert not db.execute("SELECT 1 FROM meta WHERE key = 'unsure'").fetchall()
    db.close()


def test_a_damaged_object_keeps_no_other_from_being_carried(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    bad, good = sorted((new_uuid(), new_uuid()))
    made(target, bad)
    path = made(source, bad)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 'many' WHERE key = 'counter'")
    db.close()
    made(source, good)
    found, refused = carried(source, target)
    assert found == [good] and bad in refused and path.exists()


def test_a_directory_that_cannot_be_read_may_have_objects(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not has_objects(str(tmp_path / "none")) and has_objects(str(tmp_path / "file"))
