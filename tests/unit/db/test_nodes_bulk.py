"""A machine that grows while it is up: what ran runs on, pictures show what is new, nothing is listed twice."""

import pytest

from db.allocation.free import Machine
from db.errors import Invalid
from db.machine.nodes import NodeSpec, define_machine, node_up
from db.machine.nodes_bulk import add_nodes
from db.store.store import Store
from tests.support.stores import take

BOOT = "b1"


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in store.read(sql)]


def test_nodes_are_added_and_used(store: Store, machine: Machine) -> None:
    machine.refresh(store)
    held = take(store, machine, 3)
    new = NodeSpec(9, "new", range(16, 20), resources={"gpu": 2})
    add_nodes(store, BOOT, [new])
    machine.refresh(store)
    assert len(machine) == 20 and machine.resolve({"nodes": ["new"]}) == [16, 17, 18, 19]
    assert 16 not in machine.free("somebody")  # its PCT is not there yet
    node_up(store, "new", f"{BOOT}-1", 1, "tls://10.0.0.9:7117/new")
    machine.refresh(store)
    assert {16, 17, 18, 19} <= set(machine.free("somebody"))
    assert rows(store, f"SELECT COUNT(*) FROM processor WHERE launcher = {held.launcher}") == [(3,)]
    fresh = Machine()
    fresh.refresh(store)
    assert list(fresh.free("somebody")) == list(machine.free("somebody"))


def test_a_size_that_was_not_known(store: Store) -> None:
    define_machine(store, "mesh", BOOT, "login1", [NodeSpec(1, "n0", range(2)), NodeSpec(2, "late", ())])
    add_nodes(store, BOOT, [NodeSpec(2, "late", range(2, 4))])
    assert rows(store, "SELECT id, node, slot FROM processor ORDER BY id") == [
        (0, 1, 0),
        (1, 1, 1),
        (2, 2, 0),
        (3, 2, 1),
    ]


@pytest.mark.parametrize(
    ("boot", "spec", "why"),
    [
        ("another", NodeSpec(9, "new", [16]), "restarted meanwhile"),
        (BOOT, NodeSpec(9, "new", [15]), "belong to another node"),
        (BOOT, NodeSpec(1, "n0", [16]), "has processors already"),
        (BOOT, NodeSpec(9, "n0", [16]), "is node 1, not 9"),
    ],
)
def test_what_does_not_fit_changes_nothing(store: Store, machine: Machine, boot: str, spec: NodeSpec, why: str) -> None:
    before = rows(store, "SELECT id, node FROM processor ORDER BY id"), rows(store, "SELECT id, name FROM node")
    with pytest.raises(Invalid, match=why):
        add_nodes(store, boot, [NodeSpec(8, "good", [17]), spec])
    assert before == (
        rows(store, "SELECT id, node FROM processor ORDER BY id"),
        rows(store, "SELECT id, name FROM node"),
    )


def test_a_machine_with_places_does_not_grow(store: Store) -> None:
    define_machine(store, "mesh", BOOT, "login1", [NodeSpec(1, "n0", [0])], {"kind": "cluster"})
    with pytest.raises(Invalid, match="cannot grow while it is up"):
        add_nodes(store, BOOT, [NodeSpec(2, "n1", [1])])
