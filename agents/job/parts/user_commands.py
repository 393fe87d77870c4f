"""Commands of users: ``mesh cancel``, ``hold``, ``release``, ``retry``, ``wait``, and the mesh that goes down."""

from __future__ import annotations

from agents.job.parts.part import Part
from agents.job.workers.commands import CommandAnswer, Outcome, PendingCommand
from redmesh.state import CANCELLED, FAILED, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from agents.job.workers.commands import Command, Handler
    from agents.job.workers.worker import Connection


class UserCommands(Part):
    """Carries out the commands that every job has."""

    def __init__(self) -> None:
        self._waiters: List[PendingCommand] = []  # for the end of the job

    def commands(self) -> Dict[str, Handler]:
        """The commands of every job."""
        return {
            "wait": self._wait, "cancel": self._cancel, "hold": self._hold, "release": self._release,
            "retry": self._retry, "suspend": self._suspend,
        }  # fmt: skip

    def _wait(self, connection: Connection, command: Command) -> Outcome:
        self._waiters.append(PendingCommand(connection, command))
        return Outcome.LATER

    def _cancel(self, _connection: Connection, command: Command) -> Outcome:
        self.context.cancel(command.reason or "cancelled")
        return Outcome.DONE

    def _hold(self, _connection: Connection, _command: Command) -> Outcome:
        self._set_held(held=True)
        return Outcome.DONE

    def _release(self, _connection: Connection, _command: Command) -> Outcome:
        self._set_held(held=False)
        self.context.mark_running()
        return Outcome.DONE

    def _set_held(self, *, held: bool) -> None:
        self.context.tasks.held = held
        self.context.owner.record(lambda job: job.set_meta(held=int(held)))
        self.context.owner.record(lambda job: job.log("held" if held else "released"))

    def _suspend(self, _connection: Connection, _command: Command) -> Outcome:
        self.context.suspend()
        return Outcome.DONE

    def _retry(self, connection: Connection, command: Command) -> Outcome:
        count = self._run_again(command.tasks)
        self.context.owner.commit()
        CommandAnswer(tasks=count).send(connection, command)
        self.context.serve()
        return Outcome.LATER

    def _run_again(self, only: Optional[List[int]]) -> int:
        """Run failed and cancelled tasks again, also those that a cancellation is ending; returns how many."""
        tasks = self.context.tasks
        count = tasks.revoke()
        for worker in self.context.workers:
            worker.cancelled = False
        for first, last, state, attempts in list(self.context.job.ranges()):
            if state not in (FAILED, CANCELLED):
                continue
            own = [(first, last)] if only is None else [(number, number) for number in only if first <= number <= last]
            for low, high in own:
                tasks.again(state, low, high, attempts)
                self.context.change(low, high, WAITING, "mesh retry")
                count += high - low + 1
        self.context.on_again()
        return count

    def on_command_end(self, connection: Connection) -> None:
        """Forget who no longer waits."""
        self._waiters = [one for one in self._waiters if one.connection is not connection]

    def close(self, state: str, *, fenced: bool) -> None:
        """Answer those who wait for the end."""
        for waiter in self._waiters:
            waiter.answer(CommandAnswer(state=state), last=True)
