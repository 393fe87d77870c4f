"""The nodes and processors of the machine, and the states of the nodes. Each function is one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from db.errors import Elsewhere, GivenUp, Invalid
from db.machine.node_states import GIVEN_UP, NodeEvent, NodeState, after, is_late
from db.machine.sides import TO_BE_WIPED, kept_open, sides_of, topology_text
from db.schema.models import Launcher, Mesh, Node, NodeResource, Partition, Processor, Waiting
from db.store.orm import pw
from db.store.statements import INSTANT, STAMP, Bound, Query, statement
from db.store.store import Row, Store, Transaction
from db.topology import Mesh as MeshTopology
from redmesh.text import counted

LOST_IN_REBOOT = "lost in reboot"
NOT_YET = "its PCT has not registered yet"
#: The first id of login processors that were granted (console/deploy/mesh/logins.py).
FIRST_GRANTED = 1_000_000


class NodeSpec(NamedTuple):
    """A node to define: ``processors`` are ids in slot order; ``resources`` counts GPUs and other devices."""

    id: int
    name: str
    processors: Sequence[int] = ()
    role: str = "compute"
    address: str = ""
    resources: Mapping[str, int] = {}


class NodeRow(NamedTuple):
    """The columns of a node that a transition needs."""

    id: int
    name: str
    state: NodeState
    boot_id: str
    incarnation: int
    address: str
    agent: str
    state_at: float
    by: str = ""  # who caused the last change
    rca: str = ""  # the login processor whose RCA receives the node's heartbeats
    side: int = 1
    reason: str = ""

    @classmethod
    def from_row(cls, row: Row) -> NodeRow:
        """Build from a row of ``nodes_where``."""
        return cls(row[0], row[1], NodeState(row[2]), *row[3:])

    @property
    def is_there(self) -> bool:
        """True if the node's PCT is running, as far as is known."""
        return bool(self.boot_id) and self.incarnation < GIVEN_UP and self.agent != TO_BE_WIPED


#: The columns of a ``NodeRow``.
_NODE_ROW = (
    Node.id,
    Node.name,
    Node.state,
    Node.boot_id,
    Node.incarnation,
    Node.address,
    Node.agent,
    Node.state_at,
    Node.by,
    Node.rca,
    Node.side,
    Node.reason,
)


def nodes_where(*conditions: pw.ColumnBase) -> pw.ModelSelect[Node]:
    """The nodes for which all ``conditions`` hold, in the form that ``NodeRow.from_row`` needs."""
    return Node.select(*_NODE_ROW).where(*conditions) if conditions else Node.select(*_NODE_ROW)


@statement
def _node(*, name: str) -> Query:
    return nodes_where(Node.name == name)


@statement
def _begin_boot(*, boot_id: str) -> Query:
    return Mesh.update({Mesh.boot_id: boot_id, Mesh.booted_at: INSTANT}).where(Mesh.id == 1)


@statement
def _whose() -> Query:
    """The mesh that owns the database, and its login processor; no row if there is none."""
    of_login = Mesh.select(Mesh.name, Node.name).join(Node, on=Node.id == 0)
    return of_login.where(Mesh.id == 1, Mesh.boot_id != "")


@statement
def _count_present() -> Query:
    return Node.select(pw.fn.COUNT(Node.id)).where(Node.role != "login", Node.state.in_(["up", "suspect"]))


@statement
def count_live() -> Query:
    """The number of launchers that have not ended."""
    return Launcher.select(pw.fn.COUNT(Launcher.id)).where(Launcher.ended_at.is_null())


@statement
def _boot() -> Query:
    return Mesh.select(Mesh.name, Mesh.boot_id).where(Mesh.id == 1)


@statement
def _describe_mesh(*, name: str, topology: str | None) -> Query:
    return Mesh.update({Mesh.name: name, Mesh.topology: topology}).where(Mesh.id == 1)


@statement
def _near_since() -> Query:
    return Node.select(Node.id, Node.name, Node.side_from)


@statement
def _processor_nodes() -> Query:
    return Processor.select(Processor.id, Processor.node)


@statement
def _free_all_processors() -> Query:
    return Processor.update({Processor.partition: None, Processor.launcher: None, Processor.changed: STAMP})


@statement
def _all_down(*, reason: str) -> Query:
    return Node.update(
        {
            Node.state: "down",
            Node.reason: reason,
            Node.boot_id: "",
            Node.state_at: INSTANT,
            Node.changed: STAMP,
        }
    ).where(Node.role != "login", Node.state.in_(["up", "suspect", "down"]))


@statement
def _end_launchers(*, reason: str) -> Query:
    return Launcher.update(
        {
            Launcher.state: "ended",
            Launcher.ended_at: INSTANT,
            Launcher.abnormal: True,
            Launcher.reason: reason,
            Launcher.changed: STAMP,
        }
    ).where(Launcher.ended_at.is_null())


@statement
def _end_partitions() -> Query:
    batch_job_error = pw.Case(None, [(Partition.batch_job.is_null(), Partition.batch_job_error)], True)
    return Partition.update(
        {Partition.ended_at: INSTANT, Partition.batch_job_error: batch_job_error, Partition.changed: STAMP}
    ).where(Partition.ended_at.is_null())


@statement
def _delete_waiting() -> Query:
    return Waiting.delete()


@statement
def _out_of_service() -> Query:
    return Node.select(Node.name, Node.reason, Node.by).where(Node.state.in_(["draining", "drained"]))


@statement
def _to_be_drained() -> Query:
    return Node.select(Node.name, Node.drain_at, Node.drain_reason).where(Node.drain_at.is_null(False))


@statement
def _set_drain_at(*, name: str, at: float, reason: str) -> Query:
    return Node.update({Node.drain_at: at, Node.drain_reason: reason}).where(Node.name == name)


@statement
def _delete_nodes() -> Query:
    """Delete all nodes but granted login processors, which outlive a boot."""
    return Node.delete().where(Node.id < FIRST_GRANTED)


@statement
def _delete_node(*, name: str) -> Query:
    return Node.delete().where(Node.name == name)


@statement
def _all_near() -> Query:
    return Node.update({Node.side_from: STAMP})


@statement
def _delete_resources() -> Query:
    return NodeResource.delete()


@statement
def insert_node(
    *, node: int, name: str, role: str, address: str, state: str, reason: str, by: str, side: int, side_from: int
) -> Query:
    """Insert a node whose PCT has not registered yet."""
    return Node.insert(
        {
            Node.id: node,
            Node.name: name,
            Node.role: role,
            Node.address: address,
            Node.state: state,
            Node.reason: reason,
            Node.by: by,
            Node.boot_id: "",
            Node.incarnation: 0,
            Node.agent: "",
            Node.state_at: INSTANT,
            Node.side: side,
            Node.rca: "",
            Node.side_from: side_from,
            Node.drain_at: None,
            Node.drain_reason: "",
            Node.changed: STAMP,
        }
    )


@statement
def insert_resource(*, node: int, name: str, total: int) -> Query:
    """Insert devices of a node, none in use."""
    return NodeResource.insert(
        {
            NodeResource.node: node,
            NodeResource.name: name,
            NodeResource.total: total,
            NodeResource.in_use: 0,
            NodeResource.changed: STAMP,
        }
    )


@statement
def insert_processor(*, processor: int, node: int, slot: int, alloc_mode: str, reserved_for: str | None) -> Query:
    """Insert a free processor."""
    return Processor.insert(
        {
            Processor.id: processor,
            Processor.node: node,
            Processor.slot: slot,
            Processor.alloc_mode: alloc_mode,
            Processor.reserved_for: reserved_for,
            Processor.partition: None,
            Processor.launcher: None,
            Processor.changed: STAMP,
        }
    )


@statement
def _modes() -> Query:
    return Processor.select(Processor.id, Processor.alloc_mode, Processor.reserved_for)


@statement
def _delete_processors() -> Query:
    return Processor.delete()


@statement
def _give_up(*, node: int) -> Query:
    return Node.update({Node.incarnation: GIVEN_UP, Node.changed: STAMP}).where(Node.id == node)


@statement
def _created_at(*, launcher: int) -> Query:
    return Launcher.select(Launcher.created_at).where(Launcher.id == launcher)


@statement
def _set_life(*, node: int, boot_id: str, incarnation: int, address: str, agent: str) -> Query:
    return Node.update(
        {
            Node.boot_id: boot_id,
            Node.incarnation: incarnation,
            Node.address: address,
            Node.agent: agent,
            Node.changed: STAMP,
        }
    ).where(Node.id == node)


@statement
def _set_rca(*, node: int, rca: str) -> Query:
    return Node.update({Node.rca: rca, Node.changed: STAMP}).where(Node.id == node)


@statement
def _set_absent(*, node: int) -> Query:
    """Set the marker by which ``resume`` knows that the node's PCT is not there."""
    return Node.update({Node.boot_id: "", Node.changed: STAMP}).where(Node.id == node)


@statement
def _set_state(*, node: int, state: str, reason: str, by: str) -> Query:
    return Node.update(
        {
            Node.state: state,
            Node.reason: reason,
            Node.by: by,
            Node.state_at: INSTANT,
            Node.changed: STAMP,
        }
    ).where(Node.id == node)


@statement
def _set_reason(*, node: int, reason: str) -> Query:
    return Node.update({Node.reason: reason, Node.changed: STAMP}).where(Node.id == node)


@statement
def _partitions_on(*, node: int) -> Query:
    on_node = (Processor.node == node) & Processor.partition.is_null(False)
    return Processor.select(Processor.partition).where(on_node).distinct()


@statement
def _mark_batch_job(*, partition: int) -> Query:
    return Partition.update({Partition.batch_job_error: True, Partition.changed: STAMP}).where(
        Partition.id == partition, Partition.batch_job.is_null(False), ~Partition.batch_job_error
    )


def define_machine(
    store: Store,
    name: str,
    boot_id: str,
    login: str,
    nodes: Sequence[NodeSpec],
    topology: Mapping[str, Any] | None = None,
    *,
    refuse_others: bool = False,
) -> None:
    """Define the machine as ``nodes``, with a new boot.

    Node 0 is the login processor ``login``. Launchers of an earlier boot are ended as lost in reboot; processors keep
    their alloc mode and reservation, drained nodes stay drained, and nodes that will be drained later keep the time. If
    the boot id is the present one, no launcher is ended, and Invalid is raised if the machine differs.
    ``refuse_others``: also raise Invalid if the database belongs to another mesh that was not taken down.
    """
    specs = [NodeSpec(0, login, role="login"), *nodes]
    _check(specs)

    def work(t: Transaction) -> None:
        if refuse_others:
            refuse_another_mesh(t.rows, name, login)
        _define(t, name, boot_id, specs, topology)

    store.run(work)


def refuse_another_mesh(rows: Callable[[Bound], Sequence[Any]], name: str, login: str) -> None:
    """Raise Invalid if the database belongs to another mesh, or to one of another login processor, that is not down.

    A mesh is named after its state directory. ``rows`` runs a query.
    """
    whose = rows(_whose.bind())
    if not whose or tuple(whose[0]) == (name, login):
        return
    other, there = whose[0]
    nodes = rows(_count_present.bind())[0][0]
    launchers = rows(count_live.bind())[0][0]
    if nodes or launchers:
        raise Invalid(
            f"the database is that of mesh {other} on {there}, where {counted(nodes, 'node')} are up and"
            f" {counted(launchers, 'launcher')} run: nothing was changed",
            f"give this mesh a database of its own, or end that one there (mesh down); if it is lost for good:"
            f" mesh db release {other}",
        )


def _check(specs: Sequence[NodeSpec]) -> None:
    names = [spec.name for spec in specs]
    ids = [spec.id for spec in specs]
    processors = [one for spec in specs for one in spec.processors]
    for what, values in (("node name", names), ("node id", ids), ("processor id", processors)):
        seen: set[Any] = set()
        for value in values:
            if value in seen:
                raise Invalid(f"the machine has {what} {value!r} twice", "give each a different one")
            seen.add(value)


def _define(
    t: Transaction, name: str, boot_id: str, specs: Sequence[NodeSpec], topology: Mapping[str, Any] | None
) -> None:
    before = t.row(topology_text.bind())
    topology = kept_open(topology, before[0] if before else None)
    if t.boot_id == boot_id:
        _refuse_another(t, specs)
    else:
        _end_all(t, LOST_IN_REBOOT)
        same = before is not None and before[0] == _json(topology)
        near = {(row[0], row[1]): row[2] for row in t.rows(_near_since.bind())} if same else {}
        _replace_nodes(t, specs, _sides(specs, topology), near)
        _replace_processors(t, specs)
        t.event("boot", f"mesh {name}: {counted(len(specs) - 1, 'node')}, boot {boot_id}")
        t.change(_begin_boot.bind(boot_id=boot_id))
    t.change(_describe_mesh.bind(name=name, topology=_json(topology)))


def _sides(specs: Sequence[NodeSpec], topology: Mapping[str, Any] | None) -> dict[int, int]:
    if topology is None or topology.get("kind") != MeshTopology.kind:
        return {}
    return sides_of(MeshTopology(dict(topology)), {spec.id: list(spec.processors) for spec in specs})


def _json(topology: Mapping[str, Any] | None) -> str | None:
    return None if topology is None else json.dumps(topology, sort_keys=True)


def _refuse_another(t: Transaction, specs: Sequence[NodeSpec]) -> None:
    there = {(row[0], row[1]) for row in t.rows(_near_since.bind())}
    processors = {(row[0], row[1]) for row in t.rows(_processor_nodes.bind())}
    wanted = {(one, spec.id) for spec in specs for one in spec.processors}
    if there != {(spec.id, spec.name) for spec in specs} or processors != wanted:
        raise Invalid(
            f"the mesh has {counted(len(processors), 'processor')} on {counted(len(there) - 1, 'node')},"
            f" not {len(wanted)} on {len(specs) - 1}",
            "take it down first: mesh down",
        )


def shut_down(store: Store, boot_id: str, reason: str) -> None:
    """Record that the mesh of that boot was taken down: nothing runs and no node is up. Does nothing for another
    boot."""

    def work(t: Transaction) -> None:
        if t.boot_id != boot_id:
            return
        _end_all(t, reason)
        t.change(_free_all_processors.bind())
        t.change(_all_down.bind(reason=reason))
        t.event("down", reason)

    store.run(work)


def name_of(store: Store) -> str:
    """The name of the mesh that the database belongs to."""
    return str(store.read(_boot.bind())[0][0])


def release_mesh(store: Store, mesh: str) -> bool:
    """Record that ``mesh`` is gone for good; returns False if the database belongs to another mesh."""
    name, boot_id = store.read(_boot.bind())[0]
    if name == mesh:
        shut_down(store, boot_id, "it was released by mesh db release")
    return bool(name == mesh)


def _end_all(t: Transaction, reason: str) -> None:
    t.change(_end_launchers.bind(reason=reason))
    t.change(_end_partitions.bind())
    t.change(_delete_waiting.bind())


def _replace_nodes(
    t: Transaction, specs: Sequence[NodeSpec], sides: Mapping[int, int], near: Mapping[tuple[int, str], int]
) -> None:
    out_of_service = {row[0]: row[1:] for row in t.rows(_out_of_service.bind())}
    to_be_drained = t.rows(_to_be_drained.bind())
    t.change(_delete_nodes.bind())
    for _, name, _ in t.rows(_near_since.bind()):
        if any(spec.name == name for spec in specs):
            t.change(_delete_node.bind(name=name))
    if not near:
        t.change(_all_near.bind())
    t.change(_delete_resources.bind())
    rows = []
    for spec in specs:
        if spec.name in out_of_service:
            state, (reason, by) = "drained", out_of_service[spec.name]
        elif spec.role == "login":
            state, reason, by = "up", "", ""
        else:
            state, reason, by = "down", NOT_YET, ""
        rows.append(
            insert_node.bind(
                node=spec.id,
                name=spec.name,
                role=spec.role,
                address=spec.address,
                state=state,
                reason=reason,
                by=by,
                side=sides.get(spec.id, 1),
                side_from=near.get((spec.id, spec.name), t.stamp),
            )
        )
    t.insert_rows(rows)
    for name, at, reason in to_be_drained:
        t.change(_set_drain_at.bind(name=name, at=at, reason=reason))
    t.insert_rows(
        [
            insert_resource.bind(node=spec.id, name=what, total=total)
            for spec in specs
            for what, total in spec.resources.items()
        ]
    )


def _replace_processors(t: Transaction, specs: Sequence[NodeSpec]) -> None:
    kept = {row[0]: row[1:] for row in t.rows(_modes.bind())}
    t.change(_delete_processors.bind())
    rows = []
    for one, node, slot in sorted((one, spec.id, slot) for spec in specs for slot, one in enumerate(spec.processors)):
        mode, user = kept.get(one, ("interactive", None))
        rows.append(insert_processor.bind(processor=one, node=node, slot=slot, alloc_mode=mode, reserved_for=user))
    t.insert_rows(rows)


def node_up(
    store: Store, node: str, boot_id: str, incarnation: int, address: str, agent: str = "", rca: str = "",
    shared: str = "",
) -> bool:  # fmt: skip
    """Record that a node's PCT registered; returns whether that is new. Raises Invalid for an unknown node, or
    GivenUp.

    ``rca``: the RCA that receives the node's heartbeats from now on; other RCAs' reports of its silence do not count.
    ``shared``: the other meshes on its host (agents/pct/node/neighbours.py), which is the reason of a node that is up.
    """
    return store.run(lambda t: _registered(t, node, boot_id, incarnation, address, agent, rca, shared))


def node_suspect(store: Store, node: str, boot_id: str, incarnation: int, reason: str, rca: str = "") -> bool:
    """Record that a node's heartbeats are late; returns whether that is new. Raises Invalid or Elsewhere."""
    return store.run(lambda t: _told(t, node, boot_id, incarnation, NodeEvent.SILENT, reason, rca))


def node_down(
    store: Store, node: str, boot_id: str, incarnation: int, reason: str, rca: str = "", wipe: bool = False
) -> bool:
    """Record that a node is gone; batch jobs with processors on it have their error set. Otherwise as
    ``node_suspect``.

    ``wipe``: nobody can check what still runs there, so this boot id of the node is given up.
    """

    def work(t: Transaction) -> bool:
        if wipe:
            row = find_node(t, node)
            if (row.boot_id, row.incarnation) == (boot_id, incarnation):
                _need_ours(row, rca)
                give_up_life(t, row)
                return gone(t, row, reason, rca or "rca")
            return False
        return _told(t, node, boot_id, incarnation, NodeEvent.GONE, reason, rca)

    return store.run(work)


def _need_ours(row: NodeRow, rca: str) -> None:
    if rca and row.rca not in ("", rca):
        raise Elsewhere(
            f"the heartbeats of {row.name} go to the RCA of {row.rca}", "only the RCA there reports about it"
        )


def give_up(store: Store, node: str, launcher: int, reason: str, by: str) -> None:
    """Give up a node's boot id, because nobody can check what a launcher left there. The node is used again only
    after its PCT has cleared it."""

    def work(t: Transaction) -> None:
        row = find_node(t, node)
        if row.is_there:
            give_up_life(t, row)
            gone(t, row, reason, by, launcher)

    store.run(work)


def give_up_life(t: Transaction, row: NodeRow) -> None:
    """Accept no PCT under this boot id again."""
    t.change(_give_up.bind(node=row.id))
    t.moved_nodes = True


def node_failed(store: Store, node: str, launcher: int, reason: str) -> bool:
    """Record that a load failed because of this node: it is down until its PCT registers again. Returns whether it
    is new.

    Does nothing if the node came up after the launcher got it, because an earlier boot of the node then failed.
    """

    def work(t: Transaction) -> bool:
        row = find_node(t, node)
        born = t.row(_created_at.bind(launcher=launcher))
        if born is None or (row.state == NodeState.UP and row.state_at > born[0]):
            return False
        return move(t, row, NodeEvent.FAILED, reason, "cpa", launcher)

    return store.run(work)


def find_node(t: Transaction, name: str) -> NodeRow:
    """The node of that name. Invalid."""
    row = t.row(_node.bind(name=name))
    if row is None:
        raise Invalid(f"there is no node {name!r} in this mesh", "showmesh shows those there are")
    return NodeRow.from_row(row)


def _registered(
    t: Transaction, node: str, boot_id: str, incarnation: int, address: str, agent: str, rca: str, shared: str
) -> bool:
    row = find_node(t, node)
    if is_late(row.boot_id, row.incarnation, boot_id, incarnation, NodeEvent.REGISTERED):
        if row.incarnation >= GIVEN_UP:
            raise GivenUp(
                f"{node} was given up under boot id {boot_id}",
                "its PCT must first kill what is left there, and register with a new boot id",
            )
        return False
    if (row.boot_id, row.incarnation, row.address, row.agent) != (boot_id, incarnation, address, agent):
        life = {"boot_id": boot_id, "address": address, "agent": agent}
        t.change(_set_life.bind(node=row.id, incarnation=incarnation, **life))
    if rca and row.rca != rca:
        t.change(_set_rca.bind(node=row.id, rca=rca))
    if row.state == NodeState.UP and row.reason != shared:
        t.change(_set_reason.bind(node=row.id, reason=shared))
        t.event("node_shared", f"{row.name} is {shared or 'used by no other mesh any more'}", node=row.id)
    return move(t, row, NodeEvent.REGISTERED, shared, rca) or t.changed


def _told(t: Transaction, node: str, boot_id: str, incarnation: int, event: NodeEvent, reason: str, rca: str) -> bool:
    row = find_node(t, node)
    if is_late(row.boot_id, row.incarnation, boot_id, incarnation, event):
        return False
    _need_ours(row, rca)
    if event is NodeEvent.GONE:
        # the marker by which resume knows that the PCT is not there
        if row.state in (NodeState.DRAINING, NodeState.DRAINED):
            t.change(_set_absent.bind(node=row.id))
        return gone(t, row, reason, rca or "rca")
    return move(t, row, event, reason, rca or "rca")


def gone(t: Transaction, row: NodeRow, reason: str, by: str, launcher: int | None = None) -> bool:
    """Record that a node's PCT is gone; returns whether that is new."""
    for (partition,) in t.rows(_partitions_on.bind(node=row.id)):
        t.change(_mark_batch_job.bind(partition=partition))
    if row.state in (NodeState.DRAINING, NodeState.DRAINED):
        t.event("node_down", f"{row.name} ({row.state}): {reason}", node=row.id, launcher=launcher)
        return True
    return move(t, row, NodeEvent.GONE, reason, by, launcher)


def move(t: Transaction, row: NodeRow, event: NodeEvent, reason: str, by: str, launcher: int | None = None) -> bool:
    """Apply a transition and insert its event; returns whether the state changed."""
    state = after(row.state, event)
    if state is row.state:
        return False
    t.change(_set_state.bind(node=row.id, state=state.value, reason=reason, by=by))
    t.freed |= state is NodeState.UP
    t.moved_nodes = True
    text = f"{row.name} is {state}" + (f": {reason}" if reason else "")
    t.event(f"node_{state}", text, node=row.id, launcher=launcher)
    return True
