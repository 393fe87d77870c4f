"""The CPA's cached picture: names resolved, and never different from one read anew."""

import random

import pytest

from db.allocation import partitions
from db.allocation.free import Machine
from db.allocation.free_ids import FreeIds, FreeLists
from db.allocation.partitions import PartitionDemand
from db.errors import Invalid, StoreError
from db.machine.nodes import node_down, node_suspect, node_up
from db.machine.nodes_bulk import drain, resume
from db.machine.reservations import reserve, set_mode
from db.store.ranges import conditions, fold, runs, unfold
from db.store.store import Store, Transaction
from tests.support.stores import define, first, give_back, key, take


def test_names_and_ranges_in_their_order(store: Store, machine: Machine) -> None:
    machine.refresh(store)
    assert machine.resolve(None) is None
    assert machine.resolve({"processors": [[9, 10], [2, 2]], "nodes": ["n0"]}) == [9, 10, 2, 0, 1, 3]
    assert machine.resolve({"processors": []}) == []
    assert machine.nodes_of([9, 1, 8])[0] == (3, "n2", "/run/x/n2.sock", [9, 8])
    assert machine.node_id("n3") == 4


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"processors": [[14, 17]]}, "16, 17"),
        ({"processors": [[0, 10**15]]}, str(10**15)),
        ({"processors": [[-3, 2]]}, "-3"),
        ({"nodes": ["n0", "n7"]}, "n7"),
        ({"nodes": ["login1"]}, "login1"),
        ({"processors": [[3, 1]]}, "first"),
        ({"processors": [[1]]}, "first"),
        ({"processors": [[True, 1]]}, "first"),
        ({"processors": ["1"]}, "first"),
        ({"processors": 7}, "list"),
        ({"nodes": [7]}, "string"),
        ([], "object"),
    ],
)
def test_what_does_not_exist_is_named(store: Store, machine: Machine, wanted: object, named: str) -> None:
    machine.refresh(store)
    with pytest.raises(Invalid) as caught:
        machine.resolve(wanted)
    assert named in caught.value.message


def test_a_kept_picture_is_a_picture_read_anew(store: Store, machine: Machine) -> None:
    """Whatever happens, in whatever order, through this picture or beside it."""
    dice = random.Random(7)
    other = Machine()
    taken, made = [], []
    deeds = {
        "take": lambda: taken.append(take(store, dice.choice((machine, other)), dice.randint(1, 3))),
        "give": lambda: give_back(store, taken.pop(), machine=dice.choice((machine, other, None))),
        "make": lambda: made.append(
            partitions.create(store, machine, PartitionDemand(key(), "7", "ada", 1000, dice.randint(1, 3)), first)
        ),
        "destroy": lambda: partitions.destroy(store, made.pop().partition, None, force=True),
        "suspect": lambda: node_suspect(store, f"n{dice.randint(0, 3)}", "b1", 1, "late"),
        "down": lambda: node_down(store, f"n{dice.randint(0, 3)}", "b1", 1, "gone"),
        "up": lambda: node_up(store, f"n{dice.randint(0, 3)}", "b1", 1, "/x"),
        "drain": lambda: drain(store, [f"n{dice.randint(0, 3)}"], "disk", "root"),
        "resume": lambda: resume(store, [f"n{dice.randint(0, 3)}"], "root"),
        "mode": lambda: set_mode(store, [dice.randint(0, 15)], dice.choice(("batch", "interactive", "reserved"))),
        "reserve": lambda: reserve(store, [dice.randint(0, 15)], dice.choice(("ada", "bob", None))),
    }
    done = 0
    for _ in range(300):
        try:
            deeds[dice.choice(list(deeds))]()
            done += 1
        except (IndexError, StoreError):
            pass  # nothing to give back, or nothing free
        machine.refresh(store)
        anew = Machine()
        anew.refresh(store)
        for user in ("ada", "bob"):
            for batch in (False, True):
                assert machine.free(user, batch) == anew.free(user, batch)
        for partition in made:
            assert machine.free_in(partition.partition) == anew.free_in(partition.partition)
            assert machine.in_use(partition.partition) == anew.in_use(partition.partition)
        assert machine.reachable("ada") == anew.reachable("ada")
    assert done > 150


def test_folded_ids_unfold_to_the_same() -> None:
    assert fold([]) == "" and unfold("") == []
    assert fold([0, 1, 2, 3, 8]) == "0..3,8"
    assert fold([3, 2, 1]) == "3,2,1" and fold([5, 6, 1, 2]) == "5..6,1..2"
    dice = random.Random(1)
    for _ in range(200):
        ids = dice.sample(range(60), dice.randint(0, 40))
        assert unfold(fold(ids)) == ids
        assert [one for low, high in runs(ids) for one in range(low, high + 1)] == ids


def test_conditions_hold_for_exactly_these_ids(store: Store) -> None:
    define(store, nodes=16, slots=128)
    dice = random.Random(2)
    for size in (1, 2, 100, 900, 2048):
        ids = sorted(dice.sample(range(2048), size))
        found = [
            row[0] for condition in conditions(ids) for row in store.read(f"SELECT id FROM processor WHERE {condition}")
        ]
        assert sorted(found) == ids
    assert list(conditions([])) == []


def test_free_ids_are_a_list_and_flags() -> None:
    free = FreeIds(bytes([0, 1, 1, 0, 1, 0]))
    assert len(free) == 3 and free == [1, 2, 4] and list(free) == [1, 2, 4] and free[-1] == 4 and free[:2] == [1, 2]
    assert 2 in free and 3 not in free and 9 not in free and -1 not in free
    assert free.has_all([4, 1]) and not free.has_all([4, 3]) and not free.has_all([7])
    assert set(free) == {1, 2, 4} and not FreeIds(b"")


def test_lists_of_several_uses_are_one() -> None:
    lists = FreeLists()
    one, other = (("compute", "interactive", None), 1), (("compute", "batch", None), 2)
    lists.add(one, (3, 1))
    lists.add(other, (7,))
    assert lists.of({one[0], other[0]}, None) == [1, 3, 7] and lists.of({one[0], other[0]}, 2) == [7]
    lists.remove(one, (3,))
    assert lists.of({one[0]}, 1) == [1] and lists.of(set(), None) == []


def test_statements_that_travel_together_stop_at_the_first_that_fails(store: Store, machine: Machine) -> None:
    count = "SELECT COUNT(*) FROM event WHERE kind = 'note'"

    def work(t: Transaction) -> None:
        t.event("note", "before")
        t.write("UPDATE no_such_table SET a = 1")
        t.event("note", "behind")

    with pytest.raises(StoreError, match="no_such_table"):
        store.run(work)
    assert store.read(count) == [(0,)]
    seen = []

    def two(t: Transaction) -> None:
        t.event("note", "100 % of it; and ? marks")
        seen.append((t.answers, t.rows(count)))
        t.event("note", "second")

    store.run(two, [(count, ()), ("SELECT ? + 1", (41,))])
    assert seen == [([[(0,)], [(42,)]], [(1,)])] and store.read(count) == [(2,)]
    assert store.read("SELECT text FROM event WHERE kind = 'note' ORDER BY id")[0] == ("100 % of it; and ? marks",)
