"""What an array is, and when a job may begin that waits for another."""

import json
from pathlib import Path

import pytest

from agents.job.dependencies import Unmet, elsewhere, unmet
from console.errors import UsageError
from console.jobs.submission import parse_array
from redmesh.state import CANCELLED, DONE, RUNNING, StateObject, job_path, new_uuid


def test_an_array_is_ranges_and_a_limit() -> None:
    assert parse_array("1-10000%64") == ([(1, 10000)], 64)
    assert parse_array("7,1-3,10-14:2") == ([(1, 3), (7, 7), (10, 10), (12, 12), (14, 14)], 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "3-1",
        "1-3,2",
        "1-3%",
        "1-3%0",
        "1-3:0",
        "-1",
        "1%x",
        "9" * 5000,
        "1-9999999999999:2",
        "1%" + "9" * 5000,
    ],
)
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--array"):
        parse_array(text)


def test_a_job_begins_when_the_one_before_it_has_ended_as_it_wants(tmp_path: Path) -> None:
    uuid = new_uuid()
    job = StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid})
    job.set_state(RUNNING)
    job.commit()
    assert unmet(str(tmp_path), [[uuid, "ok"]]) == [uuid]
    job.finish(CANCELLED)
    assert unmet(str(tmp_path), [[uuid, "any"]]) == []
    with pytest.raises(Unmet, match="cancelled"):
        unmet(str(tmp_path), [[uuid, "ok"]])
    job.finish(DONE)
    assert unmet(str(tmp_path), [[uuid, "ok"]]) == []
    job.close()
    with pytest.raises(Unmet, match="was deleted"):
        unmet(str(tmp_path), [[new_uuid(), "ok"]])


def test_the_end_of_a_job_elsewhere_is_recorded_in_the_one_that_waits(tmp_path: Path) -> None:
    uuid = new_uuid()
    (tmp_path / f"{uuid}.place").write_text(json.dumps({"state": "gone", "counter": 1}))
    assert unmet(str(tmp_path), [[uuid, "ok"]]) == elsewhere(str(tmp_path), [[uuid, "ok"]]) == [uuid]
    assert unmet(str(tmp_path), [[uuid, "ok", "done"]]) == elsewhere(str(tmp_path), [[uuid, "ok", "done"]]) == []
    assert unmet(str(tmp_path), [[uuid, "any", "cancelled"]]) == []
    with pytest.raises(Unmet, match="before it ended: cancelled"):
        unmet(str(tmp_path), [[uuid, "ok", "cancelled"]])
