"""Processors given, started and given back; the books in between."""

import pytest

from db.allocation import finish, waiting_requests
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Segment, Shape
from db.errors import Denied, Expired, Invalid, NotEnough, StoreError, TakenBesides
from db.machine import reservations
from db.machine.nodes import NodeSpec, define_machine, node_down, node_suspect, node_up
from db.machine.nodes_bulk import drain
from db.store.store import Store, open_store
from tests.support.stores import LOGIN, define, demand, first, give_back, key, take


def holders(store: Store) -> dict[int, tuple[int | None, int | None]]:
    return {row[0]: (row[1], row[2]) for row in store.read("SELECT id, `partition`, launcher FROM processor")}


def column(store: Store, table: str, name: str, identity: int) -> object:
    return store.read(f"SELECT `{name}` FROM `{table}` WHERE id = ?", (identity,))[0][0]


def test_an_interactive_launch_from_end_to_end(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 6)
    assert taken.processors == [0, 1, 2, 3, 4, 5] and not taken.again
    assert [(node.name, node.processors) for node in taken.nodes] == [("n0", [0, 1, 2, 3]), ("n1", [4, 5])]
    assert taken.nodes[0].address == "/run/x/n0.sock"
    assert 59 < taken.pending_s <= 60
    assert holders(store)[0] == (taken.partition, taken.launcher)
    assert column(store, "partition", "max_in_use", taken.partition) == 6
    assert column(store, "launcher", "state", taken.launcher) == "pending"
    finish.started(store, taken.launcher, taken.cookie, taken.processors, "n0", machine)
    assert column(store, "launcher", "state", taken.launcher) == "busy"
    assert column(store, "launcher", "ranks", taken.launcher) == "[0,1,2,3,4,5]"
    ended = give_back(store, taken, 3, machine=machine)
    assert ended.news and ended.partition_too
    assert set(holders(store).values()) == {(None, None)}
    assert column(store, "launcher", "exit_status", taken.launcher) == 3
    assert column(store, "launcher", "abnormal", taken.launcher) == 0
    assert column(store, "partition", "ended_at", taken.partition) is not None
    assert machine.free("ada") == list(range(16))


def test_cookies_are_stored_as_digests_only(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 1)
    assert len(taken.cookie) == 16 and int(taken.cookie, 16) >= 0
    for table in ("launcher", "partition", "event"):
        for row in store.read(f"SELECT * FROM `{table}`"):
            assert taken.cookie not in map(str, row)
    assert len(str(column(store, "launcher", "cookie", taken.launcher))) == 64


def test_refusal_says_how_many_are_free(store: Store, machine: Machine) -> None:
    take(store, machine, 12)
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 5)
    assert caught.value.free == 4 and not caught.value.never
    assert "5 processors asked for, 4 are free" in caught.value.message
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 17)
    assert caught.value.never and "16" in caught.value.hint
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 1, exclude=range(12, 16))
    assert caught.value.message == "1 processor asked for, 0 are free beside those excluded"
    assert caught.value.hint.endswith("; wait with --wait-for-nodes 600") and not caught.value.never
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 1, exclude=range(16))
    assert caught.value.never and caught.value.hint == "there is none beside those excluded, also when nothing runs"


def test_overcommit_takes_what_there_is(store: Store, machine: Machine) -> None:
    assert len(take(store, machine, 100, at_least=1).processors) == 16
    with pytest.raises(NotEnough):
        take(store, machine, 100, at_least=1)


def test_wanted_is_taken_in_its_order_and_exclude_left_out(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 3, wanted=[9, 1, 8, 2])
    assert taken.processors == [9, 8, 1], "ranks stand node by node, nodes in the order wanted"
    assert column(store, "launcher", "processors", taken.launcher) == "9,8,1"
    assert take(store, machine, 2, wanted=[0, 1, 2, 3], exclude=[0]).processors == [2, 3]
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 2, wanted=[9, 10])
    assert caught.value.free == 1 and "of those listed" in caught.value.message


def test_a_repeated_request_gets_the_same_processors_and_new_cookies(store: Store, machine: Machine) -> None:
    asked = demand(16)
    taken = allocate(store, machine, asked, first)
    again = allocate(store, Machine(), asked, first)
    assert again.again and (again.launcher, again.processors) == (taken.launcher, taken.processors)
    assert again.cookie != taken.cookie and [node.name for node in again.nodes] == ["n0", "n1", "n2", "n3"]
    with pytest.raises(Denied):
        finish.started(store, taken.launcher, taken.cookie, taken.processors)
    finish.started(store, taken.launcher, again.cookie, taken.processors)
    with pytest.raises(Denied):
        allocate(store, machine, asked._replace(uid=1001, user="eve"), first)
    finish.finish(store, taken.launcher, again.cookie, 0)
    with pytest.raises(Expired):
        allocate(store, machine, asked, first)
    assert set(holders(store).values()) == {(None, None)}


def test_started_after_the_pending_time_is_refused(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 2, pending_s=0.0)
    with pytest.raises(Expired):
        finish.started(store, taken.launcher, taken.cookie, taken.processors)
    assert [ended.launcher for ended in finish.expire_pending(store)] == [taken.launcher]
    assert finish.expire_pending(store) == []
    with pytest.raises(Expired) as caught:
        finish.started(store, taken.launcher, taken.cookie, taken.processors)
    assert finish.NEVER_STARTED in caught.value.message
    assert take(store, machine, 16)


def test_a_started_launcher_never_expires(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 2)
    finish.started(store, taken.launcher, taken.cookie, taken.processors)
    store.execute("UPDATE launcher SET pending_until = 0")
    finish.started(store, taken.launcher, taken.cookie, taken.processors)
    assert finish.expire_pending(store) == []


def test_finish_may_be_repeated_and_frees_nothing_of_the_next(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 4)
    assert give_back(store, taken).news
    following = take(store, machine, 4)
    assert following.processors == taken.processors
    assert not give_back(store, taken).news
    assert holders(store)[0] == (following.partition, following.launcher)


@pytest.mark.parametrize("cookie", ["", "0" * 16, "x" * 5000, "ü", "\udc80"])
def test_a_wrong_cookie_changes_nothing(store: Store, machine: Machine, cookie: str) -> None:
    taken = take(store, machine, 4)
    counter = store.read("SELECT counter FROM mesh")[0][0]
    for use in (
        lambda: finish.finish(store, taken.launcher, cookie, 0),
        lambda: finish.started(store, taken.launcher, cookie, []),
        lambda: finish.check_live(store, taken.launcher, cookie),
    ):
        with pytest.raises(Denied):
            use()
    assert store.read("SELECT counter FROM mesh")[0][0] == counter


def test_launchers_nobody_knows(store: Store, machine: Machine) -> None:
    for use in (
        lambda: finish.finish(store, 99, "0" * 16, 0),
        lambda: finish.started(store, 99, "0" * 16, []),
        lambda: finish.check_live(store, 99, "0" * 16),
    ):
        with pytest.raises(Expired):
            use()
    assert finish.lose(store, 99, "gone") is None and finish.find_live(store, 99) is None


def test_ranks_must_be_on_the_launchers_processors(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 4)
    with pytest.raises(Invalid):
        finish.started(store, taken.launcher, taken.cookie, [0, 1, 2, 15])


def test_losing_a_launcher_frees_and_tells(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 4)
    found = finish.launchers_of_process(store, LOGIN, 4711, 99)
    assert [(live.launcher, live.processors) for live in found] == [(taken.launcher, [0, 1, 2, 3])]
    assert finish.launchers_of_process(store, LOGIN, 4711, 98) == []
    lost = finish.lose(store, taken.launcher, "its process is gone")
    assert lost is not None and lost.news
    assert not finish.lose(store, taken.launcher, "again").news
    assert finish.launchers_of(store, LOGIN) == []
    assert column(store, "launcher", "abnormal", taken.launcher) == 1
    assert store.read("SELECT COUNT(*) FROM event WHERE kind = 'launcher_lost'")[0][0] == 1
    assert not give_back(store, taken).news


def test_only_nodes_that_are_up_give_processors(store: Store, machine: Machine) -> None:
    node_suspect(store, "n0", "b1", 1, "late")
    drain(store, ["n1"], "disk", "root")
    node_down(store, "n2", "b1", 1, "gone")
    assert take(store, machine, 4).processors == [12, 13, 14, 15]
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 1)
    assert caught.value.free == 0 and not caught.value.never
    node_up(store, "n0", "b1", 1, "/run/x/n0.sock", "0.1.0")
    assert take(store, machine, 4).processors == [0, 1, 2, 3]


def test_a_decision_that_was_overtaken_is_made_again(database_url: str, store: Store, machine: Machine) -> None:
    """Another CPA takes what was chosen, between our choice and our lock."""
    machine.refresh(store)
    overtaken = []

    def slow(free, count):  # type: ignore[no-untyped-def]
        if not overtaken:
            with open_store(database_url) as other:
                overtaken.append(take(other, Machine(), 4).processors)
        return list(free[:count])

    taken = allocate(store, machine, demand(4), slow)
    assert overtaken == [[0, 1, 2, 3]] and taken.processors == [4, 5, 6, 7]


def test_a_write_without_the_lock_is_caught(store: Store, machine: Machine) -> None:
    """The guard of the last resort: the row count of the UPDATE that claims."""
    machine.refresh(store)
    store.execute("UPDATE processor SET launcher = 99 WHERE id = 1")
    with pytest.raises(TakenBesides) as caught:
        take(store, machine, 4)
    assert "some of 4 processors" in caught.value.message
    assert store.read("SELECT COUNT(*) FROM processor WHERE launcher IS NOT NULL")[0][0] == 1, "rolled back"
    assert take(store, machine, 4).processors == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("shape", "size", "more", "never"),
    [
        (Shape(nodes=5), 5, {}, True),  # the fifth node is a service node
        (Shape(each=2), 18, {}, True),
        (Shape(nodes=4), 4, {"exclude": range(4)}, True),
        (Shape(nodes=2), 2, {"wanted": range(4)}, True),
        (Shape(each=2), 4, {"wanted": (0, 1, 4)}, True),
        (Shape(nodes=4), 4, {}, False),
        (Shape(nodes=3), 3, {"exclude": range(4)}, False),
        (Shape(nodes=5), 5, {"wanted": range(20)}, False),
        (Shape(segments=[Segment(16, None), Segment(4, [16, 17, 18, 19])]), 20, {}, False),
        (Shape(segments=[Segment(17, None)]), 17, {}, True),
        (Shape(segments=[Segment(9, None), Segment(8, None)]), 17, {}, True),  # together alone
        (Shape(segments=[Segment(4, [0, 1, 2, 3, 4]), Segment(2, [3, 4])]), 6, {}, True),
        (Shape(segments=[Segment(3, [0, 1, 2]), Segment(2, [3, 4])]), 5, {"exclude": [3]}, True),
        (Shape(segments=[Segment(3, [0, 1, 2]), Segment(2, [3, 4])]), 5, {}, False),
    ],
)
def test_what_an_idle_machine_could_not_give_is_not_waited_for(
    store: Store, machine: Machine, shape: Shape, size: int, more: dict[str, object], never: bool
) -> None:
    """The shape counts what this request may have: without service nodes, what is excluded, and what is not listed."""
    specs = [NodeSpec(node + 1, f"n{node}", range(node * 4, node * 4 + 4)) for node in range(4)]
    define_machine(store, "test", "b2", LOGIN, [*specs, NodeSpec(5, "s0", range(16, 20), role="service")])
    for node in ("n0", "n1", "n2", "n3", "s0"):
        node_up(store, node, "b2", 1, "/run/x", "1")
    take(store, machine, 16)
    with pytest.raises(NotEnough) as caught:
        take(store, machine, size, shape=shape, **more)
    assert caught.value.never is never


def test_who_waits_is_refused_when_the_machine_becomes_too_small(store: Store, machine: Machine) -> None:
    """That it could be met is kept only as long as modes and nodes stay as they are."""
    taken = take(store, machine, 16)
    asked = demand(8, shape=Shape(each=2))
    for _ in range(2):
        with pytest.raises(NotEnough) as caught:
            allocate(store, machine, asked, first)
        assert not caught.value.never
    give_back(store, taken)
    reservations.reserve(store, range(12), "bob")
    with pytest.raises(NotEnough) as caught:
        allocate(store, machine, asked, first)
    assert caught.value.never and "room for 2 on 1 node" in caught.value.hint


def test_a_placement_that_errs_is_caught(store: Store, machine: Machine) -> None:
    for wrong in ([0], [0, 0], [0, 99]):
        with pytest.raises(StoreError) as caught:
            allocate(store, machine, demand(2), lambda free, count, wrong=wrong: wrong)
        assert "placement" in caught.value.message
    with pytest.raises(NotEnough):
        allocate(store, machine, demand(2), lambda free, count: None)
    assert set(holders(store).values()) == {(None, None)}


def test_requests_that_mean_nothing(store: Store, machine: Machine) -> None:
    for wrong in (
        demand(0),
        demand(-1),
        demand(1, request_key="short"),
        demand(1, request_key="Z" * 32),
        demand(1, login="nowhere"),
        demand(1, resources={"gpu": 0}),
        demand(1, resources={"gpu": 1}),
    ):
        with pytest.raises(Invalid):
            allocate(store, machine, wrong, first)
    assert set(holders(store).values()) == {(None, None)}


def test_nobody_overtakes_those_who_wait(store: Store, machine: Machine) -> None:
    running = take(store, machine, 12)
    asked = demand(8)
    with pytest.raises(NotEnough):
        allocate(store, machine, asked, first)
    wait = waiting_requests.Wait(
        asked.request_key, None, 1000, "ada", LOGIN, 4711, 99, 8, {"size": 8, "cookie": "x"}, 60
    )
    assert waiting_requests.enqueue(store, wait) == 0
    with pytest.raises(NotEnough) as caught:
        take(store, machine, 1)
    assert caught.value.waiting == 1
    with pytest.raises(NotEnough):
        allocate(store, machine, asked, first)
    give_back(store, running)
    with pytest.raises(NotEnough):
        take(store, machine, 1)
    assert len(allocate(store, machine, asked, first).processors) == 8
    assert not waiting_requests.line(store)
    assert take(store, machine, 1)


def test_resources_are_counted_on_every_node(store: Store) -> None:
    nodes = [NodeSpec(1, "g0", (0, 1), resources={"gpu": 2}), NodeSpec(2, "g1", (2, 3), resources={"gpu": 1})]
    define_machine(store, "m", "b1", LOGIN, nodes)
    for node in nodes:
        node_up(store, node.name, "b1", 1, "/x")
    machine = Machine()

    def in_use() -> dict[int, int]:
        return {row[0]: row[1] for row in store.read("SELECT node, in_use FROM node_resource")}

    both = take(store, machine, 3, resources={"gpu": 1})
    assert both.processors == [0, 1, 2] and in_use() == {1: 1, 2: 1}
    with pytest.raises(NotEnough):
        take(store, machine, 1, resources={"gpu": 1})
    give_back(store, both, machine=machine)
    assert in_use() == {1: 0, 2: 0}
    with pytest.raises(NotEnough):
        take(store, machine, 3, resources={"gpu": 2})
    one = take(store, machine, 1, resources={"gpu": 2})
    assert one.processors == [0] and in_use() == {1: 2, 2: 0}
    assert take(store, machine, 1, resources={"gpu": 1}).processors == [2]
    finish.lose(store, one.launcher, "gone")
    assert in_use() == {1: 0, 2: 1}


def test_scattered_processors_of_a_large_machine(store: Store) -> None:
    """Every other of 4,096: thousands of ranges, which no single statement could name."""
    define(store, nodes=64, slots=64)
    machine = Machine()
    odd = list(range(1, 4096, 2))
    taken = take(store, machine, len(odd), wanted=odd)
    assert taken.processors == odd
    assert sum(launcher is not None for _, launcher in holders(store).values()) == len(odd)
    give_back(store, taken, machine=machine)
    assert machine.free("ada") == list(range(4096))
    assert len(take(store, machine, 4096).processors) == 4096


def test_the_key_of_a_waiting_request_is_not_somebody_elses(store: Store, machine: Machine) -> None:
    shared = key()
    wait = waiting_requests.Wait(shared, None, 1000, "ada", LOGIN, 1, 1, 1, {}, 60)
    waiting_requests.enqueue(store, wait)
    with pytest.raises(Denied):
        waiting_requests.enqueue(store, wait._replace(uid=1001))
    with pytest.raises(Denied):
        take(store, machine, 1, request_key=shared, uid=1001)
