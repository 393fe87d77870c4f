"""The owner of a job: programs are answered when what they said is recorded; nothing that they say ends it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.job.state_requests import Owner
from redmesh.state import StateError, StateFull, StateObject, job_path, new_uuid


class Clock:
    """Calls what is due when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def later(self, _seconds: float, call: Callable[[], None]) -> None:
        self.due.append(call)

    def pass_time(self) -> None:
        calls, self.due = self.due, []
        for call in calls:
            call()


def made(tmp_path: Path, **meta: int) -> tuple[Owner, Clock, list[StateError]]:
    uuid, clock = new_uuid(), Clock()
    failures: list[StateError] = []
    job = StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid, **meta}, durable=False)
    return Owner(job, clock.later, failures.append), clock, failures


def ask(owner: Owner, **request: Any) -> list[dict[str, Any]]:
    replies: list[dict[str, Any]] = []
    owner.ask(json.dumps(request).encode(), "n1", lambda data: replies.append(json.loads(data)))
    return replies


def test_a_value_is_confirmed_after_its_commit_and_many_share_one(tmp_path: Path) -> None:
    owner, clock, _ = made(tmp_path)
    replies = [ask(owner, op="set", key=f"k{number}", value="v", task=number) for number in range(100)]
    assert not any(replies) and len(clock.due) == 1
    clock.pass_time()
    assert replies == [[{}]] * 100
    assert ask(owner, op="get", key="k7") == [{"value": "v"}]
    assert ask(owner, op="get", key="none") == [{"value": None}]
    assert ask(owner, op="path")[0]["value"] == owner.job.path
    owner.job.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"", b"no JSON", b"[]", b"{}", b'{"op": "drop"}', b'{"op": "set"}', b'{"op": "set", "key": "", "value": ""}',
        b'{"op": "set", "key": "k", "value": 7}', b'{"op": "log", "text": "x", "task": -1}',
        b'{"op": "log", "text": "x", "task": 99999999999999999999}', b'{"op": "log", "text": "x", "task": true}',
        b'{"op": "progress", "part": 2}', b'{"op": "progress", "part": NaN}', b'{"op": "progress"}',
        b'{"op": "move", "node": "n1"}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused_with_a_reason(tmp_path: Path, request_: bytes) -> None:
    owner, clock, failures = made(tmp_path)
    replies: list[bytes] = []
    owner.ask(request_, "n1", replies.append)
    clock.pass_time()
    told = json.loads(replies[0])
    assert told["error"] and told["hint"] and not failures
    assert ask(owner, op="set", key="k\udcff", value="v\udcff") == []
    clock.pass_time()
    assert owner.job.get("k\uefff") == "v\uefff"
    owner.job.close()


def test_a_full_object_refuses_values_and_still_takes_results_until_it_is_full(tmp_path: Path) -> None:
    owner, clock, failures = made(tmp_path, limit=1 << 20)
    owner.record(lambda job: job.add_array(1, 100_000))
    refused: list[dict[str, Any]] = []
    for number in range(1000):
        refused = ask(owner, op="set", key=f"k{number}", value="x" * 2000)
        clock.pass_time()
        if refused and "error" in refused[0]:
            break
    assert "nearly reached its limit of 1 MiB" in refused[0]["error"] and not failures
    taken = owner.job.take(1, "n1")
    owner.record(lambda job: job.ended(taken[0].number, 1, 0, started_at=1.0, ended_at=2.0))
    clock.pass_time()
    assert owner.job.counts["done"] == 1 and not failures
    while not failures:
        owner.record(lambda job: job.take(500, "n1"))
        clock.pass_time()
    assert isinstance(failures[0], StateFull) and len(failures) == 1
    assert "cannot record anything any more" in ask(owner, op="set", key="k", value="v")[0]["error"]
    owner.job.close()
