"""Single daemons (CPAs, an RCA) on a real database, without a keeper, in a private directory."""

import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agents.link.client import Client, Unreachable
from db.machine.nodes import NodeSpec, define_machine
from db.store.store import open_store
from tests.support.allocations import LOGIN
from tests.support.reaper import private_directory
from tests.support.stores import empty, make_database
from tests.support.waiting import PATIENCE_S, Process, freeze, silence, wait_until

_PID_BITS = 22  # the kernel's largest pid is 2**22 - 1 (PID_MAX_LIMIT)
_open: set[int] = set()  # the numbers of the Daemons of this process that are not closed


def _mark(number: int) -> str:
    """Return the mark of a mesh of this process. An RCA kills the processes that carry its mesh's mark, so no other
    test process and no other open Daemons has it."""
    return f"{number << _PID_BITS | os.getpid():08x}"


#: The mark of Daemons that are the only open ones of their process.
MESH = _mark(0)


class Daemons:
    """CPAs and an RCA of one mesh, whose ``nodes`` are in the database but have no PCTs."""

    def __init__(
        self, processors: int = 8, nodes: int = 2, database: str = "", has_schema: bool = False, **config: Any
    ) -> None:
        self._number = next(number for number in itertools.count() if number not in _open)
        _open.add(self._number)
        self.mesh = _mark(self._number)
        self.home = private_directory("redmesh-d-")
        self.run, self.state = self.home / "run", self.home / "state"
        self.run.mkdir(mode=0o700)
        self.state.mkdir(mode=0o700)
        self.url = database or f"sqlite://{self.state}/mesh.db"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        each = processors // nodes
        self.nodes = [
            NodeSpec(n + 1, f"n{n}", range(n * each, (n + 1) * each), address=str(self.run / f"n{n}.sock"))
            for n in range(nodes)
        ]
        self.config = self.home / "keeper.json"
        self._options: dict[str, Any] = {}
        self.configure(**config)
        if not has_schema:
            make_database(self.url)
        self.store, self._reader = open_store(self.url), open_store(self.url)
        define_machine(self.store, self.mesh, "b00710", LOGIN, self.nodes)

    def configure(self, **options: Any) -> None:
        """Write keeper.json like ``mesh up``, with changed ``options``; daemons started later read it."""
        self._options.update(options)
        whole: dict[str, Any] = {
            "mesh": self.mesh,
            "run": str(self.run),
            "state": str(self.state),
            "boot_id": "b00710",
            "login": LOGIN,
            "database": self.url,
            "database_file": None,
            "nodes": [{"id": n.id, "name": n.name, "processors": list(n.processors)} for n in self.nodes],
            "cpas": 2,
            "cleanup": None,
            "batch_accounts": ["pbs"],
            "admins": [],
            "suspect_s": silence(5.0),
            "down_s": silence(15.0),
            "silent_s": silence(10.0),
            "history_days": 30,
            "history_rows": 10_000,
        }
        whole.update(self._options)
        self.config.write_text(json.dumps(whole))

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """Start ``cpa-0``, ``cpa-1`` … or ``rca`` and wait until it listens."""
        module = "agents.rca" if name == "rca" else "agents.cpa"
        words = ["--config", str(self.config)] + ([] if name == "rca" else ["--name", name])
        with open(self.home / f"{name}.stderr", "ab") as errors:
            process = Process([sys.executable, "-P", "-m", module, *words], stderr=errors, stdin=subprocess.DEVNULL)
        self.processes[name] = process
        wait_until(lambda: self._listens(name), f"{name} listens: {self.stderr(name)}")
        return process

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal a daemon; wait for its exit unless the signal is SIGSTOP or SIGCONT."""
        process = self.processes[name]
        if number == signal.SIGSTOP:
            freeze(process.pid)
            return
        process.send_signal(number)
        if number != signal.SIGCONT:
            process.wait()

    def client(self, name: str = "cpa-0", role: str = "admin", timeout_s: float = PATIENCE_S) -> Client:
        """Connect to a daemon."""
        return Client(str(self.run / f"{name}.sock"), role, timeout_s)

    def begin(self, cpas: int = 1) -> "Daemons":
        """Start CPAs, and tell the first that the nodes are up; return itself."""
        for n in range(cpas):
            self.start(f"cpa-{n}")
        self.nodes_up()
        return self

    def nodes_up(self, name: str = "cpa-0", nodes: Sequence[NodeSpec] = ()) -> None:
        """Tell a CPA that every node's PCT is up, like an RCA does."""
        with self.client(name, "rca") as client:
            for node in nodes or self.nodes:
                client.call(
                    {
                        "op": "node_up",
                        "node": node.name,
                        "boot_id": "b00710",
                        "incarnation": 1,
                        "address": node.address,
                        "processors": len(node.processors),
                    }
                )

    def log(self, name: str) -> list[dict[str, Any]]:
        """Return the entries of a daemon's log."""
        path = self.state / "log" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def stderr(self, name: str) -> str:
        """Return what a daemon wrote to standard error."""
        path = self.home / f"{name}.stderr"
        return path.read_text() if path.exists() else ""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Query the system database over a connection that is not that of ``store``, from any thread."""
        if threading.current_thread() is threading.main_thread():
            return list(self._reader.read(sql))
        with open_store(self.url) as reader:
            return list(reader.read(sql))

    def owners(self) -> dict[int, int]:
        """Map each allocated processor to its launcher."""
        return dict(self.rows("SELECT id, launcher FROM processor WHERE launcher IS NOT NULL"))  # type: ignore[arg-type]

    def close(self) -> None:
        """Kill every daemon and remove the directory."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._reader.close()
        self.store.close()
        shutil.rmtree(self.home, ignore_errors=True)
        _open.discard(self._number)

    def _listens(self, name: str) -> bool:
        try:
            self.client(name).close()
            return True
        except Unreachable:
            assert self.processes[name].poll() is None, f"{name} ended: {self.stderr(name)}"
            return False


Make = Callable[..., Daemons]


@pytest.fixture
def make_daemons() -> Iterator[Make]:
    """``make_daemons(processors=8, nodes=2, database=url, …)`` makes Daemons, which are closed after the test."""
    made: list[Daemons] = []

    def make(*args: Any, **options: Any) -> Daemons:
        made.append(Daemons(*args, **options))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.close()


#: A test with this mark, in which ``daemons`` makes the Daemons, runs once on SQLite and once on MariaDB. Tests that
#: kill a CPA have it: MariaDB keeps a killed writer's locks until the server notices the closed connection,
#: while the kernel releases SQLite's at once.
on_both_databases = pytest.mark.parametrize("daemons", ["sqlite", "mariadb"], indirect=True)


@pytest.fixture
def daemons(request: pytest.FixtureRequest, make_daemons: Make) -> Make:
    """Like ``make_daemons``, on SQLite; a test with `on_both_databases` runs on SQLite and on MariaDB."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return make_daemons
    url = request.getfixturevalue("sql_database")
    with open_store(url) as store:
        empty(store)
    return functools.partial(make_daemons, database=url, has_schema=True)
