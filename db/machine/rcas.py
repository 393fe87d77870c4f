"""The RCAs of several login processors: where each listens, which nodes it hears, and what follows when it is gone.

A login processor's row says whether its RCA is there: ``up`` when it has said so itself, ``suspect`` when another RCA
misses it, ``down`` when it has not contradicted for long. One that is revoked has none. One function, one transaction.
"""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.machine.node_states import NodeEvent, NodeState
from db.machine.nodes import FIRST_GRANTED, NodeRow, find_node, give_up_life, gone, move
from db.store.store import Store, Transaction

#: What an address in a login processor's row begins with: its RCA takes beats there.
SCHEME = "udp://"


class FarNodes(NamedTuple):
    """The nodes of the mesh, and those that a certain RCA was the last to hear."""

    boot_id: str
    nodes: list[str]
    mine: list[str]


class Revoked(NamedTuple):
    """What a login processor still had when it was revoked: live launchers, batch partitions, nodes its RCA heard."""

    launchers: list[int]
    partitions: list[int]
    nodes: list[str]


def far_nodes(store: Store, login: str) -> FarNodes:
    """What an RCA has to know of the mesh to hear its nodes."""
    boot, rows = store.read_together(
        [
            ("SELECT boot_id FROM mesh WHERE id = 1", ()),
            ("SELECT name, rca FROM node WHERE role <> 'login' ORDER BY id", ()),
        ]
    )
    return FarNodes(str(boot[0][0]), [row[0] for row in rows], [row[0] for row in rows if row[1] == login])


def here(store: Store, login: str, listen: str) -> bool:
    """An RCA says that it is there, and where nodes reach it; whether that is news. Invalid for no login processor."""

    def work(t: Transaction) -> bool:
        row = _login(t, login)
        address = SCHEME + listen
        if row.address != address:
            t.change("UPDATE node SET address = ?, changed = ? WHERE id = ?", (address, t.stamp, row.id))
        return move(t, row, NodeEvent.REGISTERED, "", login) or row.address != address

    return store.run(work)


def missed(store: Store, login: str, reason: str, by: str) -> bool:
    """An RCA does not answer another one (``by``). It finds its own row so, and contradicts; whether it is news."""
    return store.run(lambda t: move(t, _login(t, login), NodeEvent.SILENT, reason, by))


def silent(store: Store, login: str, reason: str, by: str) -> bool:
    """It has not contradicted: nobody is given the nodes that it heard. False, and nothing is done, when it has."""

    def work(t: Transaction) -> bool:
        if _login(t, login).state is NodeState.UP:
            return False
        for node in _heard_by(t, login, NodeState.UP):
            move(t, node, NodeEvent.SILENT, reason, by)
        return True

    return store.run(work)


def lost(store: Store, login: str, reason: str, by: str) -> bool:
    """It still does not, long after that: what nobody has heard since is down, and its life given up.

    False, and nothing is done, when the RCA or a node that it hears has said something meanwhile: it is the other one
    that has no way there.
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
    """A login processor is none any more. Invalid for none, and for the one that the mesh was brought up on.

    Its row goes, and with it what waits there; no CPA serves it from now on. The nodes that it heard are heard by
    nobody until they register with another RCA. What it launched is not touched.
    """

    def work(t: Transaction) -> Revoked:
        row = _login(t, login)
        if row.id < FIRST_GRANTED:
            raise Invalid(f"the mesh was brought up on {login}", "mesh down there ends it")
        live = "login_processor = ? AND ended_at IS NULL"
        had = Revoked(
            [one for (one,) in t.rows(f"SELECT id FROM launcher WHERE {live} ORDER BY id", (row.id,))],
            [one for (one,) in t.rows(f"SELECT id FROM `partition` WHERE {live} AND batch_job IS NOT NULL", (row.id,))],
            [name for (name,) in t.rows("SELECT name FROM node WHERE rca = ? ORDER BY id", (login,))],
        )
        t.change("UPDATE node SET rca = '', changed = ? WHERE rca = ?", (t.stamp, login))
        t.change("DELETE FROM waiting WHERE login_processor = ?", (row.id,))
        t.change("DELETE FROM node WHERE id = ?", (row.id,))
        t.change("UPDATE node SET changed = ? WHERE id = 0", (t.stamp,))  # a row that is gone shows in no change number
        t.trimmed_to = t.stamp  # viewers read all anew
        t.event("revoked", f"login processor {login}, by {by}")
        return had

    return store.run(work)


def left_behind(store: Store) -> Revoked:
    """What login processors that were revoked still have, and nodes that nobody hears."""
    gone = "ended_at IS NULL AND login_processor NOT IN (SELECT id FROM node)"
    launchers, partitions, nodes = store.read_together(
        [
            (f"SELECT id FROM launcher WHERE {gone} ORDER BY id", ()),
            (f"SELECT id FROM `partition` WHERE {gone} AND batch_job IS NOT NULL", ()),
            ("SELECT name FROM node WHERE rca = '' AND role <> 'login' ORDER BY id", ()),
        ]
    )
    return Revoked([row[0] for row in launchers], [row[0] for row in partitions], [row[0] for row in nodes])


def _login(t: Transaction, name: str) -> NodeRow:
    row = find_node(t, name)
    if t.row("SELECT id FROM node WHERE id = ? AND role = 'login'", (row.id,)) is None:
        raise Invalid(f"{name} is no login processor", "mesh login grant makes one")
    return row


def _heard_by(t: Transaction, login: str, state: NodeState) -> list[NodeRow]:
    names = t.rows("SELECT name FROM node WHERE rca = ? AND state = ? AND role <> 'login'", (login, state.value))
    return [find_node(t, name) for (name,) in names]
