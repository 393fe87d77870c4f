"""Moves of state objects between real PCTs, with an owner that writes, a bad network, lost reports and kills."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents.link import trust
from agents.link.client import Client
from agents.linux import processes
from agents.objects.answers import Question
from agents.objects.holder import Holder
from agents.objects.receiver import fetch
from agents.objects.sender import move
from agents.objects.states import State
from agents.wire.errors import AgentError
from db.jobs import locations
from db.schema.migrate import migrate
from db.store.store import open_store
from redmesh.state import StateError, StateObject, new_uuid
from tests.support.bad_network import BadNetwork
from tests.support.far_pcts import FarMachine
from tests.support.stores import define
from tests.support.waiting import wait_until

NODES = ("n0", "n1", "n2")
#: More of them by REDMESH_MOVES: 1,000 take a quarter of an hour.
MOVES = int(os.environ.get("REDMESH_MOVES", "20"))


class Machine:
    """Three nodes, each behind a bad network, and one object on the first."""

    def __init__(self, seed: int = 1) -> None:
        self.far = FarMachine(len(NODES))
        self.chance = random.Random(seed)
        trust.use(self.far.trust("cpa"))
        self.networks: dict[str, BadNetwork] = {}
        for name in NODES:
            host, _, port = self.far.addresses[name].removeprefix("tls://").partition("/")[0].rpartition(":")
            self.networks[name] = BadNetwork((host, int(port)), seed + len(self.networks))
        self.uuid = new_uuid()
        self.holders = {name: Holder(f"{self.far.directory}/{name}/state/jobs/{name}", name) for name in NODES}
        for holder in self.holders.values():
            os.makedirs(holder.directory)
        made = StateObject.create(self.holders["n0"].path(self.uuid), {"uuid": self.uuid, "kind": "job", "uid": 0})
        made.set("count", "0")
        made.close()

    def address(self, name: str) -> str:
        """Where others reach a node: through its network."""
        return f"tls://127.0.0.1:{self.networks[name].port}/{name}"

    def live(self) -> list[str]:
        """The nodes whose object an owner could open; looked at twice, for it may move between two looks."""
        for _ in range(3):
            found = [name for name in NODES if os.path.exists(self.holders[name].path(self.uuid))]
            if len(found) < 2:
                break
        return found

    def move(self, sender: str, receiver: str) -> dict[str, object]:
        """Have ``sender`` move the object. AgentError."""
        with Client(self.far.addresses[sender], "object", 60.0) as client:
            address = self.address(receiver)
            return client.call({"op": "move", "uuid": self.uuid, "node": receiver, "address": address})

    def kill_something(self) -> None:
        """A courier of some node, or its PCT."""
        name = self.chance.choice(NODES)
        pct = self.far.processes[name].pid
        if self.chance.random() < 0.15:
            self.far.again(name)
            return
        for pid in processes.children(pct):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("redmesh-object"):
                    os.kill(pid, 9)

    def close(self) -> None:
        for network in self.networks.values():
            network.close()
        directory = self.far.directory
        self.far.close()
        shutil.rmtree(directory, ignore_errors=True)
        trust.use(None)


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    try:
        yield made
    finally:
        made.close()


def test_a_login_processor_fetches_under_cuts_and_sends_back(machine: Machine, tmp_path: Path) -> None:
    login, node, uuid = Holder(str(tmp_path), "login"), machine.holders["n0"], machine.uuid
    network = machine.networks["n0"]

    def live() -> list[str]:
        return [one.node for one in (login, node) if os.path.exists(one.path(uuid))]

    for bad in (0, 80, 80):
        network.bad = bad
        for _ in range(20 if bad else 0):
            with suppress(AgentError, OSError, StateError):
                fetch(login, uuid, machine.address("n0"), "n0")
            assert len(live()) <= 1
            if live() == ["login"]:
                break
        network.bad = 0
        if live() != ["login"] or node.entry(uuid).place.state is State.DOUBT:
            fetch(login, uuid, machine.address("n0"), "n0")
        assert (live(), login.doubtful(), node.doubtful()) == (["login"], [], [])
        job = StateObject(login.path(uuid))
        job.set("count", str(int(job.get("count") or 0) + 1))
        job.close()
        assert move(login, uuid, "n0", machine.address("n0")).live
        wait_until(lambda: live() == ["n0"], "the object is on the node")
    job = StateObject(node.path(uuid))
    try:
        assert job.get("count") == "3"
    finally:
        job.close()


class Worker:
    """Owns the object wherever it is live, for a moment each time: counts in it, and never finds less than it wrote."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.count, self.counter, self.fault = 0, 0, ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.15) and not self.fault:
            for name in self._machine.live():
                with suppress(StateError):  # it is being sent, or has gone
                    self._count_on(self._machine.holders[name].path(self._machine.uuid))

    def _count_on(self, path: str) -> None:
        job = StateObject(path)
        try:
            found, counter = int(job.get("count") or 0), int(job.meta("counter") or 0)
            if found < self.count or counter < self.counter:
                self.fault = f"{path}: {found} at move {counter}, after {self.count} at move {self.counter}"
            job.set("count", str(found + 1))
            job.commit()
            self.count, self.counter = found + 1, counter
        finally:
            job.close()

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()


def test_random_moves_with_kills_cuts_and_lost_reports(machine: Machine, tmp_path: Path) -> None:
    worker = Worker(machine)
    chance = machine.chance
    reports: list[tuple[str, str, int]] = []
    moved = 0
    try:
        for network in machine.networks.values():
            network.bad = 30
        for _ in range(MOVES):
            here = machine.live()
            assert len(here) <= 1, here
            if not here:
                wait_until(lambda: machine.live(), "the object is live again")
                continue
            there = chance.choice([name for name in NODES if name != here[0]])
            killer = threading.Timer(chance.random() * 0.5, machine.kill_something) if chance.random() < 0.3 else None
            if killer:
                killer.start()
            with suppress(AgentError, OSError):
                told = machine.move(here[0], there)
                if told["live"]:
                    moved += 1
                    reports.append((here[0], there, int(str(told["counter"]))))
            if killer:
                killer.join()
            assert not worker.fault, worker.fault
            assert len(machine.live()) <= 1
        for network in machine.networks.values():
            network.bad = 0
        wait_until(lambda: len(machine.live()) == 1, "the object is live")
        wait_until(lambda: not any(one.doubtful() for one in machine.holders.values()), "nobody is in doubt")
    finally:
        worker.stop()
    (last,) = machine.live()
    assert not worker.fault and worker.count > 0 and moved > MOVES // 5, (moved, worker.count)
    # late, in another order, some twice and some never: the tracker names a node from which the object is found
    told = [one for one in reports if chance.random() < 0.7] * 2
    chance.shuffle(told)
    url = f"sqlite://{tmp_path}/mesh.db"
    migrate(url)
    with open_store(url) as store:
        define(store)
        locations.register(store, machine.uuid, "n0", os.geteuid())
        highest = 0
        for sender, receiver, counter in told:
            locations.report_move(store, machine.uuid, sender, receiver, counter, os.geteuid())
            now = locations.locate(store, machine.uuid)
            assert now is not None and now.counter >= highest
            highest = now.counter
    node = now.url.removeprefix("redmesh://").partition("/")[0] if told else "n0"
    answered, address = Question(machine.uuid).follow(machine.address(node))
    assert (answered.status, address.rpartition("/")[2]) == (200, last)
    assert Question(new_uuid()).follow(machine.address(node))[0].status == 404
