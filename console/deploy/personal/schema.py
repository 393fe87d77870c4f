"""The system database during ``mesh up`` and ``mesh down``."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from console.deploy.personal.evidence_of_life import lock_is_held
from db.errors import Invalid
from db.machine.nodes import NodeSpec, define_machine, name_of, refuse_another_mesh, release_mesh, shut_down
from db.machine.signs_of_life import launchers_alive, signs_of_life
from db.schema.migrate import migrate, version
from db.schema.version import SCHEMA_VERSION
from db.store.store import Store, open_store
from db.store.url import sqlite_path, without_password
from db.views.deployment_reads import node_sizes
from redmesh.settings.keeper_file import KeeperFile, NodeEntry
from redmesh.text import counted


def define(url: str, config: KeeperFile, nodes: Sequence[NodeSpec] | None = None) -> None:
    """Create or migrate the schema and define the machine in it, under its new boot id. Raises StoreError.

    ``nodes``: if they differ from those in ``config``.
    """
    # A database file in the state directory belongs to this mesh, even if the directory was moved.
    shared = os.path.dirname(sqlite_path(url) or "") != config.state
    # A site's account for CPAs may not alter tables, so run migrations only if there are any.
    with open_store(url, any_schema=True, make_file=True) as store:
        there = version(store)
        if there and shared:
            refuse_another_mesh(store.read, config.mesh, config.login)
    if there != SCHEMA_VERSION:
        migrate(url)
    if nodes is None:
        nodes = [_spec(node) for node in config.nodes]
    with open_store(url) as store:
        define_machine(store, config.mesh, config.boot_id, config.login, nodes, config.topology, refuse_others=shared)


def extend(url: str, boot_id: str, nodes: Sequence[NodeEntry]) -> None:
    """Add nodes from ``keeper.json`` to a running machine. Raises StoreError."""
    from db.machine.nodes_bulk import add_nodes

    with open_store(url) as store:
        add_nodes(store, boot_id, [_spec(node) for node in nodes])


def _spec(node: NodeEntry) -> NodeSpec:
    resources = {"gpu": len(node.gpus)} if node.gpus else {}
    return NodeSpec(node.id, node.name, node.processors, node.role, resources=resources)


def release(url: str, mesh: str, *, force: bool = False) -> int:
    """Record in the database that ``mesh`` has ended; return how many launchers were ended. Raises StoreError.

    Raises Invalid if the database is another mesh's or, without ``force``, if anything still uses it.
    """
    beside = os.path.dirname(sqlite_path(url) or "")
    with open_store(url) as store:
        if name_of(store) != mesh:
            raise Invalid(f"the database {without_password(url)} is not that of mesh {mesh!r}", "mesh up names it")
        sign = "" if force else signs_of_life(store, url, lambda: lock_is_held(beside))
        if sign:
            raise Invalid(
                f"mesh {mesh} uses the database {without_password(url)} ({sign}): nothing was changed",
                "end that mesh where it is up (mesh down); --force ends its launchers in the database alone: their"
                " processes run on, and others may be given the same processors",
            )
        launchers = launchers_alive(store)
        release_mesh(store, mesh)
        return launchers


def close_down(url: str, boot_id: str) -> None:
    """Record in the database that the mesh is down, so that viewers do not show it as up. Raises StoreError."""
    with open_store(url) as store:
        shut_down(store, boot_id, "its daemons were killed")


class Census(NamedTuple):
    """How much of a machine is up, from the database. ``out``: nodes that are not up: name, state and reason."""

    processors: int
    processors_up: int
    nodes: int
    nodes_up: int
    out: list[tuple[str, str, str]]

    @property
    def down(self) -> list[str]:
        """The names of nodes that are down, without drained ones."""
        return [name for name, state, _ in self.out if state == "down"]

    def __str__(self) -> str:
        processors, nodes = counted(self.processors, "processor"), counted(self.nodes, "node")
        if not self.out:
            return f"{processors} on {nodes}"
        some = ", ".join(f"{name} {state}" for name, state, _ in self.out[:5]) + (" …" if len(self.out) > 5 else "")
        return f"{self.processors_up} of {processors} on {self.nodes_up} of {nodes} ({some})"


def census(url: str) -> Census:
    """Read how much of the machine is up. Raises StoreError."""
    with open_store(url, any_schema=True) as store:
        nodes = node_sizes(store)
    up = [node for node in nodes if node.state in ("up", "suspect")]
    out = [(node.name, node.state, node.reason) for node in nodes if node not in up]
    total, there = (sum(node.processors for node in some) for some in (nodes, up))
    return Census(total, there, len(nodes), len(up), out)


def watch(url: str) -> Store:
    """A connection for ``db.views.deployment_reads.absent``."""
    return open_store(url)
