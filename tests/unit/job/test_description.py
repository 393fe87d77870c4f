"""The description of a job in its object and in messages to workers: byte text, and what earlier workers understand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agents.job.description import META, YODS, Description, for_earlier_worker, read, yods_of
from redmesh.state import StateError, StateObject, new_uuid
from redmesh.state_reader import StateReader

WORD = os.fsdecode(b"a\xe9")


def described() -> Description:
    one = Description([WORD], "/" + WORD)
    one.env = {"V": WORD}
    return one


def test_an_object_has_byte_text() -> None:
    one = described()
    one.escape()
    told = json.loads(one.dump())
    assert (told["command"], told["cwd"], told["env"]) == (["a\uefe9"], "/a\uefe9", {"V": "a\uefe9"})
    assert (told["retries"], told["sections"], told["standby"]) == (0, None, True)


def test_a_worker_of_an_earlier_version_gets_lone_surrogates_for_bytes() -> None:
    one = described()
    one.escape()
    message = {"tasks": [[1, 1, "a\uefe9"], [2, 1, None]], "job": one.for_workers("uuid")}
    told = for_earlier_worker(message, sections=False)
    assert told["tasks"] == [[1, 1, WORD], [2, 1, None]] and told["job"]["cwd"] == "/" + WORD
    section = json.dumps({"id": "1", "words": ["a\uefe9"]})
    told = for_earlier_worker({"tasks": [[1, 1, section]]}, sections=True)
    assert json.loads(told["tasks"][0][2])["words"] == [WORD]
    assert message["tasks"][0] == [1, 1, "a\uefe9"], "a worker of this version may get the same task"


KINDS: list[Any] = [
    None, True, 0, 1, -1, 1.5, -0.5, float("inf"), float("nan"), 10**400, "", "x", "a\0b", [], [1], ["x"], [["x", 1]],
    {}, {"x": 1}, {"x": "y"}, {"python": 1},
]  # fmt: skip
SECTIONS = {
    "probe": {"command": ["true"], "time_s": 1.0, "memory_mb": 1, "disk_mb": 1}, "recheck_s": 1.0, "same_node": False,
    "copies": True, "size": 1, "mpi": "none", "stage": False, "settles": False, "mark": "0-",
}  # fmt: skip


def places(told: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = [(told, key) for key in told]
    return found + [place for value in told.values() if isinstance(value, dict) for place in places(value)]


def test_a_damaged_description_is_named_or_read_by_owner_and_reader(tmp_path: Path) -> None:
    """An object is a file that anybody may have written: each value is of every kind, missing, cut short, emptied."""
    one = described()
    one.sections, one.functions = SECTIONS, {"python": "/p", "directory": "/d", "program": [1, 2]}
    one.after = [[new_uuid(), "ok"]]
    one.escape()
    whole = one.dump()
    texts = ["", "x", "[" * 100_000, "null", "[]", "{}", '{"command": [], "cwd": 1}']
    texts += [whole[:at] for at in range(0, 900, 50)]
    told = json.loads(whole)
    for at, key in places(told):
        kept = at.pop(key)
        texts.append(json.dumps(told))
        for kind in KINDS:
            at[key] = kind
            texts.append(json.dumps(told))
        at[key] = kept
    path = str(tmp_path / f"{new_uuid()}.job")
    StateObject.create(path, {"uuid": path[-40:-4], "kind": "tasks"}).close()
    job = StateObject(path)
    named = 0
    for text in [whole, *texts]:
        job.set_meta(**{META: text})
        try:
            found = read(job)
            found.for_workers("uuid")
            rules = found.sections
            if rules is not None:
                _ = rules["copies"], rules["same_node"], rules["probe"]["command"], float(rules["recheck_s"])
            assert os.path.isabs(found.cwd) or found.cwd in ("", "x")
            assert all(isinstance(word, str) for word in found.command)
        except StateError as error:
            assert "cannot be read: meta: tasks" in error.message and error.hint
            assert text != whole
            named += 1
    assert named > len(texts) // 2
    for text in ("x", "[" * 100_000, "[1]", '[["a", 1]]', "[[1, null, 2]]", "{}"):
        job.set_meta(**{YODS: text})
        with pytest.raises(StateError, match="yods does not name processes"):
            yods_of(job)
    job.set_meta(**{YODS: "[[1, 2]]", META: "[" * 100_000})
    assert yods_of(job) == [[1, 2]]
    job.close()
    with StateReader(path) as reader, pytest.raises(StateError, match="meta: tasks"):
        read(reader)
