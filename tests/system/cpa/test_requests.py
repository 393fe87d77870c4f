"""Requests: acknowledged at once, posted back when processors are there; connection and CPA may go meanwhile."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from agents.link.client import Client
from agents.linux.processes import start_time
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import finish as ending
from db.allocation.scheduling.line import Line
from tests.support.allocations import allocation, finish
from tests.support.daemons import Daemons, Make, on_both_databases
from tests.support.waiting import wait_until


@pytest.fixture
def two(daemons: Make) -> Daemons:
    """Two CPAs, 16 processors on 4 nodes."""
    made = daemons(16, 4)
    made.start("cpa-0")
    made.start("cpa-1")
    made.nodes_up()
    return made


@pytest.fixture
def client(two: Daemons) -> Iterator[Client]:
    with two.client("cpa-1") as made:
        yield made


def request(count: int, uuid: str = "", **more: Any) -> Message:
    pid = os.getpid()
    whose = {"login": "login1", "pid": pid, "pid_started": start_time(pid), "command": "a job"}
    return {"op": "request", "uuid": uuid or os.urandom(16).hex(), "count": count, **whose, **more}


class Requester:
    """A connection on which requests are made, and what was posted back on it."""

    def __init__(self, daemons: Daemons, cpa: str) -> None:
        self.client = daemons.client(cpa)

    def ask(self, message: Message) -> Message:
        return self.client.call(message)

    def posted(self) -> Message:
        """The next post-back, confirmed."""
        message = self.unconfirmed()
        if message["placed"]:
            self.client.tell({"op": "posted", "uuid": message["post_back"], "sequence": message["sequence"]})
        return message

    def unconfirmed(self) -> Message:
        while True:
            message = self.client.receive()
            if "post_back" in message:
                return message


def free(client: Client, posted: Message) -> None:
    for grant in posted["placed"]:
        client.call({"op": "free", "launcher": grant["launcher"], "cookie": grant["cookie"]})


def count(posted: Message) -> int:
    return sum(len(node["processors"]) for grant in posted["placed"] for node in grant["nodes"])


def waiting(daemons: Daemons) -> int:
    return int(daemons.rows("SELECT COUNT(*) FROM waiting")[0][0])


@on_both_databases
def test_a_request_is_acknowledged_at_once_and_posted_back_as_processors_come(two: Daemons, client: Client) -> None:
    holder, other = client.call(allocation(10)), client.call(allocation(6))
    mine = Requester(two, "cpa-0")
    parts, whole = request(12, partial=True), request(8)
    assert mine.ask(parts) == {"re": 1, "acknowledged": True, "free": 0, "before": 0}
    assert mine.ask(whole)["before"] == 1
    client.call(finish(other))
    first = mine.posted()
    assert (first["post_back"], first["sequence"], first["missing"], count(first)) == (parts["uuid"], 1, 6, 6)
    client.call(finish(holder))  # 10 more: six for the head, and the second has to wait for all of its eight
    second = mine.posted()
    assert (second["post_back"], second["sequence"], second["missing"], count(second)) == (parts["uuid"], 2, 0, 6)
    free(client, first)
    third = mine.posted()
    assert (third["post_back"], third["missing"], count(third)) == (whole["uuid"], 0, 8)
    for each in (second, third):
        free(client, each)
    assert waiting(two) == 0 and two.owners() == {}
    wait_until(lambda: two.rows("SELECT COUNT(*) FROM post_back") == [(0,)], "the last confirmation is recorded")


def test_a_grant_that_is_announced_late_is_not_posted_twice(two: Daemons, client: Client) -> None:
    holder, _other = client.call(allocation(6)), client.call(allocation(4))
    mine = Requester(two, "cpa-0")
    mine.ask(request(12, partial=True))
    first = mine.unconfirmed()
    # cpa-0 finds a grant of cpa-1 in the database, and gives it a new cookie, before it has cpa-1's announcement
    announcement = {"op": "granted", "uid": os.getuid(), "post_back": first}
    with two.client("cpa-0") as announcing:
        announcing.call(announcement)
        client.call({"op": "posted", "uuid": first["post_back"], "sequence": 1})
        announcing.call(announcement)
    client.call(finish(holder))
    assert (mine.posted()["sequence"], first["sequence"]) == (2, 1)


@on_both_databases
def test_a_request_outlives_its_connection_and_its_cpa(two: Daemons, client: Client) -> None:
    holder = client.call(allocation(16))
    first, asked = Requester(two, "cpa-0"), request(16)
    first.ask(asked)
    two.kill("cpa-0")
    client.call(finish(holder))  # granted by cpa-1, and nobody is there to be told
    assert waiting(two) == 0
    again = Requester(two, "cpa-1")
    again.ask(asked)
    lost = again.unconfirmed()
    again.client.close()
    third = Requester(two, "cpa-1")
    third.ask(asked)
    posted = third.posted()
    assert (posted["sequence"], posted["missing"], count(posted)) == (lost["sequence"], 0, 16)
    old, new = lost["placed"][0], posted["placed"][0]
    assert old["launcher"] == new["launcher"] and old["cookie"] != new["cookie"]
    free(client, posted)
    assert two.owners() == {} and two.rows("SELECT COUNT(*) FROM launcher") == [(2,)]


@on_both_databases
def test_what_a_killed_cpa_granted_and_did_not_tell_is_found(two: Daemons, client: Client) -> None:
    holder = client.call(allocation(16))
    mine = Requester(two, "cpa-1")
    mine.ask(request(8))
    client.tell(dict(allocation(8, wait_s=60.0), id=99))
    wait_until(lambda: waiting(two) == 2, "both wait at cpa-1")
    two.kill("cpa-0")
    operations = Operations(two.store, Rights(os.getuid(), frozenset(), frozenset()), login="login1")
    two.store.serving = Line(operations.machine, operations.understand)
    ending.finish(two.store, holder["launcher"], holder["cookie"], 0)  # as cpa-0 did, and was killed then
    assert waiting(two) == 0
    two.start("cpa-0")  # by the keeper
    assert count(mine.posted()) == 8
    reply = client.receive()
    assert reply["re"] == 99 and sum(len(node["processors"]) for node in reply["nodes"]) == 8


@on_both_databases
def test_cancelled_wrong_and_late_requests(two: Daemons, client: Client) -> None:
    holder = client.call(allocation(16))
    mine = Requester(two, "cpa-0")
    cancelled, behind = request(16), request(4, partial=True)
    mine.ask(cancelled)
    mine.ask(behind)
    late = request(2, wait_s=1.0)
    mine.ask(late)
    ended = mine.posted()
    assert (ended["post_back"], ended["placed"], ended["error"]["code"]) == (late["uuid"], [], "expired")
    assert client.call({"op": "cancel", "uuid": cancelled["uuid"]})["missing"] == 16, "at another CPA than it waits at"
    client.call(finish(holder))
    posted = mine.unconfirmed()
    assert posted["post_back"] == behind["uuid"] and count(posted) == 4
    gone = client.call({"op": "cancel", "uuid": behind["uuid"]})
    assert (gone["missing"], gone["ended"]) == (0, [posted["placed"][0]["launcher"]]), "nobody had confirmed it"
    assert two.owners() == {} and waiting(two) == 0
    for wrong, code in (
        (request(17), "unavailable"),
        (request(0), "invalid"),
        (request(1, uuid="x"), "invalid"),
        (request(2, post_back="http://127.0.0.1/"), "invalid"),
        (request(2, partial=True, nodes=2), "invalid"),
        (request(2, time_s=-1), "invalid"),
        (request(2, partition=99, cookie="x"), "expired"),
    ):
        with pytest.raises(AgentError) as error:
            mine.ask(wrong)
        assert error.value.code == code, wrong
    assert waiting(two) == 0


@on_both_databases
def test_a_node_that_joins_serves_the_line_in_the_same_transaction(two: Daemons, client: Client) -> None:
    life = {"node": "n3", "boot_id": "b00710", "incarnation": 1}
    up = {**life, "incarnation": 2, "address": two.nodes[3].address, "processors": 4}
    leave_and_join: list[tuple[Message, Message]] = [
        ({"op": "node_down", **life, "reason": "a test"}, {"op": "node_up", **up}),
        ({"op": "drain", "nodes": ["n3"]}, {"op": "resume", "nodes": ["n3"]}),
    ]
    client.call(allocation(12))
    for leave, join in leave_and_join:
        client.call(leave)
        mine = Requester(two, "cpa-0")
        mine.ask(request(4))
        client.call(join)
        posted = mine.posted()
        granted = posted["placed"][0]
        assert [node["name"] for node in granted["nodes"]] == ["n3"], join
        (joined,) = two.rows("SELECT changed FROM node WHERE name = 'n3'")
        # Not the launcher's instant: a CPA that finds the grant before it is told of it gives it a new cookie.
        taken = two.rows(f"SELECT DISTINCT changed FROM processor WHERE launcher = {granted['launcher']}")
        assert taken == [joined], join
        free(client, posted)


def test_a_node_that_leaves_keeps_what_runs_and_gets_nothing_more(two: Daemons, client: Client) -> None:
    runs = client.call(allocation(4, wanted={"processors": [], "nodes": ["n3"]}))
    holder = client.call(allocation(12))
    mine = Requester(two, "cpa-0")
    mine.ask(request(4))
    client.call({"op": "drain", "nodes": ["n3"]})
    assert sorted(one for one, launcher in two.owners().items() if launcher == runs["launcher"]) == [12, 13, 14, 15]
    assert two.rows("SELECT state FROM node WHERE name = 'n3'") == [("draining",)]
    client.call(finish(runs))
    wait_until(lambda: two.rows("SELECT state FROM node WHERE name = 'n3'") == [("drained",)], "it is empty")
    assert waiting(two) == 1, "its processors are no longer given"
    client.call(finish(holder))
    assert "n3" not in [node["name"] for node in mine.posted()["placed"][0]["nodes"]]


def test_a_short_request_passes_where_it_delays_nobody(two: Daemons, client: Client) -> None:
    client.call(allocation(12, time_s=1000.0))
    mine = Requester(two, "cpa-0")
    mine.ask(request(16, time_s=100.0))
    mine.ask(request(3, time_s=5000.0))
    mine.ask(request(2))
    short = request(3, time_s=500.0)
    mine.ask(short)
    posted = mine.posted()
    assert posted["post_back"] == short["uuid"] and count(posted) == 3
    wait_until(lambda: waiting(two) == 3, "the others wait")
