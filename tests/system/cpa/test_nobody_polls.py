"""While 200 requests wait and nothing happens, a mesh sends its database nothing, and packets only for heartbeats."""

import re
import signal
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agents.link.client import Client
from db.store.store import open_store
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import PATIENCE_S, wait_until
from tests.system.cpa.test_requests import request

#: Every way to send or receive; ``read`` and ``write`` are used on sockets too, and on pipes and files.
CALLS = "sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,connect,accept4,accept"
QUIET_S = 6.0  # what was asked every 0.2, 1, 2 or 5 s comes in it
REQUESTS = 200


def packets(pids: Iterable[int], seconds: float, trace: Path) -> list[str]:
    """What these processes send and receive meanwhile, a line each, as strace sees it; not what finds nothing there."""
    whom = [word for pid in pids for word in ("-p", str(pid))]
    words = ["strace", "-f", "-q", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(trace), *whom]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as tracer:
        end = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > end, "the time is over")
        assert tracer.poll() is None, "strace has not attached"
        tracer.send_signal(signal.SIGINT)
    lines = trace.read_text(errors="replace").splitlines()
    return [line for line in lines if re.search(r"= [1-9]", line)]


def daemons(private: PrivateMesh) -> tuple[list[int], list[int]]:
    """The CPAs; all others: keeper, RCA and PCTs."""
    cpas = [private.pid_of("cpa-0"), private.pid_of("cpa-1")]
    return cpas, [pid for pid in private.processes() if pid not in cpas]


@pytest.mark.load_sensitive(reason="a node that is heard late is written to the database, which counts as a statement")
def test_nothing_is_asked_while_200_requests_wait(mesh: MakeMesh, sql_server: Server, tmp_path: Path) -> None:
    url = sql_server.new_database()
    private = mesh(2, 2, 2, url)
    cpas, others = daemons(private)
    heartbeats = len(packets(others, QUIET_S, tmp_path / "idle"))
    assert heartbeats, "the nodes beat"
    with open_store(url) as watcher, Client(str(private.run_dir / "cpa-0.sock"), "launcher", PATIENCE_S) as client:
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

        def happened() -> int:
            """The events so far; a node that is heard late on a busy machine is one, and costs statements."""
            return int(watcher.read("SELECT COUNT(*) FROM event")[0][0])

        def counted(name: str) -> tuple[bool, list[str], list[str]]:
            """Whether nothing was asked, and what CPAs and other daemons sent, in the same seconds."""
            with ThreadPoolExecutor(2) as together:
                of_cpas = together.submit(packets, cpas, QUIET_S, tmp_path / f"cpas-{name}")
                of_others = together.submit(packets, others, QUIET_S, tmp_path / f"others-{name}")
                return quiet(), of_cpas.result(), of_others.result()

        for turn in range(5):
            wait_until(quiet, "what the requests have caused is done")
            before = happened()
            nothing, told, of_others = counted(str(turn))
            if happened() == before:
                break
        assert nothing, f"{seen[-1]} statements in {QUIET_S} s"
        beats = [line for line in told if r"{\"op\":\"beat\"" in line or r"{\"re\":" in line]
        assert beats == told and len(beats) <= QUIET_S + 4, told  # a heartbeat every 2 s and its answer
        assert len(of_others) <= 1.2 * heartbeats + 5
