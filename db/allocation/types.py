"""Requests, allocations, and launchers that live or have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from db.allocation import tasks_and_nodes as shaping
from db.allocation.free import Placed
from db.store.ranges import unfold
from db.store.store import Row

#: Chooses ``count`` of the free ids (ascending), in rank order; None if it cannot say.
Choose = Callable[[Sequence[int], int], Sequence[int] | None]

PENDING_S = 60.0


class Demand(NamedTuple):
    """The request of a launcher.

    ``size`` processors, or as many as are free but no fewer than ``at_least`` (overcommit); ``wanted``: only those ids,
    in that order; ``partition`` and ``cookie``: inside a partition of the batch system; ``resources`` are needed on
    every node, for example ``{"gpu": 1}``; ``shape``: requirements beyond a number; ``own``: only processors that are
    reserved for ``user``.
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
    nice: bool = False  # may be ended for other requests (db/allocation/scheduling/preemption.py)
    time_s: float | None = None  # the time limit in seconds (db/allocation/scheduling/backfill.py)
    own: bool = False
    gives_back: bool = False  # ended by its job for other requests (db/allocation/scheduling/giving_back.py)
    grows: int = 0  # of a job that has processors: how many more it could use


class Allocation(NamedTuple):
    """An allocation. ``again``: the request had been granted before, and only the cookie is new."""

    launcher: int
    cookie: str
    partition: int
    processors: list[int]
    nodes: list[Placed]
    pending_s: float
    again: bool
    devices: Mapping[str, Mapping[str, list[int]]] = {}  # for each node name and resource, the devices


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
        """Build from a row whose last column is the folded list."""
        return cls(row[0], row[1], row[2], row[3], row[4], row[5], row[6], unfold(row[7]))


class Ended(NamedTuple):
    """A launcher that has ended. ``news``: it ended just now. ``partition_too``: its interactive partition was
    destroyed."""

    launcher: int
    partition: int
    processors: list[int]
    news: bool
    partition_too: bool = False
    resources: bool = False
