"""What happens to a launch, typed: the event stream of ``yod --json`` (docs/protocol.md, "yod and its observers")."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, ``at`` seconds UTC; ``kind`` and ``fields`` are the stream's own."""

    kind: str
    at: float
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Allocated(Event):
    """Processors were given. ``nodes``: name and processors, in rank order."""

    launcher: int
    size: int
    nodes: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Started(Event):
    """Every rank runs. ``pids[r]`` and ``nodes[r]`` are rank r's."""

    pids: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output(Event):
    """What ``rank`` wrote to ``stream`` (stdout, stderr): bytes, in order for each rank and stream."""

    rank: int
    stream: str
    data: bytes

    @property
    def text(self) -> str:
        """``data`` as text; what is not UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Exit(Event):
    """``rank`` ended: with ``status``, or of ``signal`` if that is not 0; ``by_yod``: yod had sent that signal.

    ``core``: the kernel wrote a core dump.
    """

    rank: int
    node: str
    status: int
    signal: int
    elapsed_s: float
    by_yod: bool
    core: bool = False


@dataclass(frozen=True, slots=True)
class SameEnd:
    """Ranks that ended alike, on ``nodes``: with ``status``, or of ``signal`` if that is not 0. ``text`` says it."""

    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    status: int
    signal: int
    core: bool
    text: str


@dataclass(frozen=True, slots=True)
class BadExit(Event):
    """Ranks exited badly while others, ``running`` of ``size``, run on; the command ``stop`` would end these.

    Each of those ranks has an :class:`Exit` of its own besides, which came first.
    """

    launcher: int
    ends: tuple[SameEnd, ...]
    running: int
    size: int
    stop: str


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """Nodes were lost, and ``ranks`` with them."""

    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Aborted(Event):
    """An MPI program cannot go on: ``rank`` called MPI_Abort, or ended where others wait for it."""

    rank: int
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class End(Event):
    """The launch is over; ``exit_status`` is yod's."""

    exit_status: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """A launch that is over. ``exits`` by rank; ``stdout`` and ``stderr`` as they came, ``by_rank`` stdout of each."""

    exit_status: int
    launcher: int
    exits: dict[int, Exit]
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    by_rank: dict[int, bytes] = field(repr=False)
    said: str = ""  # what yod itself had to say

    @property
    def text(self) -> str:
        """``stdout`` as text; what is not UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")


def read_event(fields: dict[str, Any]) -> Event:
    """An object of the stream as an event; kinds that this version does not know are plain ``Event``."""
    kind, at = str(fields.get("event", "")), float(fields.get("at", 0.0))
    whole = (kind, at, fields)
    if kind == "output":
        return Output(*whole, fields["rank"], fields["stream"], base64.b64decode(fields["data"]))
    if kind == "exit":
        keys = ("rank", "node", "status", "signal", "elapsed_s", "by_yod", "core")
        facts = {"core": False, **fields}  # a yod of before does not tell it
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
