"""Workers of a job as the owner knows them, their connections, and teams of workers for one section. No I/O."""

from __future__ import annotations

from collections import deque

from agents.job.workers.messages import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, List, Optional, Set, Tuple, Union

    from agents.job.grants.grant import Grant
    from agents.link.link import Link
    from redmesh.state import Task

    Reply = Callable[[bytes], None]
    #: The holder of tasks: a worker, or all ranks of its launch together.
    Holder = Union["Worker", "Team"]


class Worker:
    """A worker: a rank of a grant, identified by its channel."""

    __slots__ = (
        "asked", "backlog", "byte_text", "cancelled", "connection", "holder", "kill", "knows_job", "node", "rank",
        "recalled", "reply", "since", "slot", "stopped", "team", "unwanted",
    )  # fmt: skip

    def __init__(self, connection: Connection, node: str, slot: int, rank: int, team: Optional[Team]) -> None:
        self.connection, self.node, self.slot, self.rank, self.team = connection, node, slot, rank, team
        self.holder: Holder = self
        if team is not None:
            team.members.append(self)
            self.holder = team
        self.reply: Optional[Reply] = None  # the reply to its request for tasks
        self.byte_text = False  # of an earlier version, it takes lone surrogates for bytes that are not UTF-8
        self.backlog: Deque[Task] = deque()  # tasks assigned to it that it has not received
        self.kill: List[int] = []  # copies that are no longer needed
        self.unwanted: Set[int] = set()  # calls that it is to give back if it has not begun them
        self.asked: Set[int] = set()  # what it was asked to give back: its next request is the answer
        self.knows_job = False  # it was sent the description of the job
        self.cancelled = self.stopped = False  # it was sent that its tasks are not needed; that it exits
        # When it last returned a result, or got tasks while it had none; asked since then to give back what it has in
        # advance.
        self.since, self.recalled = 0.0, False


class Team:
    """The workers of a launch of ``size`` ranks. ``over``: its section has ended, or there is none, so its workers
    exit."""

    __slots__ = ("_failed", "members", "over", "results", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: List[Worker] = []
        self.results: Dict[Worker, Result] = {}  # of each member whose rank of the section has ended
        self.over = False
        self._failed: Optional[Worker] = None  # the member that failed first

    @property
    def complete(self) -> bool:
        """True if every rank of the launch has asked for work."""
        return len(self.members) == self.size

    @property
    def node(self) -> str:
        """The nodes of the members, separated by commas."""
        return ",".join(sorted({member.node for member in self.members}))

    def take(self, member: Worker, result: Result) -> List[Worker]:
        """Record the result of one rank. Returns the members whose ranks must be killed because this one failed."""
        self.results[member] = result
        if self._failed is not None or not result.failed:
            return []
        self._failed = member
        return [other for other in self.members if other not in self.results]

    @property
    def ended(self) -> bool:
        """True if every rank of the section has ended."""
        return len(self.results) == self.size

    def result(self) -> Result:
        """The section's result: that of the rank that failed first, or of rank 0, with the last lines of every rank.

        The lines of the deciding rank come last, because the first lines are cut off if there are too many.
        """
        members = sorted(self.results, key=lambda member: -member.rank)
        chosen = self._failed or members[-1]
        members.sort(key=lambda member: member is chosen)
        lines = ""
        for member in members:
            told = self.results[member].lines
            if told:
                lines += f"--- rank {member.rank} on {member.node}\n" + told.rstrip("\n") + "\n"
        began = min(one.started_at for one in self.results.values())
        ended = max(one.ended_at for one in self.results.values())
        own = self.results[chosen]
        result = Result(own.number, own.attempt, own.status, began, ended, lines, own.cause)
        result.written = own.written
        result.blamed = self.node if self._failed is None else self._failed.node
        return result


class Connection:
    """A yod that relays its workers' requests, or a command."""

    __slots__ = ("grant", "link", "over", "relays", "team", "workers")

    def __init__(self) -> None:
        self.link: Optional[Link] = None
        self.relays = self.over = False  # over: the yod has reported the end of its ranks
        self.grant: Optional[Grant] = None
        self.team: Optional[Team] = None  # for sections of several ranks
        self.workers: Dict[Tuple[int, int], Worker] = {}
