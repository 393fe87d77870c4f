"""A job's row in ``mesh queue``."""

from pathlib import Path

import pytest

from agents.job.description import META, Description
from console.jobs.objects import summary
from console.jobs.rows import queue_row
from redmesh.state import HANDED_TO, WAITING, StateObject, job_path, new_uuid


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
    assert queue_row(summary(path))["state"] == state
