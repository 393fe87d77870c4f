"""Transitions of many nodes at once: for a process that stands for thousands of nodes, and for administrators.

Each function is one transaction: a thousand single transactions would block all others for seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from db.errors import Invalid
from db.machine.node_states import NodeEvent, NodeState, after, is_late
from db.machine.nodes import (
    NOT_YET,
    NodeRow,
    NodeSpec,
    insert_node,
    insert_processor,
    insert_resource,
    nodes_where,
)
from db.machine.sides import topology_text
from db.schema.models import Event, Node, Partition, Processor
from db.store.statements import INSTANT, STAMP, Ids, Query, among, statement
from db.store.store import Store, Transaction
from redmesh.text import counted

FEW = 100  # so many nodes are asked for by name


@statement
def _all_nodes() -> Query:
    return nodes_where()


@statement
def _node(*, name: str) -> Query:
    return nodes_where(Node.name == name)


@statement
def _set_drain_at(*, ids: Ids, at: float | None, reason: str) -> Query:
    return Node.update({Node.drain_at: at, Node.drain_reason: reason, Node.changed: STAMP}).where(among(Node.id, ids))


@statement
def _to_be_drained(*, ids: Ids) -> Query:
    """Those of these nodes that will be drained at a given time."""
    return Node.select(Node.id).where(among(Node.id, ids), Node.drain_at.is_null(False))


@statement
def _logins(*, ids: Ids) -> Query:
    return Node.select(Node.id).where(among(Node.id, ids), Node.role == "login")


@statement
def _due() -> Query:
    """Nodes in service whose time to be drained has come."""
    return Node.select(Node.name, Node.drain_reason).where(
        Node.drain_at <= INSTANT, Node.state.not_in(["draining", "drained"])
    )


@statement
def _empty() -> Query:
    """Draining nodes on which nothing runs."""
    busy = Processor.select(Processor.node).where(Processor.launcher.is_null(False))
    return Node.select(Node.id, Node.reason, Node.by).where(Node.state == "draining", Node.id.not_in(busy))


@statement
def _busy(*, ids: Ids) -> Query:
    """Those of these nodes on which something runs."""
    busy = Processor.select(Processor.node).where(Processor.launcher.is_null(False), among(Processor.node, ids))
    return busy.distinct()


@statement
def _set_lives(*, ids: Ids, boot_id: str, incarnation: int, address: str, agent: str) -> Query:
    return Node.update(
        {
            Node.boot_id: boot_id,
            Node.incarnation: incarnation,
            Node.address: address,
            Node.agent: agent,
            Node.changed: STAMP,
        }
    ).where(among(Node.id, ids))


@statement
def _set_absent(*, ids: Ids) -> Query:
    """Set the marker by which ``resume`` knows that the PCTs are not there."""
    return Node.update({Node.boot_id: "", Node.changed: STAMP}).where(among(Node.id, ids))


@statement
def _set_states(*, ids: Ids, state: str, reason: str, by: str) -> Query:
    return Node.update(
        {Node.state: state, Node.reason: reason, Node.by: by, Node.state_at: INSTANT, Node.changed: STAMP}
    ).where(among(Node.id, ids))


@statement
def _mark_batch_jobs(*, ids: Ids) -> Query:
    """Set the error of batch jobs with processors on these nodes."""
    there = Processor.select(Processor.partition).where(among(Processor.node, ids), Processor.partition.is_null(False))
    return Partition.update({Partition.batch_job_error: True, Partition.changed: STAMP}).where(
        Partition.batch_job.is_null(False), ~Partition.batch_job_error, Partition.id.in_(there)
    )


@statement
def _insert_event(*, kind: str, node: int, text: str) -> Query:
    return Event.insert({Event.at: INSTANT, Event.kind: kind, Event.node: node, Event.text: text, Event.changed: STAMP})


@statement
def _names() -> Query:
    return Node.select(Node.id, Node.name)


@statement
def _processors() -> Query:
    return Processor.select(Processor.id, Processor.node)


def nodes_up(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, address: str, agent: str = "") -> int:
    """Record that the PCTs of these nodes registered; returns for how many that is new. Raises Invalid for an
    unknown node."""

    def work(t: Transaction) -> int:
        event = NodeEvent.REGISTERED
        rows = [
            row for row in _rows(t, nodes) if not is_late(row.boot_id, row.incarnation, boot_id, incarnation, event)
        ]
        life = (boot_id, incarnation, address, agent)
        born = [row.id for row in rows if (row.boot_id, row.incarnation, row.address, row.agent) != life]
        t.change(_set_lives.bind(ids=born, boot_id=boot_id, incarnation=incarnation, address=address, agent=agent))
        return max(len(born), _move(t, rows, event, "", ""))

    return store.run(work)


def nodes_suspect(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, reason: str) -> int:
    """Record that their heartbeats are late; returns for how many that is new. Raises Invalid."""
    return store.run(lambda t: _move(t, _of_life(t, nodes, boot_id, incarnation), NodeEvent.SILENT, reason, "rca"))


def nodes_down(store: Store, nodes: Sequence[str], boot_id: str, incarnation: int, reason: str) -> int:
    """Record that they are gone; batch jobs with processors there have their error set. Otherwise as
    ``nodes_suspect``."""

    def work(t: Transaction) -> int:
        rows = _of_life(t, nodes, boot_id, incarnation)
        t.change(_mark_batch_jobs.bind(ids=[row.id for row in rows]))
        out = [row.id for row in rows if row.state in (NodeState.DRAINING, NodeState.DRAINED)]
        t.change(_set_absent.bind(ids=out))
        return len(out) + _move(t, rows, NodeEvent.GONE, reason, "rca")

    return store.run(work)


def drain(store: Store, nodes: Sequence[str], reason: str, by: str) -> list[str]:
    """Drain nodes: what runs there continues, nothing new starts. Returns those for which it is new. Raises Invalid."""

    def work(t: Transaction) -> list[str]:
        return _named(nodes, _drain(t, _rows(t, nodes), reason, by))

    return store.run(work)


def _drain(t: Transaction, rows: Sequence[NodeRow], reason: str, by: str) -> list[NodeRow]:
    moved = _moving(rows, NodeEvent.DRAIN)
    _move(t, moved, NodeEvent.DRAIN, reason, by, each=True)
    t.change(_set_absent.bind(ids=[row.id for row in moved if row.state is NodeState.DOWN and row.is_there]))
    busy = {row[0] for row in t.rows(_busy.bind(ids=[row.id for row in moved]))}
    empty = [row._replace(state=NodeState.DRAINING) for row in moved if row.id not in busy]
    _move(t, empty, NodeEvent.EMPTIED, reason, by, each=True)
    _cancel_drain_at(t, moved)
    return moved


LATEST_S = 1000 * 366 * 86400.0  # viewers show the time as a date


def drain_later(store: Store, nodes: Sequence[str], after_s: float, reason: str) -> tuple[list[str], float]:
    """Have nodes drained in so many seconds, by the database's clock.

    From that time on no placement uses them (db.allocation.free), whether or not a CPA has run ``drain_due``. Returns
    those nodes that are in service, and the time. Raises Invalid.
    """

    if not 0 <= after_s <= LATEST_S:
        raise Invalid("nodes cannot be drained that late", "name a time in the next 1,000 years")

    def work(t: Transaction) -> tuple[list[str], float]:
        at = t.now + after_s
        rows = _moving(_rows(t, nodes), NodeEvent.DRAIN)
        t.change(_set_drain_at.bind(ids=[row.id for row in rows], at=at, reason=reason))
        t.freed = True  # the time may be later than one that was set before
        if rows:
            text = f"will be drained in {after_s:.0f} s" + (f": {reason}" if reason else "")
            t.event("drain_at", f"{_several(rows)} {text}", node=rows[0].id)
        return _named(nodes, rows), at

    return store.run(work)


def drain_due(store: Store) -> None:
    """Drain the nodes whose time has come; called by the CPA's timer."""

    def work(t: Transaction) -> None:
        alike: dict[str, list[str]] = {}
        for name, reason in t.rows(_due.bind()):
            alike.setdefault(reason, []).append(name)
        for reason, names in alike.items():
            _drain(t, _rows(t, names), reason, "")

    store.run(work)


def _cancel_drain_at(t: Transaction, rows: Sequence[NodeRow]) -> list[NodeRow]:
    """Forget when these nodes were to be drained; returns those for which a time was set."""
    found = {row[0] for row in t.rows(_to_be_drained.bind(ids=[row.id for row in rows]))}
    t.change(_set_drain_at.bind(ids=sorted(found), at=None, reason=""))
    return [row for row in rows if row.id in found]


def _several(rows: Sequence[NodeRow]) -> str:
    return rows[0].name if len(rows) == 1 else f"{len(rows)} nodes ({rows[0].name} … {rows[-1].name})"


def resume(store: Store, nodes: Sequence[str], by: str) -> list[str]:
    """Return drained nodes to service as soon as their PCTs are there; nodes that would be drained later stay.

    Returns the nodes for which one of these is new. Raises Invalid.
    """

    def work(t: Transaction) -> list[str]:
        rows = _rows(t, nodes)
        logins = {row[0] for row in t.rows(_logins.bind(ids=[row.id for row in rows]))}  # they have no PCT
        there = [row for row in rows if row.is_there or row.id in logins]
        back = _moving(there, NodeEvent.RESUME)
        absent = _moving([row for row in rows if row not in there], NodeEvent.RESUME_ABSENT)
        _move(t, back, NodeEvent.RESUME, "", "", each=True)
        _move(t, absent, NodeEvent.RESUME_ABSENT, NOT_YET, by, each=True)
        kept = _cancel_drain_at(t, rows)
        if kept:
            t.freed = True
            t.event("drain_at", f"{_several(kept)} will not be drained", node=kept[0].id)
        return _named(nodes, [*back, *absent, *kept])

    return store.run(work)


def _moving(rows: Sequence[NodeRow], event: NodeEvent) -> list[NodeRow]:
    return [row for row in rows if after(row.state, event) is not row.state]


def _named(nodes: Sequence[str], rows: Sequence[NodeRow]) -> list[str]:
    those = {row.name for row in rows}
    return [name for name in dict.fromkeys(nodes) if name in those]


def settle_drained(store: Store) -> None:
    """Change draining nodes on which nothing runs any more to drained; called by the CPA's timer.

    A change of sides drains thousands at once, so they change together: one by one they would hold the lock for
    seconds.
    """
    if not store.read(_empty.bind()):
        return

    def work(t: Transaction) -> None:
        alike: dict[tuple[str, str], list[int]] = {}
        for node, reason, by in t.rows(_empty.bind()):
            alike.setdefault((reason, by), []).append(node)
        rows = {row.id: row for row in map(NodeRow.from_row, t.rows(_all_nodes.bind()))} if alike else {}
        for (reason, by), ids in alike.items():
            _move(t, [rows[node] for node in ids], NodeEvent.EMPTIED, reason, by)

    store.run(work)


def _rows(t: Transaction, nodes: Sequence[str]) -> list[NodeRow]:
    wanted = set(nodes)
    if len(wanted) <= FEW:
        found = list(map(NodeRow.from_row, t.rows_of([_node.bind(name=name) for name in sorted(wanted)])))
    else:
        found = [row for row in map(NodeRow.from_row, t.rows(_all_nodes.bind())) if row.name in wanted]
    if len(found) != len(wanted):
        missing = min(wanted - {row.name for row in found})
        raise Invalid(f"there is no node {missing[:80]!r} in this mesh", "showmesh shows those there are")
    return found


def _of_life(t: Transaction, nodes: Sequence[str], boot_id: str, incarnation: int) -> list[NodeRow]:
    return [row for row in _rows(t, nodes) if (row.boot_id, row.incarnation) == (boot_id, incarnation)]


def _move(
    t: Transaction, rows: Sequence[NodeRow], event: NodeEvent, reason: str, by: str, *, each: bool = False
) -> int:
    """Apply a transition to each node; returns how many changed. Inserts one event for all nodes of a side that
    enter the same state.

    With ``each``, every node has its own event, which tells what was done to the node.
    """
    moved: dict[tuple[NodeState, int], list[NodeRow]] = {}
    for row in rows:
        state = after(row.state, event)
        if state is not row.state:
            moved.setdefault((state, row.side), []).append(row)
    for (state, _), those in moved.items():
        t.freed |= state is NodeState.UP
        t.moved_nodes = True
        t.change(_set_states.bind(ids=[row.id for row in those], state=state.value, reason=reason, by=by))
        why = f": {reason}" if reason else ""
        if each:
            t.insert_rows(
                [
                    _insert_event.bind(kind=f"node_{state}", node=row.id, text=f"{row.name} is {state}{why}")
                    for row in those
                ]
            )
            continue
        verb = "is" if len(those) == 1 else "are"
        t.event(f"node_{state}", f"{_several(those)} {verb} {state}{why}", node=those[0].id)
    return sum(map(len, moved.values()))


# Growth of a running machine: hosts that are described later, or whose size was unknown. One transaction.


def add_nodes(store: Store, boot_id: str, specs: Sequence[NodeSpec]) -> None:
    """Add nodes, and processors for nodes that had none; running launches continue. Raises Invalid.

    A machine with a topology cannot grow, because its processors have places in it. Login processors without processors
    may be added.
    """
    store.run(lambda t: _add(t, boot_id, specs))


def _add(t: Transaction, boot_id: str, specs: Sequence[NodeSpec]) -> None:
    found = t.row(topology_text.bind())
    if t.boot_id != boot_id:
        raise Invalid("the mesh was restarted meanwhile", "mesh status")
    if found is not None and found[0] and any(spec.processors or spec.role != "login" for spec in specs):
        raise Invalid("a machine with a [topology] cannot grow while it is up", "mesh down, then mesh up")
    there = {row[1]: row[0] for row in t.rows(_names.bind())}
    processors = t.rows(_processors.bind())
    taken, full = {row[0] for row in processors}, {row[1] for row in processors}
    for spec in specs:
        if taken & set(spec.processors):
            raise Invalid(f"processors of {spec.name} belong to another node already", "mesh down, then mesh up")
        taken |= set(spec.processors)
        if spec.name not in there:
            _add_node(t, spec)
        elif there[spec.name] != spec.id:
            raise Invalid(f"{spec.name} is node {there[spec.name]}, not {spec.id}", "mesh down, then mesh up")
        elif spec.id in full:
            raise Invalid(f"{spec.name} has processors already", "mesh down, then mesh up with another number")
        t.insert_rows(
            [
                insert_processor.bind(
                    processor=one, node=spec.id, slot=slot, alloc_mode="interactive", reserved_for=None
                )
                for slot, one in sorted(enumerate(spec.processors), key=lambda place: place[1])
            ]
        )
        t.insert_rows(
            [insert_resource.bind(node=spec.id, name=what, total=total) for what, total in spec.resources.items()]
        )
        t.event("grown", f"{spec.name}: {counted(len(spec.processors), 'processor')}", node=spec.id)


def _add_node(t: Transaction, spec: NodeSpec) -> None:
    state, reason = ("up", "") if spec.role == "login" else ("down", NOT_YET)
    t.write(
        insert_node.bind(
            node=spec.id,
            name=spec.name,
            role=spec.role,
            address=spec.address,
            state=state,
            reason=reason,
            by="",
            side=1,
            side_from=t.stamp,
        )
    )
