"""The RCAs of several login processors, as the system database has them: who hears a node, and who is gone."""

import pytest

from db import rcas
from db.connection import Store
from db.errors import GivenUp, Invalid
from db.free import Machine
from db.growing import add_nodes
from db.machine import FIRST_GRANTED, NodeSpec, drain, node_up
from db.watching import nodes_out
from tests.support.stores import LOGIN, define

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
    drain(store, "n2", "bad fan", "root")
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
