"""Tasks with ids and an order: what a file of them says, what is refused, and what the object has of them."""

import sqlite3
from pathlib import Path

import pytest

from agents.job.tasks.adding import checked, write
from agents.job.tasks.new_tasks import NewTask, TaskError, from_wire, ranges_of, resolve, to_wire
from agents.job.tasks.task_graph import TaskGraph, merged
from console.errors import UsageError
from console.jobs.task_files import GraphFile
from redmesh.state import CANCELLED, DONE, StateError, StateFull, StateObject, job_path, new_uuid
from redmesh.state_graph import StateGraph


def read(path: Path, text: str) -> list[tuple[int, str, list[int], str]]:
    path.write_text(text)
    return [(task.number, task.id, list(task.after), task.input) for task in GraphFile(str(path)).ordered()]


def refused(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        GraphFile(str(path)).ordered()
    return error.value.message.partition(str(path))[2]


def new(tmp_path: Path, **meta: int) -> StateObject:
    uuid = new_uuid()
    return StateObject.create(job_path(str(tmp_path), uuid), {"uuid": uuid, **meta}, durable=False)


def test_lines_and_toml_say_the_same(tmp_path: Path) -> None:
    tasks = [(1, "report", [2, 3], "./report a:b"), (2, "fit-a", [3], "./fit 'a b'"), (3, "prepare", [], "./prepare")]
    text = "# a comment\nreport: fit-a, prepare: ./report a:b\n\nfit-a:prepare:./fit 'a b'\n prepare : : ./prepare\n"
    assert read(tmp_path / "g", text) == tasks
    assert read(
        tmp_path / "g.toml",
        '[[task]]\nid = "report"\nafter = ["fit-a", "prepare"]\ncommand = "./report a:b"\n'
        '[[task]]\nid = "fit-a"\nafter = "prepare"\ncommand = ["./fit", "a b"]\n'
        '[[task]]\nid = "prepare"\ncommand = "./prepare"\n',
    ) == tasks  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: : x\nb x\n", ", line 2: this is not a task"),
        ("a: : x\n\na: : y\n", ", line 3: two tasks have the id a: 1 and 2"),
        ("a: : x\nb: a, c: y\n", ", line 2: there is no task 'c' that task 2 (b) could come after"),
        ("o: : x\na: c: x\nb: a: y\nc: b: z\n", ", line 2: tasks come after each other: 2 (a), 4 (c), 3 (b)"),
        ("a: a: x\n", ", line 1: task 1 (a) comes after itself"),
        ("\n", " has no tasks"),
        ("a: : x\nb: a: y\0z\n", ""),
    ],
)
def test_lines_that_are_no_graph_are_refused_with_their_number(tmp_path: Path, text: str, why: str) -> None:
    assert refused(tmp_path / "g", text).startswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[task]]\ncommand = "x"\n\n[[task]]\nid = "b"\nafter = ["a"]\ncommand = "y"\n', ", line 4: there is no"),
        ('[[task]]\ncommand = "x"\nretries = 1\n', ", line 1: the key 'retries' of a task is not known"),
        ("[[task]]\nid = 1\n", ", line 1: id is a text"),
        ('[[task]]\nid = "a"\n', ", line 1: command is a text for the shell"),
        ('name = "x"\n', ": the key 'name' is not known"),
        ("task = 1\n", ": it has no tasks"),
        ("[[task]\n", ": Expected"),
    ],
)  # fmt: skip
def test_toml_that_is_no_graph_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert refused(tmp_path / "g.toml", text).startswith(why)


def test_ids_are_those_of_the_job_or_of_the_new_tasks(tmp_path: Path) -> None:
    job = new(tmp_path)
    job.add_array(5, 9)
    write(job, checked(job, [NewTask("b", ["a", "7"], "x"), NewTask("a", [], "y")]))
    graph = StateGraph(job)
    assert (graph.number_of("a"), graph.number_of("7"), graph.number_of("99"), graph.called(10)) == (
        11,
        7,
        None,
        "10 (b)",
    )
    assert list(graph.awaited()) == [(10, 7, "waiting"), (10, 11, "waiting")]
    job.change(7, 7, DONE)
    job.change(11, 11, CANCELLED)
    assert list(graph.awaited()) == [(10, 11, "cancelled")] and list(graph.awaited(10)) == []
    with pytest.raises(StateError, match="has a task with the id a already"):
        checked(job, [NewTask("a", [], "x")])
    with pytest.raises(StateError, match="there is no task '12' that task 12 could come after"):
        checked(job, [NewTask("", ["12"], "x")])
    with pytest.raises(StateError, match="the job has task 9 already"):
        checked(job, [], [(9, 12)])
    assert graph.last_number() == 11
    job.close()


def test_only_an_object_with_an_order_has_the_newer_format(tmp_path: Path) -> None:
    """A Redmesh that would ignore the order refuses the object; it can use all others."""
    plain, ordered = new(tmp_path), new(tmp_path)
    write(plain, checked(plain, [NewTask("", [], "x")]))
    write(ordered, checked(ordered, [NewTask("a", [], "x")]))
    formats = []
    for job in (plain, ordered):
        job.close()
        with sqlite3.connect(job.path) as db:
            formats += db.execute("PRAGMA user_version").fetchone()
    assert formats == [1, 2]


def test_more_tasks_than_there_is_room_for_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    job = new(tmp_path, limit=1 << 20)
    with pytest.raises(StateFull, match="no task is recorded any more"):
        checked(job, [NewTask("", [], "x" * 1000)] * 1000)
    assert not job.dirty and not job.full
    job.close()


def test_tasks_on_the_wire_are_as_they_were_or_refused() -> None:
    [task] = from_wire(to_wire([NewTask("a", ["b"], "x")]))
    assert (task.id, task.after, task.input) == ("a", ["b"], "x")
    for told in ([["a", "b", "x"]], [["a", [1], "x"]], [["a", [], None]], ["a"]):
        with pytest.raises(TaskError):
            from_wire(told)


def test_a_long_chain_is_no_cycle_and_needs_no_deep_stack() -> None:
    chain = [NewTask(str(n), [str(n - 1)] if n else [], "x") for n in range(20_000)]
    assert len(resolve(chain)) == 20_000
    graph = TaskGraph()
    for task in resolve(chain)[1:]:
        graph.block(task.number, task.after)
    assert merged(graph.fail(1)) == [range(2, 20_001)] and not len(graph)


def test_an_id_and_its_number_are_the_same_task(tmp_path: Path) -> None:
    job = new(tmp_path)
    write(job, checked(job, [NewTask("a", [], "x")]))
    added = checked(job, [NewTask("b", ["a", "1", "01"], "y")])
    assert added.tasks[0].after == [1]
    write(job, added)
    job.close()


def test_a_message_with_what_no_object_takes(tmp_path: Path) -> None:
    job = new(tmp_path)
    write(job, checked(job, from_wire([["\ud800", [], "\udce9 \ud800"]])))
    job.close()
    assert ranges_of([[1, 2], [3, 1 << 63]]) == [(1, 2)]
    with pytest.raises(TaskError, match="NUL"):
        from_wire([["", [], "a\0b"]])
