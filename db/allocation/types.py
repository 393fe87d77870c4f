"""What is asked of the machine and what is given: requests, allocations, launchers that live or ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from db.allocation import tasks_and_nodes as shaping
from db.allocation.free import Placed
from db.store.ranges import unfold
from db.store.store import Row

#: Which of the free ids (ascending) a request for so many gets, in rank order; None when it cannot say.
Choose = Callable[[Sequence[int], int], Sequence[int] | None]

PENDING_S = 60.0


class Demand(NamedTuple):
    """What a launcher asks for.

    ``size`` processors, or as many as are free down to ``at_least`` (overcommit); ``wanted``: only those ids, taken in
    that order; ``partition`` and ``cookie``: inside a partition of the batch system. ``resources`` are needed on every
    node, e.g. ``{"gpu": 1}``. ``shape``: what is asked for beyond a number.
    """

    request_key: str
    uid: int
    user: str
    login: str
    pid: int
    pid_started: int
    command: str
    size: int
    at_least: int = 0
    wanted: Sequence[int] | None = None
    exclude: Sequence[int] = ()
    partition: int | None = None
    cookie: str | None = None
    resources: Mapping[str, int] = {}
    shape: shaping.Shape | None = None
    pending_s: float = PENDING_S
    nice: bool = False  # gives way to others (db/allocation/preemption.py)
    time_s: float | None = None  # it runs no longer than that (db/allocation/backfill.py)


class Allocation(NamedTuple):
    """What a launcher got. ``again``: its request had been granted before, and only the cookie is new."""

    launcher: int
    cookie: str
    partition: int
    processors: list[int]
    nodes: list[Placed]
    pending_s: float
    again: bool
    devices: Mapping[str, Mapping[str, list[int]]] = {}  # of each resource, by the node's name


class Live(NamedTuple):
    """A launcher that has not ended."""

    launcher: int
    pid: int
    pid_started: int
    partition: int
    uid: int
    user: str
    state: str
    processors: list[int]

    @classmethod
    def from_row(cls, row: Row) -> Live:
        """A row whose last column is the folded list."""
        return cls(row[0], row[1], row[2], row[3], row[4], row[5], row[6], unfold(row[7]))


class Ended(NamedTuple):
    """What ended. ``news``: it had not ended before. ``partition_too``: its interactive partition went with it."""

    launcher: int
    partition: int
    processors: list[int]
    news: bool
    partition_too: bool = False
    resources: bool = False
