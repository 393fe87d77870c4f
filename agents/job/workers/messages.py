"""Messages between the owner of a job and its workers (docs/protocol.md, *Workers*). No I/O."""

from __future__ import annotations

import json

from agents.job.description import for_earlier_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Union

    from agents.yodio.yodparts import Written
    from redmesh.state import Task

    Request = Union["Work", "Worked", "NodeTested", "Report", "TaskStopped"]
    Answer = Union["Tasks", "Cancel", "Kill", "Recall", "Stop"]

#: The causes of attempts that count as none: the worker had not begun the task, or ended it for the owner.
DROPPED, KILLED = "dropped", "killed"


class Result:
    """How one attempt at a task has ended."""

    __slots__ = (
        "attempt", "blamed", "cause", "data", "ended_at", "lines", "number", "started_at", "status", "written",
    )  # fmt: skip

    def __init__(
        self, number: int, attempt: int, status: int, started_at: float, ended_at: float, lines: str, cause: str,
    ) -> None:  # fmt: skip
        self.number, self.attempt = number, attempt
        self.status = status  # the exit status
        self.started_at, self.ended_at = started_at, ended_at  # seconds since 1970
        self.lines = lines or ""  # the last lines of its output
        self.cause = cause  # why it failed, if not by its exit status; DROPPED, KILLED
        self.data = ""  # of a call: the result, as base64
        self.written: List[Written] = []  # of a section: its parts as the attempt has left them
        self.blamed = ""  # the node of the rank that failed, if the section has several

    @property
    def failed(self) -> bool:
        """True if the attempt counts as a failure."""
        return bool(self.status or self.cause)

    @property
    def given_back(self) -> bool:
        """True if the worker has not run the task to its end."""
        return self.cause in (DROPPED, KILLED)

    @classmethod
    def from_wire(cls, row: object) -> Result:
        """Read a result of a worker. Raises ValueError if it is not valid."""
        if type(row) is not list or len(row) < 7:
            raise ValueError("a result has seven members")
        result = cls(*row[:7])
        if type(result.number) is not int or type(result.attempt) is not int or type(result.cause) is not str:
            raise ValueError("a result names an attempt")
        if type(result.status) is not int or type(result.lines) is not str:
            raise ValueError("a result has a status, and lines of text")
        if not isinstance(result.started_at, (int, float)) or not isinstance(result.ended_at, (int, float)):
            raise ValueError("a result says when its attempt ran")
        if len(row) > 7:
            more = row[7]
            if type(more) is str:
                result.data = more
            elif type(more) is list:
                result.written = more
        return result


class Work:
    """A worker asks for tasks. Its next such request is the answer to what it was asked to give back."""

    __slots__ = ("byte_text", "prepares", "rank")

    def __init__(self, rank: int, *, byte_text: bool, prepares: bool) -> None:
        self.rank = rank  # its rank in the launch
        self.byte_text = byte_text  # it takes texts of redmesh/byte_text.py
        self.prepares = prepares  # it knows initializers and the most calls of a process


class Worked:
    """Results of a worker."""

    __slots__ = ("broken", "error", "results")

    def __init__(self, results: List[Result], broken: str, error: str) -> None:
        self.results = results
        self.broken = broken  # why the worker can run no calls; "" if it can
        self.error = error  # the exception that says so, pickled, as base64


class NodeTested:
    """A worker has tested its node."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason  # why the node may run no sections; "" if it may


class Report:
    """A section's program has reported, or states its progress."""

    __slots__ = ("kind", "number", "part", "text")

    def __init__(self, number: int, kind: str, part: Optional[float], text: str) -> None:
        self.number, self.kind, self.text = number, kind, text
        self.part = part  # the share that is done, from 0 to 1


class TaskStopped:
    """The process of a worker's task was stopped (SIGSTOP), or continues."""

    __slots__ = ("number", "pid", "since")

    def __init__(self, number: int, pid: int, since: float) -> None:
        self.number = number  # the task; -1: a call of a job of functions
        self.pid = pid  # 0: no process of the worker is stopped any more
        self.since = since  # when the stop was noticed, seconds since 1970


def parse_request(data: bytes) -> Optional[Request]:
    """Parse a worker's request; None for a request of a program (agents/job/state_requests.py)."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    op = told.get("op") if type(told) is dict else None
    read = _READ.get(op) if isinstance(op, str) else None
    return None if read is None else read(told)


def _read_work(told: Mapping[str, object]) -> Work:
    rank = told.get("rank")
    return Work(
        rank if isinstance(rank, int) else 0,
        byte_text=bool(told.get("byte_text")),
        prepares=bool(told.get("prepares")),
    )


def _read_worked(told: Mapping[str, object]) -> Worked:
    results: List[Result] = []
    rows = told.get("results")
    for row in rows if isinstance(rows, list) else ():
        try:
            results.append(Result.from_wire(row))
        except (TypeError, ValueError):
            continue
    return Worked(results, str(told.get("broken") or ""), str(told.get("error") or ""))


def _read_tested(told: Mapping[str, object]) -> NodeTested:
    return NodeTested(str(told.get("reason") or ""))


def _read_report(told: Mapping[str, object]) -> Report:
    number, part = told.get("number"), told.get("part")
    return Report(
        number if isinstance(number, int) else -1,
        str(told.get("kind")),
        float(part) if isinstance(part, (int, float)) else None,
        str(told.get("text") or ""),
    )


def _read_stopped(told: Mapping[str, object]) -> TaskStopped:
    number, pid, since = told.get("number"), told.get("pid"), told.get("since")
    return TaskStopped(
        number if isinstance(number, int) else -1,
        pid if isinstance(pid, int) else 0,
        float(since) if isinstance(since, (int, float)) else 0.0,
    )


_READ: Dict[str, Callable[[Mapping[str, object]], Request]] = {
    "work": _read_work,
    "worked": _read_worked,
    "tested": _read_tested,
    "report": _read_report,
    "stopped": _read_stopped,
}


class Tasks:
    """Tasks for a worker. ``job``: their job, for a worker that does not know it; ``test``: the worker tests its
    node."""

    __slots__ = ("job", "tasks", "test")

    def __init__(self, tasks: Sequence[Task], *, test: bool = False) -> None:
        self.tasks, self.test = tasks, test
        self.job: Optional[Dict[str, object]] = None  # Description.for_workers, and what parts add

    def to_wire(self) -> Dict[str, object]:
        """As members of a JSON object."""
        told: Dict[str, object] = {"tasks": [(task.number, task.attempt, task.input) for task in self.tasks]}
        if self.test:
            told["test"] = True
        if self.job is not None:
            told["job"] = self.job
        return told


class Cancel:
    """The worker drops tasks that it has not begun, and ends those that run."""

    __slots__ = ()

    def to_wire(self) -> Dict[str, object]:
        """As members of a JSON object."""
        return {"cancel": True}


class Kill:
    """The worker ends copies of sections that are no longer needed."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: List[int]) -> None:
        self.numbers = numbers

    def to_wire(self) -> Dict[str, object]:
        """As members of a JSON object."""
        return {"kill": self.numbers}


class Recall:
    """The worker gives back tasks that it has not begun: ``numbers``, or all of them (None)."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Optional[List[int]] = None) -> None:
        self.numbers = numbers

    def to_wire(self) -> Dict[str, object]:
        """As members of a JSON object."""
        return {"recall": True if self.numbers is None else self.numbers}


class Stop:
    """The worker exits."""

    __slots__ = ()

    def to_wire(self) -> Dict[str, object]:
        """As members of a JSON object."""
        return {"stop": True}


def pack(answer: Answer, *, byte_text: bool, sections: bool) -> bytes:
    """An answer as JSON. ``byte_text``: the worker takes texts of redmesh/byte_text.py; ``sections``: the inputs of
    tasks are JSON."""
    told = answer.to_wire()
    return json.dumps(told if byte_text else for_earlier_worker(told, sections=sections)).encode()
