"""Where state objects are: whatever becomes of reports on their way, the row never goes back."""

import itertools
import random
import threading

import pytest

from db.allocation.free import Machine
from db.errors import Invalid
from db.jobs import locations
from db.jobs.locations import Location, url_on
from db.machine import nodes, rcas
from db.machine.nodes_bulk import add_nodes
from db.store.store import Store, open_store
from db.views import daemon_reads
from redmesh.state import new_uuid
from tests.support.stores import LOGIN

UID = 1000


def counter_of_the_mesh(store: Store) -> int:
    return int(store.read("SELECT counter FROM mesh WHERE id = 1")[0][0])


def test_a_job_is_registered_moved_and_forgotten(store: Store, machine: Machine) -> None:
    uuid, before = new_uuid(), counter_of_the_mesh(store)
    assert locations.locate(store, uuid) is None
    assert locations.register(store, uuid, "n0", UID)
    assert not locations.register(store, uuid, "n1", UID), "repeated it changes nothing"
    assert locations.locate(store, uuid) == Location(url_on("n0", uuid), 0, False, UID)
    assert locations.report_move(store, uuid, "n0", "n2", 1, UID)
    assert locations.locate(store, uuid) == Location(url_on("n2", uuid), 1, False, UID)
    assert not locations.forget(store, uuid, "n0", UID), "it is not there any more"
    assert locations.forget(store, uuid, "n2", UID)
    assert locations.locate(store, uuid) is None
    assert counter_of_the_mesh(store) == before, "viewers need not read anew for it"


def test_late_repeated_and_reordered_reports_change_nothing(store: Store, machine: Machine) -> None:
    moves = [("n0", "n1", 1), ("n1", "n2", 2), ("n2", "n3", 3)]
    for order in itertools.permutations([*moves, moves[0]]):
        uuid = new_uuid()
        locations.register(store, uuid, "n0", UID)
        newest = 0
        for sender, receiver, counter in order:
            taken = locations.report_move(store, uuid, sender, receiver, counter, UID)
            assert taken == (counter > newest)
            newest = max(newest, counter)
            there = locations.locate(store, uuid)
            assert there is not None and there.counter == newest
        assert there == Location(url_on("n3", uuid), 3, False, UID)


def test_who_may_report(store: Store, machine: Machine) -> None:
    uuid = new_uuid()
    assert not locations.register(store, uuid, "n9", UID), "no node of this mesh"
    locations.register(store, uuid, "n0", UID)
    assert not locations.report_move(store, uuid, "n1", "n2", 1, UID), "it is not on n1"
    assert not locations.report_move(store, uuid, "n0", "n2", 1, UID + 1), "another user's"
    assert not locations.report_move(store, uuid, "n0", "n9", 1, UID), "no node of this mesh"
    assert not locations.report_move(store, new_uuid(), "n0", "n1", 1, UID), "of no job"
    with pytest.raises(Invalid):
        locations.report_move(store, uuid, "n0", "n1", 0, UID)
    assert locations.locate(store, uuid) == Location(url_on("n0", uuid), 0, False, UID)


def test_reports_at_once_end_at_the_highest(store: Store, machine: Machine, database_url: str) -> None:
    uuid, moves = new_uuid(), [(f"n{count % 4}", f"n{(count + 1) % 4}", count + 1) for count in range(40)]
    locations.register(store, uuid, "n0", UID)

    def report(seed: int) -> None:
        mine = list(moves)
        random.Random(seed).shuffle(mine)
        with open_store(database_url) as own:
            for sender, receiver, counter in mine:
                locations.report_move(own, uuid, sender, receiver, counter, UID)

    threads = [threading.Thread(target=report, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert locations.locate(store, uuid) == Location(url_on("n0", uuid), 40, False, UID)


def test_nothing_else_of_a_job_is_in_the_database(store: Store) -> None:
    store.connect()
    columns = {column.name for column in store.db.get_columns("state_location")}
    assert columns == {"uuid", "url", "counter", "proxied", "uid", "standby", "goes_to"}
    tables = set(store.db.get_tables())
    assert not tables & {"job", "task", "value", "log"}


def test_of_ten_thousand_one_is_found_by_one_indexed_read(store: Store, machine: Machine) -> None:
    found = [new_uuid() for _ in range(10_000)]
    columns = ("uuid", "url", "counter", "proxied", "uid", "standby", "goes_to")
    store.connect()
    for start in range(0, len(found), 500):
        rows = [(one, url_on(f"n{int(one[0], 16) % 4}", one), 0, 0, UID, "", "") for one in found[start : start + 500]]
        marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(rows))
        values = [value for row in rows for value in row]
        store.together([(store.sent((f"INSERT INTO state_location ({', '.join(columns)}) VALUES {marks}", values)))[0]])
    there = locations.locate(store, found[4711])
    assert there is not None and there.url == url_on(f"n{int(found[4711][0], 16) % 4}", found[4711])
    explain = "EXPLAIN QUERY PLAN " if store.dialect == "sqlite" else "EXPLAIN "
    text, values = store.sent(locations.locating.bind(uuid=found[4711]))[0]
    plan = str(store.together([(explain + text, values)])).lower()
    assert (
        "search" in plan and "using index" in plan and "scan" not in plan
        if store.dialect == "sqlite"
        else "const" in plan
    )


def test_a_standby_goes_on_only_with_evidence_and_once(store: Store, machine: Machine) -> None:
    uuid = new_uuid()
    locations.register(store, uuid, "n0", UID)
    assert locations.take_over(store, uuid, 0, UID, "n0") is None, "it has no standby"
    assert locations.stand_by(store, uuid, "n0", 0, UID, "n1") == (url_on("n0", uuid), 0, True, UID, "n1", "")
    assert locations.take_over(store, uuid, 0, UID, "") is None, "n0 is up"
    assert locations.take_over(store, uuid, 0, UID, "n2") is None, "n2 says nothing of n0"
    life = node_life(store, "n0")
    nodes.node_down(store, "n0", *life, "silent", "login")
    assert locations.take_over(store, uuid, 0, UID + 1, "") is None, "another user's"
    assert locations.take_over(store, uuid, 1, UID, "") is None, "a counter that nobody knows"
    assert locations.take_over(store, uuid, 0, UID, "") == (url_on("n1", uuid), 1, False, UID, "", "")
    assert locations.take_over(store, uuid, 0, UID, "") is None, "once"
    # the old owner comes back: what it tells changes nothing, and the answer says so
    assert locations.stand_by(store, uuid, "n0", 0, UID, "n2") == (url_on("n1", uuid), 1, False, UID, "", "")
    assert locations.stand_by(store, uuid, "n1", 1, UID, "n2") == (url_on("n1", uuid), 1, True, UID, "n2", "")
    assert locations.with_standby_on(store, "n1") == [(uuid, UID)] and not locations.with_standby_on(store, "n0")
    assert locations.report_move(store, uuid, url_on("n1", uuid), "n3", 2, UID) is False, "a node is named, not a url"
    assert locations.report_move(store, uuid, "n1", "n3", 2, UID)
    assert locations.locate(store, uuid) == (url_on("n3", uuid), 2, False, UID, "", ""), (
        "a copy elsewhere is none of it"
    )


def on_the_move(store: Store) -> list[tuple[str, int, str, str]]:
    """What *nodes_out* tells RCAs of the jobs on the move."""
    return [(one.uuid, one.uid, one.node, one.goes_to) for one in daemon_reads.nodes_out(store, 0.0).moving]


def test_where_a_job_is_to_continue_is_known_until_it_does(store: Store, machine: Machine) -> None:
    uuid = new_uuid()
    rcas.here(store, LOGIN, "h:7117")
    locations.register(store, uuid, "n0", UID)
    assert not locations.send(store, uuid, UID, LOGIN), "it has no standby"
    locations.stand_by(store, uuid, "n0", 0, UID, "n1")
    assert not locations.send(store, uuid, UID + 1, LOGIN), "another user's"
    assert not locations.send(store, uuid, UID, "n2"), "no login processor"
    assert on_the_move(store) == []
    assert locations.send(store, uuid, UID, LOGIN) and locations.send(store, uuid, UID, LOGIN), "may be repeated"
    assert not locations.send(store, uuid, UID + 1, LOGIN), "nor where it goes is another user's"
    assert on_the_move(store) == [(uuid, UID, "n0", LOGIN)]
    assert not locations.stay(store, uuid, UID, "other") and not locations.stay(store, uuid, UID + 1, LOGIN)
    # whoever gives the object to the standby says so too; nothing on its way takes it back
    assert locations.take_over(store, uuid, 0, UID, "n0") == (url_on("n1", uuid), 1, False, UID, "", LOGIN)
    assert locations.report_move(store, uuid, "n1", LOGIN, 2, UID)
    locations.stand_by(store, uuid, LOGIN, 2, UID, "n1")
    assert on_the_move(store) == [(uuid, UID, LOGIN, LOGIN)]
    assert locations.stay(store, uuid, UID, LOGIN) and not locations.stay(store, uuid, UID, LOGIN)
    assert on_the_move(store) == []
    # a login processor that is lost leaves its jobs, and those on their way there, to another one
    onward = new_uuid()
    locations.register(store, onward, "n0", UID)
    locations.stand_by(store, onward, "n0", 0, UID, "n1")
    locations.take_over(store, onward, 0, UID, "n0", LOGIN)
    locations.leave_lost(store, LOGIN, "other")
    assert sorted(on_the_move(store)) == sorted([(uuid, UID, LOGIN, "other"), (onward, UID, "n1", "other")])


def test_a_job_goes_to_no_other_place_than_a_login_processor(store: Store, machine: Machine) -> None:
    boot = str(store.read("SELECT boot_id FROM mesh")[0][0])
    add_nodes(store, boot, [nodes.NodeSpec(nodes.FIRST_GRANTED, "login2", role="login")])
    rcas.here(store, "login2", "h:7118")
    for wanted in ("!", "n2", "login2"):
        uuid = new_uuid()
        locations.register(store, uuid, "n0", UID)
        locations.stand_by(store, uuid, "n0", 0, UID, "n1")
        taken = locations.take_over(store, uuid, 0, UID, "n0", wanted)
        assert taken is not None and taken.goes_to == (wanted if wanted == "login2" else "")
    assert [one[3] for one in on_the_move(store)] == ["login2"]
    rcas.revoke(store, "login2", "root")
    assert on_the_move(store) == [], "its jobs stay, and may be sent elsewhere"


def test_many_jobs_of_one_user_hide_no_others(store: Store, machine: Machine) -> None:
    rcas.here(store, LOGIN, "h:7117")
    for uid in (UID, UID, UID, UID + 1):
        uuid = new_uuid()
        locations.register(store, uuid, "n0", uid)
        locations.stand_by(store, uuid, "n0", 0, uid, "n1")
        assert locations.send(store, uuid, uid, LOGIN)
    assert {row[1] for row in store.read(locations.on_the_move.bind(most=2))} == {UID, UID + 1}


def node_life(store: Store, name: str) -> tuple[str, int]:
    """The boot id and incarnation that a node has now."""
    found = daemon_reads.present_life(store, name)
    return found.boot_id, found.incarnation
