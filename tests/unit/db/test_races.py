"""Several processes after the last processors, each with a connection and a picture of its own."""

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import pytest

from db.allocation.free import Machine
from db.allocation.types import Allocation
from db.errors import NotEnough
from db.store.store import open_store
from tests.support.stores import define, give_back, take
from tests.support.waiting import PATIENCE_S

TAKERS = 4


def compete(url: str, number: int, churn: int, all_ready: Barrier, result: Connection) -> None:
    """Ask for processors until none are left, having given some back for ``churn`` turns; send what is held."""
    held: list[Allocation] = []
    machine = Machine()
    with open_store(url) as store:
        store.read("SELECT 1")
        all_ready.wait(PATIENCE_S)
        for turn in range(churn):
            try:
                held.append(take(store, machine, 1 + (turn + number) % 5))
            except NotEnough:
                pass
            if turn % 3 == 2 and held:
                give_back(store, held.pop(0), machine=machine)
        while True:
            try:
                held.append(take(store, machine, 1))
            except NotEnough as error:
                result.send(([(one.launcher, one.processors) for one in held], error.free))
                break


@pytest.mark.parametrize("churn", [0, 60])
def test_the_last_processors(database_url: str, churn: int) -> None:
    with open_store(database_url) as store:
        define(store, nodes=8, slots=8)
    # Forked by a process that has imported all of it: a worker of pytest-xdist has threads, so it must not fork.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, "pymysql"])
    all_ready, pipes = server.Barrier(TAKERS), [server.Pipe(duplex=False) for _ in range(TAKERS)]
    takers = [
        server.Process(target=compete, args=(database_url, number, churn, all_ready, result))
        for number, (_, result) in enumerate(pipes)
    ]
    try:
        for taker, (_, result) in zip(takers, pipes, strict=True):
            taker.start()
            result.close()
        results = [reader.recv() for reader, _ in pipes if reader.poll(PATIENCE_S)]
    finally:
        for taker in takers:
            taker.kill()
            taker.join()
    assert len(results) == TAKERS
    held = [one for taken, _ in results for one in taken]
    assert sorted(one for _, processors in held for one in processors) == list(range(64)), "none twice, none lost"
    assert [free for _, free in results] == [0] * TAKERS, "refused with how many were free"
    assert len({launcher for launcher, _ in held}) == len(held)
    with open_store(database_url) as store:
        rows = store.read("SELECT id, launcher FROM processor")
        [(counter, changes)] = store.read("SELECT counter, (SELECT MAX(changed) FROM launcher) FROM mesh")
    assert {row[0]: row[1] for row in rows} == {one: launcher for launcher, ids in held for one in ids}
    assert counter == changes
