"""Moves of state objects between real PCTs, with an owner that writes, a bad network, lost reports and kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
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
from redmesh.state import StateError, StateObject, new_uuid
from tests.support.bad_network import BadNetwork
from tests.support.chance import long
from tests.support.daemons import Daemons, Make
from tests.support.far_pcts import FarMachine
from tests.support.waiting import wait_until

NODES = ("n0", "n1", "n2")
CPAS = ("cpa-0", "cpa-1")
UID = os.geteuid()
#: 400 take six minutes.
MOVES = long(20, 400)


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


class Reports:
    """Passes reports of moves on to CPAs like a bad network: some never, some twice, each after a time of its own."""

    def __init__(self, daemons: Daemons, uuid: str, chance: random.Random) -> None:
        self._daemons, self._uuid, self._chance = daemons, uuid, chance
        self._due: list[tuple[float, str, str, int]] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self.told = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def pass_on(self, sender: str, receiver: str, counter: int) -> None:
        """A move was confirmed: 0, 1 or 2 reports of it come to a CPA within 3 s."""
        now = time.monotonic()
        with self._lock:
            for _ in range(self._chance.choice((0, 1, 1, 2))):
                self._due.append((now + self._chance.random() * 3.0, sender, receiver, counter))

    def _run(self) -> None:
        while not self._over.wait(0.02):
            now = time.monotonic()
            with self._lock:
                ready = sorted(one for one in self._due if one[0] <= now)
                self._due = [one for one in self._due if one[0] > now]
            for _, sender, receiver, counter in ready:
                message = {"op": "state_moved", "uuid": self._uuid, "sender": sender, "receiver": receiver}
                with suppress(AgentError):
                    self._daemons.client(self._chance.choice(CPAS)).call({**message, "counter": counter, "uid": UID})
                    self.told += 1

    def stop(self) -> None:
        """Forget the reports that have not been passed on."""
        self._over.set()
        self._thread.join()


class Questions:
    """Asks for the object all the time, as ``mesh job show`` does: a CPA where it is, then the nodes."""

    def __init__(self, machine: Machine, daemons: Daemons) -> None:
        self._machine, self._daemons = machine, daemons
        self.answered = self.unreachable = 0
        self.counters: list[int] = []  # of the tracker, as they were read
        self.faults: list[str] = []
        self._seen = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        at = 0
        while not self._over.wait(0.05):
            at += 1
            try:
                with self._daemons.client(CPAS[at % 2]) as cpa:
                    found = cpa.call({"op": "state_locate", "uuid": self._machine.uuid})
                self.counters.append(int(found["counter"]))
                node = locations.node_in(str(found["url"]))
                told, _ = Question(self._machine.uuid).follow(self._machine.address(node))
            except (AgentError, OSError):  # a CPA or PCT that was killed, a connection that was cut: said as such
                self.unreachable += 1
                continue
            if told.status != 200:
                self.faults.append(f"{told.status} from {node}: {told.body[:200]!r}")
                continue
            self.answered += 1
            counter = int(json.loads(told.body)["counter"])
            if counter < self._seen:
                self.faults.append(f"an answer of move {counter} after one of move {self._seen}")
            self._seen = counter

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join()


@pytest.mark.storm
def test_random_moves_with_kills_cuts_and_lost_reports(machine: Machine, make_daemons: Make) -> None:
    daemons = make_daemons(nodes=len(NODES))
    for name in CPAS:
        daemons.start(name)
    locations.register(daemons.store, machine.uuid, "n0", UID)
    chance = machine.chance
    worker = Worker(machine)
    reports, questions = Reports(daemons, machine.uuid, random.Random(2)), Questions(machine, daemons)
    moved = kills = 0
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
                kills += 1
                killer.start()
            if chance.random() < 0.1:
                kills += 1
                name = chance.choice(CPAS)
                daemons.kill(name)
                daemons.start(name)
            with suppress(AgentError, OSError):
                told = machine.move(here[0], there)
                if told["live"]:
                    moved += 1
                    reports.pass_on(here[0], there, int(str(told["counter"])))
            if killer:
                killer.join()
            assert not worker.fault, worker.fault
            assert not questions.faults, questions.faults
            assert len(machine.live()) <= 1
        for network in machine.networks.values():
            network.bad = 0
        wait_until(lambda: len(machine.live()) == 1, "the object is live")
        wait_until(lambda: not any(one.doubtful() for one in machine.holders.values()), "nobody is in doubt")
        answered = questions.answered
        wait_until(lambda: questions.answered > answered, "a query is answered")
    finally:
        worker.stop()
        reports.stop()
        questions.stop()
    (last,) = machine.live()
    print(
        f"{MOVES} moves tried, {moved} confirmed at once, {kills} kills; {worker.count} writes; {reports.told} reports;"
        f" {questions.answered} queries answered, {questions.unreachable} unreachable"
    )
    assert not worker.fault and worker.count > 0 and moved > MOVES // 5, (moved, worker.count)
    assert not questions.faults, questions.faults
    assert questions.counters == sorted(questions.counters), "the tracker's counter never goes back"
    known = locations.locate(daemons.store, machine.uuid)
    assert known is not None
    answered_by, address = Question(machine.uuid).follow(machine.address(locations.node_in(known.url)))
    assert (answered_by.status, address.rpartition("/")[2]) == (200, last)
    assert Question(new_uuid()).follow(machine.address(last))[0].status == 404
