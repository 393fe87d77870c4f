"""Tasks that are added to a job, with the tasks that they come after: from ids to numbers. No I/O."""

from __future__ import annotations

import re

from redmesh.byte_text import without_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

#: What an id is. The ids of a line are separated by commas and end with a colon.
_ID = re.compile(r"[^\s,:\x00-\x1f\x7f]{1,200}")
#: A number of a task is smaller: SQLite has 63 bits.
_MOST = 1 << 62
#: The most tasks of a cycle that an error names.
_NAMED = 5


class TaskError(Exception):
    """A task cannot be added; ``place`` is its place in what was given, from 0."""

    def __init__(self, place: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.place, self.message, self.hint = place, message, hint


class NewTask:
    """A task to be added. ``id``: its name within the job, or ""; ``after``: ids of others, or numbers of tasks without
    an id; ``input``: its line."""

    __slots__ = ("after", "id", "input")

    def __init__(self, id: str, after: Sequence[str], input: str) -> None:
        self.id, self.after, self.input = id, after, input


class Ordered:
    """A task with its number: what is recorded of it. ``after``: the numbers of the tasks that it comes after."""

    __slots__ = ("after", "id", "input", "number")

    def __init__(self, number: int, task: NewTask, after: Sequence[int]) -> None:
        self.number, self.id, self.input, self.after = number, task.id, task.input, after


def to_wire(tasks: Sequence[NewTask]) -> List[List[object]]:
    """As members of a JSON object."""
    return [[task.id, list(task.after), task.input] for task in tasks]


def from_wire(told: object) -> List[NewTask]:
    """Parse the result of :func:`to_wire`. Raises TaskError."""
    found = []
    for place, row in enumerate(told if isinstance(told, list) else ()):
        if not (
            isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[1], list)
            and all(isinstance(one, str) for one in row[1]) and isinstance(row[2], str)
        ):  # fmt: skip
            raise TaskError(
                place, "a task is an id, a list of ids and a line", "use mesh job add or yodstate tasks add"
            )
        id, after, line = row
        if "\0" in line:
            raise TaskError(place, "the line of a task has a NUL character", "a program takes no argument with NUL")
        found.append(
            NewTask(without_surrogates(id), [without_surrogates(one) for one in after], without_surrogates(line))
        )
    return found


def resolve(
    tasks: Sequence[NewTask], first: int = 1, known: Callable[[str], Optional[int]] = lambda _: None,
    taken: Callable[[str], bool] = lambda _: False,
) -> List[Ordered]:  # fmt: skip
    """The tasks with their numbers, from ``first`` on. ``known``: the number of an earlier task of the job by its id,
    or by its number as text; ``taken``: whether an earlier task has this id. Raises TaskError for ids that are not
    known or stand twice, and for cycles."""
    numbers: Dict[str, int] = {}
    for place, task in enumerate(tasks):
        if not task.id:
            continue
        if not _ID.fullmatch(task.id):
            raise TaskError(
                place, f"{task.id[:60]!r} is not an id of a task", "up to 200 characters without spaces, commas, colons"
            )
        if task.id in numbers:
            earlier = numbers[task.id]
            raise TaskError(place, f"two tasks have the id {task.id}: {earlier} and {first + place}", "rename one")
        if taken(task.id):
            raise TaskError(place, f"the job has a task with the id {task.id} already", "rename the new one")
        numbers[task.id] = first + place
    found: List[Ordered] = []
    for place, task in enumerate(tasks):
        after: Dict[int, None] = {}  # in order, each once: an id and its number are the same task
        for one in dict.fromkeys(task.after):
            number = numbers.get(one)
            number = known(one) if number is None else number
            if number is None:
                it = _called(first + place, task.id)
                raise TaskError(
                    place,
                    f"there is no task {one[:60]!r} that task {it} could come after",
                    "name the id of another line, or of a task that the job has",
                )
            after[number] = None
        found.append(Ordered(first + place, task, list(after)))
    _refuse_cycle(found, first)
    return found


def _called(number: int, id: str) -> str:
    return f"{number} ({id})" if id else str(number)


def _refuse_cycle(tasks: Sequence[Ordered], first: int) -> None:
    """Raises TaskError if some of ``tasks``, which are numbered from ``first`` on, wait for each other."""
    missing = [0] * len(tasks)
    followers: Dict[int, List[int]] = {}
    for task in tasks:
        for number in task.after:
            if number >= first:
                missing[task.number - first] += 1
                followers.setdefault(number, []).append(task.number)
    free = [task.number for task in tasks if not missing[task.number - first]]
    count = 0
    while free:
        count += 1
        for number in followers.get(free.pop(), ()):
            missing[number - first] -= 1
            if not missing[number - first]:
                free.append(number)
    if count < len(tasks):
        path = _cycle({task.number: task for task in tasks if missing[task.number - first]})
        named = [_called(task.number, task.id) for task in path]
        told = ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")
        what = f"tasks come after each other: {told}" if len(named) > 1 else f"task {told} comes after itself"
        raise TaskError(path[0].number - first, what, "leave out one of these dependencies")


def _cycle(stuck: Mapping[int, Ordered]) -> List[Ordered]:
    """A cycle among tasks of which each waits for another one, from its smallest number."""
    number, seen = min(stuck), {}  # type: int, Dict[int, int]
    while number not in seen:
        seen[number] = len(seen)
        number = next(one for one in stuck[number].after if one in stuck)
    path = list(seen)[seen[number] :]
    least = path.index(min(path))
    return [stuck[one] for one in path[least:] + path[:least]]


def ranges_of(told: object) -> List[Tuple[int, int]]:
    """Ranges of numbers, from JSON; those that are none are left out."""
    rows = told if isinstance(told, list) else []
    return [
        (row[0], row[1]) for row in rows
        if isinstance(row, list) and len(row) == 2 and all(type(one) is int for one in row)
        and 0 <= row[0] <= row[1] < _MOST
    ]  # fmt: skip
