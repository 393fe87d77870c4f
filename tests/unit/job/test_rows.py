"""A job's row in ``mesh queue``."""

from pathlib import Path

import pytest

from agents.job.description import META, Description
from console.jobs.job_record import JobRecord
from console.jobs.objects import summary
from console.jobs.rows import of_tasks, queue_row
from redmesh.state import HANDED_TO, SCHEME, WAITING, StateObject, job_path, new_uuid


@pytest.mark.parametrize(("handed_to", "state"), [("login-2", "moving to login-2"), ("", "suspended")])
def test_a_job_without_an_owner_on_its_way_to_another_node_is_not_said_to_be_suspended(
    tmp_path: Path, handed_to: str, state: str
) -> None:
    uuid = new_uuid()
    path = job_path(str(tmp_path), uuid)
    meta = {"uuid": uuid, "kind": "tasks", META: Description(["true"], "/").dump(), "begun_at": 1.0}
    job = StateObject.create(path, {**meta, "host": "here"}, durable=False)
    job.add_array(1, 5)
    job.set_meta(**{HANDED_TO: handed_to or None})
    job.set_state(WAITING, "")
    job.close()
    assert queue_row(summary(path)).state == state


def record(path: str, **entries: object) -> JobRecord:
    described = Description(["true"], "/")
    described.after = [[new_uuid(), "ok"]]
    told = {"uuid": new_uuid(), "kind": "job", "state": WAITING, "created_at": 1.0, META: described.dump()}
    return JobRecord({**told, **entries}, path, owner_lost=True)


def test_a_job_that_was_moved_before_its_start_waits_and_has_lost_no_owner() -> None:
    job = record(f"{SCHEME}login-2/{new_uuid()}")
    assert queue_row(job).state == f"after {of_tasks(job).after[0][0][:8]}"


def test_processors_are_read_when_they_are_wanted() -> None:
    """A crafted object with other resources in it would hide every job of this host."""
    assert queue_row(record("/none", resources=5)).name == ""
