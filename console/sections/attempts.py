"""All attempts at a job's sections from its state object, for the report and GNU parallel's job log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redmesh.state import CANCELLED, RUNNING
from redmesh.state_reader import StateReader

#: The cause of another attempt (agents/job/job_owner.py).
_RETRIED = re.compile(r"exit status (\d+): retry")


class Attempt(NamedTuple):
    """An attempt at a section. ``began`` and ``ended`` are seconds since 1970; ``ended`` is None while it runs.

    ``state`` is its outcome: ``done``, ``failed``, ``cancelled``, or ``waiting`` for a section that is tried again.
    ``exit``: its exit status, None if its worker was lost.
    """

    number: int
    node: str
    began: float
    ended: float | None
    state: str
    cause: str
    exit: int | None


def attempts(job: StateReader) -> list[Attempt]:
    """All attempts, in the order of their start."""
    tasks = {task.first: task for task in job.tasks()}
    last_of: dict[int, int] = {}  # section -> the index of the attempt with its last outcome
    running: dict[int, list[int]] = {}  # section -> the indices of its running copies
    found: list[Attempt] = []
    for _, at, first, last, state, node, cause in job.task_transitions():
        for number in range(first, last + 1):
            if state == RUNNING:
                running.setdefault(number, []).append(len(found))
                found.append(Attempt(number, node or "", at, None, RUNNING, "", None))
            elif copies := running.pop(number, []):
                its = next((place for place in copies if found[place].node == node), copies[-1])
                for place in copies:
                    found[place] = found[place]._replace(ended=at, state=CANCELLED, cause="another copy was first")
                found[its] = found[its]._replace(state=state, cause=cause or "")
                last_of[number] = its
            elif number in last_of and (told := _RETRIED.match(cause or "")):
                found[last_of[number]] = found[last_of[number]]._replace(exit=int(told[1]))
    for number, place in last_of.items():
        task, one = tasks[number], found[place]
        if task.state == one.state:  # a worker gets short tasks in advance, so they begin later than they are given out
            found[place] = one._replace(exit=task.exit, began=task.started_at or one.began)
    return found


def joblog(found: list[Attempt], command_of: Callable[[int], str]) -> Iterator[str]:
    """GNU parallel's ``--joblog``: a line for each ended attempt, in the order of their ends."""
    yield "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
    for one in sorted((one for one in found if one.ended is not None), key=lambda one: one.ended or 0.0):
        status = one.exit if one.exit is not None else 0 if one.state == "done" else 255
        killed = status - 128 if status > 128 and one.state != "done" and status != 255 else 0
        took = (one.ended or one.began) - one.began
        fields = (one.number, one.node or ":", f"{one.began:.3f}", f"{took:10.3f}", 0, 0)
        words = command_of(one.number).replace("\t", " ").replace("\n", " ")
        yield "\t".join(map(str, (*fields, 0 if killed else status, killed, words))) + "\n"
