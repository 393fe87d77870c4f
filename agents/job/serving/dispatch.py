"""Gives tasks to the workers of a job that ask for some."""

from __future__ import annotations

import json
import time

from agents.job.parts.part import Part, overriding
from agents.job.workers.messages import Cancel, Kill, Stop, Tasks, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence

    from agents.job.parts.part import JobContext
    from agents.job.workers.messages import Answer
    from agents.job.workers.worker import Worker
    from redmesh.state import StateObject, Task

#: The most bytes of inputs in one batch, because a frame has a limit.
_BATCH_BYTES = 256 << 10


class Dispatch:
    """Gives out the tasks of a job. ``parts`` may answer workers instead."""

    def __init__(self, context: JobContext, parts: Sequence[Part]) -> None:
        self._context, self._parts = context, parts
        self._in_order = all(part.in_order for part in parts)
        self._assigned = overriding(parts, Part.on_assigned)
        self._most_ahead = min(part.most_ahead for part in parts)

    def serve(self) -> List[Worker]:
        """Answer the workers that ask for tasks, as far as possible; returns these workers."""
        ready = [worker for worker in self._context.workers if worker.reply is not None and not worker.stopped]
        for worker in ready:
            self._serve_worker(worker)
        return ready

    def expects(self) -> bool:
        """True if more tasks may come."""
        return any(part.expects() for part in self._parts)

    def _serve_worker(self, worker: Worker) -> None:
        if any(part.before_tasks(worker) for part in self._parts):
            return
        if worker.backlog:
            self._send(worker)
        elif self._context.tasks.cancelled and self._context.tasks.given_to(worker.holder):
            if not worker.cancelled:
                worker.cancelled = True
                self.answer(worker, Cancel())
        elif worker.kill:
            self.answer(worker, Kill(worker.kill))
            worker.kill = []
        elif not any(part.serve(worker) for part in self._parts):
            self._give_more(worker)

    def _give_more(self, worker: Worker) -> None:
        tasks = self._context.tasks
        has = len(tasks.given_to(worker))
        ahead = min(self._context.pace.ahead(tasks.waiting + has, len(self._context.workers)), self._most_ahead)
        if has > ahead // 2:
            return
        gets = bool(tasks.waiting and tasks.open and tasks.suits(worker.node))
        room = self.room() if gets else 0
        # A new worker has a task first. Requests that come and go would otherwise have workers started for nothing.
        new = room > 0 and not worker.since
        if not new and self._context.processors.gives_back(worker.connection.grant):
            if not has:
                self.stop(worker)
            return
        if gets:
            if room > 0:
                worker.since = worker.since if has else time.monotonic()
                self.give(worker, min(ahead - has, room))
        elif not has and not self.keeps(worker):
            self.stop(worker)

    def room(self) -> int:
        """How many tasks may be given out now."""
        return min(part.room() for part in self._parts)

    def keeps(self, worker: Worker) -> bool:
        """True if a worker without tasks got other work, or waits for some."""
        if any(part.employ(worker) for part in self._parts):
            return True
        return bool(self._context.tasks.running and self._context.described.retries) or any(
            part.keeps_workers() for part in self._parts
        )

    def give(self, worker: Worker, count: int) -> None:
        """Give a worker, or its team, the next ``count`` tasks."""
        node, in_order = worker.holder.node, self._in_order and self._context.tasks.in_order
        numbers = [number for number, _ in self._context.tasks.hand_out(worker.holder, count, node)]
        for part in self._parts:
            part.on_handed_out(numbers)
        taken: List[Task] = []

        def record(job: StateObject) -> None:
            slot = worker.slot
            taken.extend(job.take(len(numbers), node, slot) if in_order else job.take_these(numbers, node, slot))

        self._context.owner.record(record)
        if [task.number for task in taken] == numbers and self.committed():  # otherwise the object is full
            self.assign(worker, taken)

    def committed(self) -> bool:
        """Commit before a worker gets tasks, so that the object of a killed owner knows which tasks may have begun.

        Returns False if the object is full: the owner's failure ends the job.
        """
        self._context.owner.commit()
        return not (
            self._context.phase.closed or self._context.job.dirty
        )  # a failed commit was rolled back, and has ended the job

    def assign(self, worker: Worker, tasks: Sequence[Task]) -> None:
        """Send a worker, or its team, tasks that it was given."""
        members = (worker,) if worker.team is None else worker.team.members
        for task in tasks:
            for part in self._assigned:
                task = part.on_assigned(worker, task)
            for member in members:
                member.backlog.append(task)
        for member in members:
            self._send(member)

    def _send(self, worker: Worker) -> None:
        """Send a worker its assigned tasks, as many as one frame holds."""
        tasks: List[Task] = []
        size = 0
        while worker.backlog and (not tasks or size < _BATCH_BYTES):
            tasks.append(worker.backlog.popleft())
            text = tasks[-1].input or ""
            size += len(text) if text.isascii() else len(json.dumps(text))
        self.hand(worker, tasks)

    def hand(self, worker: Worker, tasks: Sequence[Task], *, test: bool = False) -> None:
        """Send a worker tasks, and the job if it does not know it; ``test``: the worker tests its node."""
        answer = Tasks(tasks, test=test)
        if not worker.knows_job:
            worker.knows_job = True
            answer.job = self._context.described.for_workers(self._context.job.uuid)
            for part in self._parts:
                part.describe(answer.job)
        self.answer(worker, answer)

    def stop(self, worker: Worker) -> None:
        """Have a worker exit."""
        worker.stopped = True
        if worker.connection.grant is not None:
            worker.connection.grant.stopped += 1
        self.answer(worker, Stop())

    def answer(self, worker: Worker, answer: Answer) -> None:
        """Answer a worker's request for tasks."""
        reply, worker.reply = worker.reply, None
        if reply is not None:
            reply(pack(answer, byte_text=worker.byte_text, sections=self._context.described.sections is not None))
