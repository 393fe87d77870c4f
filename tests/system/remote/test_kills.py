"""kill -9 of everything, at every state of a launch over many hosts: it goes on or ends, and nothing of it stays.

The whole table is in ``make storm`` (three minutes); ``make test`` has what no other test does.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.chance import long
from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.waiting import silence, wait_until

MARK = "987654"  # tells a rank from everything else on a host
NAP = ("sleep", MARK)
SLOW_TO_END = ("sh", "-c", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done", MARK)
UNTIL_TOLD = ("sh", "-c", "trap 'exit 0' USR1; while :; do sleep 0.1; done", MARK)
SIZE, SUSPECT_S = 6, 4.0
VICTIMS = ("yod", "cpa-0", "rca", "pct", "launch child", "mariadbd")
STATES = ("allocating", "loading", "held", "running", "signalling", "ending")
#: In these a launch has no need of these: it runs on.
NOT_NEEDED = set(itertools.product(("held", "running"), ("cpa-0", "rca", "pct", "mariadbd")))
SOME = [
    ("allocating", "cpa-0"), ("allocating", "mariadbd"), ("held", "pct"), ("held", "mariadbd"), ("signalling", "cpa-0"),
    ("signalling", "launch child"), ("ending", "mariadbd"), ("ending", "yod"),
]  # fmt: skip
TABLE = long(SOME, list(itertools.product(STATES, VICTIMS)))


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[FarMesh]:
    made = FarMesh(netns_hosts(3, rate="80mbit"), database=sql_server.new_database(), suspect_s=SUSPECT_S, down_s=8.0)
    with while_up(made):
        yield made


@pytest.fixture(scope="module")
def large(mesh: FarMesh) -> str:
    """A program that takes a second to arrive."""
    path = mesh.home / "large"
    path.write_bytes(Path("/bin/sleep").read_bytes() + os.urandom(8 << 20))
    path.chmod(0o755)
    return str(path)


def ranks(mesh: FarMesh) -> list[int]:
    """How many ranks of the launch each host has."""
    return [sum(MARK in words for words in host.processes().values()) for host in mesh.hosts]


class Scene:
    """A launch that is brought into a state, and what is killed there."""

    def __init__(self, mesh: FarMesh, server: Server, large: str) -> None:
        self.mesh, self.server, self.large = mesh, server, large
        self.daemons = {name: mesh.pid_of(name) for name in ("cpa-0", "rca")}
        self.yod: subprocess.Popen[Any] | None = None

    def start(self, *words: str) -> subprocess.Popen[Any]:
        self.yod = self.mesh.start(
            "yod", "-kill", "-sz", str(SIZE), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self.yod

    def until(self, state: str) -> None:
        wait_until(lambda: processors(self.mesh, state) == SIZE, f"it is {state}", step_s=0.02)

    def until_there(self) -> None:
        wait_until(lambda: min(ranks(self.mesh)) >= 2, "all ranks are there", step_s=0.02)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The database stands still meanwhile."""
        process = self.server.process
        self.server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if process is self.server.process:
                self.server.signal(signal.SIGCONT)

    @contextmanager
    def allocating(self) -> Iterator[None]:
        with self.frozen():
            self.start(*NAP)
            time.sleep(0.5)
            yield

    @contextmanager
    def loading(self) -> Iterator[None]:
        self.start(self.large, MARK)
        wait_until(lambda: self.mesh.hosts[1].glob("dev/shm/redmesh-*/images/*"), "it arrives", step_s=0.01)
        yield

    @contextmanager
    def held(self) -> Iterator[None]:
        self.start("-sleep", f"before-go:{silence(2.0):.0f}", *NAP)  # showmesh has to see it meanwhile
        self.until("pending")
        self.until_there()
        yield

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start(*NAP)
        self.until("busy")
        yield

    @contextmanager
    def signalling(self) -> Iterator[None]:
        yod = self.start(*SLOW_TO_END)
        self.until("busy")
        time.sleep(0.3)  # the shells set their traps
        yod.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        yield

    @contextmanager
    def ending(self) -> Iterator[None]:
        yod = self.start(*UNTIL_TOLD)
        self.until("busy")
        with self.frozen():
            yod.send_signal(signal.SIGUSR1)
            wait_until(lambda: not any(ranks(self.mesh)), "every rank has ended", step_s=0.02)
            time.sleep(0.2)
            yield

    def kill(self, victim: str) -> None:
        host = self.mesh.hosts[1]
        assert self.yod is not None
        if victim == "yod":
            self.yod.kill()
        elif victim == "pct":
            assert self.mesh.kill_on(host, "redmesh-pct")
        elif victim == "launch child":
            self.mesh.kill_on(host, "redmesh-launch")
        elif victim == "mariadbd":
            self.server.kill()
            time.sleep(1.0)
            self.server.start()
        else:
            os.kill(self.daemons[victim], signal.SIGKILL)


@pytest.mark.storm
@pytest.mark.parametrize(("state", "victim"), TABLE)
def test_a_launch_goes_on_or_ends_whatever_is_killed(
    mesh: FarMesh, sql_server: Server, large: str, state: str, victim: str
) -> None:
    scene = Scene(mesh, sql_server, large)
    enter: Callable[[], Any] = getattr(scene, state)
    with enter():
        scene.kill(victim)
    yod = scene.yod
    assert yod is not None
    if (state, victim) in NOT_NEEDED:
        time.sleep(4.0)  # sleep and all that
        assert yod.poll() is None, yod.communicate()
        assert min(ranks(mesh)) >= 2, "it runs on"
    if state in ("signalling", "ending"):
        yod.wait()  # it ends by itself
    deadline = time.monotonic() + 3.0
    while yod.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # it may end, or run on
    asked = yod.poll() is None
    if asked:
        yod.send_signal(signal.SIGTERM)
    _, said = yod.communicate()
    if asked and (state, victim) in NOT_NEEDED:
        assert yod.returncode == 128 + signal.SIGTERM, said
    settle(mesh)
    if victim == "mariadbd":  # a CPA remembers for a second that the database did not answer (db/store/outage.py)
        wait_until(
            lambda: mesh.run("yod", "-sz", "1", "true").returncode == 0, "its CPA has found it again", step_s=0.2
        )
        settle(mesh)
    done = mesh.run("yod", "-sz", str(SIZE), "true")
    assert done.returncode == 0, done.stderr


def test_the_database_is_away_for_longer_than_a_node_may_be_silent(mesh: FarMesh, sql_server: Server) -> None:
    """No node goes down by it, and what runs runs on."""
    yod = mesh.start("yod", "-sz", str(SIZE), *NAP, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(mesh, "busy") == SIZE, "it runs")
    (launcher,) = look(mesh)["launchers"]
    log = mesh.state / "log" / "rca.jsonl"
    began = len(log.read_text())  # while the mesh came up, a node may have been late
    sql_server.kill()
    time.sleep(silence(SUSPECT_S) + 1.0)  # longer than a node may be silent
    sql_server.start()
    wait_until(lambda: mesh.run("showmesh", "--json").returncode == 0, "the database is back", step_s=0.2)
    assert set(mesh.states().values()) == {"up"}
    assert processors(mesh, "busy") == SIZE
    since = log.read_text()[began:]
    assert "node_suspect" not in since and "node_down" not in since
    os.kill(int(launcher["pid"]), signal.SIGTERM)
    _, said = yod.communicate()
    assert yod.returncode == 128 + signal.SIGTERM, said
    settle(mesh)
    assert mesh.run("yod", "-sz", str(SIZE), "true").returncode == 0


def settle(mesh: FarMesh) -> None:
    """Every node up, every processor free, no rank and no directory of a launch anywhere."""
    last: list[Any] = []

    def settled() -> bool:
        shown = look(mesh)
        left = [host.glob("dev/shm/redmesh-0/launch-*") for host in mesh.hosts]
        last[:] = [shown["states"], shown["launchers"], {node["name"]: node["state"] for node in shown["nodes"]}, left]
        up = set(last[2].values()) == {"up"}
        return (
            up and shown["states"]["free"] == SIZE and not shown["launchers"] and not any(left) and not any(ranks(mesh))
        )

    wait_until(settled, lambda: f"the mesh is as it was: {last}\n{mesh.logs(25)}", step_s=0.1)
