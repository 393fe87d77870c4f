"""The system database away: refused in time with the cause, and all works again by itself when it is back."""

import os
import resource
import signal
import subprocess
import threading
from typing import Any

import pytest

from agents.wire.errors import AgentError
from db.allocation import finish as ending
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.types import Demand
from tests.support.allocations import allocation, finish
from tests.support.daemons import Daemons, Make
from tests.support.mariadb import Server
from tests.support.stores import server
from tests.support.waiting import PATIENCE_S, wait_until

__all__ = ["server"]


@pytest.fixture
def two(server: Server, make_daemons: Make) -> Daemons:
    return make_daemons(8, 2, database=server.new_database()).begin(cpas=2)


class Ask:
    """Asks in a thread: what came back."""

    def __init__(self, daemons: Daemons, message: dict[str, Any], cpa: str = "cpa-0") -> None:
        self.client = daemons.client(cpa)
        self.message = message
        self.answer: Any = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.answer = self.client.call(self.message)
        except AgentError as error:
            self.answer = error
        self.client.close()

    def code(self) -> str:
        self.thread.join(PATIENCE_S)
        return self.answer.code if isinstance(self.answer, AgentError) else "granted"


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_everybody_is_refused_and_served_when_it_is_back(two: Daemons, server: Server, how: str) -> None:
    with two.client() as client:
        held = client.call(allocation(2))
    if how == "killed":
        server.kill()
    else:
        server.signal(signal.SIGSTOP)
    asks = [Ask(two, allocation(1)) for _ in range(12)]
    asks += [Ask(two, finish(held)), Ask(two, {"op": "launchers_of", "login": "login1"})]
    assert [ask.code() for ask in asks] == ["database"] * len(asks)
    assert all("does not answer" in ask.answer.message and ask.answer.hint for ask in asks)
    late = [Ask(two, allocation(1)) for _ in range(3)]  # into whatever the CPA remembers or tries just now
    assert [ask.code() for ask in late] == ["database"] * 3

    if how == "killed":
        server.start()
    else:
        server.signal(signal.SIGCONT)

    def served() -> bool:
        return Ask(two, finish(held)).code() == "granted"

    wait_until(served, "it is served again")
    with two.client("cpa-1") as other:  # the one that had nothing to do meanwhile; it looks again after a moment
        idle = {"op": "launchers_of", "login": "login1"}
        wait_until(lambda: Ask(two, idle, "cpa-1").code() == "granted", "it is served too")
        wait_until(lambda: not two.owners(), "nothing that was refused has got processors")
        other.call(finish(other.call(allocation(8))))


def test_a_request_that_was_lost_with_the_database_is_repeated_under_its_key(two: Daemons, server: Server) -> None:
    request = allocation(3)
    with two.client() as client:
        first = client.call(request)
    server.kill()
    assert Ask(two, request).code() == "database"
    server.start()
    answers = []

    def repeated() -> bool:
        ask = Ask(two, request)
        code = ask.code()
        answers.append(ask.answer)
        return code == "granted"

    wait_until(repeated, "the request is granted again")
    assert answers[-1]["launcher"] == first["launcher"] and answers[-1]["nodes"] == first["nodes"]
    assert len(two.owners()) == 3


def test_who_waits_goes_on_waiting_through_an_outage(two: Daemons, server: Server) -> None:
    with two.client() as client:
        holder = client.call(allocation(8))
    waits = Ask(two, allocation(8, wait_s=14.0))
    wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "it is in the line")
    server.kill()
    assert Ask(two, {"op": "idle"}).code() == "database"
    server.start()
    wait_until(lambda: Ask(two, finish(holder)).code() == "granted", "the holder could finish")
    assert waits.code() == "granted" and len(two.owners()) == 8


def test_who_was_granted_by_a_transaction_whose_end_was_lost_is_told(two: Daemons, server: Server) -> None:
    with two.client() as client:
        holder = client.call(allocation(8))
    first, second = allocation(8, wait_s=60.0), allocation(8, wait_s=60.0)
    waits = [Ask(two, first), Ask(two, second)]
    wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(2,)], "they are in line")
    (head,) = two.rows("SELECT request_key FROM waiting ORDER BY id LIMIT 1")[0]
    for cpa in ("cpa-0", "cpa-1"):
        two.kill(cpa, signal.SIGSTOP)
    # what a CPA did whose connection was lost with the answer to its COMMIT
    ending.finish(two.store, holder["launcher"], holder["cookie"], 0)
    me = Demand(head, os.getuid(), "ada", "login1", os.getpid(), first["pid_started"], "x", 8)
    granted = allocate(two.store, Machine(), me, lambda free, count: free[:count])
    server.kill()
    server.start()
    for cpa in ("cpa-0", "cpa-1"):
        two.kill(cpa, signal.SIGCONT)
    mine = waits[[first["key"], second["key"]].index(head)]
    wait_until(lambda: mine.answer is not None, "its CPA looks and finds it")
    assert mine.code() == "granted" and mine.answer["launcher"] == granted.launcher
    assert Ask(two, finish(mine.answer)).code() == "granted"
    waits.remove(mine)
    assert waits[0].code() == "granted"


def test_a_cpa_starts_while_the_database_is_away(server: Server, make_daemons: Make) -> None:
    made = make_daemons(8, 2, database=server.new_database())
    made.store.close()
    server.kill()
    made.start("cpa-0")
    assert Ask(made, allocation(1)).code() == "database"
    server.start()
    wait_until(lambda: Ask(made, {"op": "idle"}).code() == "granted", "it works")
    made.nodes_up()
    assert Ask(made, allocation(1)).code() == "granted"


def test_a_database_newer_than_the_code_is_refused_with_a_clear_error(make_daemons: Make) -> None:
    made = make_daemons(8, 2)
    made.store.execute("UPDATE mesh SET schema_version = 999")
    made.start("cpa-0")
    ask = Ask(made, allocation(1))
    assert ask.code() == "database" and "999" in ask.answer.message and "newer" in ask.answer.message


def test_the_end_of_one_that_waits_ends_no_cpa_whose_database_file_is_away(make_daemons: Make) -> None:
    made = make_daemons(8, 2)
    cpa = made.start("cpa-0")
    made.nodes_up()
    with made.client() as client:
        client.call(allocation(8))
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            waits = Ask(made, allocation(8, pid=process.pid, wait_s=12.0))
            wait_until(lambda: made.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "it is in the line")
            (made.state / "mesh.db").rename(made.state / "away.db")
            resource.prlimit(cpa.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # as if the disk were full
            assert Ask(made, allocation(1, wait_s=5.0)).code() == "database", "its connection is gone"
            resource.prlimit(cpa.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        finally:
            process.kill()
    wait_until(lambda: any(line["event"] == "database_away" for line in made.log("cpa-0")), "the CPA has seen both")
    (made.state / "away.db").rename(made.state / "mesh.db")
    wait_until(lambda: made.rows("SELECT COUNT(*) FROM waiting") == [(0,)], "it is out of the line")
    assert cpa.poll() is None and waits.code() != "granted"
