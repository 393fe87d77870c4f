"""Tasks that are added while the job runs: to an open job by users, and by a task to its own job (docs/jobs.md)."""

from __future__ import annotations

import json

from agents.job.description import OPEN
from agents.job.parts.part import Part
from agents.job.tasks.adding import checked, write
from agents.job.tasks.new_tasks import TaskError, from_wire
from agents.job.workers.commands import CommandAnswer, Outcome
from redmesh.state import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from agents.job.parts.order import Order
    from agents.job.parts.part import JobContext
    from agents.job.state_requests import Operation, Request
    from agents.job.tasks.adding import Additions
    from agents.job.tasks.new_tasks import NewTask
    from agents.job.workers.commands import Command, Handler
    from agents.job.workers.worker import Connection


class AddedTasks(Part):
    """Adds tasks. ``order``: the part that has them wait for others."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._open = False

    def attach(self, context: JobContext) -> None:
        """Look whether the job is open."""
        super().attach(context)
        self._open = bool(context.job.meta(OPEN))

    def expects(self) -> bool:
        """More tasks may come while the job is open."""
        return self._open and not self.context.tasks.cancelled

    def keeps_workers(self) -> bool:
        """An open job without tasks keeps no processors."""
        return False

    def commands(self) -> Dict[str, Handler]:
        """``mesh job add`` and ``mesh job close``."""
        return {"add": self._on_add, "close_job": self._on_close}

    def operations(self) -> Dict[str, Operation]:
        """``yodstate tasks add``: the job cannot end while the task that asks for it runs."""
        return {"add": self._on_program}

    def _on_add(self, connection: Connection, command: Command) -> Outcome:
        uuid = self.context.job.uuid[:8]
        try:
            if not self._open:
                raise StateError(f"job {uuid} is not open", "mesh submit --open makes one that tasks can be added to")
            added = self._add(command.new_tasks, command.ranges)
        except (StateError, TaskError) as error:
            CommandAnswer(error=error.message, hint=error.hint).send(connection, command)
            return Outcome.LATER
        self.context.owner.commit()
        CommandAnswer(first=added.first, last=added.last).send(connection, command)
        self.context.serve()
        return Outcome.LATER

    def _on_program(self, request: Request) -> bytes:
        try:
            added = self._add(from_wire(request.get("tasks")), ())
        except TaskError as error:
            raise StateError(error.message, error.hint) from None
        self.context.loop.after(0.0, self.context.serve)
        return json.dumps({"first": added.first, "last": added.last}).encode()

    def _add(self, new: List[NewTask], ranges: Sequence[Tuple[int, int]]) -> Additions:
        context, tasks = self.context, self.context.tasks
        if tasks.cancelled or not context.phase.active:
            raise StateError(
                f"job {context.job.uuid[:8]} is ending: {tasks.cancelled or 'it is closed'}", "mesh submit"
            )
        added = checked(context.job, new, ranges)
        if tasks.finished:
            context.measure_anew()
        context.owner.record(lambda job: write(job, added))
        for first, last in ranges:
            tasks.add(first, last)
        if added.tasks:
            tasks.add(added.first, added.last)
        self._order.block(added.first - 1)
        return added

    def _on_close(self, _connection: Connection, _command: Command) -> Outcome:
        if self._open:
            self._close()
            self.context.owner.record(lambda job: job.log("closed: no more tasks are added"))
        return Outcome.DONE

    def _close(self) -> None:
        self._open = False
        self.context.owner.record(lambda job: job.set_meta(**{OPEN: 0}))

    def on_cancel(self, reason: str, error: str, *, again: bool) -> None:
        """A job that is cancelled is closed."""
        if self._open:
            self._close()
