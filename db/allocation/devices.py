"""GPUs and other countable devices of nodes: counted and assigned in the transaction that allocates processors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from db.allocation.free import Placed
from db.allocation.types import Demand
from db.errors import NotEnough, StoreError
from db.schema.models import Launcher, NodeResource
from db.store.statements import STAMP, Query, statement
from db.store.store import Row, Transaction


@statement
def _take(*, node: int, name: str, amount: int) -> Query:
    return NodeResource.update({NodeResource.in_use: NodeResource.in_use + amount, NodeResource.changed: STAMP}).where(
        NodeResource.node == node, NodeResource.name == name, NodeResource.in_use + amount <= NodeResource.total
    )


@statement
def _total(*, node: int, name: str) -> Query:
    return NodeResource.select(NodeResource.total).where(NodeResource.node == node, NodeResource.name == name)


@statement
def give_back(*, node: int, name: str, amount: int) -> Query:
    """Return devices of a launcher that has ended on ``node``."""
    return NodeResource.update({NodeResource.in_use: NodeResource.in_use - amount, NodeResource.changed: STAMP}).where(
        NodeResource.node == node, NodeResource.name == name
    )


@statement
def _held() -> Query:
    return Launcher.select(Launcher.resources).where(Launcher.ended_at.is_null(), Launcher.resources != "{}")


def amounts(nodes: Iterable[Placed], demand: Demand) -> dict[int, dict[str, int]]:
    """How many devices of each kind to take from every node: those asked for per node, and per task on the node."""
    found = {}
    for placed in nodes:
        there = dict(demand.resources)
        if demand.shape is not None:
            tasks = len(placed.processors) // demand.shape.each
            for name, amount in demand.shape.per_task.items():
                there[name] = there.get(name, 0) + amount * tasks
        found[placed.id] = there
    return found


def take_devices(t: Transaction, nodes: Sequence[Placed], demand: Demand) -> dict[str, dict[str, list[int]]]:
    """Take resources on every node and choose the devices: by node id, in the form that returning them needs."""
    if not demand.resources and (demand.shape is None or not demand.shape.per_task):
        return {}
    devices: dict[str, dict[str, list[int]]] = {}
    taken = devices_in_use(t.rows)
    for placed in nodes:
        for name, amount in amounts([placed], demand)[placed.id].items():
            if not t.change(_take.bind(node=placed.id, name=name, amount=amount)):
                raise NotEnough(f"{placed.name} has no {amount} {name} left", "ask for fewer, or wait")
            row = t.row(_total.bind(node=placed.id, name=name))
            assert row is not None
            mine = lowest(row[0], taken.get((str(placed.id), name), set()), amount)
            devices.setdefault(str(placed.id), {})[name] = mine
    return devices


def devices_in_use(rows: Callable[..., Sequence[Row]]) -> dict[tuple[str, str], set[int]]:
    """The devices in use, by node id and resource."""
    taken: dict[tuple[str, str], set[int]] = {}
    for (text,) in rows(_held.bind()):
        for node, held in json.loads(text).items():
            for name, devices in held.items():
                taken.setdefault((node, name), set()).update(devices)
    return taken


def lowest(total: int, taken: set[int], amount: int) -> list[int]:
    """The lowest ``amount`` unused devices of ``total``. Raises StoreError if the database says otherwise."""
    free = [device for device in range(total) if device not in taken]
    if len(free) < amount:
        raise StoreError(
            "the amount of a resource in use differs from what launchers have",
            "mesh down, then mesh up, which counts again",
        )
    return free[:amount]


def by_name(nodes: Iterable[Placed], devices: Mapping[str, dict[str, list[int]]]) -> dict[str, dict[str, list[int]]]:
    """The devices by node name instead of node id."""
    return {placed.name: devices[str(placed.id)] for placed in nodes if str(placed.id) in devices}
