"""Queries of a CPA for the mesh's daemons: reads, outside every lock."""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.jobs.locations import MOST_ON_THE_MOVE, OnTheMove, jobs_in, on_the_move
from db.machine.node_states import GIVEN_UP
from db.machine.sides import topology_text
from db.schema.models import Mesh, Node, Partition, Waiting
from db.store.orm import pw
from db.store.statements import NOW, Query, statement
from db.store.store import Store
from db.views.rows import UDP


class Life(NamedTuple):
    """The boot id and incarnation of a node, from one registration of a PCT to the next."""

    boot_id: str
    incarnation: int


class Idleness(NamedTuple):
    """How many partitions exist, and for how many seconds there has been none (0 while there are some)."""

    partitions: int
    idle_s: float


@statement
def _life(*, node: str) -> Query:
    return Node.select(Node.boot_id, Node.incarnation).where(Node.name == node)


@statement
def _clock_and_size() -> Query:
    """The database's clock, the mesh's boot, and how many nodes it has."""
    nodes = Node.select(pw.fn.COUNT(Node.id)).where(Node.role != "login")
    return Mesh.select(NOW, Mesh.boot_id, nodes).where(Mesh.id == 1)


@statement
def clock() -> Query:
    """The database's clock."""
    return Mesh.select(NOW).where(Mesh.id == 1)


@statement
def _rca_addresses() -> Query:
    """Login processors whose RCA takes heartbeats of other machines."""
    listens = pw.fn.SUBSTR(Node.address, 1, len(UDP)) == UDP
    return Node.select(Node.name, Node.address, Node.state).where(Node.role == "login", listens).order_by(Node.name)


@statement
def _out_of_service() -> Query:
    failed = (Node.state == "down") & (Node.by == "cpa")
    return Node.select(Node.name, Node.boot_id, Node.incarnation, Node.state, Node.state_at).where(
        Node.role != "login", (Node.incarnation >= GIVEN_UP) | (Node.state == "suspect") | failed
    )


@statement
def _given_up() -> Query:
    return Node.select(Node.name).where(Node.incarnation >= GIVEN_UP)


@statement
def _in_use() -> Query:
    """Live partitions, waiting requests, the seconds since the last partition ended, and since the boot."""
    ended = pw.fn.COALESCE(Partition.select(pw.fn.MAX(Partition.ended_at)), 0)
    return Mesh.select(
        Partition.select(pw.fn.COUNT(Partition.id)).where(Partition.ended_at.is_null()),
        Waiting.select(pw.fn.COUNT(Waiting.id)),
        NOW - ended,
        NOW - Mesh.booted_at,
    ).where(Mesh.id == 1)


def present_life(store: Store, node: str) -> Life:
    """The present boot id and incarnation of a node. Raises Invalid for an unknown node."""
    rows = store.read(_life.bind(node=node))
    if not rows:
        raise Invalid(f"there is no node {node[:80]!r} in this mesh", "showmesh shows those there are")
    return Life(*rows[0])


class NodesOut(NamedTuple):
    """Nodes out of service: those whose rest after a failed load is over, suspect ones, and boots given up (name,
    boot id).

    ``rest_s``: seconds until the next such rest is over (None: no node rests).

    An RCA recognises from the rest that its knowledge is out of date: the mesh's boot, the number of nodes, and the
    addresses of its RCAs (name, address, state). ``moving``: the jobs that are to continue on another login processor.
    """

    now: float
    rested: list[str]
    suspect: list[str]
    given_up: list[tuple[str, str]]
    boot_id: str
    nodes: int
    logins: list[tuple[str, str, str]]
    rest_s: float | None
    moving: list[OnTheMove]


def nodes_out(store: Store, failed_s: float) -> NodesOut:
    """What an RCA must tell nodes that run and do not know that the mesh has excluded them."""
    ((now, boot_id, count),), logins, moving = store.read_together(
        [_clock_and_size.bind(), _rca_addresses.bind(), on_the_move.bind(most=MOST_ON_THE_MOVE)]
    )
    rows = store.read(_out_of_service.bind())
    boots = [(row[0], row[1]) for row in rows if row[2] >= GIVEN_UP]
    suspect = [row[0] for row in rows if row[2] < GIVEN_UP and row[3] == "suspect"]
    failed = [(row[0], float(row[4]) + failed_s - float(now)) for row in rows if row[2] < GIVEN_UP and row[3] == "down"]
    rested = [name for name, left_s in failed if left_s < 0]
    rest_s = min((left_s for _, left_s in failed if left_s >= 0), default=None)
    known = [tuple(row) for row in logins]
    return NodesOut(float(now), rested, suspect, boots, boot_id, count, known, rest_s, jobs_in(moving))


def given_up(store: Store) -> set[str]:
    """The names of nodes whose present boot is given up."""
    return {row[0] for row in store.read(_given_up.bind())}


def idleness(store: Store) -> Idleness:
    """How idle the mesh is; a waiting request counts as use."""
    busy, waiting, idle_s, up_s = store.read(_in_use.bind())[0]
    in_use = int(busy) + int(waiting)
    return Idleness(in_use, 0.0 if in_use else max(0.0, min(float(idle_s), float(up_s))))


def topology(store: Store) -> str | None:
    """The mesh's topology as defined (JSON); None for a plain line."""
    return store.read(topology_text.bind())[0][0]  # type: ignore[no-any-return]
