"""Requests that wait for processors: from request to post-back, and what a free costs with a long line."""

import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable

from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from agents.link.client import Client
from agents.linux.processes import start_time
from db.allocation.finish import finish
from db.allocation.scheduling.line import Line
from db.allocation.waiting_requests import Wait, put
from db.store.store import Store, open_store
from tests.bench.allocating import by_hand
from tests.bench.ratios import RUNS, Bar, Row
from tests.support.allocations import LOGIN
from tests.support.daemons import Daemons
from tests.support.mariadb import find_server, private_server

SIZE, TIMES = 64, 100
LONG, FREES, TURNS = 10_000, 50, 3


def requests() -> list[Row]:
    """Both rows, over MariaDB."""
    if find_server() is None:
        print("no MariaDB here: requests are not measured", file=sys.stderr)
        return []
    with private_server(small=False) as server:
        url = server.new_database()
        one = Daemons(1024, 64, url)
        try:
            one.start("cpa-0")
            one.nodes_up()
            ours, theirs = [], []
            for _ in range(RUNS):
                ours.append(_ninety_ninth(_posted_back(str(one.run / "cpa-0.sock"), LOGIN)))
                theirs.append(_ninety_ninth(by_hand(url, LOGIN)[0]))
            with open_store(url) as store:
                short, long = _frees(store, LOGIN)
        finally:
            one.close()
    what = "request → post-back of 64 of 1,024, MariaDB, p99 (ms)"
    posted = Row(what, "the allocation transaction", *map(statistics.median, (ours, theirs)), Bar(2.0, 1.3))
    freed = Row(f"one free, {LONG:,} requests waiting (ms)", "the same with one", long, short, Bar(1.5, 1.1))
    return [posted, freed]


def _ninety_ninth(once: Callable[[], float]) -> float:
    return sorted(once() for _ in range(TIMES))[TIMES * 99 // 100] * 1000


def _posted_back(path: str, login: str) -> Callable[[], float]:
    """Seconds from a request to its post-back."""
    client = Client(path, "launcher", 30.0)
    pid = os.getpid()
    who = {"login": login, "pid": pid, "pid_started": start_time(pid) or 0, "command": "bench"}

    def once() -> float:
        uuid = secrets.token_hex(16)
        began = time.perf_counter()
        client.tell({"op": "request", "id": 1, "uuid": uuid, "count": SIZE, **who})
        while True:
            message = client.receive()
            if message.get("placed"):
                break
        took = time.perf_counter() - began
        client.call({"op": "posted", "uuid": uuid, "sequence": message["sequence"]})
        granted = message["placed"][0]
        client.call({"op": "free", "launcher": granted["launcher"], "cookie": granted["cookie"]})
        return took

    return once


def _frees(store: Store, login: str) -> tuple[float, float]:
    """Milliseconds that freeing the machine takes, which serves the head of a line of one, and of 10,000; in turn."""
    operations = Operations(store, Rights(os.geteuid(), frozenset(), frozenset()), login=login)
    line = Line(operations.machine, operations.understand)
    store.serving = line
    short: list[float] = []
    long: list[float] = []
    _fill(store, login, 2)
    for _ in range(TURNS):
        short.append(_cost(store, line, login))
        _fill(store, login, LONG)
        long.append(_cost(store, line, login))
        store.serving = None
        store.run(lambda t: t.change("DELETE FROM waiting ORDER BY id DESC LIMIT ?", (LONG,)))
        store.serving = line
    return statistics.median(short), statistics.median(long)


def _fill(store: Store, login: str, count: int) -> None:
    pid = os.getpid()
    for _ in range(count // 100 or 1):
        waits = [
            Wait(
                secrets.token_hex(16), None, os.geteuid(), "bench", login, pid, start_time(pid) or 0, 1024,
                {"size": 1024, "login": login, "pid": pid, "pid_started": 1, "command": "bench"}, 86400.0,
            )
            for _ in range(min(count, 100))
        ]  # fmt: skip
        store.run(lambda t, waits=waits: [put(t, one) for one in waits])  # type: ignore[misc]


def _cost(store: Store, line: Line, login: str) -> float:
    took = []
    for _ in range(FREES):
        held = line.taken()[0][-1].allocation
        _fill(store, login, 1)
        assert held is not None
        began = time.perf_counter()
        finish(store, held.launcher, held.cookie, 0)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000
