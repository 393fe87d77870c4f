"""The ten questions of docs/state-object.md are asked, and answered from the file alone."""

import re
from pathlib import Path

from redmesh.state import FAILED, RUNNING, StateObject, job_path, new_uuid, open_for_reading

PAGE = Path(__file__).parents[3] / "docs" / "state-object.md"


def test_ten_questions_have_answers(tmp_path: Path) -> None:
    uuid = new_uuid()
    job = StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid, "kind": "job", "command": "[]"})
    job.set_state(RUNNING)
    request = job.requested(2, partial=True)
    job.answered(request, "acknowledged")
    job.granted(request, "n1", "0-1", 2)
    job.add_array(1, 9)
    job.take(3, "n1")
    job.give_back("n1", "n1 is down")
    for task in job.take(3, "n2"):
        job.ended(task.number, task.attempt, task.number % 2, started_at=10.0, ended_at=11.5, lines="the end\n")
    job.set("residual", "1e-7", node="n2", task=2)
    job.log("half of it", node="n2", task=2)
    job.commit()

    questions = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(questions) == 10
    db = open_for_reading(job.path)
    answers = [db.execute(question).fetchall() for question in questions]
    db.close()
    job.close()
    assert all(answers), [question for question, answer in zip(questions, answers, strict=True) if not answer]
    assert answers[0] == [("done", 1), (FAILED, 2), ("waiting", 6)]
    assert answers[2] == [(1, "n2", 1, "the end\n"), (3, "n2", 1, "the end\n")]
    assert answers[3] == [(1, 2, "n2", FAILED), (2, 2, "n2", "done"), (3, 2, "n2", FAILED)]
    assert [row[1:] for row in answers[4]] == [
        (RUNNING, "n1", None),
        ("waiting", None, "n1 is down"),
        (RUNNING, "n2", None),
        (FAILED, None, None),
    ]
