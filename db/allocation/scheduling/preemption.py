"""Preemption: which launchers of low priority end so that a request finds its processors. One transaction.

Launchers are ended only if that makes room for the whole request.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from db.allocation.allocate import candidates, could_be_met, names_processors
from db.allocation.free import Machine
from db.allocation.free_ids import FreeIds
from db.allocation.limits import place_in_line
from db.allocation.types import Choose, Demand
from db.schema.models import Launcher, Partition
from db.store.ranges import unfold
from db.store.statements import STAMP, Query, statement
from db.store.store import Store, Transaction
from redmesh.text import counted


class Nice(NamedTuple):
    """A launcher of low priority. ``end_by``: the time by which it was told to end; None if it was not told.

    ``devices``: its devices, by node id and name.
    """

    launcher: int
    end_by: float | None
    processors: list[int]
    devices: Mapping[str, Mapping[str, Sequence[int]]] = {}


class Vacated(Machine):
    """The picture after these launchers have ended, for one decision. The underlying picture must not change
    meanwhile."""

    def __init__(self, machine: Machine, ending: Sequence[Nice]) -> None:
        super().__init__()
        vars(self).update(vars(machine))
        self._ending = ending

    def free(
        self, user: str, batch: bool = False, interactive: bool = True, service: bool = False, side: int | None = None
    ) -> FreeIds:
        """What ``user`` may be given then."""
        flags = bytearray(super().free(user, batch, interactive, service, side).flags)
        for one in (one for launcher in self._ending for one in launcher.processors):
            if self.may_have(one, user, service, side):
                flags.extend(bytes(max(0, one + 1 - len(flags))))
                flags[one] = 1
        return FreeIds(bytes(flags))

    def left_on(self, node: int, name: str) -> int:
        """The unused amount of a resource on a node then."""
        back = (len(one.devices.get(str(node), {}).get(name, ())) for one in self._ending)
        return super().left_on(node, name) + sum(back)


#: How many times to test whether a launcher can stay: on 10,000 processors each test takes milliseconds.
QUESTIONS = 100


@statement
def _nice() -> Query:
    """Launchers of low priority, outside batch partitions, the youngest first."""
    return (
        Launcher.select(Launcher.id, Launcher.end_by, Launcher.processors, Launcher.resources)
        .join(Partition, on=Partition.id == Launcher.partition)
        .where(Launcher.nice, Launcher.ended_at.is_null(), Partition.batch_job.is_null())
        .order_by(Launcher.id.desc())
    )


@statement
def _end_by(*, launcher: int, until: float, reason: str) -> Query:
    return Launcher.update({Launcher.end_by: until, Launcher.reason: reason, Launcher.changed: STAMP}).where(
        Launcher.id == launcher
    )


def pick(enough: Callable[[Sequence[Nice]], bool], nice: Sequence[Nice]) -> list[Nice]:
    """The launchers to end now, the youngest first. With those that already end they are enough, and none is
    needless."""
    going = [one for one in nice if one.end_by is not None]
    others = [one for one in nice if one.end_by is None]
    if not others or enough(going) or not enough(going + others):
        return []
    count = bisect_left(range(len(others)), True, lo=1, key=lambda few: enough(going + others[:few]))
    left = iter(range(QUESTIONS))
    return _needed(lambda ending: next(left, None) is not None and enough(ending), going, others[:count], asked=True)


def _needed(
    enough: Callable[[Sequence[Nice]], bool], given: list[Nice], among: list[Nice], *, asked: bool
) -> list[Nice]:
    """A minimal part of ``among`` that is enough together with ``given``, found by bisection, since most may be
    needless.

    ``asked``: ``given`` alone is known to be not enough.
    """
    if not among or (not asked and enough(given)):
        return []
    if len(among) == 1:
        return among
    young, old = among[: len(among) // 2], among[len(among) // 2 :]
    of_old = _needed(enough, given + young, old, asked=False)
    return _needed(enough, given + of_old, young, asked=not of_old) + of_old


def could(store: Store, machine: Machine, demand: Demand, choose: Choose) -> int:
    """How many processors the request could take from launchers of low priority, if they would be enough for it."""
    if demand.partition is not None or demand.nice:
        return 0
    machine.refresh(store)
    nice = _read(store.read(_nice.bind()))
    if not nice or not could_be_met(Vacated(machine, nice), demand, choose):
        return 0
    useful = useful_of(machine, demand)
    return sum(useful(one.processors) for one in nice)


def make_room(store: Store, machine: Machine, demand: Demand, grace_s: float, choose: Choose) -> list[Nice]:
    """Choose and record the launchers that are to end for this request, and return all that are to end.

    The launchers are not told yet. A request inside a batch partition, or of low priority, ends no launcher.
    """
    if demand.partition is not None or demand.nice:
        return []
    machine.refresh(store)
    seen = _read(store.read(_nice.bind()))
    picked = _pick(machine, demand, seen, choose)
    if not picked:
        return [one for one in seen if one.end_by is not None]

    def work(t: Transaction) -> list[Nice]:
        nice, chosen = seen, picked
        if not machine.is_current(t):  # if nothing has changed, nothing is read under the lock
            machine.refresh_inside(t)
            nice = _read(t.rows(_nice.bind()))
            chosen = _pick(machine, demand, nice, choose)
        for one in chosen:
            until = t.now + grace_s
            much = counted(demand.size, "processor")
            reason = f"gave way to {demand.user}, who waited for {much}"
            t.change(_end_by.bind(launcher=one.launcher, until=until, reason=reason))
            text = f"launcher {one.launcher} gives way to {demand.user}, who waits for {much}"
            t.event("preempted", text, launcher=one.launcher)
        going = {one.launcher for one in chosen}
        return [
            one._replace(end_by=t.now + grace_s) if one.launcher in going else one
            for one in nice
            if one.launcher in going or one.end_by is not None
        ]

    return store.run(work)


def _pick(machine: Machine, demand: Demand, nice: Sequence[Nice], choose: Choose) -> list[Nice]:
    useful = useful_of(machine, demand)
    devices = demand.resources or (demand.shape is not None and demand.shape.per_task)
    those = [one for one in nice if devices or useful(one.processors)]
    there = len(candidates(machine, demand._replace(resources={})))  # the launchers that end may free the devices
    counts = {one.launcher: useful(one.processors) for one in those}

    def enough(ending: Sequence[Nice]) -> bool:
        if there + sum(counts[one.launcher] for one in ending) < (demand.at_least or demand.size):
            return False  # a quick check
        return could_be_met(Vacated(machine, ending), demand, choose)

    return pick(enough, those)


def _read(rows: Sequence[Sequence[object]]) -> list[Nice]:
    return [Nice(row[0], row[1], unfold(row[2]), json.loads(row[3])) for row in rows]  # type: ignore[arg-type]


def useful_of(machine: Machine, demand: Demand) -> Callable[[Sequence[int]], int]:
    """A function that counts the processors that a request could take if their launchers ended."""
    out = set(demand.exclude)
    listed = None if demand.wanted is None else set(demand.wanted)
    side = machine.side_of(demand.login) if demand.login else None
    service = names_processors(demand)
    place = place_in_line(machine, demand.user, demand.command, demand.partition)

    def useful(ids: Sequence[int]) -> int:
        return sum(
            one not in out
            and (listed is None or one in listed)
            and machine.may_have(one, demand.user, service=service, side=side)
            and machine.stays(one, demand.time_s)
            and (place is None or machine.is_in_part(one, place.part))
            for one in ids
        )

    return useful
