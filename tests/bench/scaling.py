"""Ten thousand processors: viewers, allocation and a launch on the simulated Red Storm."""

import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from db.allocation.allocate import allocate
from db.allocation.finish import finish
from db.allocation.free import Machine
from db.allocation.types import Allocation, Demand
from db.schema.accounts import Account
from db.schema.grants import grants, run_grants
from db.store.store import Store, open_store
from db.store.url import WHOLE as WHOLE_SCHEMA
from db.store.url import mysql_options
from db.views.viewer import Picture, Viewer, open_viewer
from tests.bench.allocating import WORKERS, rate, through_cpa
from tests.bench.meshes import ROOT
from tests.bench.ratios import RUNS, Bar, Row, in_turn, seconds
from tests.support.mariadb import Server, find_server, private_server
from tests.support.mesh import BIN, PrivateMesh

RED_STORM = ROOT / "examples" / "red_storm.toml"
WHOLE, SOME, ONE_PERCENT = 10368, 64, 104


@contextlib.contextmanager
def simulated(cpas: int = 1, database: str = "") -> Iterator[PrivateMesh]:
    """The simulated Red Storm, up, and down again afterwards."""
    made = PrivateMesh(1, 1, cpas, database)
    try:
        made.run("mesh", "up", "--cpas", str(cpas), "--simulate", str(RED_STORM), check=True, timeout_s=120)
        yield made
    finally:
        for what in made.close():
            print(f"left behind: {what}", file=sys.stderr)


class ByHand:
    """Allocations straight from the database, as a CPA makes them."""

    def __init__(self, url: str) -> None:
        self.store: Store = open_store(url)
        self.machine = Machine()

    def allocate(self, size: int) -> Allocation:
        """The first so many free processors."""
        demand = Demand(secrets.token_hex(16), os.geteuid(), "bench", os.uname().nodename, os.getpid(), 1, "b", size)
        return allocate(self.store, self.machine, demand, lambda free, count: free[:count])

    def finish(self, got: Allocation) -> None:
        """Give them back."""
        finish(self.store, got.launcher, got.cookie, 0, machine=self.machine)


def _median_ms(once: Callable[[], float], runs: int = 15) -> float:
    once()
    return 1000 * statistics.median(once() for _ in range(runs))


def _refreshes(hand: ByHand, url: str, other: str = "") -> tuple[float, float | None]:
    """Milliseconds of a viewer's refresh at 1 % change; of one by another URL of the same database, in turn."""

    def refresh(viewer: Viewer) -> Callable[[], float]:
        picture = Picture()
        picture.update(viewer)

        def once() -> float:
            got = hand.allocate(ONE_PERCENT)
            began = time.perf_counter()
            picture.update(viewer)
            took = time.perf_counter() - began
            hand.finish(got)
            picture.update(viewer)
            return 1000 * took

        return once

    with open_viewer(url) as viewer, open_viewer(other or url) as another:
        return in_turn(refresh(viewer), refresh(another) if other else None, 41)


def _whole(hand: ByHand) -> float:
    def once() -> float:
        began = time.perf_counter()
        got = hand.allocate(WHOLE)
        took = time.perf_counter() - began
        hand.finish(got)
        return took

    return _median_ms(once, 7)


def viewing() -> list[Row]:
    """Viewers and the largest allocation, on both databases."""
    rows = []
    with simulated() as one:
        json = [str(BIN / "showmesh"), "--json"]
        took = _median_ms(lambda: seconds(json, one.env), RUNS)
        rows.append(Row("showmesh --json of 11,136 processors, whole process (ms)", "1 ms", took, 1.0, Bar(300, 180)))
        rows += _of_database(one, "SQLite", Bar(40, 30))
    if find_server() is not None:
        with private_server(small=False) as server, simulated(database=server.new_database()) as one:
            rows += _of_database(one, "MariaDB", Bar(250, 200))
            name = str(mysql_options(one.database)["database"])
            run_grants(
                one.database, grants(name, Account("cpa", "localhost", "c"), Account("viewer", "localhost", "v"))
            )
            its = server.url(f"{name}{WHOLE_SCHEMA}", "viewer", "v")
            ours, tables = _refreshes(ByHand(one.database), its, one.database)
            rows.append(Row("the same with a viewer's own account (ms)", "the tables", ours, tables, Bar(1.1, 1.0)))
    return rows


def _of_database(one: PrivateMesh, name: str, whole: Bar) -> list[Row]:
    hand = ByHand(one.database)
    refresh, _ = _refreshes(hand, one.database)
    return [
        Row(f"a viewer's refresh, 1 % changed, {name} (ms)", "1 ms", refresh, 1.0, Bar(2, 0.7)),
        Row(f"10,368 processors in one allocation, {name} (ms)", "1 ms", _whole(hand), 1.0, whole),
    ]


def whole_machine() -> list[Row]:
    """``yod -sz 10368`` on nodes that start nothing."""
    with simulated() as one:
        for _ in range(2):
            one.run("yod", "-sz", "1", "true", check=True)
        took = statistics.median(seconds([str(BIN / "yod"), "-sz", str(WHOLE), "true"], one.env) for _ in range(3))
        memory = _peak_mib([str(BIN / "yod"), "-sz", str(WHOLE), "true"], one.env)
    return [
        Row("yod -sz 10368 on the simulated machine (s)", "1 s", took, 1.0, Bar(8, 3)),
        Row("its yod's memory, largest (MiB)", "1 MiB", memory, 1.0, Bar(150, 60)),
    ]


def _peak_mib(command: list[str], env: dict[str, str]) -> float:
    # a process between, whose only child it is
    code = "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True);"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *command], env=env, check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024


def _connect(socket: str, database: str) -> Any:
    import pymysql

    return pymysql.connect(unix_socket=socket, user="root", database=database)


class Bare:
    """The least an allocation can be: the pool's row locked, what changed read, 64 rows taken, and back again."""

    def __init__(self, socket: str, database: str) -> None:
        self._db: Any = _connect(socket, database)
        self._free: set[int] = set()
        self._version = -1

    @staticmethod
    def make(server: Server) -> str:
        """A database with the table; its name."""
        url = server.new_database()
        name = url.partition("?")[0].rpartition("/")[2]
        db = _connect(server.socket, name)
        with db.cursor() as cursor:
            cursor.execute("CREATE TABLE pool (id INT PRIMARY KEY, version BIGINT NOT NULL) ENGINE=InnoDB")
            cursor.execute("CREATE TABLE p (id INT PRIMARY KEY, owner BIGINT, version BIGINT NOT NULL, KEY (version))")
            cursor.execute("INSERT INTO pool VALUES (1, 0)")
            cursor.executemany("INSERT INTO p VALUES (%s, NULL, 0)", [(one,) for one in range(WHOLE)])
        db.commit()
        db.close()
        return name

    def __call__(self) -> None:
        """One allocation and its end."""
        taken = self._transaction(None)
        self._transaction(taken)

    def _transaction(self, back: list[int] | None) -> list[int]:
        with self._db.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute("SELECT version FROM pool WHERE id = 1 FOR UPDATE")
            version = cursor.fetchone()[0] + 1
            cursor.execute("SELECT id, owner FROM p WHERE version > %s", (self._version,))
            for one, owner in cursor.fetchall():
                (self._free.add if owner is None else self._free.discard)(one)
            ids = sorted(self._free)[:SOME] if back is None else back
            places = ",".join(map(str, ids))
            owned, guard = (version, "IS NULL") if back is None else (None, "IS NOT NULL")
            cursor.execute(
                f"UPDATE p SET owner = %s, version = %s WHERE id IN ({places}) AND owner {guard}", (owned, version)
            )
            if cursor.rowcount != SOME:
                raise RuntimeError("a row was taken twice")
            cursor.execute("UPDATE pool SET version = %s WHERE id = 1", (version,))
        self._db.commit()
        # its own change is read back the next time: simpler, and no cheaper
        self._version = version - 1
        return ids


def four_cpas() -> list[Row]:
    """64 of 10,368 through the sockets of four CPAs, beside the bare transaction, on MariaDB."""
    if find_server() is None:
        print("no MariaDB here: four CPAs are not measured", file=sys.stderr)
        return []
    with private_server(small=False) as server, simulated(cpas=4, database=server.new_database()) as one:
        login, bare = os.uname().nodename, Bare.make(server)
        sockets = [str(one.run_dir / f"cpa-{number}.sock") for number in range(WORKERS)]
        ours, theirs, latest, their_latest = [], [], [], []
        for _ in range(RUNS):
            made, late = rate([lambda path=path: through_cpa(path, login) for path in sockets])  # type: ignore[misc]
            ours.append(made)
            latest.append(late)
            made, late = rate([lambda: Bare(server.socket, bare)] * WORKERS)
            theirs.append(made)
            their_latest.append(late)
    mine, other = statistics.median(ours), statistics.median(theirs)
    what = "allocate + free 64 of 10,368 through 4 CPAs, MariaDB, 4 clients"
    late, their_late = 1000 * statistics.median(latest), 1000 * statistics.median(their_latest)
    return [
        Row(f"{what} (a second)", "the bare pool-lock transaction", mine, other, Bar(0.6, 0.9, at_least=True)),
        Row(f"{what}: p99 of a pair (ms; the bare one's is {their_late:.1f})", "1 ms", late, 1.0, Bar(30, 20)),
    ]


def replay() -> list[Row]:
    """Made-up jobs over the machine through one CPA, on SQLite."""
    with simulated() as one:
        one.run("yod", "-sz", "1", "true", check=True)
        told = one.json("mesh", "replay", "--jobs", "3000")
    rate_now = told["jobs"] / told["seconds"]
    return [Row("trace replay, SQLite (jobs a second)", "one job", rate_now, 1.0, Bar(300, 600, at_least=True))]
