"""Clusters: flat, racks and trees of switches, and the names that describe them."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.topology import Cluster, TopologyError, check, parse
from db.topology.names import expand

RACKS = {"kind": "racks", "racks": {"r1": ["node[01-04]"], "r2": "node[05-06],big1"}}
TREE = {
    "kind": "tree",
    "switches": {
        "spine": {"switches": ["pod[1-2]"]},
        "pod1": {"switches": ["leaf[1-2]"]},
        "pod2": {"switches": ["leaf3"], "nodes": ["fat1"]},
        "leaf1": {"nodes": ["n[1-2]"]},
        "leaf2": {"nodes": ["n[3-4]"]},
        "leaf3": {"nodes": ["n5"]},
    },
}


def cluster(section: dict[str, Any]) -> Cluster:
    found = parse(section)
    assert isinstance(found, Cluster)
    return found


@pytest.mark.parametrize("section", [{"kind": "flat"}, RACKS, TREE])
def test_what_was_read_is_written_and_read_again(section: dict[str, Any]) -> None:
    once = cluster(section)
    again = cluster(once.to_dict())
    assert again.to_dict() == once.to_dict() and again.nodes == once.nodes
    assert [again.path(node) for node in again.nodes] == [once.path(node) for node in once.nodes]


def test_a_flat_cluster_is_one_switch() -> None:
    flat = cluster({"kind": "flat"})
    assert flat.hops("a", "b") == 2 and flat.hops("a", "a") == 0 and flat.nodes == []


def test_racks_are_two_and_four_links_apart() -> None:
    racks = cluster(RACKS)
    assert racks.nodes == ["node01", "node02", "node03", "node04", "node05", "node06", "big1"]
    assert racks.hops("node01", "node04") == 2 and racks.hops("node01", "big1") == 4
    assert racks.hops("node01", "stranger") == 3  # hangs on the root itself
    assert racks.neighbours("node05") == ["node06", "big1"]


def test_hops_in_a_tree_are_the_shortest_way_over_its_cables() -> None:
    tree = cluster(TREE)
    above = {"pod1": "spine", "pod2": "spine", "leaf1": "pod1", "leaf2": "pod1", "leaf3": "pod2"}
    above |= {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2", "n5": "leaf3", "fat1": "pod2"}
    cables = {frozenset(cable) for cable in above.items()}

    def way(one: str, other: str) -> int:
        far, line = {one: 0}, [one]
        for here in line:
            for cable in cables:
                for there in cable - {here} if here in cable else ():
                    if there not in far:
                        far[there] = far[here] + 1
                        line.append(there)
        return far[other]

    assert tree.nodes == ["n1", "n2", "n3", "n4", "fat1", "n5"]
    for one, other in itertools.product(tree.nodes, repeat=2):
        assert tree.hops(one, other) == way(one, other)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"kind": "flat", "racks": {}}, "'racks'"),
        ({"kind": "racks"}, "lacks the table [topology.racks]"),
        ({"kind": "racks", "racks": ["a"]}, "must be a table"),
        ({"kind": "racks", "racks": {"r1": 4}}, "topology.racks] r1"),
        ({"kind": "racks", "racks": {"r1": ["n1"], "r2": ["n[1-2]"]}}, "'n1' is named twice"),
        ({"kind": "racks", "racks": {"r1": ["n[1-"]}}, "brackets"),
        ({"kind": "racks", "racks": {"r1": ["n[3-1]"]}}, "backwards"),
        ({"kind": "racks", "racks": {"r1": ["n[a]"]}}, "not a range"),
        ({"kind": "racks", "racks": {"r1": ["n1,,n2"]}}, "two commas"),
        ({"kind": "racks", "racks": {"r1": ["n[1-999999999]"]}}, "no end"),
        ({"kind": "racks", "racks": {"r1": ["n[1][2]"]}}, "two pairs"),
        ({"kind": "tree", "switches": {}}, "has 0 (none)"),
        ({"kind": "tree", "switches": {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2"]}}}, "has 2 (a, b)"),
        ({"kind": "tree", "switches": {"a": {"switches": ["b"]}}}, "not described"),
        ({"kind": "tree", "switches": {"a": {"switches": ["b"]}, "b": {"switches": ["a"]}}}, "has 0"),
        ({"kind": "tree", "switches": {"r": {}, "a": {"switches": ["b"]}, "b": {"switches": ["a"]}}}, "circle"),
        ({"kind": "tree", "switches": {"r": {"switches": ["a", "b"]}, "a": {"switches": ["c"]},
                                       "b": {"switches": ["c"]}, "c": {}}}, "below both"),
        ({"kind": "tree", "switches": {"a": {"node": ["n1"]}}}, "'node'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_where_it_stands(section: dict[str, Any], says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(section)
    assert says in caught.value.message


@settings(deadline=None)
@given(st.integers(0, 150), st.integers(0, 60), st.integers(1, 4))
def test_ranges_keep_their_leading_zeros(first: int, more: int, width: int) -> None:
    text = f"n[{first:0{width}d}-{first + more}]x"
    padded = len(f"{first:0{width}d}") if f"{first:0{width}d}".startswith("0") else 0
    assert expand((text,), "here") == [f"n{one:0{padded}d}x" for one in range(first, first + more + 1)]


def test_several_names_and_ranges_in_the_order_written() -> None:
    assert expand(("b,a[3,1-2]", "c"), "here") == ["b", "a3", "a1", "a2", "c"]


def test_nodes_that_are_nowhere_and_racks_with_nodes_that_are_not_there() -> None:
    there = [("node01", "compute", [0]), ("login", "login", []), ("odd", "compute", [1])]
    found = check(cluster({"kind": "racks", "racks": {"r1": ["node[01-02]"]}}), there)
    assert found == ["node odd is in no rack", "rack r1 has node node02, which is not in the mesh"]
    assert check(cluster({"kind": "flat"}), there) == []
