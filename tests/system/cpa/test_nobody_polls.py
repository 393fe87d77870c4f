"""While 1,000 requests wait and nothing happens, a mesh sends its database nothing."""

import time

import pytest

from agents.link.client import Client
from db.store.store import open_store
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh
from tests.support.waiting import patience, wait_until
from tests.system.cpa.test_requests import request

QUIET_S = 6.0  # what was asked every 0.2, 1, 2 or 5 s comes in it
REQUESTS = 1000


@pytest.mark.load_sensitive(reason="a node that is heard late is written to the database, which counts as a statement")
def test_nothing_is_asked_while_1000_requests_wait(mesh: MakeMesh, sql_server: Server) -> None:
    url = sql_server.new_database()
    private = mesh(2, 2, 2, url)
    with open_store(url) as watcher, Client(str(private.run_dir / "cpa-0.sock"), "launcher", patience(20.0)) as client:
        login = watcher.read("SELECT name FROM node WHERE role = 'login'")[0][0]

        def questions() -> int:
            return int(watcher.read("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])

        for number in range(REQUESTS + 1):  # the first gets the machine, and may load for an hour
            asked = request(2, wait_s=86400.0, pending_s=0.0 if number else 3600.0)
            assert client.call({**asked, "login": login})["acknowledged"]
        assert watcher.read("SELECT COUNT(*) FROM waiting")[0][0] == REQUESTS
        seen: list[int] = []

        def quiet() -> bool:
            """Whether no question but the watcher's own was asked for so long."""
            before = questions()
            end = time.monotonic() + QUIET_S
            wait_until(lambda: time.monotonic() > end, "the time is over")
            seen.append(questions() - before - 1)
            return seen[-1] == 0

        wait_until(quiet, "what the requests have caused is done", 4 * QUIET_S)
        assert quiet(), f"{seen[-1]} statements in {QUIET_S} s"
