"""Launchers of low priority give way: which of them end so that a request finds its processors. One transaction.

None is told to end in vain: either those that can go make room for the whole request, or none goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from db.allocation import Demand, candidates
from db.connection import Store, Transaction
from db.counted import counted
from db.folded import unfold
from db.free import Machine


class Nice(NamedTuple):
    """A launcher of low priority. ``end_by``: it has been told to end until then; None: it has not."""

    launcher: int
    end_by: float | None
    processors: list[int]


_NICE = (
    "SELECT l.id, l.end_by, l.processors FROM launcher l JOIN `partition` p ON p.id = l.`partition`"
    " WHERE l.nice = 1 AND l.ended_at IS NULL AND p.batch_job IS NULL ORDER BY l.id DESC"
)


def choose(short: int, useful: Callable[[Sequence[int]], int], nice: Sequence[Nice]) -> list[Nice]:
    """Those that are to end now for ``short`` processors more, the youngest first; pure.

    ``useful`` counts the processors of a list that the request could take. What ends already is counted first.
    """
    short -= sum(useful(one.processors) for one in nice if one.end_by is not None)
    chosen: list[Nice] = []
    for one in nice:
        if short <= 0:
            break
        count = useful(one.processors) if one.end_by is None else 0
        if count:
            chosen.append(one)
            short -= count
    return chosen if short <= 0 else []


def could(store: Store, machine: Machine, demand: Demand) -> int:
    """How many processors that the request could take belong to launchers of low priority."""
    if demand.partition is not None or demand.nice:
        return 0
    machine.refresh(store)
    useful = _useful(machine, demand)
    return sum(useful(one.processors) for one in _read(store.read(_NICE)))


def make_room(store: Store, machine: Machine, demand: Demand, grace_s: float) -> list[Nice]:
    """Every launcher that is to end for this request or another: written down, not told yet.

    A request inside a batch partition, or of low priority itself, has nobody end.
    """
    if demand.partition is not None or demand.nice:
        return []
    machine.refresh(store)
    nice = _read(store.read(_NICE))
    if not _choose(machine, demand, nice):
        return [one for one in nice if one.end_by is not None]

    def work(t: Transaction) -> list[Nice]:
        if not machine.is_current(t):
            machine.refresh_inside(t)
        nice = _read(t.rows(_NICE))
        chosen = _choose(machine, demand, nice)
        for one in chosen:
            until = t.now + grace_s
            much = counted(demand.size, "processor")
            t.change(
                "UPDATE launcher SET end_by = ?, reason = ?, changed = ? WHERE id = ?",
                (until, f"gave way to {demand.user}, who waited for {much}", t.stamp, one.launcher),
            )
            text = f"launcher {one.launcher} gives way to {demand.user}, who waits for {much}"
            t.event("gives_way", text, launcher=one.launcher)
        going = {one.launcher for one in chosen}
        return [
            one._replace(end_by=t.now + grace_s) if one.launcher in going else one
            for one in nice
            if one.launcher in going or one.end_by is not None
        ]

    return store.run(work)


def _choose(machine: Machine, demand: Demand, nice: Sequence[Nice]) -> list[Nice]:
    short = (demand.at_least or demand.size) - len(candidates(machine, demand))
    return choose(max(1, short), _useful(machine, demand), nice)


def _read(rows: Sequence[Sequence[object]]) -> list[Nice]:
    return [Nice(row[0], row[1], unfold(row[2])) for row in rows]  # type: ignore[arg-type]


def _useful(machine: Machine, demand: Demand) -> Callable[[Sequence[int]], int]:
    out = set(demand.exclude)
    listed = None if demand.wanted is None else set(demand.wanted)
    side = machine.side_of(demand.login) if demand.login else None

    def useful(ids: Sequence[int]) -> int:
        return sum(
            one not in out
            and (listed is None or one in listed)
            and machine.may_have(one, demand.user, service=listed is not None, side=side)
            for one in ids
        )

    return useful
