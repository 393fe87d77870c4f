"""Ten thousand state objects on 64 nodes: what a status query costs, beside one central table; the pause of a move."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from agents.link import trust
from agents.objects.answers import Question
from agents.objects.connection import connect
from agents.objects.holder import Holder
from db.store.url import mysql_options
from redmesh.state import StateObject, new_uuid
from tests.bench.ratios import Bar, Row, in_turn
from tests.support.daemons import Daemons
from tests.support.far_pcts import FarMachine
from tests.support.mariadb import Server

OBJECTS, NODES, QUERIES = 10_000, 64, 400
MOVED_MB, MOVES = 10, 15
#: What a central table of everything has of each job: what ``mesh job show`` tells.
TABLE = """CREATE TABLE job_status (uuid CHAR(36) PRIMARY KEY, uid INT, state VARCHAR(16), command TEXT, cwd TEXT,
 host VARCHAR(64), progress DOUBLE, counts TEXT, processors TEXT, report TEXT, changed DOUBLE) ENGINE=InnoDB"""
CHANGE = "UPDATE job_status SET progress = %s, counts = %s, changed = %s WHERE uuid = %s"
STATUS = "SELECT * FROM job_status WHERE uuid = %s"


class Traffic:
    """Statements and bytes that a server has got and sent."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._own = self._read()
        self._own = [two - one for one, two in zip(self._own, self._read(), strict=True)]  # of one look
        self._before = self._read()

    def _read(self) -> list[int]:
        names = "('Questions', 'Bytes_received', 'Bytes_sent')"
        told = self._server.admin(f"SHOW GLOBAL STATUS WHERE Variable_name IN {names}")
        found = {str(name): int(str(value)) for name, value in told}
        return [found["Questions"], found["Bytes_received"] + found["Bytes_sent"]]

    def since(self) -> tuple[int, int]:
        """Statements, and bytes both ways, since this was made."""
        now = self._read()
        statements, both = (two - one - own for one, two, own in zip(self._before, now, self._own, strict=True))
        return statements, both


@contextmanager
def served(objects: int, nodes: int) -> Iterator[tuple[Server, Daemons, list[str]]]:
    """MariaDB and a CPA that know where ``objects`` objects on ``nodes`` nodes are, and a central table beside it."""
    directory = tempfile.mkdtemp(prefix="rm-sql-", dir="/tmp")
    server = Server(directory)
    server.install()
    server.start()
    url = server.new_database()
    daemons = Daemons(processors=nodes, nodes=nodes, database=url)
    try:
        daemons.start("cpa-0")
        uuids = [new_uuid() for _ in range(objects)]
        name = str(mysql_options(url)["database"])
        connection = pymysql.connect(unix_socket=server.socket, user="root", database=name, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
            for at in range(0, objects, 1000):
                some = list(enumerate(uuids))[at : at + 1000]
                cursor.executemany(
                    "INSERT INTO state_location (uuid, url, counter, proxied, uid, standby, goes_to)"
                    " VALUES (%s,%s,0,0,%s,'','')",
                    [(uuid, f"redmesh://n{number % nodes}/{uuid}", os.geteuid()) for number, uuid in some],
                )
                cursor.executemany(
                    "INSERT INTO job_status VALUES (%s, %s, 'running', %s, '/home/a', 'login1', 0, '{}', '', '', 0)",
                    [(uuid, os.geteuid(), json.dumps(["./simulate", "--seed", str(n)])) for n, uuid in some],
                )
        yield server, daemons, uuids
    finally:
        daemons.close()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def status() -> list[Row]:
    """A status query, and a change of every job, beside one table that has everything of every job.

    The objects are files on 64 real PCTs. Those that are not asked for share their bytes.
    """
    with FarMachine(NODES) as far, served(OBJECTS, NODES) as (server, daemons, uuids):
        trust.use(far.trust("cpa"))
        _lay_out(far, uuids)
        with daemons.client() as cpa, central(server, daemons) as cursor:

            def ask(number: int) -> None:
                found = cpa.call({"op": "state_locate", "uuid": uuids[number]})
                node = str(found["url"]).removeprefix("redmesh://").partition("/")[0]
                assert Question(uuids[number]).ask(far.addresses[node]).status == 200

            def ask_table(number: int) -> None:
                cursor.execute(STATUS, (uuids[number],))
                assert len(cursor.fetchall()) == 1

            ask(0)  # reads the machine once
            ours = _traffic_of(server, lambda: [ask(number) for number in range(QUERIES)])
            theirs = _traffic_of(server, lambda: [ask_table(number) for number in range(QUERIES)])
            changed = _traffic_of(server, lambda: _change_objects(far, uuids))
            table_changed = _traffic_of(server, lambda: _change_rows(cursor, uuids))
            took, table_took = in_turn(lambda: _time(ask), lambda: _time(ask_table))
    assert table_took is not None
    table = "one table of everything"
    return [
        Row("a status query, 10,000 objects on 64 nodes (statements of the database)", table, ours[0] / QUERIES,
            theirs[0] / QUERIES, Bar(1.1, 1)),
        Row("the same (bytes of the database)", table, ours[1] / QUERIES, theirs[1] / QUERIES, Bar(1, 0.5)),
        Row("the same (ms, with the node's answer by TLS)", table, took * 1e3, table_took * 1e3, Bar(200, 50)),
        Row(f"10,000 jobs change once a second, {QUERIES} queries (statements/s)", table, ours[0] + changed[0],
            theirs[0] + table_changed[0], Bar(0.1, 0.05)),
        Row("the same (bytes/s)", table, ours[1] + changed[1], theirs[1] + table_changed[1], Bar(0.1, 0.05)),
    ]  # fmt: skip


@contextmanager
def central(server: Server, daemons: Daemons) -> Iterator[Any]:
    """A cursor for the table of everything."""
    name = str(mysql_options(daemons.url)["database"])
    connection = pymysql.connect(unix_socket=server.socket, user="root", database=name, autocommit=True)
    with connection, connection.cursor() as cursor:
        yield cursor


def _traffic_of(server: Server, work: Callable[[], object]) -> tuple[int, int]:
    traffic = Traffic(server)
    work()
    return traffic.since()


def _time(ask: Callable[[int], None], rounds: int = 40) -> float:
    began = time.perf_counter()
    for number in range(rounds):
        ask(number)
    return (time.perf_counter() - began) / rounds


def _path(far: FarMachine, number: int, uuid: str) -> str:
    node = f"n{number % NODES}"
    directory = f"{far.directory}/{node}/state/jobs/{node}"
    os.makedirs(directory, exist_ok=True)
    return f"{directory}/{uuid}.job"


def _lay_out(far: FarMachine, uuids: list[str]) -> None:
    first = ""
    for number, uuid in enumerate(uuids):
        path = _path(far, number, uuid)
        if number < QUERIES:
            _make(path, uuid)
            first = first or path
        else:
            os.link(first, path)


def _make(path: str, uuid: str) -> None:
    command = ["./simulate", "--seed", "1"]
    job = StateObject.create(path, {"uuid": uuid, "kind": "job", "uid": os.geteuid(), "command": json.dumps(command)})
    job.set_state("running")
    job.close()


def _change_objects(far: FarMachine, uuids: list[str]) -> None:
    for number in range(QUERIES):  # the others do what these do: nothing of it comes to the database
        job = StateObject(_path(far, number, uuids[number]))
        job.progress(0.5)
        job.close()


def _change_rows(cursor: Any, uuids: list[str]) -> None:
    counts = json.dumps({"done": 5000, "running": 16, "waiting": 4984})
    for uuid in uuids:
        cursor.execute(CHANGE, (0.5, counts, time.time(), uuid))


def move() -> list[Row]:
    """The pause of an object of 10 MB that moves between two nodes; beside copying, hashing and syncing its file."""
    with FarMachine(2) as far:
        trust.use(far.trust("cpa"))
        uuid = new_uuid()
        holders = [Holder(f"{far.directory}/n{number}/state/jobs/n{number}", f"n{number}") for number in range(2)]
        for holder in holders:
            os.makedirs(holder.directory)
        _make(holders[0].path(uuid), uuid)
        job = StateObject(holders[0].path(uuid))
        number = 0
        while os.stat(job.path).st_size < MOVED_MB << 20:
            job.set(f"value-{number}", os.urandom(32 << 10).hex()[: 60 << 10])
            number += 1
            job.seal()
        job.close()
        here = 0

        def ours() -> float:
            nonlocal here
            there = 1 - here
            address = far.addresses[f"n{there}"]
            with connect(far.addresses[f"n{here}"], 60.0) as client:
                told = client.call({"op": "move", "uuid": uuid, "node": f"n{there}", "address": address})
            assert told["live"]
            here = there
            return float(told["paused_s"])

        def theirs() -> float:
            path, copy = holders[here].path(uuid), f"{far.directory}/copy"
            began = time.perf_counter()
            digest = hashlib.sha256()
            with open(path, "rb") as source, open(copy, "wb") as target:
                while data := source.read(1 << 20):
                    digest.update(data)
                    target.write(data)
                target.flush()
                os.fsync(target.fileno())
            took = time.perf_counter() - began
            os.unlink(copy)
            return took

        took, copied = in_turn(ours, theirs, MOVES)
    assert copied is not None
    return [
        Row(f"the pause of a move, {MOVED_MB} MB (ms; must be less than 200)", "copy, SHA-256 and fsync of the file",
            took * 1e3, copied * 1e3, Bar(7, 4))
    ]  # fmt: skip
