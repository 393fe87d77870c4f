"""Adds tasks to the state object of a job that may have some already."""

from __future__ import annotations

from agents.job.tasks.new_tasks import TaskError, resolve
from redmesh.state import StateError
from redmesh.state_graph import StateGraph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Sequence, Tuple

    from agents.job.tasks.new_tasks import NewTask, Ordered
    from redmesh.state import StateObject

#: About how many bytes of the object a task takes, and each task that it comes after.
_TASK_BYTES, _EDGE_BYTES = 120, 24


class Additions:
    """Tasks to be added, checked against what the job has: tasks with their lines, and ranges of tasks without."""

    def __init__(self, tasks: List[Ordered], ranges: Sequence[Tuple[int, int]], first: int) -> None:
        self.tasks, self.ranges, self.first = tasks, ranges, first
        self.last = ranges[-1][1] if ranges else first + len(tasks) - 1


def checked(job: StateObject, tasks: Sequence[NewTask], ranges: Sequence[Tuple[int, int]] = ()) -> Additions:
    """What can be added to ``job``. Raises StateError if it cannot be; nothing is written."""
    graph = StateGraph(job)
    first = graph.last_number() + 1
    if tasks and ranges:
        raise StateError("lines of tasks and numbers exclude each other", "add them one after the other")
    if ranges and ranges[0][0] < first:
        raise StateError(f"the job has task {ranges[0][0]} already, or had", f"new tasks are numbered from {first} on")
    try:
        ordered = resolve(tasks, first, graph.number_of, graph.taken)
    except TaskError as error:
        raise StateError(error.message, error.hint) from None
    size = sum(_TASK_BYTES + len(task.input) + len(task.id) + _EDGE_BYTES * len(task.after) for task in ordered)
    job.check_room_for(size + _TASK_BYTES * len(ranges))
    return Additions(ordered, ranges, ranges[0][0] if ranges else first)


def write(job: StateObject, added: Additions) -> None:
    """Record what :func:`checked` has returned. Raises StateError."""
    for first, last in added.ranges:
        job.add_array(first, last)
    write_tasks(job, added.tasks, added.first)


def write_tasks(job: StateObject, tasks: Iterable[Ordered], first: int) -> None:
    """Record tasks with their lines, ids and order. Raises StateError."""
    tasks = list(tasks)
    job.add_list((task.input for task in tasks), first)
    StateGraph(job).add(
        [(task.number, task.id) for task in tasks if task.id],
        [(task.number, after) for task in tasks for after in task.after],
    )
