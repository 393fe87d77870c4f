"""The RCAs of several login processors: their addresses, the nodes of each, and what happens if one is lost.

The nodes of an RCA are those that send heartbeats to it. The row of a login processor has the state of its RCA: ``up``
if the RCA has reported that itself, ``suspect`` if another RCA reports silence, ``down`` if the RCA has not
contradicted such a report for long. A revoked login processor has no row. Each function is one transaction.
"""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.jobs.locations import staying_from
from db.machine.node_states import NodeEvent, NodeState
from db.machine.nodes import FIRST_GRANTED, NodeRow, find_node, give_up_life, gone, move, nodes_where
from db.schema.models import Launcher, Mesh, Node, Partition, Waiting
from db.store.statements import STAMP, Query, statement
from db.store.store import Store, Transaction
from db.views.rows import UDP


@statement
def _boot_id() -> Query:
    return Mesh.select(Mesh.boot_id).where(Mesh.id == 1)


@statement
def _heard() -> Query:
    """Nodes, each with the login processor whose RCA receives its heartbeats."""
    return Node.select(Node.name, Node.rca).where(Node.role != "login").order_by(Node.id)


@statement
def _set_address(*, node: int, address: str) -> Query:
    return Node.update({Node.address: address, Node.changed: STAMP}).where(Node.id == node)


@statement
def _launchers_of(*, login_processor: int) -> Query:
    return (
        Launcher.select(Launcher.id)
        .where(Launcher.login_processor == login_processor, Launcher.ended_at.is_null())
        .order_by(Launcher.id)
    )


@statement
def _batch_partitions_of(*, login_processor: int) -> Query:
    return Partition.select(Partition.id).where(
        Partition.login_processor == login_processor,
        Partition.ended_at.is_null(),
        Partition.batch_job.is_null(False),
    )


@statement
def _names_heard_by(*, login: str) -> Query:
    return Node.select(Node.name).where(Node.rca == login).order_by(Node.id)


@statement
def _unhear(*, login: str) -> Query:
    """Clear the RCA of the nodes that send heartbeats to this login processor's RCA."""
    return Node.update({Node.rca: "", Node.changed: STAMP}).where(Node.rca == login)


@statement
def _delete_waiting_of(*, login_processor: int) -> Query:
    return Waiting.delete().where(Waiting.login_processor == login_processor)


@statement
def _delete_node(*, node: int) -> Query:
    return Node.delete().where(Node.id == node)


@statement
def _touch_first_node() -> Query:
    """Mark node 0 as changed, because a deleted row shows in no change number."""
    return Node.update({Node.changed: STAMP}).where(Node.id == 0)


@statement
def _launchers_left() -> Query:
    """Live launchers of revoked login processors."""
    return (
        Launcher.select(Launcher.id)
        .where(Launcher.ended_at.is_null(), Launcher.login_processor.not_in(Node.select(Node.id)))
        .order_by(Launcher.id)
    )


@statement
def _batch_partitions_left() -> Query:
    return Partition.select(Partition.id).where(
        Partition.ended_at.is_null(),
        Partition.login_processor.not_in(Node.select(Node.id)),
        Partition.batch_job.is_null(False),
    )


@statement
def _is_login(*, node: int) -> Query:
    return Node.select(Node.id).where(Node.id == node, Node.role == "login")


@statement
def _heard_in_state(*, login: str, state: str) -> Query:
    return nodes_where(Node.rca == login, Node.state == state, Node.role != "login")


class FarNodes(NamedTuple):
    """The nodes of the mesh, and those whose last heartbeats went to a certain RCA."""

    boot_id: str
    nodes: list[str]
    mine: list[str]


class Revoked(NamedTuple):
    """What a revoked login processor still had: live launchers, batch partitions, and nodes of its RCA."""

    launchers: list[int]
    partitions: list[int]
    nodes: list[str]


def far_nodes(store: Store, login: str) -> FarNodes:
    """The data about the mesh that an RCA needs to receive heartbeats."""
    boot, rows = store.read_together([_boot_id.bind(), _heard.bind()])
    return FarNodes(str(boot[0][0]), [row[0] for row in rows], [row[0] for row in rows if row[1] == login])


def here(store: Store, login: str, listen: str) -> bool:
    """Record that an RCA is up, and its address; returns whether that is new. Raises Invalid for an unknown login
    processor."""

    def work(t: Transaction) -> bool:
        row = _login(t, login)
        address = UDP + listen
        if row.address != address:
            t.change(_set_address.bind(node=row.id, address=address))
            t.moved_nodes = True
        return move(t, row, NodeEvent.REGISTERED, "", login) or row.address != address

    return store.run(work)


def missed(store: Store, login: str, reason: str, by: str) -> bool:
    """Record that an RCA does not answer another one (``by``); returns whether that is new. It can object on reading
    its row."""
    return store.run(lambda t: move(t, _login(t, login), NodeEvent.SILENT, reason, by))


def silent(store: Store, login: str, reason: str, by: str) -> bool:
    """Record that an RCA has not objected: its nodes are not allocated. Does nothing and returns False if it has
    objected."""

    def work(t: Transaction) -> bool:
        if _login(t, login).state is NodeState.UP:
            return False
        for node in _heard_by(t, login, NodeState.UP):
            move(t, node, NodeEvent.SILENT, reason, by)
        return True

    return store.run(work)


def lost(store: Store, login: str, reason: str, by: str) -> bool:
    """Record that an RCA is still silent: nodes that no RCA has heard from since are down, and their boot ids are
    given up.

    Does nothing and returns False if the RCA, or a node of it, has reported meanwhile: then the RCA that reported the
    silence is the one that cannot reach it.
    """

    def work(t: Transaction) -> bool:
        row = _login(t, login)
        if row.state is NodeState.UP or _heard_by(t, login, NodeState.UP):
            return False
        for state in (NodeState.SUSPECT, NodeState.DRAINING, NodeState.DRAINED):
            for node in _heard_by(t, login, state):
                if node.is_there:
                    give_up_life(t, node)
                    gone(t, node, reason, by)
        move(t, row, NodeEvent.GONE, reason, by)
        return True

    return store.run(work)


def revoke(store: Store, login: str, by: str) -> Revoked:
    """Revoke a login processor. Raises Invalid if it is unknown, or if the mesh was brought up on it.

    Deletes its row and its waiting requests; no job is to continue there, and no CPA serves it from now on. The nodes
    of its RCA have no RCA until they register with another one. Its launches are not changed.
    """

    def work(t: Transaction) -> Revoked:
        row = _login(t, login)
        if row.id < FIRST_GRANTED:
            raise Invalid(f"the mesh was brought up on {login}", "mesh down there ends it")
        had = Revoked(
            [one for (one,) in t.rows(_launchers_of.bind(login_processor=row.id))],
            [one for (one,) in t.rows(_batch_partitions_of.bind(login_processor=row.id))],
            [name for (name,) in t.rows(_names_heard_by.bind(login=login))],
        )
        t.change(_unhear.bind(login=login))
        t.change(_delete_waiting_of.bind(login_processor=row.id))
        t.change(staying_from.bind(login=login))
        t.change(_delete_node.bind(node=row.id))
        t.change(_touch_first_node.bind())
        t.trimmed_to = t.stamp  # viewers read everything anew
        t.moved_nodes = True
        t.event("revoked", f"login processor {login}, by {by}")
        return had

    return store.run(work)


def left_behind(store: Store) -> Revoked:
    """What revoked login processors still have, and the nodes without an RCA."""
    launchers, partitions, nodes = store.read_together(
        [_launchers_left.bind(), _batch_partitions_left.bind(), _heard.bind()]
    )
    unheard = [name for name, rca in nodes if not rca]
    return Revoked([row[0] for row in launchers], [row[0] for row in partitions], unheard)


def _login(t: Transaction, name: str) -> NodeRow:
    row = find_node(t, name)
    if t.row(_is_login.bind(node=row.id)) is None:
        raise Invalid(f"{name} is not a login processor", "mesh login grant adds one")
    return row


def _heard_by(t: Transaction, login: str, state: NodeState) -> list[NodeRow]:
    return [NodeRow.from_row(row) for row in t.rows(_heard_in_state.bind(login=login, state=state.value))]
