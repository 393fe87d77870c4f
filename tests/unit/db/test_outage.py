"""A database that dies, freezes or comes back, at any moment of a transaction."""

import signal
import threading
from collections.abc import Iterator, Sequence

import pytest

from db.allocation import finish
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.errors import DatabaseUnavailable
from db.schema.migrate import migrate
from db.store.store import Store, Transaction, open_store
from db.views.viewer import open_viewer
from tests.support.chance import long
from tests.support.mariadb import Server, find_server, private_server
from tests.support.stores import NO_SERVER, define, demand, empty, first, take


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server that may be killed."""
    if find_server() is None:
        pytest.skip(NO_SERVER)
    with private_server() as server:
        yield server


@pytest.fixture(scope="module")
def fragile_url(fragile: Server) -> str:
    url = fragile.new_database()
    migrate(url)
    return url


@pytest.fixture
def fragile_store(fragile: Server, fragile_url: str) -> Iterator[Store]:
    with open_store(fragile_url) as store:
        empty(store)
        define(store)
        yield store


def unavailable(use) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DatabaseUnavailable) as caught:
        use()
    assert "does not answer" in caught.value.message


def test_killed_in_a_transaction(fragile: Server, fragile_url: str, fragile_store: Store) -> None:
    store, machine, viewer = fragile_store, Machine(), open_viewer(fragile_url)
    held = take(store, machine, 4)
    viewer.read()

    def work(t: Transaction) -> None:
        t.event("note", "half done")
        fragile.kill()
        t.event("note", "never sent")

    unavailable(lambda: store.run(work))
    unavailable(lambda: take(store, machine, 1))
    unavailable(lambda: store.read("SELECT 1"))
    unavailable(viewer.read)
    fragile.start()
    assert store.read("SELECT COUNT(*) FROM event WHERE kind = 'note'")[0][0] == 0
    assert take(store, machine, 4).processors == [4, 5, 6, 7]
    assert finish.finish(store, held.launcher, held.cookie, 0).news
    assert len(viewer.read().launchers) == 1
    viewer.close()


def test_stopped_and_started_while_idle(fragile: Server, fragile_url: str, fragile_store: Store) -> None:
    viewer = open_viewer(fragile_url)
    viewer.read()
    fragile.stop()
    fragile.start()
    assert take(fragile_store, Machine(), 4), "nothing was under way, so nothing is unknown"
    assert viewer.read().launchers
    viewer.close()


@pytest.mark.parametrize("moment", ["idle", "inside"])
def test_a_frozen_server_is_unavailable_and_serves_again(
    fragile: Server, fragile_url: str, fragile_store: Store, moment: str
) -> None:
    """A server that accepts and never answers is as dead as any."""
    store, machine, viewer = fragile_store, Machine(), open_viewer(fragile_url)
    take(store, machine, 1)
    viewer.read()

    def work(t: Transaction) -> None:
        fragile.signal(signal.SIGSTOP)
        t.event("note", "half done")

    try:
        if moment == "idle":
            fragile.signal(signal.SIGSTOP)
            unavailable(lambda: take(store, machine, 1))
            unavailable(viewer.read)
        else:
            unavailable(lambda: store.run(work))
        unavailable(lambda: store.run(lambda t: None))
    finally:
        fragile.signal(signal.SIGCONT)
    assert take(store, machine, 1)
    assert viewer.read().launchers
    viewer.close()


@pytest.mark.storm
def test_killed_at_any_moment_of_an_allocation(fragile: Server, fragile_store: Store) -> None:
    """Repeated under its key, a request whose fate is unknown is granted exactly once."""
    store, machine = fragile_store, Machine()
    unknown, rounds = 0, long(5, 20)
    for round_number in range(rounds):
        asked = demand(4)
        keys_before = {row[0] for row in store.read("SELECT request_key FROM launcher WHERE ended_at IS NULL")}
        assert not keys_before
        killer = threading.Timer(0.004 / rounds * round_number, fragile.kill)

        def kill_and_choose(free: Sequence[int], count: int) -> list[int]:
            fragile.kill()
            return first(free, count)

        last = round_number == rounds - 1  # in which the server is dead for certain before the allocation ends
        if not last:
            killer.start()
        granted = None
        try:
            granted = allocate(store, machine, asked, kill_and_choose if last else first)
        except DatabaseUnavailable:
            unknown += 1
        if not last:
            killer.join()
        fragile.start()
        again = allocate(store, machine, asked, first)
        rows = store.read("SELECT id, processors FROM launcher WHERE ended_at IS NULL")
        assert [row[0] for row in rows] == [again.launcher]
        if granted is not None:
            assert (again.launcher, again.processors) == (granted.launcher, granted.processors) and again.again
        held = store.read("SELECT id FROM processor WHERE launcher = ?", (again.launcher,))
        assert sorted(row[0] for row in held) == again.processors
        assert store.read("SELECT COUNT(*) FROM processor WHERE launcher IS NOT NULL")[0][0] == 4
        finish.finish(store, again.launcher, again.cookie, 0, machine=machine)
    assert unknown
