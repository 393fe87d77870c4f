"""Launches without pause while hosts, links and daemons fail at random: no processor is ever in two launches.

Every host has one processor, and every rank takes a lock of its host for as long as it lives, orphan or not: a rank
that finds the lock taken has found another launch on its processor. REDMESH_STORM_SEED repeats a storm.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.chance import long, seed
from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts, NamespaceHost
from tests.support.look import look, processors
from tests.support.mesh import while_up
from tests.support.waiting import PATIENCE_S, wait_until
from tests.system.remote.test_faults import boot_of, naps, run_everywhere, until_it_runs, until_nobody_runs

STORM_S = long(6.0, 300.0)
SEED = seed("REDMESH_STORM_SEED")
HOSTS, AT_ONCE = 4, 3
RANK = 'flock -n /tmp/held sleep {} || echo "$YOD_LAUNCHER_ID" >> /tmp/twice'


@pytest.fixture
def mesh(netns_hosts: MakeHosts) -> Iterator[FarMesh]:
    made = FarMesh(netns_hosts(HOSTS), processors=1, suspect_s=2.0, down_s=4.0, failed_s=1.0, fanout=2)
    with while_up(made):
        try:
            yield made
        finally:
            for host in made.hosts:
                host.heal()


class Weather:
    """One fault after another, and an end to each."""

    def __init__(self, mesh: FarMesh, chance: random.Random) -> None:
        self.mesh, self.chance = mesh, chance
        self.said: list[str] = []
        self._until: dict[NamespaceHost, float] = {}
        self._ends: dict[NamespaceHost, Callable[[], object]] = {}

    def strike(self) -> None:
        """Something fails."""
        host = self.chance.choice(list(self.mesh.hosts))
        what = self.chance.choice(["cut", "cut", "stop", "stop", "pct", "launch", "cpa-0", "rca", "yod"])
        if what in ("cut", "stop") and host in self._until:
            return
        seconds = self.chance.uniform(0.5, 9.0)
        if what == "cut":
            way = self.chance.choice(["both", "in", "out"])
            self.said.append(f"{host.name} is cut off ({way}) for {seconds:.1f} s")
            host.cut(way)
            self._until[host], self._ends[host] = time.monotonic() + seconds, host.heal
        elif what == "stop":
            self.said.append(f"the PCT of {host.name} stands still for {seconds:.1f} s")
            stopped = self.mesh.kill_on(host, "redmesh-pct", signal.SIGSTOP)
            self._until[host], self._ends[host] = time.monotonic() + seconds, lambda: self._go_on(stopped)
        else:
            self.said.append(f"killed: {what} ({host.name})")
            self._kill(what, host)

    def _go_on(self, pids: list[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def _kill(self, what: str, host: NamespaceHost) -> None:
        try:
            if what == "yod":
                launchers = look(self.mesh)["launchers"]
                if launchers:
                    os.kill(int(self.chance.choice(launchers)["pid"]), signal.SIGKILL)
            elif what in ("pct", "launch"):
                self.mesh.kill_on(host, f"redmesh-{what}")
            else:
                self.mesh.kill(what)
        except (ProcessLookupError, AssertionError):
            pass  # it is between two lives

    def clear(self, *, all_: bool = False) -> None:
        """What has lasted long enough is over."""
        for host, until in list(self._until.items()):
            if all_ or time.monotonic() >= until:
                del self._until[host]
                self._ends.pop(host)()


def launch(mesh: FarMesh, chance: random.Random) -> "subprocess.Popen[Any]":
    size, seconds = chance.randint(1, HOSTS), chance.uniform(0.1, 1.5)
    words = ("yod", "-kill", "-sz", str(size), "sh", "-c", RANK.format(round(seconds, 2)))
    return mesh.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def twice(mesh: FarMesh) -> list[str]:
    return [host.name for host in mesh.hosts if host.run("cat", "/tmp/twice").stdout]


@pytest.mark.storm
def test_no_processor_is_ever_in_two_launches(mesh: FarMesh) -> None:
    chance = random.Random(SEED)
    weather = Weather(mesh, chance)
    running: list[subprocess.Popen[Any]] = []
    good = 0
    until, next_strike = time.monotonic() + STORM_S, time.monotonic() + 1.0
    while time.monotonic() < until or (not good and time.monotonic() < until + PATIENCE_S):
        good += sum(one.poll() == 0 for one in running)
        running = [one for one in running if one.poll() is None]
        while len(running) < AT_ONCE:
            running.append(launch(mesh, chance))
        if time.monotonic() >= next_strike:
            weather.strike()
            next_strike = time.monotonic() + chance.uniform(0.3, 1.5)
        weather.clear()
        time.sleep(0.05)
    weather.clear(all_=True)
    story = f"seed {SEED}:\n" + "\n".join(weather.said)
    assert not twice(mesh), f"two launches on a processor of {twice(mesh)}; {story}"
    for one in running:
        one.wait()
    wait_until(
        lambda: processors(mesh, "free") == HOSTS,
        lambda: f"all is free: {look(mesh)}; {story}\n{mesh.logs(20)}",
        step_s=0.2,
    )
    assert not twice(mesh), f"two launches on a processor of {twice(mesh)}; {story}"
    assert not [words for host in mesh.hosts for words in host.processes().values() if "sleep" in words], story
    assert good, f"no launch came to its end; {story}"
    print(f"{good} launches came to their end, {len(weather.said)} faults")


def test_a_host_that_loses_its_daemons_and_their_directory_keeps_its_launch(netns_hosts: MakeHosts) -> None:
    """Its boot id is kept in STATE too: under a new one the next PCT would end what runs."""
    with while_up(FarMesh(netns_hosts(1), suspect_s=20.0, down_s=60.0)) as mesh:
        host = mesh.hosts[0]
        with run_everywhere(mesh, "-sz", "2") as yod:
            until_it_runs(mesh, 2)
            before = boot_of(mesh, "h1"), naps(mesh, host)
            mesh.kill_on(host, "redmesh-keeper")
            mesh.kill_on(host, "redmesh-pct")
            shutil.rmtree(f"/proc/{host.init}/root/run/redmesh-0")
            mesh.up()
            wait_until(lambda: mesh.node_log(host).count('"pct started"') == 2, "the next PCT is there")
            wait_until(lambda: '"adopted"' in mesh.node_log(host), "it has taken the launch up")
            assert (boot_of(mesh, "h1"), naps(mesh, host)) == before and yod.poll() is None
        until_nobody_runs(mesh)
