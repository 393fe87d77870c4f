"""How soon a CPA refuses while its database stands still, beside the time that a database is given to reply."""

import os
import secrets
import signal
import statistics
import sys
import time

from agents.link.client import Client
from agents.linux.processes import start_time
from agents.wire.errors import AgentError
from db.store.drivers import ANSWER_S
from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row
from tests.support.mariadb import find_server, private_server
from tests.support.waiting import wait_until

OUTAGES = 3
#: docs/architecture.md: a CPA replies with the error ``database`` within 5 s.
MUST_S = 5.0


def _refusal_s(path: str, login: str) -> float:
    """The seconds until the CPA at ``path`` refuses an allocation because of the database."""
    pid = os.getpid()
    request = {"op": "allocate", "key": secrets.token_hex(16), "size": 1, "login": login, "command": "bench"}
    with Client(path, "launcher") as client:
        began = time.perf_counter()
        try:
            client.call(dict(request, pid=pid, pid_started=start_time(pid)))
        except AgentError as error:
            if error.code == "database":
                return time.perf_counter() - began
            raise
    raise RuntimeError("an allocation without a database")


def outage() -> list[Row]:
    """A CPA of a mesh whose MariaDB is stopped (SIGSTOP)."""
    if find_server() is None:
        print("no MariaDB here: refusals during an outage are not measured", file=sys.stderr)
        return []
    took = []
    with private_server() as server, mesh(4, 2, database=server.new_database()) as one:
        for _ in range(OUTAGES):
            server.signal(signal.SIGSTOP)
            try:
                took.append(_refusal_s(str(one.run_dir / "cpa-0.sock"), os.uname().nodename))
            finally:
                server.signal(signal.SIGCONT)
            wait_until(lambda: one.run("yod", "true").returncode == 0, "the CPA is connected again")
    what = "an allocation is refused while MariaDB stands still (s)"
    must = MUST_S / ANSWER_S
    return [Row(what, "the time that a database has to reply", statistics.median(took), ANSWER_S, Bar(must, must))]
