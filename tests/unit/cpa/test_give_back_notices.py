"""Jobs are asked again for processors when a time has passed that the answer depended on."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from agents.cpa.line.give_back_notices import GivingBack
from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.wire.control import Message
from db.allocation import waiting_requests
from db.allocation.free import Machine
from db.allocation.scheduling.giving_back import Answer
from db.allocation.scheduling.kept import LEAST_S
from db.allocation.waiting_requests import Wait
from db.store.store import Store
from tests.support.stores import LOGIN, give_back, key, take
from tests.support.waiting import PATIENCE_S

ADA, BOB = 1000, 1001


def guard(work: Callable[[], Answer]) -> Answer:
    return work()


def asked(path: Path) -> list[Message]:
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["event"] == "gives_back"]


def test_what_a_job_keeps_for_a_while_is_asked_for_afterwards(store: Store, machine: Machine, tmp_path: Path) -> None:
    command = "yodwork job aaaaaaaa sleep"
    give_back(store, take(store, machine, 16, uid=ADA, command=command, gives_back=True))
    store.run(lambda t: t.write("UPDATE launcher SET created_at = created_at - 9, ended_at = ended_at - ?", (LEAST_S,)))
    take(store, machine, 16, uid=ADA, command=command, gives_back=True)
    store.run(lambda t: t.write("UPDATE launcher SET created_at = created_at - ? WHERE ended_at IS NULL", (1.5,)))

    operations = Operations(store, Rights(0, frozenset(), frozenset()), login=LOGIN)
    log, loop = tmp_path / "log", Loop()
    giving = GivingBack(loop, operations, guard, Journal(str(log), "cpa"))
    requests: list[Message] = []
    for size in (16, 15):
        message = {"size": size, "login": LOGIN, "pid": 1, "pid_started": 1, "command": "x", "key": key()}
        waiting_requests.enqueue(store, Wait(message["key"], None, BOB, "bob", LOGIN, 1, 1, size, message, 60.0))
        requests.append(message)
        giving.make_room(BOB, message)
        giving.make_room(BOB, message)
    assert asked(log) == []
    waiting_requests.drop(store, requests[1]["key"])
    stop = loop.after(PATIENCE_S, lambda: None)
    while not asked(log) and stop.due > time.monotonic():
        loop.run_once(1.0)
    assert [(one["job"], one["keep"]) for one in asked(log)] == [("aaaaaaaa", 0)], "for the one that still waits"
