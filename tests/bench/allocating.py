"""Allocate and release through CPAs' sockets beside the same transactions by hand, on MariaDB."""

import multiprocessing
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from agents.cpa.placement.first_and_best_fit import best_fit
from agents.link.client import Client
from agents.linux.processes import start_time
from db.allocation.allocate import allocate
from db.allocation.finish import finish
from db.allocation.free import Machine
from db.allocation.types import Demand
from db.store.store import open_store
from tests.bench.meshes import mesh
from tests.bench.ratios import RUNS, Bar, Row
from tests.support.mariadb import find_server, private_server

SIZE, WORKERS, SECONDS = 64, 4, 2.0


def through_cpa(path: str, login: str) -> Callable[[], None]:
    """A pair of allocate and finish through the CPA at ``path``."""
    client = Client(path, "launcher")
    pid = os.getpid()
    started = start_time(pid)

    def once() -> None:
        request = {"op": "allocate", "key": secrets.token_hex(16), "size": SIZE, "login": login, "command": "bench"}
        got = client.call(dict(request, pid=pid, pid_started=started))
        client.call({"op": "finish", "launcher": got["launcher"], "cookie": got["cookie"], "exit_status": 0})

    return once


def by_hand(url: str, login: str) -> tuple[Callable[[], float], Callable[[], None]]:
    """An allocate by hand (the seconds it took; its release is not counted), and the pair of both."""
    store, machine = open_store(url), Machine()
    pid = os.getpid()
    started = start_time(pid) or 0

    def once() -> float:
        demand = Demand(secrets.token_hex(16), os.geteuid(), "bench", login, pid, started, "bench", SIZE)
        began = time.perf_counter()
        got = allocate(store, machine, demand, lambda free, count: best_fit(free, count, None))
        took = time.perf_counter() - began
        finish(store, got.launcher, got.cookie, 0, machine=machine)
        return took

    def pair() -> None:
        once()

    return once, pair


def _work(make: Callable[[], Callable[[], None]], gate: Any, done: Any) -> None:
    once = make()
    once()
    gate.wait()
    took: list[float] = []
    now = time.perf_counter()
    end = now + SECONDS
    while now < end:
        once()
        began, now = now, time.perf_counter()
        took.append(now - began)
    done.put(took)


def rate(makes: list[Callable[[], Callable[[], None]]]) -> tuple[float, float]:
    """Pairs of allocate and release a second by as many processes at once; the 99th percentile of one (s)."""
    context = multiprocessing.get_context("fork")
    gate, done = context.Barrier(len(makes)), context.Queue()
    workers = [context.Process(target=_work, args=(make, gate, done)) for make in makes]
    for worker in workers:
        worker.start()
    took = sorted(one for _ in workers for one in done.get(timeout=60))
    for worker in workers:
        worker.join()
    return len(took) / SECONDS, took[len(took) * 99 // 100]


def allocation() -> list[Row]:
    """64 of 1,024 processors, 4 clients, 2 CPAs, MariaDB."""
    if find_server() is None:
        print("no MariaDB here: the allocation rate is not measured", file=sys.stderr)
        return []
    with private_server(small=False) as server:
        url = server.new_database()
        with mesh(1024, 64, cpas=2, database=url) as one:
            login = os.uname().nodename
            sockets = [str(one.run_dir / f"cpa-{number % 2}.sock") for number in range(WORKERS)]
            ours, theirs = [], []
            for _ in range(RUNS):
                ours.append(rate([lambda path=path: through_cpa(path, login) for path in sockets])[0])  # type: ignore[misc]
                theirs.append(rate([lambda: by_hand(url, login)[1]] * WORKERS)[0])
    mine, other = statistics.median(ours), statistics.median(theirs)
    what = "allocate + release 64 of 1,024 through 2 CPAs, MariaDB, 4 clients (a second)"
    return [Row(what, "the same transactions by hand", mine, other, Bar(0.6, 0.85, at_least=True))]
