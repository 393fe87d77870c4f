"""Login processors that were granted to be one, and grants of processors as credentials are made from them."""

import pytest

from db.allocation import finish
from db.allocation.finish import loading, started
from db.allocation.free import Machine
from db.errors import Denied, Expired
from db.machine import nodes as machines
from db.machine.nodes import NodeSpec, define_machine
from db.machine.nodes_bulk import add_nodes
from db.store.store import Store
from tests.support.stores import LOGIN, define, take


def state(store: Store, node: str) -> str:
    return str(store.read("SELECT state FROM node WHERE name = ?", (node,))[0][0])


def test_a_login_processor_that_was_granted_outlives_a_boot(store: Store) -> None:
    define(store, nodes=1)
    (boot,) = store.read("SELECT boot_id FROM mesh")[0]
    specs = [NodeSpec(machines.FIRST_GRANTED + at, f"far{at}", [], "login") for at in range(2)]
    add_nodes(store, boot, specs)
    assert (state(store, "far0"), state(store, "far1")) == ("up", "up")
    # the next boot describes a host of one of these names
    define_machine(store, "m", "another", LOGIN, [NodeSpec(1, "n0", [0]), NodeSpec(2, "far1", [1])])
    rows = store.read("SELECT id, name, role FROM node ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (0, LOGIN, "login"), (1, "n0", "compute"), (2, "far1", "compute"),
        (machines.FIRST_GRANTED, "far0", "login"),
    ]  # fmt: skip


def test_a_reservation_is_granted_to_its_cookie_until_it_has_begun(store: Store) -> None:
    define(store, nodes=2, slots=2)
    one = take(store, Machine(), 3)
    grant = finish.pending(store, one.launcher, one.cookie)
    assert (grant.launcher, grant.processors) == (one.launcher, list(one.processors))
    with pytest.raises(Denied):
        finish.pending(store, one.launcher, "0" * 16)
    with pytest.raises(Expired):
        finish.pending(store, one.launcher + 1, one.cookie)
    started(store, one.launcher, one.cookie, list(one.processors))
    with pytest.raises(Expired, match="busy"):
        finish.pending(store, one.launcher, one.cookie)


def test_lives_are_those_that_nodes_registered_with(store: Store) -> None:
    define(store, nodes=2, slots=2)
    rows = store.read("SELECT id, name, boot_id, incarnation FROM node WHERE role = 'compute'")
    assert finish.lives(store, [row[0] for row in rows]) == {row[1]: (row[2], row[3]) for row in rows}
    assert finish.lives(store, []) == {}


def test_a_reservation_is_kept_while_its_launch_loads(store: Store) -> None:
    define(store, nodes=2, slots=2)
    one = take(store, Machine(), 3)

    def until() -> float:
        return float(store.read("SELECT pending_until FROM launcher WHERE id = ?", (one.launcher,))[0][0])

    before = until()
    loading(store, one.launcher, one.cookie, 300.0)
    assert until() > before + 200
    kept = until()
    loading(store, one.launcher, one.cookie, 1.0)
    assert until() == kept, "never for less"
    with pytest.raises(Denied):
        loading(store, one.launcher, "0" * 16, 300.0)
    with pytest.raises(Expired):
        loading(store, one.launcher + 1, one.cookie, 300.0)
    started(store, one.launcher, one.cookie, list(one.processors))
    loading(store, one.launcher, one.cookie, 3000.0)
    assert until() == kept, "it has begun, and nothing runs out any more"


def test_a_reservation_that_ran_out_is_not_kept(store: Store) -> None:
    define(store, nodes=2, slots=2)
    one = take(store, Machine(), 3, pending_s=0.0)
    with pytest.raises(Expired, match="reservation"):
        loading(store, one.launcher, one.cookie, 300.0)
