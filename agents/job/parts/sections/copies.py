"""Second copies of slow sections, on workers that are idle."""

from __future__ import annotations

import time

from agents.job.parts.part import Part
from agents.job.workers.worker import Team, Worker
from redmesh.state import RUNNING, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from agents.job.tasks.task_list import Change
    from agents.job.workers.messages import Result

#: A section is copied to an idle worker after this many times the mean, and at least this many seconds.
_SLOW, _SLOW_S = 2.0, 1.0


class Copies(Part):
    """Copies slow sections. The first copy to succeed counts."""

    def __init__(self) -> None:
        self._began: Dict[int, float] = {}  # running sections: when the first copy was started

    def on_taken_up(self) -> None:
        """The mean of sections that ended before says which are slow."""
        took_s = self.context.job.mean_s()
        if took_s is not None:
            self.context.pace.took(took_s)

    def on_handed_out(self, numbers: Sequence[int]) -> None:
        """The first copies start now."""
        self._began.update(dict.fromkeys(numbers, time.time()))

    def employ(self, worker: Worker) -> bool:
        """Give an idle worker a second copy of a slow section."""
        tasks, node = self.context.tasks, worker.holder.node
        if tasks.waiting or not tasks.open:
            return False
        copied = tasks.copy(worker.holder, node, self._slow())
        if copied is None:
            return bool(tasks.running)  # one may become slow, so this worker is kept
        number, attempt = copied
        taken: List[Task] = []
        self.context.owner.record(lambda job: taken.append(job.copied(number, node)))
        if taken and self.context.dispatch.committed():
            self.context.dispatch.assign(worker, [Task(number, taken[0].input, attempt)])
        return True

    def useful(self) -> int:
        """Slow sections without a second copy."""
        return sum(map(self.context.tasks.may_be_copied, self._slow()))

    def _slow(self) -> List[int]:
        pace = self.context.pace
        if not pace.known:
            return []  # all of them may become slow
        limit = time.time() - max(_SLOW_S, _SLOW * pace.mean_s)
        return [number for number, began in self._began.items() if began < limit]

    def on_ended(self, worker: Worker, result: Result, change: Optional[Change]) -> None:
        """Forget a section that has ended."""
        if change is not None:
            self.on_change(change)

    def on_change(self, change: Change) -> None:
        """Forget a section that does not run."""
        if change.state != RUNNING:
            self._began.pop(change.number, None)

    def after_results(self) -> None:
        """Have workers end copies that are no longer needed."""
        obsolete = self.context.tasks.obsolete
        for holder, number in obsolete:
            if isinstance(holder, Team):
                holder.over = True
                for member in holder.members:
                    member.kill.append(number)
            elif isinstance(holder, Worker):
                holder.kill.append(number)
        obsolete.clear()
