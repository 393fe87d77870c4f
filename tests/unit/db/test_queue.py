"""The queues, and forgetting."""

import time

import pytest

from db.allocation import partitions, waiting_requests
from db.allocation.free import Machine
from db.allocation.partitions import PartitionDemand
from db.allocation.waiting_requests import Wait
from db.errors import Invalid
from db.store.store import Store
from db.views import history
from tests.support.stores import LOGIN, define, first, give_back, insert, key, take


def wait(size: int = 1, **more: object) -> Wait:
    given = {
        "request_key": key(), "partition": None, "uid": 1000, "user": "ada", "login": LOGIN, "pid": 1,
        "pid_started": 1, "size": size, "request": {}, "wait_s": 60.0,
    }  # fmt: skip
    return Wait(**{**given, **more})  # type: ignore[arg-type]


def test_first_in_first_out(store: Store) -> None:
    define(store)
    waits = [wait(size) for size in (3, 1, 2)]
    assert [waiting_requests.enqueue(store, one) for one in waits] == [0, 1, 2]
    assert waiting_requests.enqueue(store, waits[1]) == 1, "asked again, it keeps its place"
    head = waiting_requests.of_key(store.read, waits[0].request_key)
    assert head is not None and head.size == 3 and waiting_requests.line(store)[0][0] == head.request_key
    assert waiting_requests.drop(store, waits[0].request_key) and not waiting_requests.drop(store, waits[0].request_key)
    assert waiting_requests.line(store)[0][0] == waits[1].request_key
    assert [key for key, _, _ in waiting_requests.line(store)] == [waits[1].request_key, waits[2].request_key]


def test_a_vanished_process_leaves_the_queue(store: Store) -> None:
    define(store)
    gone, stays = wait(pid=5), wait(pid=5, pid_started=2)
    waiting_requests.enqueue(store, gone)
    waiting_requests.enqueue(store, stays)
    assert waiting_requests.drop_process(store, LOGIN, 5, 1) == 1
    assert waiting_requests.drop_process(store, "n0", 5, 2) == 0
    assert waiting_requests.line(store)[0][0] == stays.request_key


def test_late_and_orphaned_requests_are_dropped(store: Store, machine: Machine) -> None:
    made = partitions.create(store, machine, PartitionDemand(key(), "7", "ada", 1000, 2), first)
    late, orphan, stays = wait(wait_s=0.05), wait(partition=made.partition), wait()
    for one in (late, orphan, stays):
        waiting_requests.enqueue(store, one)
    time.sleep(0.06)
    assert [one.request_key for one in waiting_requests.drop_late(store)] == [late.request_key]
    partitions.destroy(store, made.partition, made.admin_cookie)
    assert [one.request_key for one in waiting_requests.drop_late(store)] == [orphan.request_key]
    assert waiting_requests.drop_late(store) == []
    assert waiting_requests.line(store)[0][0] == stays.request_key
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(Invalid):
            waiting_requests.enqueue(store, wait(wait_s=wrong))


def test_secrets_are_not_stored(store: Store) -> None:
    define(store)
    waiting_requests.enqueue(store, one := wait(request={"size": 4, "cookie": "hush", "key": "hush"}))
    assert waiting_requests.of_key(store.read, one.request_key).request == {"size": 4}


def count(store: Store, table: str) -> int:
    return int(store.read(f"SELECT COUNT(*) FROM `{table}`")[0][0])


def test_trimming_by_rows_and_days(store: Store, machine: Machine) -> None:
    live = take(store, machine, 1)
    for _ in range(6):
        give_back(store, take(store, machine, 1))
    assert history.trim(store, 1.0, 10) == 0
    assert history.trim(store, 1.0, 4) == 5, "two launchers, two partitions, one event"
    assert (count(store, "launcher"), count(store, "partition")) == (5, 5)
    time.sleep(0.01)
    history.trim(store, 0.0, 100)
    assert count(store, "launcher") == 2 and count(store, "event") == 1, "the live one and the newest stay"
    mark, counter = store.read("SELECT trimmed_to, counter FROM mesh")[0]
    assert 0 < mark <= counter
    assert give_back(store, live).news


def test_trimming_many_goes_in_small_steps(store: Store) -> None:
    define(store)
    rows = [(float(number), "note", "x") for number in range(1000)]
    store.run(lambda t: insert(t, "event", ("at", "kind", "text"), rows))
    before = store.read("SELECT counter FROM mesh")[0][0]
    assert history.trim(store, 36500.0, 10, steps=1) == history.AT_ONCE, "a little at a time, for a CPA"
    assert history.trim(store, 36500.0, 10) >= 790
    assert store.read("SELECT counter FROM mesh")[0][0] - before >= 5
    assert count(store, "event") == 10
