"""The machine: which nodes and processors there are, and how the nodes fare. One function, one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from db.errors import Elsewhere, GivenUp, Invalid
from db.machine.node_states import GIVEN_UP, NodeEvent, NodeState, after, is_late
from db.machine.sides import TO_BE_WIPED, kept_open, sides_of
from db.store.store import Store, Transaction
from db.topology import Mesh
from redmesh.text import counted

LOST_IN_REBOOT = "lost in reboot"
NOT_YET = "its PCT has not registered yet"
#: Ids of login processors that were granted to be one (console/deploy/trust/logins.py) begin here.
FIRST_GRANTED = 1_000_000


class NodeSpec(NamedTuple):
    """A node as it is to be: ``processors`` are ids, in slot order; ``resources`` counts of GPUs and the like."""

    id: int
    name: str
    processors: Sequence[int] = ()
    role: str = "compute"
    address: str = ""
    resources: Mapping[str, int] = {}


class NodeRow(NamedTuple):
    """What a transition needs to know of a node."""

    id: int
    name: str
    state: NodeState
    boot_id: str
    incarnation: int
    address: str
    agent: str
    state_at: float
    by: str = ""  # who said so
    rca: str = ""  # the login processor whose RCA hears it
    side: int = 1

    @property
    def is_there(self) -> bool:
        """Whether a PCT is, as far as is known."""
        return bool(self.boot_id) and self.incarnation < GIVEN_UP and self.agent != TO_BE_WIPED


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
    """Makes the machine what ``nodes`` say, as of a new boot.

    Node 0 is the login processor ``login``. What an earlier boot left running is ended as lost in reboot;
    processors keep their alloc mode and reservation, drained nodes stay drained. Under the boot id that is already
    there nothing is ended, and Invalid when the machine is another than it was. ``refuse_others``: the same for a
    database of another mesh that was not taken down.
    """
    specs = [NodeSpec(0, login, role="login"), *nodes]
    _check(specs)

    def work(t: Transaction) -> None:
        if refuse_others:
            refuse_another_mesh(t.rows, name, login)
        _define(t, name, boot_id, specs, topology)

    store.run(work)


def refuse_another_mesh(rows: Callable[[str], Sequence[Any]], name: str, login: str) -> None:
    """Invalid when the database is that of another mesh, or of one on another login processor, which is not down.

    A mesh is named after its state directory. ``rows`` runs a query.
    """
    whose = rows("SELECT m.name, n.name FROM mesh m JOIN node n ON n.id = 0 WHERE m.id = 1 AND m.boot_id <> ''")
    if not whose or tuple(whose[0]) == (name, login):
        return
    other, there = whose[0]
    nodes = rows("SELECT COUNT(*) FROM node WHERE role <> 'login' AND state IN ('up', 'suspect')")[0][0]
    launchers = rows("SELECT COUNT(*) FROM launcher WHERE ended_at IS NULL")[0][0]
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
                raise Invalid(f"the machine has {what} {value!r} twice", "give every one its own")
            seen.add(value)


def _define(
    t: Transaction, name: str, boot_id: str, specs: Sequence[NodeSpec], topology: Mapping[str, Any] | None
) -> None:
    before = t.row("SELECT topology FROM mesh WHERE id = 1")
    topology = kept_open(topology, before[0] if before else None)
    if t.boot_id == boot_id:
        _refuse_another(t, specs)
    else:
        _end_all(t, LOST_IN_REBOOT)
        same = before is not None and before[0] == _json(topology)
        _replace_nodes(t, specs, _sides(specs, topology), _near_since(t) if same else {})
        _replace_processors(t, specs)
        t.event("boot", f"mesh {name}: {counted(len(specs) - 1, 'node')}, boot {boot_id}")
        t.change("UPDATE mesh SET boot_id = ?, booted_at = ? WHERE id = 1", (boot_id, t.now))
    t.change("UPDATE mesh SET name = ?, topology = ? WHERE id = 1", (name, _json(topology)))


def _sides(specs: Sequence[NodeSpec], topology: Mapping[str, Any] | None) -> dict[int, int]:
    if topology is None or topology.get("kind") != Mesh.kind:
        return {}
    return sides_of(Mesh(dict(topology)), {spec.id: list(spec.processors) for spec in specs})


def _near_since(t: Transaction) -> dict[tuple[int, str], int]:
    """Since when others are within reach of a node (by id and name); as good for a boot that moves no switch."""
    return {(row[0], row[1]): row[2] for row in t.rows("SELECT id, name, side_from FROM node")}


def _json(topology: Mapping[str, Any] | None) -> str | None:
    return None if topology is None else json.dumps(topology, sort_keys=True)


def _refuse_another(t: Transaction, specs: Sequence[NodeSpec]) -> None:
    there = {(row[0], row[1]) for row in t.rows("SELECT id, name FROM node")}
    processors = {(row[0], row[1]) for row in t.rows("SELECT id, node FROM processor")}
    wanted = {(one, spec.id) for spec in specs for one in spec.processors}
    if there != {(spec.id, spec.name) for spec in specs} or processors != wanted:
        raise Invalid(
            f"the mesh has {counted(len(processors), 'processor')} on {counted(len(there) - 1, 'node')},"
            f" not {len(wanted)} on {len(specs) - 1}",
            "take it down first: mesh down",
        )


def shut_down(store: Store, boot_id: str, reason: str) -> None:
    """The mesh of that boot was taken down: nothing runs, no node is there. Of another boot it is no news."""

    def work(t: Transaction) -> None:
        if t.boot_id != boot_id:
            return
        _end_all(t, reason)
        t.change("UPDATE processor SET `partition` = NULL, launcher = NULL, changed = ?", (t.stamp,))
        t.change(
            "UPDATE node SET state = 'down', reason = ?, boot_id = '', state_at = ?, changed = ?"
            " WHERE role <> 'login' AND state IN ('up', 'suspect', 'down')",
            (reason, t.now, t.stamp),
        )
        t.event("down", reason)

    store.run(work)


def _end_all(t: Transaction, reason: str) -> None:
    t.change(
        "UPDATE launcher SET state = 'ended', ended_at = ?, abnormal = 1, reason = ?, changed = ?"
        " WHERE ended_at IS NULL",
        (t.now, reason, t.stamp),
    )
    t.change(
        "UPDATE `partition` SET ended_at = ?, changed = ?,"
        " batch_job_error = CASE WHEN batch_job IS NULL THEN batch_job_error ELSE 1 END WHERE ended_at IS NULL",
        (t.now, t.stamp),
    )
    t.change("DELETE FROM waiting")


def _replace_nodes(
    t: Transaction, specs: Sequence[NodeSpec], sides: Mapping[int, int], near: Mapping[tuple[int, str], int]
) -> None:
    out_of_service = {
        row[0]: row[1:] for row in t.rows("SELECT name, reason, `by` FROM node WHERE state IN ('draining', 'drained')")
    }
    t.change("DELETE FROM node WHERE id < ?", (FIRST_GRANTED,))
    for (name,) in t.rows("SELECT name FROM node"):  # login processors elsewhere: they outlive a boot
        if any(spec.name == name for spec in specs):
            t.change("DELETE FROM node WHERE name = ?", (name,))
    if not near:
        t.change("UPDATE node SET side_from = ?", (t.stamp,))
    t.change("DELETE FROM node_resource")
    rows = []
    for spec in specs:
        if spec.name in out_of_service:
            state, (reason, by) = "drained", out_of_service[spec.name]
        elif spec.role == "login":
            state, reason, by = "up", "", ""
        else:
            state, reason, by = "down", NOT_YET, ""
        life = ("", 0, "", "", t.now, sides.get(spec.id, 1), near.get((spec.id, spec.name), t.stamp))
        rows.append((spec.id, spec.name, spec.role, spec.address, state, reason, by, *life))
    columns = ["id", "name", "role", "address", "state", "reason", "by"]
    t.insert_rows("node", [*columns, "boot_id", "incarnation", "agent", "rca", "state_at", "side", "side_from"], rows)
    resources = [(spec.id, what, total, 0) for spec in specs for what, total in spec.resources.items()]
    t.insert_rows("node_resource", ("node", "name", "total", "in_use"), resources)


def _replace_processors(t: Transaction, specs: Sequence[NodeSpec]) -> None:
    kept = {row[0]: row[1:] for row in t.rows("SELECT id, alloc_mode, reserved_for FROM processor")}
    t.change("DELETE FROM processor")
    rows = [
        (one, spec.id, slot, *kept.get(one, ("interactive", None)), None, None)
        for spec in specs
        for slot, one in enumerate(spec.processors)
    ]
    columns = ["id", "node", "slot", "alloc_mode", "reserved_for", "partition", "launcher"]
    t.insert_rows("processor", columns, sorted(rows))


def node_up(
    store: Store, node: str, boot_id: str, incarnation: int, address: str, agent: str = "", rca: str = ""
) -> bool:
    """A node's PCT registered; whether it is news. Invalid for a node that is not of this machine, GivenUp.

    ``rca``: who hears it from now on; what another RCA makes of its silence is no news.
    """
    return store.run(lambda t: _registered(t, node, boot_id, incarnation, address, agent, rca))


def node_suspect(store: Store, node: str, boot_id: str, incarnation: int, reason: str, rca: str = "") -> bool:
    """A node's beats are late; whether it is news about its present life. Invalid, Elsewhere."""
    return store.run(lambda t: _told(t, node, boot_id, incarnation, NodeEvent.SILENT, reason, rca))


def node_down(
    store: Store, node: str, boot_id: str, incarnation: int, reason: str, rca: str = "", wipe: bool = False
) -> bool:
    """A node is gone: batch jobs with processors on it have their error set. As ``node_suspect``.

    ``wipe``: nobody can look what still runs there, so this life of the node is given up.
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
        raise Elsewhere(f"{row.name} is heard by {row.rca}", "what it says there counts")


def give_up(store: Store, node: str, launcher: int, reason: str, by: str) -> None:
    """What a launcher may have left on a node cannot be looked at: no other gets it before its PCT has cleared it."""

    def work(t: Transaction) -> None:
        row = find_node(t, node)
        if row.is_there:
            give_up_life(t, row)
            gone(t, row, reason, by, launcher)

    store.run(work)


def give_up_life(t: Transaction, row: NodeRow) -> None:
    """No PCT under this boot id is taken again."""
    t.change("UPDATE node SET incarnation = ?, changed = ? WHERE id = ?", (GIVEN_UP, t.stamp, row.id))


def node_failed(store: Store, node: str, launcher: int, reason: str) -> bool:
    """A load failed because of this node: it is down until its PCT registers again; whether it is news.

    No news, when the node came up only after the launcher got it: then an earlier life of it failed.
    """

    def work(t: Transaction) -> bool:
        row = find_node(t, node)
        born = t.row("SELECT created_at FROM launcher WHERE id = ?", (launcher,))
        if born is None or (row.state == NodeState.UP and row.state_at > born[0]):
            return False
        return move(t, row, NodeEvent.FAILED, reason, "cpa", launcher)

    return store.run(work)


def find_node(t: Transaction, name: str) -> NodeRow:
    """The node of that name. Invalid."""
    row = t.row(
        "SELECT id, name, state, boot_id, incarnation, address, agent, state_at, `by`, rca FROM node WHERE name = ?",
        (name,),
    )
    if row is None:
        raise Invalid(f"there is no node {name!r} in this mesh", "showmesh shows those there are")
    return NodeRow(row[0], row[1], NodeState(row[2]), *row[3:])


def _registered(t: Transaction, node: str, boot_id: str, incarnation: int, address: str, agent: str, rca: str) -> bool:
    row = find_node(t, node)
    if is_late(row.boot_id, row.incarnation, boot_id, incarnation, NodeEvent.REGISTERED):
        if row.incarnation >= GIVEN_UP:
            raise GivenUp(f"{node} was given up under boot id {boot_id}", "it has to clear itself first")
        return False
    if (row.boot_id, row.incarnation, row.address, row.agent) != (boot_id, incarnation, address, agent):
        t.change(
            "UPDATE node SET boot_id = ?, incarnation = ?, address = ?, agent = ?, changed = ? WHERE id = ?",
            (boot_id, incarnation, address, agent, t.stamp, row.id),
        )
    if rca and row.rca != rca:
        t.change("UPDATE node SET rca = ?, changed = ? WHERE id = ?", (rca, t.stamp, row.id))
    return move(t, row, NodeEvent.REGISTERED, "", rca) or t.changed


def _told(t: Transaction, node: str, boot_id: str, incarnation: int, event: NodeEvent, reason: str, rca: str) -> bool:
    row = find_node(t, node)
    if is_late(row.boot_id, row.incarnation, boot_id, incarnation, event):
        return False
    _need_ours(row, rca)
    if event is NodeEvent.GONE:
        if row.state in (NodeState.DRAINING, NodeState.DRAINED):  # so that resume knows that nobody is there
            t.change("UPDATE node SET boot_id = '', changed = ? WHERE id = ?", (t.stamp, row.id))
        return gone(t, row, reason, rca or "rca")
    return move(t, row, event, reason, rca or "rca")


def gone(t: Transaction, row: NodeRow, reason: str, by: str, launcher: int | None = None) -> bool:
    """A node's PCT is there no more; whether it is news."""
    _mark_batch_jobs(t, row.id)
    if row.state in (NodeState.DRAINING, NodeState.DRAINED):
        t.event("node_down", f"{row.name} ({row.state}): {reason}", node=row.id, launcher=launcher)
        return True
    return move(t, row, NodeEvent.GONE, reason, by, launcher)


def move(t: Transaction, row: NodeRow, event: NodeEvent, reason: str, by: str, launcher: int | None = None) -> bool:
    """Does a transition and writes its event row; whether the state is another one now."""
    state = after(row.state, event)
    if state is row.state:
        return False
    t.change(
        "UPDATE node SET state = ?, reason = ?, `by` = ?, state_at = ?, changed = ? WHERE id = ?",
        (state.value, reason, by, t.now, t.stamp, row.id),
    )
    text = f"{row.name} is {state}" + (f": {reason}" if reason else "")
    t.event(f"node_{state}", text, node=row.id, launcher=launcher)
    return True


def _mark_batch_jobs(t: Transaction, node: int) -> None:
    partitions = t.rows(
        "SELECT DISTINCT `partition` FROM processor WHERE node = ? AND `partition` IS NOT NULL", (node,)
    )
    for (partition,) in partitions:
        if t.row(
            "SELECT id FROM `partition` WHERE id = ? AND batch_job IS NOT NULL AND batch_job_error = 0", (partition,)
        ):
            t.change("UPDATE `partition` SET batch_job_error = 1, changed = ? WHERE id = ?", (t.stamp, partition))
