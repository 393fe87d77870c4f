"""Queries of ``mesh`` for deployment, upgrades and granting login processors: reads, outside every lock."""

from __future__ import annotations

from typing import NamedTuple

from db.machine.nodes import FIRST_GRANTED
from db.schema.models import Launcher, Node, Partition, Processor
from db.store.orm import pw
from db.store.statements import Query, statement
from db.store.store import Store
from db.views.daemon_reads import Life

_DOWN = (Node.state == "down", Node.role != "login")
_PRESENT = (Node.role != "login", Node.state != "down", Node.boot_id != "")
SOME = 3


class NodeSize(NamedTuple):
    """A node that is not a login processor: its name, state, reason and number of processors."""

    name: str
    state: str
    reason: str
    processors: int


class NodePlace(NamedTuple):
    """Where a node's PCT listens."""

    name: str
    address: str
    state: str
    role: str
    id: int


@statement
def _sizes() -> Query:
    return (
        Node.select(Node.name, Node.state, Node.reason, pw.fn.COUNT(Processor.id))
        .join(Processor, pw.JOIN.LEFT_OUTER, on=Processor.node == Node.id)
        .where(Node.role != "login")
        .group_by(Node.id, Node.name, Node.state, Node.reason)
        .order_by(Node.id)
    )


@statement
def _count_down() -> Query:
    return Node.select(pw.fn.COUNT(Node.id)).where(*_DOWN)


@statement
def _first_down() -> Query:
    return Node.select(Node.name).where(*_DOWN).order_by(Node.id).limit(SOME)


@statement
def _registered() -> Query:
    return Node.select(Node.name).where(*_PRESENT)


@statement
def _unheard() -> Query:
    return Node.select(Node.name).where(*_PRESENT, Node.rca == "")


@statement
def _lives() -> Query:
    return Node.select(Node.name, Node.boot_id, Node.incarnation).where(Node.role != "login")


@statement
def _places() -> Query:
    return Node.select(Node.name, Node.address, Node.state, Node.role, Node.id).order_by(Node.id)


@statement
def _granted() -> Query:
    return Node.select(Node.name).where(Node.id >= FIRST_GRANTED).order_by(Node.id)


@statement
def _last_logins() -> Query:
    """The highest id of a login processor in launchers and partitions."""
    return pw.Select(
        columns=[
            Launcher.select(pw.fn.COALESCE(pw.fn.MAX(Launcher.login_processor), 0)),
            Partition.select(pw.fn.COALESCE(pw.fn.MAX(Partition.login_processor), 0)),
        ]
    )


def node_sizes(store: Store) -> list[NodeSize]:
    """Every node but login processors."""
    return [NodeSize(str(row[0]), str(row[1]), str(row[2] or ""), int(row[3])) for row in store.read(_sizes.bind())]


def absent(store: Store) -> tuple[int, list[str]]:
    """How many nodes have not come up yet or went down, and the names of the first few."""
    count = int(store.read(_count_down.bind())[0][0])
    return count, [str(name) for (name,) in store.read(_first_down.bind())] if count else []


def registered(store: Store) -> list[str]:
    """Nodes whose PCT is up."""
    return [str(name) for (name,) in store.read(_registered.bind())]


def unheard(store: Store) -> set[str]:
    """Nodes whose PCT is up and whose heartbeats no RCA receives."""
    return {str(name) for (name,) in store.read(_unheard.bind())}


def lives(store: Store) -> dict[str, Life]:
    """The present boot id and incarnation of every node but login processors, by name."""
    return {str(name): Life(str(boot), int(incarnation)) for name, boot, incarnation in store.read(_lives.bind())}


def places(store: Store) -> list[NodePlace]:
    """Every node, including login processors."""
    return [NodePlace._make(row) for row in store.read(_places.bind())]


def granted(store: Store) -> list[str]:
    """Granted login processors."""
    return [str(name) for (name,) in store.read(_granted.bind())]


def last_login(store: Store) -> int:
    """The highest id of a login processor in the history, revoked ones included; 0 for none."""
    return max(map(int, store.read(_last_logins.bind())[0]))
