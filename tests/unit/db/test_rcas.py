"""The RCAs of several login processors, as the system database has them: who hears a node, and who is gone."""

import pytest

from db.allocation import allocate, finish, waiting_requests
from db.allocation.free import Machine
from db.allocation.waiting_requests import Wait
from db.errors import GivenUp, Invalid
from db.machine import rcas
from db.machine.nodes import FIRST_GRANTED, NodeSpec, node_up
from db.machine.nodes_bulk import add_nodes, drain
from db.store.store import Store
from db.views.daemon_reads import nodes_out
from db.views.viewer import Picture, open_viewer
from tests.support.stores import LOGIN, define, demand, first, key

OTHER = "login2"


@pytest.fixture
def machine(store: Store) -> Machine:
    define(store)
    boot = str(store.read("SELECT boot_id FROM mesh")[0][0])
    add_nodes(store, boot, [NodeSpec(FIRST_GRANTED, OTHER, role="login")])
    for name in (LOGIN, OTHER):
        rcas.here(store, name, f"{name}:7117")
    machine = Machine()
    machine.refresh(store)
    return machine


def state(store: Store, name: str) -> str:
    return str(store.read("SELECT state FROM node WHERE name = ?", (name,))[0][0])


def test_they_are_known_to_each_other(store: Store, machine: Machine) -> None:
    assert nodes_out(store, 0.0).logins == [
        (LOGIN, f"udp://{LOGIN}:7117", "up"),
        (OTHER, f"udp://{OTHER}:7117", "up"),
    ]
    assert not rcas.here(store, OTHER, f"{OTHER}:7117")
    assert rcas.here(store, OTHER, "elsewhere:7117")
    with pytest.raises(Invalid):
        rcas.here(store, "n0", "h:1")


def test_whose_nodes_are_whose(store: Store, machine: Machine) -> None:
    node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=LOGIN)
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca=OTHER)
    known = rcas.far_nodes(store, OTHER)
    assert known.mine == ["n1"] and {"n0", "n1"} <= set(known.nodes) and OTHER not in known.nodes
    assert nodes_out(store, 0.0).nodes == len(known.nodes)


def test_nodes_that_only_a_lost_rca_heard_are_given_up(store: Store, machine: Machine) -> None:
    node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=LOGIN)
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca=LOGIN)
    node_up(store, "n2", "boot-1", 1, "tls://h:1/n2", rca=LOGIN)
    drain(store, ["n2"], "bad fan", "root")
    assert rcas.missed(store, LOGIN, "no answer", OTHER)
    assert [state(store, name) for name in (LOGIN, "n0", "n1", "n2")] == ["suspect", "up", "up", "drained"]
    assert rcas.silent(store, LOGIN, "no answer", OTHER)
    assert [state(store, name) for name in (LOGIN, "n0", "n1", "n2")] == ["suspect", "suspect", "suspect", "drained"]
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca=OTHER)  # it lives, and has found the other one
    assert rcas.lost(store, LOGIN, "no answer", OTHER)
    assert [state(store, name) for name in (LOGIN, "n0", "n1", "n2")] == ["down", "down", "up", "drained"]
    assert sorted(name for name, _ in nodes_out(store, 0.0).given_up) == ["n0", "n2"]
    with pytest.raises(GivenUp):
        node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=OTHER)
    node_up(store, "n0", "boot-2", 1, "tls://h:1/n0", rca=OTHER)
    assert state(store, "n0") == "up"


def test_one_that_contradicts_is_not_lost(store: Store, machine: Machine) -> None:
    node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=LOGIN)
    rcas.missed(store, LOGIN, "no answer", OTHER)
    assert rcas.here(store, LOGIN, f"{LOGIN}:7117")
    assert not rcas.silent(store, LOGIN, "no answer", OTHER)
    assert (state(store, LOGIN), state(store, "n0")) == ("up", "up")
    assert not rcas.lost(store, LOGIN, "no answer", OTHER)
    rcas.missed(store, LOGIN, "no answer", OTHER)
    assert rcas.silent(store, LOGIN, "no answer", OTHER)
    node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=LOGIN)  # by which it is there, too
    assert not rcas.lost(store, LOGIN, "no answer", OTHER)
    assert state(store, "n0") == "up"


def test_one_that_is_revoked_is_known_to_nobody_and_what_it_launched_is_told(store: Store, machine: Machine) -> None:
    node_up(store, "n0", "boot-1", 1, "tls://h:1/n0", rca=OTHER)
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca=LOGIN)
    theirs = allocate.allocate(store, machine, demand(2, login=OTHER), first)
    ours = allocate.allocate(store, machine, demand(1), first)
    waiting_requests.enqueue(store, Wait(key(), None, 1000, "ada", OTHER, 1, 1, 99, {}, 60.0))
    seen, viewer = Picture(), open_viewer(store.url)
    seen.update(viewer)
    assert rcas.revoke(store, OTHER, "root") == rcas.Revoked([theirs.launcher], [], ["n0"])
    machine.refresh(store)
    assert machine.knows(LOGIN) and not machine.knows(OTHER) and not machine.knows("n0")
    with pytest.raises(Invalid, match="no node"):
        machine.node_id(OTHER)
    seen.update(viewer)
    viewer.close()
    assert OTHER not in {node.name for node in seen.nodes.values()}
    assert not waiting_requests.line(store)
    assert [name for name, *_ in nodes_out(store, 0.0).logins] == [LOGIN]
    assert store.read("SELECT rca FROM node WHERE name IN ('n0', 'n1') ORDER BY id") == [("",), (LOGIN,)]
    assert {live.launcher for live in finish.launchers_of(store, LOGIN)} == {ours.launcher}
    assert finish.find_live(store, theirs.launcher)
    with pytest.raises(Invalid):
        rcas.here(store, OTHER, f"{OTHER}:7117")


def test_only_one_that_was_granted_is_revoked(store: Store, machine: Machine) -> None:
    for name in (LOGIN, "n0", "nobody"):
        with pytest.raises(Invalid):
            rcas.revoke(store, name, "root")
