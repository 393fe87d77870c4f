"""Sides in the database: one transaction, nothing that runs is cut or shown to others, an old life's news is late."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.allocation.allocate import allocate, decide
from db.allocation.finish import finish
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Segment, Shape
from db.allocation.types import Allocation, Demand
from db.allocation.waiting_requests import Wait, enqueue, line
from db.errors import Denied, NotEnough
from db.machine.nodes import NodeSpec, define_machine, node_down, node_up
from db.machine.nodes_bulk import drain, nodes_up, resume, settle_drained
from db.machine.sides import TO_BE_WIPED, InUse, Place, changed_columns, mesh_of, set_open
from db.store.store import Store
from db.topology import Mesh, TopologyError

SECTION = {
    "kind": "mesh", "rows": 1, "columns": 4, "cages": 1, "boards": 1, "service_columns": [0, 3],
    "switches": [{"name": "left", "after": 0}, {"name": "middle", "after": 1}, {"name": "right", "after": 2}],
}  # fmt: skip
#: Compute processors 0..3 in column 1, 4..7 in column 2; service 8, 9 in column 0, 10, 11 in column 3.
NODES = [NodeSpec(n + 1, f"p{n}", [n], "compute" if n < 8 else "service") for n in range(12)]
LEFT, RIGHT = "p8", "p10"


@pytest.fixture
def machine(store: Store) -> Machine:
    define_machine(store, "m", "b1", "login1", NODES, SECTION)
    nodes_up(store, [node.name for node in NODES], "b1", 1, "/x")
    return Machine()


def demand(login: str, size: int, key: str, wanted: list[int] | None = None) -> Demand:
    return Demand(key * 32, 1000, "ada", login, 77, 1, "x", size, wanted=wanted)


def take(
    store: Store, machine: Machine, login: str, size: int, key: str, wanted: list[int] | None = None
) -> Allocation:
    return allocate(store, machine, demand(login, size, key, wanted), lambda free, count: free[:count])


def wiped(store: Store) -> None:
    nodes_up(store, [node.name for node in NODES], "b1", 9, "/x")


def test_an_allocation_stays_on_its_login_processors_side(store: Store, machine: Machine) -> None:
    assert {place.name for place in set_open(store, ["middle"], "root")} == {"p4", "p5", "p6", "p7", "p10", "p11"}
    wiped(store)
    assert take(store, machine, LEFT, 4, "a").processors == [0, 1, 2, 3]
    assert take(store, machine, RIGHT, 4, "b").processors == [4, 5, 6, 7]
    with pytest.raises(NotEnough, match="1 processor asked for, 0 are free") as beyond:
        take(store, machine, LEFT, 1, "c", wanted=[4])
    assert beyond.value.never and beyond.value.hint == "1 of the 1 named is on another side of the machine than p8"
    lines = Shape(segments=[Segment(1, None), Segment(2, [3, 4, 5])])
    with pytest.raises(NotEnough, match="program 2 of the load file") as line:
        decide(machine, demand(LEFT, 3, "d")._replace(shape=lines), lambda free, count: free[:count])
    assert line.value.never and line.value.hint.startswith("2 of the 3 named are on another side")
    with pytest.raises(NotEnough) as later:  # two of these are on its side, and may be free one day
        take(store, machine, LEFT, 2, "e", wanted=[2, 3, 4])
    assert not later.value.never
    with pytest.raises(NotEnough) as too_many:
        take(store, machine, RIGHT, 5, "d")
    assert too_many.value.never


def test_what_runs_is_neither_cut_nor_shown(store: Store, machine: Machine) -> None:
    both = take(store, machine, LEFT, 8, "a")
    with pytest.raises(InUse, match="cut in two"):
        set_open(store, ["middle"], "root")
    finish(store, both.launcher, both.cookie, 0, machine=machine)
    far = take(store, machine, RIGHT, 1, "b", wanted=[0])  # on the left's processor, from the right
    with pytest.raises(InUse, match="cut in two"):
        set_open(store, ["middle"], "root")
    finish(store, far.launcher, far.cookie, 0, machine=machine)
    set_open(store, ["middle"], "root")
    wiped(store)
    with pytest.raises(TopologyError):
        set_open(store, ["nowhere"], "root")


def names(places: list[Place]) -> set[str]:
    return {place.name for place in places}


def test_the_larger_part_keeps_its_side_and_its_launches(store: Store, machine: Machine) -> None:
    right = take(store, machine, RIGHT, 2, "a", wanted=[4, 5])
    running = take(store, machine, RIGHT, 1, "b", wanted=[0])
    assert names(set_open(store, ["left"], "root")) == {"p8", "p9"}, "two service nodes left"
    assert store.read("SELECT DISTINCT state FROM node WHERE side = 2") == [("up",)]
    with pytest.raises(InUse, match="partition 2 would be cut in two"):
        set_open(store, ["left", "middle"], "root")
    finish(store, running.launcher, running.cookie, 0, machine=machine)
    nodes_up(store, ["p8", "p9"], "b1", 2, "/x")
    with pytest.raises(NotEnough):
        take(store, machine, LEFT, 1, "c")
    # joined again: the two change sides once more, and what runs runs on
    assert names(set_open(store, [], "root")) == {"p8", "p9"}
    assert store.read("SELECT state FROM launcher WHERE id = ?", (right.launcher,)) == [("pending",)]


def test_what_runs_on_the_smaller_part_is_not_wiped(store: Store, machine: Machine) -> None:
    right = take(store, machine, RIGHT, 1, "a", wanted=[4])  # on one side of the cut, as its login processor is
    with pytest.raises(InUse, match="would be wiped with its nodes"):
        set_open(store, ["middle"], "root")
    assert set(store.read("SELECT state FROM node")) == {("up",)}
    finish(store, right.launcher, right.cookie, 0, machine=machine)
    set_open(store, ["middle"], "root")
    wiped(store)
    right = take(store, machine, RIGHT, 1, "b")
    with pytest.raises(InUse, match="would be wiped with its nodes"):
        set_open(store, [], "root")


def test_who_asks_for_it_has_both_wiped_that_are_joined(store: Store, machine: Machine) -> None:
    set_open(store, ["middle"], "root")
    wiped(store)
    left = take(store, machine, LEFT, 1, "a")
    with pytest.raises(InUse, match="would be wiped with its nodes"):
        set_open(store, [], "root", wipe_both=True)
    finish(store, left.launcher, left.cookie, 0, machine=machine)
    assert names(set_open(store, [], "root", wipe_both=True)) == {node.name for node in NODES}


@st.composite
def changes(draw: st.DrawFn) -> tuple[Mesh, Mesh]:
    """A machine of cabinets, and the same one with other switches open."""
    columns = draw(st.integers(2, 9))
    switches = [{"name": f"s{after}", "after": after} for after in range(columns - 1)]
    service = draw(st.sets(st.integers(0, columns - 1)))
    some = st.sets(st.sampled_from([switch["name"] for switch in switches]))
    sizes = {"rows": draw(st.integers(1, 2)), "cages": 1, "boards": draw(st.integers(1, 3))}
    section = {"kind": "mesh", "columns": columns, **sizes, "switches": switches, "service_columns": sorted(service)}
    return Mesh({**section, "open": sorted(draw(some))}), Mesh({**section, "open": sorted(draw(some))})


@given(changes())
def test_a_node_is_wiped_only_if_it_is_not_of_the_part_that_keeps_its_side(change: tuple[Mesh, Mesh]) -> None:
    before, after = change
    changed, both = changed_columns(before, after), changed_columns(before, after, wipe_both=True)
    old, new = ({x: mesh.side_of_column(x) for x in range(mesh.columns)} for mesh in change)
    users = ({x: {y for y in {0, *before.service_columns} if side[y] == side[x]} for x in side} for side in (old, new))
    reached_by, reached_then = users
    kept = [x for x in old if x not in changed]
    for x in kept:
        for y in kept:
            assert (old[x] == old[y]) == (new[x] == new[y]), "what keeps its side keeps it together, and to itself"
        # who comes was wiped before, or has nothing to do with a piece where nobody logs in
        assert reached_then[x] - reached_by[x] <= changed
        assert not reached_then[x] or any(y not in changed for y in reached_then[x]), "no piece without users keeps"
    for x in set(old) - both:
        assert reached_then[x] <= reached_by[x], "nobody new reaches what was not wiped"
    for side in set(old.values()):  # cut, and nothing else done to it
        here = [x for x in old if old[x] == side]
        if all(old[y] == side for x in here for y in old if new[y] == new[x]):
            pieces = [[x for x in here if new[x] == piece] for piece in {new[x] for x in here}]
            lived_in = [one for one in pieces if reached_then[one[0]]] or pieces
            largest = max(sum(map(before.size_of_column, one)) for one in lived_in)
            assert sum(before.size_of_column(x) for x in here if x not in changed) == largest
    if old == new:
        assert not changed


def test_red_storms_service_columns_leave_alone() -> None:
    with open("examples/red_storm.toml", "rb") as file:
        mesh = Mesh(tomllib.load(file)["topology"]).with_open([])
    right = mesh.with_open(["right"])
    assert changed_columns(mesh, right) == changed_columns(right, mesh) == {29, 30}
    quarter = mesh.with_open(["right-quarter"])
    assert changed_columns(right, quarter) == set(range(22, 29)), "they go from one side to the other"


def test_nodes_that_changed_sides_wait_for_a_new_life(store: Store, machine: Machine) -> None:
    set_open(store, ["middle"], "root")
    with pytest.raises(NotEnough):
        take(store, machine, RIGHT, 1, "a")
    assert not node_up(store, "p4", "b1", 1, "/x")  # what its old life says is late
    with pytest.raises(NotEnough):
        take(store, machine, RIGHT, 1, "b")
    assert node_up(store, "p4", "b1", 2, "/x")
    assert take(store, machine, RIGHT, 1, "c").processors == [4]


def test_waiting_keeps_new_launches_out_until_it_is_done_or_given_up(store: Store, machine: Machine) -> None:
    one = take(store, machine, LEFT, 1, "a")
    with pytest.raises(InUse):
        set_open(store, ["left"], "root", drain=True)
    for login in ("login1", LEFT):  # from there it would lie across the cut
        with pytest.raises(NotEnough, match=f"{login} is about to change sides") as leaving:
            take(store, machine, login, 1, "b")
        assert not leaving.value.never
    assert take(store, machine, RIGHT, 1, "d").processors, "the part that stays together works on"
    # and nobody there waits behind who has to wait for the switches
    enqueue(store, Wait("b" * 32, None, 1000, "ada", LEFT, 77, 1, 1, {}, 60.0))
    enqueue(store, Wait("e" * 32, None, 1000, "ada", RIGHT, 77, 1, 1, {}, 60.0))
    assert [(key[0], side) for key, _, side in line(store)] == [("b", -1), ("e", 1)]
    assert take(store, machine, RIGHT, 1, "e").processors
    set_open(store, [], "root")  # as it is: gives up
    assert take(store, machine, LEFT, 1, "b").processors
    assert take(store, machine, "login1", 1, "c").processors
    finish(store, one.launcher, one.cookie, 0, machine=machine)


def test_what_was_drained_for_it_begins_anew_like_the_others(store: Store, machine: Machine) -> None:
    one = take(store, machine, RIGHT, 1, "a", wanted=[4])
    drain(store, ["p6"], "its fan", "root")
    with pytest.raises(InUse):
        set_open(store, ["middle"], "root", drain=True)
    settle_drained(store)  # nothing runs on most of them
    finish(store, one.launcher, one.cookie, 0, machine=machine)
    set_open(store, ["middle"], "root", drain=True)
    assert [row[0][:8] for row in store.read("SELECT text FROM event WHERE kind = 'node_drained' ORDER BY id")] == [
        "p6 is dr", "4 nodes "
    ]  # fmt: skip
    moved = "SELECT name, state, incarnation FROM node WHERE side = 2"
    found = {row[0]: row[1:] for row in store.read(moved)}
    assert found.pop("p6") == ("drained", 2), "an administrator's word stays"
    assert set(found.values()) == {("down", 2)}
    assert set(store.read("SELECT reason FROM node WHERE state = 'down'")) == {(TO_BE_WIPED,)}


def test_one_that_was_drained_is_wiped_before_it_can_be_resumed(store: Store, machine: Machine) -> None:
    drain(store, ["p6", "p7"], "its fan", "root")
    assert {"p6", "p7"} < names(set_open(store, ["middle"], "root"))
    nodes_up(store, ["p6"], "b1", 2, "/x")  # p7's PCT did not answer
    resume(store, ["p6", "p7"], "root")
    assert store.read("SELECT name, state FROM node WHERE name IN ('p6', 'p7')") == [("p6", "up"), ("p7", "down")]
    assert not node_up(store, "p7", "b1", 1, "/x"), "as it was before"
    assert "p7" in names(set_open(store, ["middle"], "root")), "asked again"
    assert node_up(store, "p7", "b1", 2, "/x")
    assert store.read("SELECT state FROM node WHERE name = 'p7'") == [("up",)]


def test_one_that_is_down_is_wiped_too_before_it_is_back(store: Store, machine: Machine) -> None:
    node_down(store, "p4", "b1", 1, "its PCT is silent")
    node_down(store, "p5", "b1", 1, "heard no more", wipe=True)  # that life is given up: nobody takes it again
    assert names(set_open(store, ["middle"], "root")) == {"p4", "p6", "p7", "p10", "p11"}
    assert not node_up(store, "p4", "b1", 1, "/x"), "as it was before"
    nodes_up(store, [node.name for node in NODES if node.name not in ("p4", "p5")], "b1", 2, "/x")
    assert names(set_open(store, ["middle"], "root")) == {"p4"}, "asked again"
    assert names(set_open(store, ["left", "middle"], "root")) == {"p0", "p1", "p2", "p3", "p4"}, "with the next"
    nodes_up(store, ["p0", "p1", "p2", "p3", "p4"], "b1", 3, "/x")
    assert set_open(store, ["left", "middle"], "root") == []


def test_who_changes_one_switch_leaves_those_of_others(store: Store, machine: Machine) -> None:
    set_open(store, ["left"], "ada", closed=[])
    set_open(store, ["right"], "bob", closed=["middle"])
    assert open_now(store) == {"left", "right"}
    set_open(store, ["middle"], "ada", closed=["left"])
    assert open_now(store) == {"middle", "right"}
    set_open(store, [], "bob", closed=[])
    assert open_now(store) == {"middle", "right"}
    with pytest.raises(TopologyError):
        set_open(store, [], "bob", closed=["nowhere"])


def open_now(store: Store) -> frozenset[str]:
    return mesh_of(store.read("SELECT topology FROM mesh")[0][0]).open


def test_each_side_has_a_line_of_its_own(store: Store, machine: Machine) -> None:
    from db.allocation.allocate import consider
    from db.allocation.partitions import PartitionDemand, create

    set_open(store, ["middle"], "root")
    wiped(store)
    take(store, machine, RIGHT, 3, "a")
    for place, (login, key) in enumerate(((RIGHT, "b"), (RIGHT, "c"), (LEFT, "d"))):
        asked = Wait(key * 32, None, 1000, "ada", login, 77, 1, 4, {}, 60.0)
        assert enqueue(store, asked) == (0 if login == LEFT else place)
    turns = {side: key[0] for key, _, side in reversed(line(store))}
    assert turns == {1: "d", 2: "b"}, "the first of each side"
    assert take(store, machine, LEFT, 1, "d").processors == [0], "nobody waits before it here"
    assert take(store, machine, LEFT, 1, "e").processors == [1]
    consider(store, machine, demand(LEFT, 1, "f"), lambda free, count: free[:count])
    with pytest.raises(NotEnough, match="2 requests that came before"):
        take(store, machine, RIGHT, 1, "9")
    assert create(
        store, machine, PartitionDemand("8" * 32, "1.pbs", "ada", 1000, 1, login=LEFT), lambda free, count: free[:count]
    ).processors == [2]


def test_what_a_side_never_has_is_said_at_once(store: Store, machine: Machine) -> None:
    set_open(store, ["middle"], "root")
    wiped(store)
    for shape in (Shape(each=2), Shape(nodes=5)):
        ask = demand(LEFT, 10, "a")._replace(shape=shape)
        with pytest.raises(NotEnough) as caught:
            allocate(store, machine, ask, lambda free, count: free[:count])
        assert caught.value.never


def test_a_partition_of_the_other_side_is_denied(store: Store, machine: Machine) -> None:
    from db.allocation.partitions import PartitionDemand, create

    set_open(store, ["middle"], "root")
    wiped(store)
    ask = PartitionDemand("e" * 32, "1.pbs", "ada", 1000, 4, login=LEFT)
    made = create(store, machine, ask, lambda free, count: free[:count])
    assert made.processors == [0, 1, 2, 3]
    inside = demand(RIGHT, 1, "f")._replace(partition=made.partition, cookie=made.allocation_cookie)
    with pytest.raises(Denied, match="another side"):
        allocate(store, machine, inside, lambda free, count: free[:count])


def test_a_tree_that_becomes_cabinets_begins_as_described(store: Store) -> None:
    nodes = [NodeSpec(1, "p0", [0])]
    tree = {"kind": "tree", "switches": {"left": {"nodes": ["p0"]}}}
    define_machine(store, "m", "b1", "login1", nodes, tree)
    cabinets = {"kind": "mesh", "rows": 1, "columns": 2, "cages": 1, "boards": 1, "open": ["left"]}
    define_machine(store, "m", "b2", "login1", nodes, {**cabinets, "switches": [{"name": "left", "after": 0}]})
    assert open_now(store) == {"left"}
    define_machine(store, "m", "b3", "login1", nodes, tree)
    assert json.loads(store.read("SELECT topology FROM mesh")[0][0]) == tree
