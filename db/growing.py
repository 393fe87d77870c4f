"""A machine that grows while it is up: hosts that are described later, or whose size was not known. One transaction."""

from __future__ import annotations

from collections.abc import Sequence

from db.connection import Store, Transaction
from db.counted import counted
from db.errors import Invalid
from db.machine import NOT_YET, NodeSpec


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
