"""What ``mesh`` looks up, on both databases."""

from db.allocation.free import Machine
from db.machine.nodes import FIRST_GRANTED, NodeSpec, node_down, node_suspect
from db.machine.nodes_bulk import add_nodes
from db.store.store import Store
from db.views import deployment_reads as reads
from tests.support.stores import LOGIN, define, take


def test_nodes_are_counted_by_what_they_are(store: Store) -> None:
    define(store, 4, 2)
    node_down(store, "n3", "b1", 1, "its host is gone")
    node_suspect(store, "n1", "b1", 1, "late")
    sizes = {size.name: size for size in reads.node_sizes(store)}
    assert list(sizes) == ["n0", "n1", "n2", "n3"] and {size.processors for size in sizes.values()} == {2}
    assert sizes["n3"][1:3] == ("down", "its host is gone") and sizes["n1"].state == "suspect"
    assert reads.absent(store) == (1, ["n3"])
    assert reads.registered(store) == ["n0", "n1", "n2"]
    assert reads.unheard(store) == {"n0", "n1", "n2"}
    assert reads.lives(store)["n0"] == ("b1", 1) and LOGIN not in reads.lives(store)
    assert [place.role for place in reads.places(store)] == ["login"] + ["compute"] * 4


def test_login_processors_keep_their_ids_in_the_history(store: Store, machine: Machine) -> None:
    assert (reads.granted(store), reads.last_login(store)) == ([], 0)
    add_nodes(store, "b1", [NodeSpec(FIRST_GRANTED, "far", role="login")])
    assert reads.granted(store) == ["far"]
    take(store, machine, 1, login="far")
    assert reads.last_login(store) == FIRST_GRANTED
