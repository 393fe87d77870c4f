"""News about many nodes at once: what one process says that speaks for thousands. One function, one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from db.connection import Store, Transaction
from db.errors import Invalid
from db.folded import conditions
from db.machine import NodeRow
from db.node_states import NodeEvent, NodeState, after, is_late

_NODES = "SELECT id, name, state, boot_id, incarnation, address, agent, state_at, `by`, rca, side FROM node"
_EMPTY = (
    "SELECT id, reason, `by` FROM node WHERE state = 'draining'"
    " AND id NOT IN (SELECT node FROM processor WHERE launcher IS NOT NULL)"
)


def nodes_up(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, address: str, agent: str = "") -> int:
    """The PCTs of these nodes registered; for how many that is news. Invalid, naming one that is not of the machine."""

    def work(t: Transaction) -> int:
        event = NodeEvent.REGISTERED
        rows = [
            row for row in _rows(t, nodes) if not is_late(row.boot_id, row.incarnation, boot_id, incarnation, event)
        ]
        life = (boot_id, incarnation, address, agent)
        born = [row.id for row in rows if (row.boot_id, row.incarnation, row.address, row.agent) != life]
        _update(t, born, "boot_id = ?, incarnation = ?, address = ?, agent = ?", life)
        return max(len(born), _move(t, rows, event, "", ""))

    return store.run(work)


def nodes_suspect(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, reason: str) -> int:
    """Their beats are late; for how many that is news about their present life. Invalid."""
    return store.run(lambda t: _move(t, _of_life(t, nodes, boot_id, incarnation), NodeEvent.SILENT, reason, "rca"))


def nodes_down(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, reason: str) -> int:
    """They are gone: batch jobs with processors there have their error set. As ``nodes_suspect``."""

    def work(t: Transaction) -> int:
        rows = _of_life(t, nodes, boot_id, incarnation)
        for condition in conditions((row.id for row in rows), "node"):
            t.change(
                "UPDATE `partition` SET batch_job_error = 1, changed = ? WHERE batch_job IS NOT NULL"
                " AND batch_job_error = 0 AND id IN"
                f" (SELECT `partition` FROM processor WHERE {condition} AND `partition` IS NOT NULL)",
                (t.stamp,),
            )
        out = [row.id for row in rows if row.state in (NodeState.DRAINING, NodeState.DRAINED)]
        _update(t, out, "boot_id = ?", ("",))  # so that resume knows that nobody is there
        return len(out) + _move(t, rows, NodeEvent.GONE, reason, "rca")

    return store.run(work)


def settle_drained(store: Store) -> None:
    """Draining nodes on which nothing runs any more are drained; for the CPA's timer.

    A side change drains thousands at once, so they move together: one by one they would hold the lock for seconds.
    """
    if not store.read(_EMPTY):
        return

    def work(t: Transaction) -> None:
        alike: dict[tuple[str, str], list[int]] = {}
        for node, reason, by in t.rows(_EMPTY):
            alike.setdefault((reason, by), []).append(node)
        rows = {row.id: row for row in _all(t)} if alike else {}
        for (reason, by), ids in alike.items():
            _move(t, [rows[node] for node in ids], NodeEvent.EMPTIED, reason, by)

    store.run(work)


def _all(t: Transaction) -> list[NodeRow]:
    return [NodeRow(row[0], row[1], NodeState(row[2]), *row[3:]) for row in t.rows(_NODES)]


def _rows(t: Transaction, nodes: Sequence[str]) -> list[NodeRow]:
    wanted = set(nodes)
    found = [row for row in _all(t) if row.name in wanted]
    if len(found) != len(wanted):
        missing = min(wanted - {row.name for row in found})
        raise Invalid(f"there is no node {missing[:80]!r} in this mesh", "showmesh shows those there are")
    return found


def _of_life(t: Transaction, nodes: Sequence[str], boot_id: str, incarnation: int) -> list[NodeRow]:
    return [row for row in _rows(t, nodes) if (row.boot_id, row.incarnation) == (boot_id, incarnation)]


def _move(t: Transaction, rows: Sequence[NodeRow], event: NodeEvent, reason: str, by: str) -> int:
    """Does the transition of each; how many moved. One event row for all of a side that come into the same state."""
    moved: dict[tuple[NodeState, int], list[NodeRow]] = {}
    for row in rows:
        state = after(row.state, event)
        if state is not row.state:
            moved.setdefault((state, row.side), []).append(row)
    for (state, _), those in moved.items():
        _update(
            t,
            [row.id for row in those],
            "state = ?, reason = ?, `by` = ?, state_at = ?",
            (state.value, reason, by, t.now),
        )
        names = those[0].name if len(those) == 1 else f"{len(those)} nodes ({those[0].name} … {those[-1].name})"
        verb = "is" if len(those) == 1 else "are"
        t.event(f"node_{state}", f"{names} {verb} {state}" + (f": {reason}" if reason else ""), node=those[0].id)
    return sum(map(len, moved.values()))


def _update(t: Transaction, ids: Iterable[int], what: str, values: Sequence[object]) -> None:
    for condition in conditions(ids):
        t.change(f"UPDATE node SET {what}, changed = ? WHERE {condition}", (*values, t.stamp))
