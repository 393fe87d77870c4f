"""Sections run on nodes that were tested, and not again where they have failed."""

from __future__ import annotations

import time

from agents.job.parts.part import Part
from agents.job.parts.sections.nodes import Node, SectionNodes
from agents.job.workers.messages import NodeTested
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence, Set

    from agents.job.description import SectionRules
    from agents.job.tasks.task_list import Change
    from agents.job.workers.messages import Request, Result
    from agents.job.workers.worker import Worker

#: Seconds between looks at excluded nodes and running sections.
_LOOK_S = 1.0
#: Seconds for launches to end by themselves at the end of the job: a second copy may be on a silent node.
_END_S = 3.0


class NodeTests(Part):
    """Has workers test their nodes, and leaves out nodes that may run no sections."""

    in_order = False  # a section waits for a node where it has not failed
    most_ahead = 1

    def __init__(self, rules: SectionRules) -> None:
        self._rules = rules
        self._nodes = SectionNodes(rules.recheck_s)
        self._looks = False  # a look is due

    # Workers

    def admit(self, worker: Worker) -> bool:
        """True if a worker's node may run sections now; has it tested if that is unknown."""
        state = self._nodes.state(worker.node, time.monotonic())
        if state is Node.UNTESTED:
            self._nodes.test(worker.node, worker)
            self.context.dispatch.hand(worker, [], test=True)
        elif state is Node.EXCLUDED and not self.context.tasks.given_to(worker.holder):
            self.context.dispatch.stop(worker)
        return state is Node.GOOD

    def serve(self, worker: Worker) -> bool:
        """Only workers on good nodes get sections."""
        return not self.admit(worker)

    def on_request(self, worker: Worker, request: Request) -> None:
        """Take the result of a test."""
        if not isinstance(request, NodeTested):
            return
        reason = request.reason
        if self._nodes.tested(worker.node, worker, reason, time.monotonic()) and reason:
            self._log(f"{worker.node} is left out: {reason}", worker.node)
            self._exclude()

    def _log(self, text: str, node: str) -> None:
        self.context.owner.record(lambda job: job.log(text, node=node))

    def on_worker_lost(self, worker: Worker) -> None:
        """The node that it was testing is untested."""
        self._nodes.lose(worker)

    # Nodes where sections fail

    def on_ended(self, worker: Worker, result: Result, change: Optional[Change]) -> None:
        """Doubt the node where a section has failed."""
        if change is not None and result.failed:
            self._avoid(change, result.blamed or worker.holder.node)

    def on_lost(self, change: Change, nodes: Set[str]) -> None:
        """Doubt the nodes where a worker was lost."""
        for node in nodes:
            self._avoid(change, node)

    def _avoid(self, change: Change, node: str) -> None:
        if not self._rules.same_node:
            self.context.tasks.avoid(change.number, node)
        self._nodes.doubt(node)

    # Processors

    def after_serve(self, ready: Sequence[Worker]) -> None:
        """Request no processors on nodes that may run no section, and check again after a while."""
        self._exclude()

    def _exclude(self) -> None:
        tasks, nodes = self.context.tasks, self._nodes
        useless = [] if tasks.running else [node for node in nodes.met() if not tasks.suits(node)]
        self.context.processors.exclude(sorted({*nodes.excluded(), *(useless if tasks.waiting else ())}))
        if not self._looks and (nodes.excluded() or tasks.running):
            self._looks = True
            self.context.loop.after(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._looks = False
        if not self.context.phase.active:
            return
        for node in self._nodes.due(time.monotonic()):
            self._log(f"{node} is looked at again", node)
        self.context.serve()

    def keeps_asking(self) -> bool:
        """While sections run, an excluded node may become usable."""
        return bool(self.context.tasks.running)

    def incomplete(self, reason: str, *, startable: bool) -> str:
        """Which sections are missing, and which nodes are left out."""
        tasks, left = self.context.tasks, self._nodes.left_out()
        missing = counted(tasks.waiting, "section")
        if not startable:
            return f"incomplete, {missing} missing: {reason}{left}"
        told = left or "; what is missing has failed on every node (--same-node allows more)"
        if self._rules.size > 1 and not left:
            told = f"; a section has {self._rules.size} ranks: {reason}"
            if not all(map(tasks.suits, self._nodes.met())):
                told += "; what has failed on a node is not tried there again (--same-node allows it)"
        return f"incomplete, no node is left for {missing}{told}"

    def on_end(self) -> None:
        """End launches on silent nodes: second copies may be there, whose results nobody needs."""
        processors = self.context.processors
        self.context.loop.after(_END_S, lambda: processors.end(kill=True))
        self.context.loop.after(2 * _END_S, processors.abandon)
