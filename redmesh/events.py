"""Typed events of a launch, as ``yod --json`` writes them (docs/protocol.md, "yod and its observers")."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event ``at`` seconds UTC; ``kind`` and ``fields`` are as in the event stream."""

    kind: str
    at: float
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Allocated(Event):
    """Processors were allocated. ``nodes`` lists the name and processors of each node, in rank order."""

    launcher: int
    size: int
    nodes: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Started(Event):
    """All ranks run. Rank r has process ``pids[r]`` on node ``nodes[r]``."""

    pids: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output(Event):
    """Bytes that ``rank`` wrote to ``stream`` (stdout or stderr); in order for each rank and stream."""

    rank: int
    stream: str
    data: bytes

    @property
    def text(self) -> str:
        """``data`` as text; invalid UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """What a rank ``had`` at most, in bytes (0: unknown), the ``limit`` of its control group (0: more than the host
    has), and what the ``host`` has."""

    had: int
    limit: int
    host: int


@dataclass(frozen=True, slots=True)
class Exit(Event):
    """``rank`` exited with ``status``, or was killed by ``signal`` if that is not 0. ``by_yod``: yod had sent that
    signal.

    ``core``: the kernel wrote a core dump. ``out_of_memory``: the kernel killed the rank, or its child, for lack of
    memory.
    """

    rank: int
    node: str
    status: int
    signal: int
    elapsed_s: float
    by_yod: bool
    core: bool = False
    out_of_memory: OutOfMemory | None = None


@dataclass(frozen=True, slots=True)
class SameEnd:
    """Ranks with the same exit, on ``nodes``: exited with ``status``, or killed by ``signal`` if that is not 0.
    ``text`` describes the exit."""

    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    status: int
    signal: int
    core: bool
    text: str


@dataclass(frozen=True, slots=True)
class BadExit(Event):
    """Ranks failed while ``running`` of ``size`` ranks still run; the command ``stop`` would end these.

    Each failed rank also has its own :class:`Exit`, which comes first.
    """

    launcher: int
    ends: tuple[SameEnd, ...]
    running: int
    size: int
    stop: str


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """Nodes were lost, with the ranks ``ranks``."""

    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Aborted(Event):
    """An MPI program cannot continue: ``rank`` called MPI_Abort, or exited while other ranks wait for it."""

    rank: int
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class End(Event):
    """The launch has ended; ``exit_status`` is the exit status of yod."""

    exit_status: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a launch. ``exits`` is indexed by rank; ``stdout`` and ``stderr`` are bytes in order of arrival;
    ``by_rank`` has the stdout of each rank."""

    exit_status: int
    launcher: int
    exits: dict[int, Exit]
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    by_rank: dict[int, bytes] = field(repr=False)
    said: str = ""  # the messages of yod itself

    @property
    def text(self) -> str:
        """``stdout`` as text; invalid UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")


def read_event(fields: dict[str, Any]) -> Event:
    """Parse an object of the event stream. A kind that this version does not know becomes a plain ``Event``."""
    kind, at = str(fields.get("event", "")), float(fields.get("at", 0.0))
    whole = (kind, at, fields)
    if kind == "output":
        return Output(*whole, fields["rank"], fields["stream"], base64.b64decode(fields["data"]))
    if kind == "exit":
        memory = fields.get("out_of_memory")
        out = OutOfMemory(memory["had"], memory["limit"], memory["host"]) if memory else None
        keys = ("rank", "node", "status", "signal", "elapsed_s", "by_yod", "core", "out_of_memory")
        facts = {"core": False, **fields, "out_of_memory": out}  # an older yod does not send "core"
        return Exit(*whole, *(facts[key] for key in keys))
    if kind == "bad_exit":
        return _bad_exit(fields, whole)
    if kind == "allocated":
        nodes = tuple((node["name"], tuple(node["processors"])) for node in fields["nodes"])
        return Allocated(*whole, fields["launcher"], fields["size"], nodes)
    if kind == "started":
        return Started(*whole, tuple(pid for pid, _ in fields["ranks"]), tuple(node for _, node in fields["ranks"]))
    if kind == "lost":
        return Lost(*whole, tuple(fields["nodes"]), tuple(fields["ranks"]), fields["reason"])
    if kind == "aborted":
        return Aborted(*whole, fields["rank"], fields["node"], fields["text"])
    if kind == "end":
        return End(*whole, fields["exit_status"], fields["elapsed_s"])
    return Event(*whole)


def _bad_exit(fields: dict[str, Any], whole: tuple[str, float, dict[str, Any]]) -> BadExit:
    ends = tuple(
        SameEnd(tuple(end["ranks"]), tuple(end["nodes"]), end["status"], end["signal"], end["core"], end["text"])
        for end in fields["ends"]
    )
    return BadExit(*whole, fields["launcher"], ends, fields["running"], fields["size"], fields["stop"])
