"""Many nodes at once: what one process says that speaks for thousands, and what an administrator does to a machine.

One function, one transaction: a thousand of them, one after another, would keep everybody else waiting for seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from db.errors import Invalid
from db.machine.node_states import NodeEvent, NodeState, after, is_late
from db.machine.nodes import NOT_YET, NodeRow, NodeSpec
from db.store.ranges import conditions
from db.store.store import Store, Transaction
from redmesh.text import counted

_NODES = "SELECT id, name, state, boot_id, incarnation, address, agent, state_at, `by`, rca, side FROM node"
NOBODY_THERE = "boot_id = ?", ("",)  # what resume knows it by
FEW = 100  # nodes that are asked for by name
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
        _update(t, out, *NOBODY_THERE)
        return len(out) + _move(t, rows, NodeEvent.GONE, reason, "rca")

    return store.run(work)


def drain(store: Store, nodes: Sequence[str], reason: str, by: str) -> list[str]:
    """Takes nodes out of service: what runs there runs on, nothing new starts; for which that is news. Invalid."""

    def work(t: Transaction) -> list[str]:
        rows = _rows(t, nodes)
        moved = _moving(rows, NodeEvent.DRAIN)
        _move(t, moved, NodeEvent.DRAIN, reason, by, each=True)
        _update(t, [row.id for row in moved if row.state is NodeState.DOWN and row.is_there], *NOBODY_THERE)
        busy: set[int] = set()
        for condition in conditions((row.id for row in moved), "node"):
            sql = f"SELECT DISTINCT node FROM processor WHERE launcher IS NOT NULL AND {condition}"
            busy.update(row[0] for row in t.rows(sql))
        empty = [row._replace(state=NodeState.DRAINING) for row in moved if row.id not in busy]
        _move(t, empty, NodeEvent.EMPTIED, reason, by, each=True)
        return _named(nodes, moved)

    return store.run(work)


def resume(store: Store, nodes: Sequence[str], by: str) -> list[str]:
    """Puts drained nodes back, as soon as their PCTs are there; for which that is news. Invalid."""

    def work(t: Transaction) -> list[str]:
        rows = _rows(t, nodes)
        back = _moving([row for row in rows if row.is_there], NodeEvent.RESUME)
        absent = _moving([row for row in rows if not row.is_there], NodeEvent.RESUME_ABSENT)
        _move(t, back, NodeEvent.RESUME, "", "", each=True)
        _move(t, absent, NodeEvent.RESUME_ABSENT, NOT_YET, by, each=True)
        return _named(nodes, [*back, *absent])

    return store.run(work)


def _moving(rows: Sequence[NodeRow], event: NodeEvent) -> list[NodeRow]:
    return [row for row in rows if after(row.state, event) is not row.state]


def _named(nodes: Sequence[str], rows: Sequence[NodeRow]) -> list[str]:
    those = {row.name for row in rows}
    return [name for name in dict.fromkeys(nodes) if name in those]


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


def _all(t: Transaction, where: str = "", params: Sequence[str] = ()) -> list[NodeRow]:
    return [NodeRow(row[0], row[1], NodeState(row[2]), *row[3:]) for row in t.rows(_NODES + where, params)]


def _rows(t: Transaction, nodes: Sequence[str]) -> list[NodeRow]:
    wanted = set(nodes)
    if len(wanted) <= FEW:
        found = _all(t, f" WHERE name IN ({', '.join('?' * len(wanted))})", sorted(wanted))
    else:
        found = [row for row in _all(t) if row.name in wanted]
    if len(found) != len(wanted):
        missing = min(wanted - {row.name for row in found})
        raise Invalid(f"there is no node {missing[:80]!r} in this mesh", "showmesh shows those there are")
    return found


def _of_life(t: Transaction, nodes: Sequence[str], boot_id: str, incarnation: int) -> list[NodeRow]:
    return [row for row in _rows(t, nodes) if (row.boot_id, row.incarnation) == (boot_id, incarnation)]


def _move(
    t: Transaction, rows: Sequence[NodeRow], event: NodeEvent, reason: str, by: str, *, each: bool = False
) -> int:
    """Does the transition of each; how many moved. One event row for all of a side that come into the same state.

    Or for ``each`` of them its own: what is done to a node is told with it.
    """
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
        why = f": {reason}" if reason else ""
        if each:
            told = [(t.now, f"node_{state}", row.id, f"{row.name} is {state}{why}") for row in those]
            t.insert_rows("event", ("at", "kind", "node", "text"), told)
            continue
        names = those[0].name if len(those) == 1 else f"{len(those)} nodes ({those[0].name} … {those[-1].name})"
        verb = "is" if len(those) == 1 else "are"
        t.event(f"node_{state}", f"{names} {verb} {state}{why}", node=those[0].id)
    return sum(map(len, moved.values()))


def _update(t: Transaction, ids: Iterable[int], what: str, values: Sequence[object]) -> None:
    for condition in conditions(ids):
        t.change(f"UPDATE node SET {what}, changed = ? WHERE {condition}", (*values, t.stamp))


# A machine that grows while it is up: hosts that are described later, or whose size was not known. One transaction.


def add_nodes(store: Store, boot_id: str, specs: Sequence[NodeSpec]) -> None:
    """Adds nodes that are not there, and processors to those that had none; what runs runs on. Invalid.

    A machine with a topology does not grow: its processors have places in it. Login processors without any may join it.
    """
    store.run(lambda t: _add(t, boot_id, specs))


def _add(t: Transaction, boot_id: str, specs: Sequence[NodeSpec]) -> None:
    found = t.row("SELECT topology FROM mesh WHERE id = 1")
    if t.boot_id != boot_id:
        raise Invalid("the mesh has begun anew meanwhile", "mesh status")
    if found is not None and found[0] and any(spec.processors or spec.role != "login" for spec in specs):
        raise Invalid("a machine with a [topology] cannot grow while it is up", "mesh down, then mesh up")
    there = {row[1]: row[0] for row in t.rows("SELECT id, name FROM node")}
    taken = {row[0] for row in t.rows("SELECT id FROM processor")}
    for spec in specs:
        if taken & set(spec.processors):
            raise Invalid(f"processors of {spec.name} belong to another node already", "mesh down, then mesh up")
        taken |= set(spec.processors)
        if spec.name not in there:
            _add_node(t, spec)
        elif there[spec.name] != spec.id:
            raise Invalid(f"{spec.name} is node {there[spec.name]}, not {spec.id}", "mesh down, then mesh up")
        elif t.row("SELECT id FROM processor WHERE node = ? LIMIT 1", (spec.id,)):
            raise Invalid(f"{spec.name} has processors already", "mesh down, then mesh up with another number")
        columns = ["id", "node", "slot", "alloc_mode", "reserved_for", "partition", "launcher"]
        rows = [(one, spec.id, slot, "interactive", None, None, None) for slot, one in enumerate(spec.processors)]
        t.insert_rows("processor", columns, sorted(rows))
        for what, total in spec.resources.items():
            t.insert_rows("node_resource", ("node", "name", "total", "in_use"), [(spec.id, what, total, 0)])
        t.event("grown", f"{spec.name}: {counted(len(spec.processors), 'processor')}", node=spec.id)


def _add_node(t: Transaction, spec: NodeSpec) -> None:
    columns = ["id", "name", "role", "address", "state", "reason", "by", "boot_id", "incarnation", "agent", "rca"]
    state, reason = ("up", "") if spec.role == "login" else ("down", NOT_YET)
    row = (spec.id, spec.name, spec.role, spec.address, state, reason, "", "", 0, "", "")
    t.insert_rows("node", [*columns, "state_at", "side", "side_from"], [(*row, t.now, 1, t.stamp)])
