"""The description of a job in its object and in messages to workers: byte text, and what earlier workers understand."""

import json
import os

from agents.job.description import Description, for_earlier_worker

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
