"""The standby of a job, and its move to another login processor."""

from __future__ import annotations

from agents.job.parts.part import Part
from agents.job.parts.standby import Standby
from agents.job.phase import Phase
from agents.job.workers.commands import CommandAnswer, Outcome, PendingCommand
from redmesh.state import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence

    from agents.job.parts.part import JobContext
    from agents.job.workers.commands import Command, Handler
    from agents.job.workers.worker import Connection

#: Seconds until a move is tried again that waits for launches of a lost owner.
_AGAIN_S = 0.2


class Moves(Part):
    """The standby, commands that move the job, and how many tasks may start before the standby knows."""

    _standby: Standby

    def __init__(self) -> None:
        self._waiting: List[PendingCommand] = []  # for the outcome

    def attach(self, context: JobContext) -> None:
        """Make the standby."""
        super().attach(context)
        wanted = context.described.standby and context.described.functions is None
        self._standby = Standby(
            context.loop, context.owner, context.fence, self._on_leave, context.serve, wanted=wanted
        )  # fmt: skip

    def begin(self) -> None:
        """Have commits copied, soon or at once."""
        self._standby.begin()

    def is_clear(self) -> bool:
        """False until the tracker has confirmed a job that had a standby."""
        return self._standby.clear

    def room(self) -> int:
        """Tasks that may start before the standby has confirmed some."""
        return self._standby.room

    def on_handed_out(self, numbers: Sequence[int]) -> None:
        """Count them for the standby."""
        self._standby.handed_out(len(numbers))

    def commands(self) -> Dict[str, Handler]:
        """The command that moves the job."""
        return {"move": self._on_move}

    def _on_move(self, connection: Connection, command: Command) -> Outcome:
        if self.context.phase.now is Phase.AWAITING and self._standby.node:
            return Outcome.EARLY  # launches of a lost owner may still run tasks
        try:
            self.move(command.node)
        except StateError as error:
            CommandAnswer(error=error.message, hint=error.hint).send(connection, command)
        else:
            self._waiting.append(PendingCommand(connection, command))
        return Outcome.LATER

    def move(self, login: str) -> None:
        """Continue the job on another login processor, if possible. Raises StateError."""
        uuid = self.context.job.uuid
        if self.context.phase.now not in (Phase.AWAITING, Phase.SERVING):
            raise StateError(f"job {uuid} is ending or being moved already", "mesh job show")
        if not self._standby.node:
            raise StateError(
                f"job {uuid} cannot move: it has no standby, whose copy would become the object",
                "a job gets one after 3 s where another host is up; mesh job log names it",
            )
        self._standby.leave(login)

    def _on_leave(self, login: str, reason: str) -> None:
        if self.context.phase.now is Phase.AWAITING and not reason:
            # Asked by another login processor: once launches of a lost owner have ended, which may still run tasks.
            self.context.loop.after(_AGAIN_S, lambda: self._on_leave(login, reason))
            return
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            command.answer(CommandAnswer(error=reason))
        if self.context.phase.now is not Phase.SERVING:
            return
        if reason:
            self.context.owner.record(lambda job: job.log(f"the job stays here: {reason}"))
        else:
            self.context.leave_to(login)

    def close(self, state: str, *, fenced: bool) -> None:
        """The standby's process finishes by itself."""
        self._standby.close()
