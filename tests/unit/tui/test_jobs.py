"""Rows of jobs and the states of their tasks."""

from console.tui.model.jobs import Job, TaskMap, TaskState, job_of
from console.tui.model.tables import JOBS
from console.tui.widgets.grids.task_grid import TaskGrid


def job(**more: object) -> Job:
    told: dict[str, object] = {
        "number": 1, "uuid": "960c9c4c-55b1-4832-917b-ec2300c3b454", "name": "sweep", "state": "running", "owner": "",
        "user": "ada", "tasks": 100, "finished": 20, "failed": 5, "running": 4, "over": 25, "created_at": 1.0,
        "begun_at": 10.0, "paced": (10.0, 0), "ended_at": None, "command": "./solve {}", "why": "", "sections": False,
        "calls": False, "path": "",
    }  # fmt: skip
    return Job(**{**told, **more})  # type: ignore[arg-type]


def test_rate_and_time_left() -> None:
    assert (job().rate(20.0), job().left_s(20.0)) == (2.5, 30.0)
    ended = job(state="done", finished=95, over=100, ended_at=60.0)
    assert (ended.rate(1e9), ended.left_s(1e9), ended.live) == (2.0, None, False)
    assert job(begun_at=0.0, paced=(0.0, 0)).left_s(20.0) is None
    assert job(paced=(110.0, 20)).left_s(111.0) == 15.0, "it was held for 100 s"
    assert job(state="owner lost").left_s(20.0) is None, "nobody works at it"


def test_a_cancelled_job_has_done_what_was_done() -> None:
    assert job().share == 0.25 and job(state="done", finished=100, failed=0, over=100).share == 1.0
    assert job(state="cancelled", finished=5, failed=0, over=100, ended_at=60.0).share == 0.05
    assert job(state="failed", finished=97, failed=3, over=100, ended_at=60.0).share == 0.97


def test_numbers_may_have_gaps() -> None:
    tasks = TaskMap()
    tasks.load([(5, 7, "waiting"), (8, 9, "done"), (20, 24, "waiting")])
    assert len(tasks) == 10
    assert [tasks.number(place) for place in (0, 4, 5, 9)] == [5, 9, 20, 24]
    assert [tasks.place(number) for number in (4, 5, 9, 10, 19, 20, 24, 25)] == [None, 0, 4, None, None, 5, 9, None]
    tasks.set(21, 22, "failed")
    assert tasks.count(TaskState.FAILED) == 2 and tasks.states[6] == tasks.states[7] == TaskState.FAILED
    tasks.add([(25, 26, "running"), (40, 40, "waiting")])
    assert [tasks.place(number) for number in (24, 25, 26, 27, 40, 41)] == [9, 10, 11, None, 12, None]
    assert tasks.number(12) == tasks.last == 40
    tasks.set(39, 45, "done")  # of no task there is
    assert tasks.count(TaskState.DONE) == 2 and tasks.count(TaskState.RUNNING) == 2


def test_many_tasks_share_cells() -> None:
    tasks = TaskMap()
    tasks.load([(1, 1_000_000, "waiting")])
    grid = TaskGrid(tasks)
    layout = grid.lay_out(80, 20)
    assert grid.per > 1 and grid.cells * grid.per >= 1_000_000 and len(layout.lines) <= 20
    assert grid.members(grid.cells - 1)[1] == 999_999
    tasks.set(500_000, 500_000, "failed")
    at = 499_999 // grid.per
    assert grid.appearance(at) == ("✗", "rank-failed") and grid.appearance(at - 1) == ("·", "rank-waiting")


def test_progress_of_a_section_is_a_level() -> None:
    tasks = TaskMap()
    tasks.load([(1, 2, "running")])
    tasks.progress[1] = 0.99
    grid = TaskGrid(tasks)
    assert [grid.appearance(cell)[0] for cell in (0, 1)] == ["▸", "█"]


def test_launches_of_workers_name_their_job() -> None:
    assert job_of("/x/yodwork job 960c9c4c sweep") == job_of("yodwork job 960c9c4c") == "960c9c4c"
    assert job_of("./solve job 960c9c4c") == job_of("yodwork") == ""


def test_a_row_of_the_table() -> None:
    texts = {column.name: column.text(job(), None) for column in JOBS.columns if not column.moves}  # type: ignore[arg-type]
    assert texts["done"] == "20 of 100" and texts["failed"] == "5" and texts["id"] == "960c9c4c"
