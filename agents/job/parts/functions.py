"""Functions called through ``redmesh.Executor``: a program submits calls while the job runs, and gets their results."""

from __future__ import annotations

import time

from agents.job.parts.calls import Calls
from agents.job.parts.part import Part
from agents.job.start import CALLS, beside
from agents.job.workers.commands import CommandAnswer, Outcome
from agents.job.workers.messages import Recall, Work, Worked
from agents.linux.processes import alive
from redmesh.byte_text import to_system
from redmesh.state import CANCELLED, WAITING, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import AbstractSet, Dict, List, Optional, Set

    from agents.job.description import FunctionRules
    from agents.job.tasks.task_list import Change
    from agents.job.workers.commands import Command, Handler
    from agents.job.workers.messages import Request, Result
    from agents.job.workers.worker import Connection, Worker

#: Seconds after which a program that submits no calls counts as idle; between looks at the program.
_IDLE_S, _PROGRAM_S = 2.0, 5.0
#: Seconds for a worker to give back calls that the program cancels; later they can no longer be cancelled.
_WITHDRAW_S = 4.0


class Functions(Part):
    """The calls of one program."""

    def __init__(self, rules: FunctionRules) -> None:
        self._rules = rules
        self._calls = Calls()
        self._program: Optional[Connection] = None  # the program's connection, also after its end
        self._last_end = 0.0  # of a call, in seconds since 1970
        self._returned: Set[int] = set()  # calls that the program has cancelled, given back in this request

    def words(self) -> List[str]:
        """Workers open large calls and results as files of the login processor."""
        return ["-io", to_system(self._rules.directory)]

    def begin(self) -> None:
        """Watch the program."""
        self._await_program()

    def _await_program(self) -> None:
        """Cancel the job if its program ends. One that is slow or stopped may still connect, or continue.

        Its connection may never come, and does not end with it if it has forked a process that has it too.
        """
        if not self.context.phase.active:
            return
        program, calls = self._rules.program, self._calls
        if program is None or alive(*program):
            self.context.loop.after(_PROGRAM_S, self._await_program)
        elif calls.open or calls.client is not None:
            calls.client, calls.open = None, False
            self.context.cancel("the program has exited")

    def expects(self) -> bool:
        """More calls may come until the program has closed the job."""
        return self._calls.open and not self.context.tasks.cancelled

    # The program

    def commands(self) -> Dict[str, Handler]:
        """The program's commands; others cannot have calls run again."""
        return {
            "functions": self._on_functions, "close": self._on_close, "submitted": self._on_submitted,
            "drop": self._on_drop, "withdraw": self._on_withdraw, "retry": self._on_retry,
        }  # fmt: skip

    def _on_functions(self, connection: Connection, _command: Command) -> Outcome:
        if self._calls.client is not None:
            return Outcome.UNKNOWN
        self._calls.client, self._program = connection.link, connection
        return Outcome.DONE

    def _on_close(self, _connection: Connection, _command: Command) -> Outcome:
        self._close_calls()
        return Outcome.DONE

    def _on_submitted(self, connection: Connection, command: Command) -> Outcome:
        if connection is not self._program:
            return Outcome.UNKNOWN
        if command.count is not None and self.context.phase.active:
            self._submit(command.count)
        return Outcome.LATER

    def _on_drop(self, connection: Connection, _command: Command) -> Outcome:
        if connection is not self._program:
            return Outcome.UNKNOWN
        self._withdraw(set(self._calls.inputs), patient=True)
        return Outcome.LATER

    def _on_withdraw(self, connection: Connection, command: Command) -> Outcome:
        if connection is not self._program:
            return Outcome.UNKNOWN
        self._withdraw(command.numbers)
        return Outcome.LATER

    def _on_retry(self, connection: Connection, command: Command) -> Outcome:
        # The owner has each call only until its end, so that memory does not grow with their number.
        error = "calls of a Python program cannot be run again from outside"
        CommandAnswer(error=error, hint="submit them again in the program").send(connection, command)
        return Outcome.LATER

    def on_data(self, connection: Connection, payload: bytes) -> bool:
        """Calls of the program."""
        if self._calls.client is None or self._calls.client is not connection.link:
            return False
        tasks = self.context.tasks
        ranges = self._calls.add(payload)
        self._submit(self._calls.received)
        for first, last, cancelled in ranges:
            if tasks.cancelled:
                continue  # recorded by on_cancel or _submit
            if cancelled:
                self.context.change(first, last, CANCELLED, "cancelled by the program")
            else:
                tasks.add(first, last)
        self.context.serve()
        return True

    def on_command_end(self, connection: Connection) -> None:
        """The program makes no more calls."""
        if connection is self._program:
            self._calls.client = None
            self._close_calls()

    def _submit(self, count: int) -> None:
        """The program has submitted ``count`` calls: those that it has not sent yet are tasks that wait."""
        calls, tasks = self._calls, self.context.tasks
        first, calls.submitted = calls.submitted + 1, max(calls.submitted, count)
        if tasks.finished and time.time() - self._last_end > _IDLE_S:
            self.context.measure_anew()
        if count >= first:
            self.context.owner.record(lambda job: job.add_array(first, count))
            if tasks.cancelled:
                self.context.change(first, count, CANCELLED, tasks.cancelled)

    def _close_calls(self) -> None:
        """The program makes no further calls: end the job after the present ones.

        If the program has exited, cancel calls that have not ended.
        """
        calls = self._calls
        if calls.open:
            self.context.owner.record(lambda job: job.set_meta(calls_closed=1))
        calls.open = False
        if calls.client is None and (calls.unsent or not self.context.tasks.finished):
            self.context.cancel("the program has exited")
        self.context.loop.after(0.0, self.context.serve)

    # Calls that the program cancels

    def _withdraw(self, numbers: AbstractSet[int], *, patient: bool = False) -> None:
        """Cancel the calls among ``numbers`` that no worker has begun: those that wait now, and those that workers give
        back within a moment, or whenever they do (``patient``)."""
        calls, tasks = self._calls, self.context.tasks
        gone = self._forget(numbers)
        asked: Set[int] = set()
        for worker in self.context.workers:
            unwanted = numbers & tasks.given_to(worker.holder).keys()
            unsent = [task for task in worker.backlog if task.number in unwanted]
            for task in unsent:
                worker.backlog.remove(task)
                change = tasks.killed(worker.holder, task.number, task.attempt, begun=False)
                if change is not None:
                    self.context.record_change(change, begun=False)
            own = {task.number for task in unsent}
            gone |= self._forget(own)
            worker.unwanted |= unwanted - own
            asked |= unwanted - own
        calls.unwanted |= asked
        if not patient:
            calls.keep(set(numbers - gone - asked))
            if asked:
                self.context.loop.after(_WITHDRAW_S, lambda: calls.keep(asked & calls.unwanted))
        self.context.serve()

    def _forget(self, numbers: AbstractSet[int]) -> Set[int]:
        """Cancel the calls among ``numbers`` that wait and were never begun; returns them."""
        if not numbers:
            return set()
        ranges = self.context.tasks.withdraw(numbers)
        for first, last in ranges:
            self.context.change(first, last, CANCELLED, "cancelled by the program")
        self._calls.drop(ranges)
        return {number for first, last in ranges for number in range(first, last + 1)}

    # Workers

    def on_request(self, worker: Worker, request: Request) -> None:
        """A worker that asks for tasks has begun what it has not given back; one whose initializer has failed ends the
        job."""
        if isinstance(request, Work):
            if worker.asked:
                self._calls.keep(worker.asked & self._calls.unwanted)
                worker.asked = set()
            if not request.prepares:
                self._refuse_earlier(worker)
        elif isinstance(request, Worked) and request.broken and not self.context.tasks.cancelled:
            # the first reason, not what it has caused
            self.context.cancel(request.broken, fails=True, error=request.error)

    def _refuse_earlier(self, worker: Worker) -> None:
        needed = ["initializer"] if self._rules.initializer else []
        needed += ["max_tasks_per_child"] if self._rules.max_tasks else []
        if needed:
            what = " and ".join(needed)
            self.context.cancel(
                f"{worker.node} runs an earlier version of Redmesh, without {what}: mesh upgrade", fails=True
            )

    def before_tasks(self, worker: Worker) -> bool:
        """Have a worker give back calls that the program cancels."""
        if not worker.unwanted:
            return False
        worker.asked, worker.unwanted = worker.unwanted, set()
        self.context.dispatch.answer(worker, Recall(sorted(worker.asked)))
        return True

    def on_assigned(self, worker: Worker, task: Task) -> Task:
        """The task with the data of its call, which the object does not have."""
        return Task(task.number, self._calls.inputs[task.number], task.attempt)

    # Results

    def on_ended(self, worker: Worker, result: Result, change: Optional[Change]) -> None:
        """Send the result to the program soon."""
        if change is not None:
            self._last_end = result.ended_at
            if change.state != WAITING:
                self._calls.ended(result.number, result.status, result.cause, result.data)

    def on_change(self, change: Change) -> None:
        """Tell the program of a call that was lost, at once: there may be no worker left whose results would be sent
        with this one."""
        if change.state != WAITING:
            self._calls.ended(change.number, 1, change.cause, "")
            self._calls.flush()

    def on_given_back(self, change: Change) -> None:
        """Remember calls that the program has cancelled."""
        if change.number in self._calls.unwanted and change.state == WAITING:
            self._returned.add(change.number)

    def after_results(self) -> None:
        """Send results, and cancel what workers have given back for that."""
        self._calls.flush()
        if self._returned:
            returned, self._returned = self._returned, set()
            self._calls.keep(returned - self._forget(returned))

    # The end

    def on_cancel(self, reason: str, error: str, *, again: bool) -> None:
        """Cancel calls that the program has not sent yet, and tell it the reason."""
        unsent = self._calls.unsent
        if unsent is not None and not again:
            self.context.change(*unsent, CANCELLED, reason)
        self._calls.cancel(reason, error)

    def close(self, state: str, *, fenced: bool) -> None:
        """Delete large calls and results of a program that was killed, which nobody will read."""
        if self._calls.client is None and not fenced:
            import shutil  # slow to import, and needed once

            shutil.rmtree(beside(self.context.job.path, CALLS), ignore_errors=True)
