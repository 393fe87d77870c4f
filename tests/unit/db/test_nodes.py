"""The machine at its boots, and its nodes' lives."""

import time
from collections.abc import Callable

import pytest

from db.allocation.free import Machine
from db.errors import Elsewhere, GivenUp, Invalid
from db.machine import nodes as machines
from db.machine.node_states import TRANSITIONS, NodeEvent, NodeState, after, is_late
from db.machine.nodes import (
    LOST_IN_REBOOT,
    NodeSpec,
    define_machine,
    give_up,
    node_down,
    node_failed,
    node_suspect,
    node_up,
    shut_down,
)
from db.machine.nodes_bulk import drain, resume, settle_drained
from db.machine.reservations import reserve, set_mode
from db.store.store import Store
from db.views.daemon_reads import given_up, nodes_out
from tests.support.stores import LOGIN, define, give_back, take


def state(store: Store, node: str) -> str:
    return str(store.read("SELECT state FROM node WHERE name = ?", (node,))[0][0])


def kinds(store: Store) -> list[str]:
    return [row[0] for row in store.read("SELECT kind FROM event ORDER BY id")]


def test_defining_makes_nodes_and_processors(store: Store) -> None:
    define(store, nodes=2, slots=3, up=False)
    assert [tuple(row) for row in store.read("SELECT id, name, role, state FROM node ORDER BY id")] == [
        (0, LOGIN, "login", "up"),
        (1, "n0", "compute", "down"),
        (2, "n1", "compute", "down"),
    ]
    assert [tuple(row) for row in store.read("SELECT id, node, slot, alloc_mode FROM processor ORDER BY id")] == [
        (number, 1 + number // 3, number % 3, "interactive") for number in range(6)
    ]
    assert kinds(store) == ["boot"]


def test_a_new_boot_ends_what_the_last_one_left(store: Store, machine: Machine) -> None:
    set_mode(store, [0, 1], "batch")
    reserve(store, [2], "bob")
    drain(store, ["n3"], "disk", "root")
    taken = take(store, machine, 4)
    define(store, nodes=5, boot_id="b2", up=False)
    row = store.read("SELECT state, abnormal, reason, ended_at FROM launcher WHERE id = ?", (taken.launcher,))[0]
    assert (row[0], row[1], row[2]) == ("ended", 1, LOST_IN_REBOOT) and row[3] is not None
    assert store.read("SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL")[0][0] == 0
    assert store.read("SELECT COUNT(*) FROM processor WHERE launcher IS NOT NULL OR `partition` IS NOT NULL")[0][0] == 0
    assert store.read("SELECT COUNT(*) FROM processor")[0][0] == 20
    kept = {r[0]: (r[1], r[2]) for r in store.read("SELECT id, alloc_mode, reserved_for FROM processor WHERE id < 4")}
    assert kept == {0: ("batch", None), 1: ("batch", None), 2: ("interactive", "bob"), 3: ("interactive", None)}
    assert [state(store, name) for name in ("n0", "n3", "n4")] == ["down", "drained", "down"]
    machine.refresh(store)
    assert machine.free("bob", batch=True) == [] and len(machine) == 20
    node_up(store, "n0", "b2", 1, "/x")
    assert take(store, machine, 1).partition > taken.partition, "ids are not used again"


def test_the_same_boot_again_ends_nothing(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 4)
    define(store, up=False)
    assert state(store, "n0") == "up"
    assert give_back(store, taken).news
    with pytest.raises(Invalid) as caught:
        define(store, nodes=5)
    assert "mesh down" in caught.value.hint


@pytest.mark.parametrize(
    "nodes",
    [
        [NodeSpec(1, "a", (0,)), NodeSpec(2, "a", (1,))],
        [NodeSpec(1, "a", (0,)), NodeSpec(1, "b", (1,))],
        [NodeSpec(1, "a", (0,)), NodeSpec(2, "b", (0,))],
        [NodeSpec(0, "a", (0,))],
        [NodeSpec(1, LOGIN, (0,))],
    ],
)
def test_a_machine_with_something_twice(store: Store, nodes: list[NodeSpec]) -> None:
    with pytest.raises(Invalid) as caught:
        define_machine(store, "m", "b1", LOGIN, nodes)
    assert "twice" in caught.value.message


def test_a_nodes_life(store: Store) -> None:
    define(store, up=False)
    assert node_up(store, "n0", "b1", 1, "/a", "0.1") and state(store, "n0") == "up"
    assert not node_up(store, "n0", "b1", 1, "/a", "0.1"), "no news, no change"
    assert node_suspect(store, "n0", "b1", 1, "late") and state(store, "n0") == "suspect"
    assert node_up(store, "n0", "b1", 1, "/a", "0.1") and state(store, "n0") == "up"
    assert node_down(store, "n0", "b1", 1, "gone") and state(store, "n0") == "down"
    assert not node_suspect(store, "n0", "b1", 1, "late"), "a dead node is not late"
    assert node_up(store, "n0", "b1", 2, "/b", "0.2")
    assert [tuple(row) for row in store.read("SELECT incarnation, address, agent FROM node WHERE id = 1")] == [
        (2, "/b", "0.2")
    ]
    assert kinds(store) == ["boot", "node_up", "node_suspect", "node_up", "node_down", "node_up"]


def test_other_meshes_on_a_nodes_host_are_its_reason_while_it_is_up(store: Store) -> None:
    def reason() -> str:
        return str(store.read("SELECT reason FROM node WHERE name = 'n0'")[0][0])

    shared = "also used by mesh b of bob (4 processors)"
    define(store)
    assert node_up(store, "n0", "b1", 1, "/a", shared=shared) and reason() == shared
    assert not node_up(store, "n0", "b1", 1, "/a", shared=shared), "no news, no event"
    assert node_suspect(store, "n0", "b1", 1, "late") and reason() == "late"
    assert node_up(store, "n0", "b1", 1, "/a", shared=shared) and reason() == shared
    assert node_up(store, "n0", "b1", 1, "/a") and reason() == "" and state(store, "n0") == "up"
    drain(store, ["n0"], "disk", "root")
    node_up(store, "n0", "b1", 1, "/a", shared=shared)
    assert reason() == "disk", "a drained node keeps its administrator's reason"
    texts = [row[0] for row in store.read("SELECT text FROM event WHERE kind = 'node_shared' ORDER BY id")]
    assert texts == [f"n0 is {shared}", "n0 is used by no other mesh any more"]


def test_news_of_an_earlier_life_is_none(store: Store) -> None:
    define(store)
    node_up(store, "n0", "b1", 5, "/a")
    for late in (
        lambda: node_down(store, "n0", "b1", 4, "gone"),
        lambda: node_suspect(store, "n0", "b0", 5, "late"),
        lambda: node_up(store, "n0", "b1", 4, "/old"),
    ):
        assert not late()
    assert state(store, "n0") == "up"
    assert node_up(store, "n0", "b2", 1, "/a"), "a node that has booted counts from the beginning"


def test_nodes_nobody_knows(store: Store) -> None:
    define(store)
    for use in (
        lambda: node_up(store, "n9", "b1", 1, "/x"),
        lambda: node_down(store, "n9", "b1", 1, ""),
        lambda: drain(store, ["n9"], "", ""),
        lambda: machines.node_failed(store, "n9", 1, ""),
    ):
        with pytest.raises(Invalid) as caught:
            use()
        assert "n9" in caught.value.message


def test_a_node_that_failed_a_load_is_down_until_it_registers(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 4)
    assert node_failed(store, "n0", taken.launcher, "no answer within 10 s") and state(store, "n0") == "down"
    assert not node_failed(store, "n0", taken.launcher, "again")
    time.sleep(0.005)  # SQLite's clock has milliseconds, and the node comes up later than the launcher was made
    node_up(store, "n0", "b1", 2, "/x")
    assert not node_failed(store, "n0", taken.launcher, "of an earlier life") and state(store, "n0") == "up"
    assert not node_failed(store, "n0", 999, "of no launcher")


def test_draining_lets_run_what_runs(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 2)
    assert not machine.drains()
    assert drain(store, ["n0"], "disk", "root") and state(store, "n0") == "draining"
    machine.refresh(store)
    assert machine.drains()
    assert machine.free("ada") == list(range(4, 16))
    settle_drained(store)
    assert state(store, "n0") == "draining"
    give_back(store, taken)
    settle_drained(store)
    assert state(store, "n0") == "drained"
    machine.refresh(store)
    assert not machine.drains()
    node_up(store, "n0", "b1", 2, "/x")
    assert state(store, "n0") == "drained", "an administrator's word outlives a restart"
    assert resume(store, ["n0"], "root") and state(store, "n0") == "up"


def test_many_are_drained_and_put_back_in_one_transaction_each_with_its_own_events(store: Store) -> None:
    define(store, nodes=300, slots=1)
    machine = Machine()
    taken = take(store, machine, 1)  # on n0
    node_down(store, "n2", "b1", 1, "gone")
    names = [f"n{number}" for number in range(299, -1, -1)]

    def changed(work: Callable[[], list[str]]) -> tuple[list[str], int, list[tuple[str, int]]]:
        before, events = _counter(store), store.read("SELECT MAX(id) FROM event")[0][0]
        done = work()
        told = store.read("SELECT kind, node FROM event WHERE id > ? ORDER BY id", (events,))
        return done, _counter(store) - before, [(row[0], row[1]) for row in told]

    def told(kind: str, out: tuple[int, ...] = ()) -> list[tuple[str, int]]:
        return [(kind, node) for node in range(1, 301) if node not in out]

    done, transactions, events = changed(lambda: drain(store, names, "rewiring", "ada"))
    assert done == names and transactions == 1
    assert events == told("node_draining") + told("node_drained", (1,)), "something runs on n0"
    assert changed(lambda: drain(store, names, "again", "bob"))[:2] == ([], 0)
    assert store.read("SELECT DISTINCT reason, `by` FROM node WHERE role = 'compute'") == [("rewiring", "ada")]
    with pytest.raises(Invalid, match="no node 'nowhere'"):
        resume(store, ["n1", "nowhere"], "ada")
    assert state(store, "n1") == "drained", "all of them or none"
    give_back(store, taken)
    node_down(store, "n3", "b1", 1, "gone")
    done, transactions, events = changed(lambda: resume(store, names, "ada"))
    assert done == names and transactions == 1
    assert sorted(events) == sorted([*told("node_up", (3, 4)), ("node_down", 3), ("node_down", 4)])


def _counter(store: Store) -> int:
    return int(store.read("SELECT counter FROM mesh WHERE id = 1")[0][0])


def test_a_node_that_was_down_when_it_was_drained_is_put_back_when_it_is_there(store: Store) -> None:
    define(store)
    assert node_down(store, "n0", "b1", 1, "gone")
    drain(store, ["n0"], "disk", "root")
    assert resume(store, ["n0"], "root") and state(store, "n0") == "down", "nobody is there"
    drain(store, ["n0"], "disk", "root")
    assert node_up(store, "n0", "b1", 1, "/x") and state(store, "n0") == "drained"
    assert resume(store, ["n0"], "root") and state(store, "n0") == "up"


def test_resuming_a_node_whose_pct_is_gone(store: Store) -> None:
    define(store)
    drain(store, ["n0"], "disk", "root")
    assert state(store, "n0") == "drained"
    assert node_down(store, "n0", "b1", 1, "gone")
    assert resume(store, ["n0"], "root") and state(store, "n0") == "down"
    assert node_up(store, "n0", "b1", 1, "/x") and state(store, "n0") == "up"


def test_transitions_name_states_and_events_that_are_there() -> None:
    for (before, event), then in TRANSITIONS.items():
        assert isinstance(before, NodeState) and isinstance(event, NodeEvent) and isinstance(then, NodeState)
        assert before is not then
    for before in NodeState:
        for event in (NodeEvent.SILENT, NodeEvent.GONE, NodeEvent.FAILED):
            assert after(before, event) is not NodeState.UP or before is NodeState.UP
        reachable = {then for (_, _), then in TRANSITIONS.items()}
        assert before in reachable


def test_an_event_of_an_earlier_incarnation_is_late() -> None:
    assert is_late("b", 2, "b", 1, NodeEvent.REGISTERED)
    assert not is_late("b", 2, "b", 2, NodeEvent.REGISTERED)
    assert not is_late("b", 2, "c", 1, NodeEvent.REGISTERED)
    assert is_late("b", 2, "c", 2, NodeEvent.GONE) and is_late("b", 2, "b", 3, NodeEvent.SILENT)


def test_a_life_that_is_given_up_never_comes_back(store: Store, machine: Machine) -> None:
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1")
    assert node_down(store, "n1", "boot-1", 1, "no beat", wipe=True)
    for incarnation in (1, 2, 1 << 30):
        with pytest.raises(GivenUp):
            node_up(store, "n1", "boot-1", incarnation, "tls://h:1/n1")
    assert not node_suspect(store, "n1", "boot-1", 2, "late")
    assert node_up(store, "n1", "boot-2", 1, "tls://h:1/n1")
    assert state(store, "n1") == "up"


def test_a_drained_node_that_is_given_up_is_put_back_cleared_alone(store: Store, machine: Machine) -> None:
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1")
    drain(store, ["n1"], "bad fan", "root")
    node_down(store, "n1", "boot-1", 1, "no beat", wipe=True)
    with pytest.raises(GivenUp):
        node_up(store, "n1", "boot-1", 1, "tls://h:1/n1")
    resume(store, ["n1"], "root")
    assert state(store, "n1") == "down"
    node_up(store, "n1", "boot-2", 1, "tls://h:1/n1")
    assert state(store, "n1") == "up"


def test_what_a_launch_may_have_left_is_cleared_before_the_node_is_used(store: Store, machine: Machine) -> None:
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1")
    give_up(store, "n1", 7, "lost by launcher 7", "cpa")
    assert state(store, "n1") == "down" and given_up(store) == {"n1"}
    assert nodes_out(store, 0.0).given_up == [("n1", "boot-1")]
    give_up(store, "n1", 8, "once more", "cpa")  # no news
    node_up(store, "n1", "boot-2", 1, "tls://h:1/n1")
    assert given_up(store) == set() and nodes_out(store, 0.0).given_up == []


def test_of_several_rcas_the_one_that_hears_a_node_counts(store: Store, machine: Machine) -> None:
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca="login1")
    for tell in (node_down, node_suspect):
        with pytest.raises(Elsewhere):
            tell(store, "n1", "boot-1", 1, "not heard of", rca="login2")
    assert state(store, "n1") == "up"
    node_up(store, "n1", "boot-1", 1, "tls://h:1/n1", rca="login2")
    with pytest.raises(Elsewhere):
        node_suspect(store, "n1", "boot-1", 1, "no beat", rca="login1")
    assert node_suspect(store, "n1", "boot-1", 1, "no beat", rca="login2")
    drain(store, ["n1"], "bad fan", "root")  # who says that does not hear it
    with pytest.raises(Elsewhere):
        node_down(store, "n1", "boot-1", 1, "no beat", rca="login1", wipe=True)
    assert node_down(store, "n1", "boot-1", 1, "no beat", rca="login2", wipe=True)


def test_a_database_of_another_mesh_is_not_redefined_before_it_is_down(store: Store, machine: Machine) -> None:
    def define_another(name: str, login: str) -> None:
        define_machine(store, name, "b9", login, [NodeSpec(1, "n1", [0])], refuse_others=True)

    mesh, login = store.read("SELECT m.name, n.name FROM mesh m JOIN node n ON n.id = 0")[0]
    taken = take(store, machine, 1)
    for name, host in (("other", login), (mesh, "otherhost")):
        with pytest.raises(Invalid, match=f"of mesh {mesh} on {login}, .* 1 launcher run") as refused:
            define_another(name, host)
        assert f"mesh db release {mesh}" in refused.value.hint
    assert store.read("SELECT ended_at FROM launcher WHERE id = ?", (taken.launcher,)) == [(None,)]
    shut_down(store, "b1", "down")
    define_another("other", "otherhost")
    assert store.read("SELECT name FROM mesh") == [("other",)]
