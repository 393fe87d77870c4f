"""Tasks in advance that a worker gives back, because the task in front of them takes long.

The mean of short tasks says nothing of a long one among them, behind which others would wait while processors are idle.
"""

from __future__ import annotations

import time

from agents.job.parts.part import Part
from agents.job.workers.messages import Recall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from agents.job.workers.worker import Worker

#: Seconds after which a worker that returns nothing gives back the tasks that it has not begun.
_RECALL_S = 0.5


class Recalls(Part):
    """Asks workers for tasks that they have not begun."""

    def __init__(self) -> None:
        self._checks = False  # a check is due

    def serve(self, worker: Worker) -> bool:
        """Have a worker whose task takes long give back the others, for workers that are idle or will come."""
        has = len(self.context.tasks.given_to(worker))
        now = time.monotonic()
        if not has or now - worker.since < _RECALL_S:
            return False
        if has > 1 and not worker.recalled and not self.context.tasks.cancelled:
            worker.recalled = True
            self.context.pace.took(now - worker.since)
            self.context.dispatch.answer(worker, Recall())
        return True

    def after_serve(self, ready: Sequence[Worker]) -> None:
        """Check workers with tasks in advance again after a pause."""
        tasks = self.context.tasks
        if not self._checks and any(len(tasks.given_to(worker)) > 1 for worker in ready):
            self._checks = True
            self.context.loop.after(_RECALL_S, self._check)

    def _check(self) -> None:
        self._checks = False
        self.context.serve()
