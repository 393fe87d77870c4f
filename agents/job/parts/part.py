"""The interface of optional parts of a job. The owner calls their hooks and depends on nothing else of them."""

from __future__ import annotations

from agents.job.tasks.pace import MOST_AHEAD
from redmesh.state import MAX_LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Protocol, Sequence, Set

    from agents.job.description import Description
    from agents.job.grants.processors import Processors
    from agents.job.phase import JobPhase
    from agents.job.state_requests import Operation, Owner
    from agents.job.tasks.pace import Pace
    from agents.job.tasks.task_list import Change, TaskList
    from agents.job.workers.commands import Handler
    from agents.job.workers.messages import Answer, Request, Result
    from agents.job.workers.worker import Connection, Worker
    from agents.link.loop import Loop
    from redmesh.state import StateObject, Task

    class Dispatcher(Protocol):
        """Gives tasks to workers."""

        def room(self) -> int:
            """How many tasks may be given out now."""

        def give(self, worker: Worker, count: int) -> None:
            """Give a worker, or its team, the next ``count`` tasks."""

        def assign(self, worker: Worker, tasks: Sequence[Task]) -> None:
            """Send a worker, or its team, tasks that it was given."""

        def hand(self, worker: Worker, tasks: Sequence[Task], *, test: bool = False) -> None:
            """Send a worker tasks, and the job if it does not know it; ``test``: the worker tests its node."""

        def committed(self) -> bool:
            """Commit before a worker gets tasks. Returns False if that has ended the job."""

        def keeps(self, worker: Worker) -> bool:
            """True if a worker without tasks got other work, or waits for some; False if it may exit."""

        def answer(self, worker: Worker, answer: Answer) -> None:
            """Answer a worker's request for tasks."""

        def stop(self, worker: Worker) -> None:
            """Have a worker exit."""

    class JobContext(Protocol):
        """The interface of a job for its parts."""

        loop: Loop
        job: StateObject
        described: Description
        owner: Owner
        tasks: TaskList
        pace: Pace
        workers: List[Worker]
        processors: Processors
        phase: JobPhase

        @property
        def dispatch(self) -> Dispatcher:
            """Gives tasks to workers."""

        def serve(self) -> None:
            """Give out tasks, and end the job when all tasks have ended."""

        def mark_running(self) -> None:
            """Record that the job runs, now or again."""

        def on_again(self) -> None:
            """Tell the parts that ended tasks wait again."""

        def measure_anew(self) -> None:
            """Record that the rate of the job counts from now on."""

        def record_change(self, change: Change, *, begun: bool = True) -> None:
            """Record a change of a task that was not run to its end; ``begun``: a program ran."""

        def change(self, first: int, last: int, state: str, cause: str) -> None:
            """Record the state of tasks that no worker has."""

        def cancel(self, reason: str, *, fails: bool = False, error: str = "") -> None:
            """Cancel the job. ``fails``: it has failed; ``error``: an exception for the program, pickled, as base64."""

        def leave_to(self, login: str) -> None:
            """Continue the job on another login processor."""

        def suspend(self) -> None:
            """End running tasks, and leave the job to be resumed."""

        def fence(self, reason: str) -> None:
            """Record nothing any more: another process has the job."""


class Part:
    """The base class: every hook does nothing. ``context`` is the job."""

    context: JobContext
    #: Tasks are given out in the order of their numbers, and each to one worker at a time.
    in_order = True
    #: The most tasks that a worker has in advance.
    most_ahead = MOST_AHEAD
    #: Bytes kept of a task's last output.
    most_lines = MAX_LINES

    # The job

    def words(self) -> List[str]:
        """Return options of the yods that start workers."""
        return []

    def attach(self, context: JobContext) -> None:
        """Called once the owner is made."""
        self.context = context

    def begin(self) -> None:
        """Called when the owner begins, before the tasks are known."""

    def is_clear(self) -> bool:
        """Return False while no task may start yet."""
        return True

    def on_taken_up(self) -> None:
        """Called when the tasks are known."""

    def expects(self) -> bool:
        """Return True if more tasks may come."""
        return False

    def keeps_workers(self) -> bool:
        """Return True if workers without tasks wait for those that may come."""
        return self.expects()

    def on_again(self) -> None:
        """Called when ended tasks wait again, because a user wants it."""

    def on_cancel(self, reason: str, error: str, *, again: bool) -> None:
        """Called when the job is cancelled, after the tasks that wait; ``again``: it was before."""

    def on_end(self) -> None:
        """Called when every task has ended, and the launches are to end."""

    def close(self, state: str, *, fenced: bool) -> None:
        """Called when the job is over for this owner, in this state; ``fenced``: another process has it."""

    # Connections

    def commands(self) -> Dict[str, Handler]:
        """Return the commands that this part carries out, by their names."""
        return {}

    def operations(self) -> Dict[str, Operation]:
        """Return the requests of programs that this part answers, by their names."""
        return {}

    def on_data(self, connection: Connection, payload: bytes) -> bool:
        """Take data on a connection that relays no workers. Return False if they are not expected."""
        return False

    def on_command_end(self, connection: Connection) -> None:
        """Called when a connection that relays no workers has ended."""

    def on_request(self, worker: Worker, request: Request) -> None:
        """Called for each request of a worker."""

    def describe(self, told: Dict[str, object]) -> None:
        """Add what workers need to the description of the job."""

    # Tasks are given out

    def before_tasks(self, worker: Worker) -> bool:
        """Answer a worker before it gets tasks that it was given, and return True."""
        return False

    def serve(self, worker: Worker) -> bool:
        """Answer a worker instead of the owner, or have it wait, and return True."""
        return False

    def room(self) -> int:
        """Return how many tasks may be given out now."""
        return MOST_AHEAD

    def on_handed_out(self, numbers: Sequence[int]) -> None:
        """Called when tasks are given to a worker, before that is recorded."""

    def on_assigned(self, worker: Worker, task: Task) -> Task:
        """Called before a task is sent to its worker. Returns it as the worker gets it."""
        return task

    def employ(self, worker: Worker) -> bool:
        """Give a worker without tasks other work, or keep it for some, and return True."""
        return False

    def useful(self) -> int:
        """Return for how many tasks that do not wait further processors are useful."""
        return 0

    def after_serve(self, ready: Sequence[Worker]) -> None:
        """Called after tasks were given out; ``ready`` were the workers that asked for some."""

    # Tasks end

    def on_result(self, worker: Worker, result: Result, *, current: bool) -> Optional[Result]:
        """Return the result that counts for the task, None if there is none yet; ``current``: its attempt runs."""
        return result

    def on_ended(self, worker: Worker, result: Result, change: Optional[Change]) -> None:
        """Called when the end of an attempt is recorded; ``change`` is None if it changes nothing."""

    def on_given_back(self, change: Change) -> None:
        """Called when a worker has given back a task, after :meth:`on_change`."""

    def on_change(self, change: Change) -> None:
        """Called when a task was not run to its end, before that is recorded."""

    def after_results(self) -> None:
        """Called after all results of a worker's request."""

    def on_lost(self, change: Change, nodes: Set[str]) -> None:
        """Called for a task whose worker was lost, when that is recorded; ``nodes`` may be the cause."""

    def on_worker_lost(self, worker: Worker) -> None:
        """Called for a worker that was lost, or has exited."""

    # Processors

    def keeps_asking(self) -> bool:
        """Return True if processors may become usable although none can be granted now."""
        return False

    def incomplete(self, reason: str, *, startable: bool) -> str:
        """Return why a job without processors ends; "" for ``reason``. ``startable``: launches can start."""
        return ""


def overriding(parts: Sequence[Part], hook: Callable[..., object]) -> List[Part]:
    """The parts with a method of their own for ``hook``, a method of :class:`Part`.

    Calling the empty hooks of the others for each call of a function took an owner 4 of 60 µs.
    """
    return [part for part in parts if getattr(type(part), hook.__name__) is not hook]
