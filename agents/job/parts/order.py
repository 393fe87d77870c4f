"""Tasks that come after others: they wait, and are cancelled if one of those fails (docs/jobs.md)."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from agents.job.parts.part import Part
from agents.job.tasks.task_graph import merged
from redmesh.state import CANCELLED, FAILED
from redmesh.state_graph import StateGraph, dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, List, Set, Tuple

    from agents.job.parts.part import JobContext
    from agents.job.tasks.task_list import Change
    from agents.job.workers.worker import Worker
    from redmesh.state import StateObject
    from redmesh.state_graph import Awaited


class Order(Part):
    """The order of a job's tasks, from its state object."""

    def attach(self, context: JobContext) -> None:
        """Open the tables of the order."""
        super().attach(context)
        self._graph = StateGraph(context.job)

    def on_taken_up(self) -> None:
        """Have tasks wait for others."""
        self.block()

    def on_again(self) -> None:
        """Have tasks wait again for those that run again."""
        self.block()

    def block(self, above: int = -1) -> None:
        """Have the tasks above a number wait for those that they come after."""
        lost: Dict[int, str] = {}
        self.context.tasks.block(_grouped(self._graph.awaited(above), lost))
        for number, state in lost.items():
            self.context.tasks.drop_after(number, state)
        self._record()

    def after_results(self) -> None:
        """Record what is cancelled because tasks have failed."""
        self._record()

    def on_lost(self, change: Change, nodes: Set[str]) -> None:
        """Record what is cancelled because a task was lost too often."""
        self._record()

    def employ(self, worker: Worker) -> bool:
        """Keep a worker while others run tasks for which more tasks wait: starting one takes longer than most tasks.

        Its processor is given to a request that waits for one.
        """
        tasks = self.context.tasks
        return bool(tasks.blocked and tasks.running and tasks.open)

    def _record(self) -> None:
        tasks = self.context.tasks
        if not tasks.dropped:
            return
        numbers: Dict[Tuple[int, str], List[int]] = {}
        for one in tasks.dropped:
            numbers.setdefault((one.before, one.state), []).append(one.number)
        tasks.dropped = []
        for (before, state), gone in numbers.items():
            cause = f"task {self._graph.called(before)} {'failed' if state == FAILED else 'was cancelled'}"
            self.context.owner.record(partial(_cancel, merged(gone), cause))


def _grouped(awaited: Iterable[Awaited], lost: Dict[int, str]) -> Iterator[Tuple[int, List[int]]]:
    """Each task with those that it comes after. ``lost`` gets those that will not succeed, with their states."""
    for number, group in groupby(awaited, lambda one: one.number):
        after = []
        for one in group:
            after.append(one.after)
            if dead(one.state):
                lost[one.after] = one.state
        yield number, after


def _cancel(ranges: List[range], cause: str, job: StateObject) -> None:
    for some in ranges:
        job.change(some.start, some.stop - 1, CANCELLED, cause=cause, lines=f"not started: {cause}")
