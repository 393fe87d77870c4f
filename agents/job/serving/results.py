"""Takes the results of workers, and what the loss of a worker means for its tasks."""

from __future__ import annotations

import time

from agents.job.parts.part import Part, overriding
from agents.job.workers.messages import KILLED
from redmesh.state import RUNNING, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from agents.job.parts.part import JobContext
    from agents.job.tasks.task_list import Change
    from agents.job.workers.messages import Result
    from agents.job.workers.worker import Connection, Worker
    from redmesh.state import StateObject


class Results:
    """Records how attempts at the tasks of a job end. ``parts`` decide what counts."""

    def __init__(self, context: JobContext, parts: Sequence[Part]) -> None:
        self._context, self._parts = context, parts
        self._tasks, self._pace, self._owner = context.tasks, context.pace, context.owner
        self._in_order = all(part.in_order for part in parts)
        self._deciding, self._told = overriding(parts, Part.on_result), overriding(parts, Part.on_ended)
        self._most_lines = max(part.most_lines for part in parts)

    def take(self, worker: Worker, results: Sequence[Result]) -> None:
        """Take the results of one request of a worker."""
        for result in results:
            self._take_result(worker, result)
        for part in self._parts:
            part.after_results()
        why = self._tasks.too_many_failed()
        if why:
            self._context.cancel(why, fails=True)

    def _take_result(self, worker: Worker, told: Result) -> None:
        holder, number, attempt = worker.holder, told.number, told.attempt
        current = self._tasks.given_to(holder).get(number) == attempt
        result = self._counting(worker, told, current=current) if self._deciding else told
        if result is None:
            return
        if result.given_back:
            self._take_back(worker, result)
            return
        worker.since, worker.recalled = time.monotonic(), False
        self._pace.took(result.ended_at - result.started_at)
        change = self._tasks.end(holder, number, attempt, failed=result.failed)
        if change is not None:
            self._record_end(change, result, holder.node)
        for part in self._told:
            part.on_ended(worker, result, change)

    def _counting(self, worker: Worker, told: Result, *, current: bool) -> Optional[Result]:
        result = told
        for part in self._deciding:
            counting = part.on_result(worker, result, current=current)
            if counting is None:
                return None
            result = counting
        return result

    def _take_back(self, worker: Worker, result: Result) -> None:
        begun = result.cause == KILLED
        change = self._tasks.killed(worker.holder, result.number, result.attempt, begun=begun)
        if change is not None:
            self.record_change(change, begun=begun)
            for part in self._parts:
                part.on_given_back(change)

    def _record_end(self, change: Change, result: Result, node: str) -> None:
        number, status, cause, copies = result.number, result.status, result.cause, not self._in_order

        def record(job: StateObject) -> None:
            if change.state == RUNNING:
                job.log(f"a copy {change.cause}: {cause or f'exit status {status}'}", node=node, task=number)
                return
            job.ended(
                number, result.attempt, status, started_at=result.started_at, ended_at=result.ended_at, cause=cause,
                lines=result.lines, node=node if copies else "", copy=copies, most=self._most_lines,
            )  # fmt: skip
            if change.state == WAITING:
                job.change(number, number, WAITING, cause=change.cause.replace("failed", f"exit status {status}", 1))

        self._owner.record(record)

    def record_change(self, change: Change, *, begun: bool = True) -> None:
        """Record a change of a task that was not run to its end; ``begun``: a program ran."""
        for part in self._parts:
            part.on_change(change)
        number, state, cause = change.number, change.state, change.cause

        def record(job: StateObject) -> None:
            if state == RUNNING:  # another copy still runs
                job.log(f"a copy was given up: {cause}", task=number)
            elif state == WAITING and not begun:
                job.change(
                    number, number, state, cause=cause, attempt=change.attempt - 1, started_at=None, ended_at=None
                )
            else:
                ended_at = None if state == WAITING else time.time()
                job.change(number, number, state, cause=cause, ended_at=ended_at)

        self._owner.record(record)

    def lose(self, connection: Connection) -> None:
        """The ranks of a launch have ended: what its workers still had is tried again."""
        gone = list(connection.workers.values())
        vanished = [] if connection.grant is None else connection.grant.vanished
        for holder in dict.fromkeys(worker.holder for worker in gone):
            nodes = set(holder.node.split(","))
            # A launch ends as a whole: if it is known which node was lost, do not blame the others.
            blamed = nodes.intersection(vanished) or (set() if vanished else nodes)
            for change in self._tasks.lose(holder, f"the worker on {holder.node} was lost"):
                self.record_change(change)
                for part in self._parts:
                    part.on_lost(change, blamed)
        for worker in gone:
            for part in self._parts:
                part.on_worker_lost(worker)
