"""Attempts at sections, out of the transitions of a state object: copies too."""

from pathlib import Path

from console.sections.attempts import attempts
from redmesh.state import StateObject, job_path, new_uuid
from redmesh.state_reader import StateReader


def test_of_two_copies_the_first_to_finish_counts_and_the_other_one_ends_with_it(tmp_path: Path) -> None:
    uuid = new_uuid()
    path = job_path(str(tmp_path), uuid)
    job = StateObject.create(path, {"uuid": uuid}, durable=False)
    job.add_array(1, 1)
    job.take_these([1], "n1")
    job.copied(1, "n2")
    job.ended(1, 1, 0, started_at=1.0, ended_at=2.0, node="n1", copy=True)
    job.close()
    with StateReader(path) as state:
        found = [(one.node, one.state, one.exit, one.ended) for one in attempts(state)]
    assert found == [("n1", "done", 0, 2.0), ("n2", "cancelled", None, 2.0)]
