"""Commands to the owner of a job, and their answers (docs/protocol.md, *Workers*). No I/O."""

from __future__ import annotations

from enum import Enum

from agents.job.tasks.new_tasks import from_wire, ranges_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, FrozenSet, List, Mapping, Optional

    from agents.job.tasks.new_tasks import NewTask
    from agents.job.workers.worker import Connection

    Handler = Callable[[Connection, "Command"], "Outcome"]


class Outcome(Enum):
    """What the handler of a command has done."""

    DONE = "done"  # the owner commits and answers
    LATER = "later"  # the handler answers, now or later, or there is no answer
    EARLY = "early"  # nothing: the owner repeats the command when the tasks are known
    UNKNOWN = "unknown"  # this connection has no such command


class Command:
    """A command of a user, or of the program of an Executor."""

    __slots__ = ("added", "count", "node", "number", "numbers", "op", "ranges", "reason", "tasks")

    def __init__(self, told: Mapping[str, object]) -> None:
        """Read a control message; members that are not valid count as missing."""
        number, count, reason = told.get("id"), told.get("count"), told.get("reason")
        self.op = str(told.get("op"))
        self.number = number if isinstance(number, int) else 0  # of the command: its answer repeats it
        self.reason = str(reason) if reason else ""  # of a cancellation
        self.node = str(told.get("node"))  # where the job is to continue
        self.tasks: Optional[List[int]] = None  # to be run again; None: all
        if told.get("tasks") is not None:
            self.tasks = _numbers(told.get("tasks"))  # none, and not all, if they are no list
        self.count: Optional[int] = count if isinstance(count, int) else None  # calls that were submitted
        self.numbers: FrozenSet[int] = frozenset(_numbers(told.get("numbers")))  # calls to be withdrawn
        self.added, self.ranges = told.get("added"), ranges_of(told.get("ranges"))  # tasks to be added

    @property
    def new_tasks(self) -> List[NewTask]:
        """The tasks to be added, with their lines. Raises TaskError."""
        return from_wire(self.added)


def _numbers(told: object) -> List[int]:
    return [one for one in told if isinstance(one, int)] if isinstance(told, list) else []


class CommandAnswer:
    """The answer to a command."""

    __slots__ = ("error", "first", "hint", "last", "state", "tasks")

    def __init__(
        self, *, tasks: Optional[int] = None, state: str = "", error: str = "", hint: Optional[str] = None,
        first: Optional[int] = None, last: Optional[int] = None,
    ) -> None:  # fmt: skip
        self.tasks = tasks  # how many tasks run again
        self.state = state  # the job's final state
        self.first, self.last = first, last  # the numbers of the first and last task that was added
        self.error, self.hint = error, hint  # why the command was refused, and what to do

    def send(self, connection: Connection, command: Command) -> None:
        """Send it, if the other side is still connected."""
        if connection.link is not None:
            connection.link.send(self.to_wire(command.number))

    def to_wire(self, number: int) -> Dict[str, object]:
        """As a control message that answers the command ``number``."""
        told: Dict[str, object] = {"re": number}
        if self.tasks is not None:
            told["tasks"] = self.tasks
        if self.first is not None and self.last is not None:
            told["first"], told["last"] = self.first, self.last
        if self.state:
            told["state"] = self.state
        if self.error:
            told["error"] = self.error
        if self.hint is not None:
            told["hint"] = self.hint
        return told


class PendingCommand:
    """A command whose answer comes later."""

    __slots__ = ("command", "connection")

    def __init__(self, connection: Connection, command: Command) -> None:
        self.connection, self.command = connection, command

    def answer(self, answer: CommandAnswer, *, last: bool = False) -> None:
        """Answer, if the other side is still connected; ``last``: and disconnect."""
        answer.send(self.connection, self.command)
        if last and self.connection.link is not None:
            self.connection.link.close(flush=True)
