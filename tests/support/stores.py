"""System databases for tests, on SQLite and on a real MariaDB server."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from db.allocation import allocate, finish
from db.allocation.free import Machine
from db.allocation.types import Allocation, Demand
from db.machine.nodes import NodeSpec, define_machine, node_up
from db.schema.migrate import migrate
from db.schema.models import TABLES
from db.schema.version import SCHEMA_VERSION
from db.store.store import Store, Transaction, open_store
from db.store.url import sqlite_path
from tests.support.mariadb import Server, find_server, private_server
from tests.support.outcomes import beside_a_process

LOGIN = "login1"
NO_SERVER = "MariaDB is not installed (Debian: mariadb-server)"


def key() -> str:
    return secrets.token_hex(16)


def first(free: Sequence[int], count: int) -> list[int]:
    """The simplest placement: the first ``count`` free processors."""
    return list(free[:count])


def demand(size: int, **more: Any) -> Demand:
    given = {
        "request_key": key(),
        "uid": 1000,
        "user": "ada",
        "login": LOGIN,
        "pid": 4711,
        "pid_started": 99,
        "command": "hostname",
    }
    return Demand(**{**given, "size": size, **more})


def define(store: Store, nodes: int = 4, slots: int = 4, boot_id: str = "b1", up: bool = True) -> None:
    """Define a machine of ``nodes`` nodes n0… with ``slots`` processors each; with ``up``, all nodes are up."""
    specs = [NodeSpec(number + 1, f"n{number}", range(number * slots, (number + 1) * slots)) for number in range(nodes)]
    define_machine(store, "test", boot_id, LOGIN, specs)
    for spec in specs if up else ():
        node_up(store, spec.name, boot_id, 1, f"/run/x/{spec.name}.sock", "0.1.0")


def take(store: Store, machine: Machine, size: int, **more: Any) -> Allocation:
    return allocate.allocate(store, machine, demand(size, **more), first)


def give_back(store: Store, taken: Allocation, status: int = 0, **more: Any) -> finish.Ended:
    return finish.finish(store, taken.launcher, taken.cookie, status, **more)


def empty(store: Store) -> None:
    """Delete all rows, as right after the installation of the schema."""
    store.connect()
    for table in list(TABLES)[1:]:
        store.execute(f"DELETE FROM `{table}`")
    store.execute(
        "UPDATE mesh SET boot_id = '', name = '', topology = NULL, counter = 0, trimmed_to = 0,"
        " next_partition = 1, next_launcher = 1, schema_version = ?",
        (SCHEMA_VERSION,),
    )


def insert(t: Transaction, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert arbitrary rows with the current change stamp, without the product's own statements."""
    names = ", ".join(f"`{name}`" for name in (*columns, "changed"))
    marks = ", ".join("?" * (len(columns) + 1))
    for row in rows:
        t.write(f"INSERT INTO `{table}` ({names}) VALUES ({marks})", (*row, t.stamp))


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        migrate(f"sqlite://{folder}/mesh.db")
        return Path(folder, "mesh.db").read_bytes()


def make_database(url: str) -> None:
    """Like ``migrate``; a SQLite file is a copy of one that each test process makes once: a migration takes 50 ms."""
    path = sqlite_path(url)
    if path is None:
        migrate(url)
        return
    Path(path).touch(mode=0o600)
    Path(path).write_bytes(_empty_file())


def migrated(folder: Path) -> str:
    """Make a SQLite database with the schema in ``folder``; return its URL."""
    url = f"sqlite://{folder}/mesh.db"
    make_database(url)
    return url


@pytest.fixture(scope="session")
def sql_server() -> Iterator[Server]:
    """A private MariaDB server for the whole test run; skips tests that need it if MariaDB is not installed."""
    if find_server() is None:
        pytest.skip(NO_SERVER)
    with private_server() as server:
        yield server


@pytest.fixture
def server(sql_server: Server) -> Iterator[Server]:
    """The server of the tests, to be stopped and killed; it runs again afterwards."""
    yield sql_server
    sql_server.revive()


@pytest.fixture(scope="session")
def sql_database(sql_server: Server) -> str:
    url = sql_server.new_database()
    migrate(url)
    return url


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database with the schema; the test runs once on SQLite and once on MariaDB."""
    if request.param == "sqlite":
        return migrated(tmp_path)
    beside_a_process(request.node)
    url = request.getfixturevalue("sql_database")
    with open_store(url) as store:
        empty(store)
    return str(url)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with open_store(database_url) as opened:
        yield opened


@pytest.fixture
def machine(store: Store) -> Machine:
    """Four nodes of four processors, all up and free."""
    define(store)
    return Machine()
