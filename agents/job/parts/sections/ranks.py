"""Sections of several ranks: each launch runs one section, and ends with it."""

from __future__ import annotations

from agents.job.parts.part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from agents.job.description import SectionRules
    from agents.job.parts.sections.node_tests import NodeTests
    from agents.job.workers.messages import Result
    from agents.job.workers.worker import Team, Worker


class Ranks(Part):
    """Gives each team of workers one section."""

    def __init__(self, rules: SectionRules, node_tests: NodeTests) -> None:
        self._rules, self._node_tests = rules, node_tests

    def words(self) -> List[str]:
        """The ranks are those of an MPI program."""
        return ["-mpi", self._rules.mpi]

    def serve(self, worker: Worker) -> bool:
        """Test the nodes, then give one section to all ranks, then have them exit."""
        team = worker.team
        if team is None:
            return False
        if team.over:
            self.context.dispatch.stop(worker)
        elif not self._node_tests.admit(worker):
            if worker.stopped:
                self._dismiss(team)
        elif not self.context.tasks.given_to(team):
            self._give(worker, team)
        return True

    def _give(self, worker: Worker, team: Team) -> None:
        tasks = self.context.tasks
        waits = tasks.waiting and tasks.open
        if not waits and not tasks.running:
            self._dismiss(team)
        elif not self._is_ready(team):
            if any(one.stopped for one in team.members):
                self._dismiss(team)
        elif waits and tasks.suits(team.node):
            if self.context.dispatch.room() > 0:
                self.context.dispatch.give(worker, 1)
        elif not self.context.dispatch.keeps(worker):
            self._dismiss(team)

    def _is_ready(self, team: Team) -> bool:
        """True if every rank asks for work, on a good node."""
        return team.complete and all(one.reply is not None and self._node_tests.admit(one) for one in team.members)

    def _dismiss(self, team: Team) -> None:
        team.over = True
        for member in team.members:
            if member.reply is not None and not member.stopped:
                self.context.dispatch.stop(member)

    def on_result(self, worker: Worker, result: Result, *, current: bool) -> Optional[Result]:
        """The section has ended when all ranks have; after the first failure, the others are killed."""
        team = worker.team
        if team is None or not current:
            return result
        for other in team.take(worker, result):
            other.kill.append(result.number)
        if not team.ended:
            return None
        team.over = True
        return team.result()
