"""Messages between owners and workers, also those of earlier versions, and those that are not valid."""

import json

import pytest

from agents.job.workers.commands import Command, CommandAnswer
from agents.job.workers.messages import (
    Kill,
    NodeTested,
    Recall,
    Report,
    Result,
    Stop,
    Tasks,
    Work,
    Worked,
    pack,
    parse_request,
)
from redmesh.state import Task


def _parsed(**told: object) -> object:
    return parse_request(json.dumps(told).encode())


def test_a_result_has_seven_members_and_one_more_of_a_call_or_a_section() -> None:
    rows = [
        [7, 2, 1, 1.5, 2, "last", ""],
        [8, 1, 0, 1, 2, None, "", "AAEC"],
        [9, 1, 0, 1, 2, "", "", [[5, 6], None]],
        [10, 1, 0, 0.0, 2, "", "dropped"],
    ]
    request = _parsed(op="worked", results=rows)
    assert isinstance(request, Worked) and not request.broken
    plain, call, section, dropped = request.results
    assert (plain.number, plain.attempt, plain.status, plain.started_at, plain.ended_at) == (7, 2, 1, 1.5, 2)
    assert plain.lines == "last" and plain.failed and not plain.given_back
    assert (call.lines, call.data, call.failed) == ("", "AAEC", False)
    assert section.written == [[5, 6], None] and not section.data
    assert dropped.given_back


@pytest.mark.parametrize(
    "row",
    [None, [], [1, 1, 0, 1, 2, ""], ["1", 1, 0, 1, 2, "", ""], [[1], 1, 0, 1, 2, "", ""], [1, 1, 0, "a", 2, "", ""],
     [1, 1, 0, 1, None, "", ""], [1, 1, 0, 1, 2, "", None]],
)  # fmt: skip
def test_a_row_that_is_no_result_is_left_out(row: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Result.from_wire(row)
    request = _parsed(op="worked", results=[row, [1, 1, 0, 1, 2, "", ""]])
    assert isinstance(request, Worked) and [one.number for one in request.results] == [1]


def test_requests_of_workers_are_read_and_those_of_programs_left_to_the_owner_of_the_object() -> None:
    work = _parsed(op="work", pid=7)  # of the first version
    assert isinstance(work, Work) and (work.rank, work.byte_text, work.prepares) == (0, False, False)
    work = _parsed(op="work", rank=3, byte_text=True, prepares=True)
    assert isinstance(work, Work) and (work.rank, work.byte_text, work.prepares) == (3, True, True)
    tested = _parsed(op="tested")
    assert isinstance(tested, NodeTested) and not tested.reason
    report = _parsed(op="report", number=4, kind="progress", part=1)
    assert isinstance(report, Report) and (report.number, report.kind, report.part, report.text) == (
        4,
        "progress",
        1,
        "",
    )
    for other in ({"op": "set", "key": "a", "value": "b"}, {"op": ["work"]}, {}):
        assert _parsed(**other) is None
    assert parse_request(b"[1]") is None and parse_request(b"\xff") is None


def test_answers_to_workers_have_the_members_that_every_version_knows() -> None:
    tasks = Tasks([Task(1, None, 1), Task(2, "a\uefe9", 3)])
    assert json.loads(pack(tasks, byte_text=True, sections=False)) == {"tasks": [[1, 1, None], [2, 3, "a\uefe9"]]}
    assert json.loads(pack(tasks, byte_text=False, sections=False))["tasks"][1][2] == "a\udce9"
    tasks = Tasks([], test=True)
    tasks.job = {"uuid": "u"}
    assert tasks.to_wire() == {"tasks": [], "test": True, "job": {"uuid": "u"}}
    assert (Recall().to_wire(), Recall([2]).to_wire()) == ({"recall": True}, {"recall": [2]})
    assert (Kill([3]).to_wire(), Stop().to_wire()) == ({"kill": [3]}, {"stop": True})


def test_members_of_commands_that_are_not_valid_count_as_missing() -> None:
    command = Command({"op": "withdraw", "id": "x", "numbers": [1, "2", 3], "tasks": "5", "count": "many"})
    assert (command.number, command.numbers, command.count) == (0, {1, 3}, None)
    assert command.tasks == [], "retry runs none again, and not all"
    assert Command({"op": "retry", "id": 4, "tasks": []}).tasks == []
    assert CommandAnswer().to_wire(4) == {"re": 4}
    assert CommandAnswer(tasks=0).to_wire(4) == {"re": 4, "tasks": 0}
    assert CommandAnswer(error="no", hint="").to_wire(4) == {"re": 4, "error": "no", "hint": ""}
