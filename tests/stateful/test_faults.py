"""kill -9 of anything, at every step of a launch, in any order: the books agree with what runs, nothing is left.

A real mesh with two CPAs over a real database; hypothesis chooses who dies when. A *bystander* launch runs all the
while: it must outlive CPA, RCA, keeper, PCT and database.
"""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from db.views.viewer import open_viewer
from tests.support.chance import LONG, long
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import PATIENCE_S, wait_until

PROCESSORS, NODES = 8, 4
STEPS = ("at once", "allocated", "loading", "started", "exit", "end")
DAEMONS = ("cpa-0", "cpa-1", "rca", "n0", "n1", "keeper")
MARK = "7531"  # what every rank of this test sleeps, so that it is found in /proc


class World:
    """The mesh under test, its database server if it has one, and how to hurt them."""

    def __init__(self, mesh: PrivateMesh, server: Server | None) -> None:
        self.mesh, self.server = mesh, server

    def victims(self) -> tuple[str, ...]:
        """What may be killed; hypothesis's first example kills the first of them again and again."""
        return ("database", *DAEMONS, "yod") if self.server else (*DAEMONS, "yod")

    def kill(self, victim: str, yod: "subprocess.Popen[str] | None") -> None:
        """kill -9; the database is started again at once, the keeper by the next mesh up, the rest by the keeper."""
        if victim == "yod":
            if yod is not None:
                yod.kill()
        elif victim == "database":
            assert self.server is not None
            self.server.kill()
            self.server.start()
        else:
            try:
                self.mesh.kill(victim)
            except ProcessLookupError:
                return  # it is between two lives already
            if victim == "keeper":
                self.mesh.run("mesh", "up", check=True)

    def read(self) -> Any:
        viewer = open_viewer(self.mesh.database)
        try:
            return viewer.read()
        finally:
            viewer.close()

    def live(self) -> set[int]:
        """Launchers that the database takes for living."""
        return {launcher.id for launcher in self.read().launchers}

    def ranks(self) -> set[int]:
        """Processes of any launch of ours that still run."""
        return {pid for pid, line in self.mesh.processes().items() if line.startswith(f"sleep {MARK}")}

    def healthy(self) -> bool:
        """Every node is up, and every processor is free but the bystander's."""
        snapshot = self.read()
        return all(node.state == "up" for node in snapshot.nodes if node.role != "login")


class Launch:
    """A yod whose events are read as they come."""

    def __init__(self, world: World, size: int, seconds: str) -> None:
        command = ("yod", "--json", "-sz", str(size), "sleep", seconds)
        self.yod = world.mesh.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.yod.stdout is not None
        for line in self.yod.stdout:
            self.events.append(json.loads(line))

    def reached(self, step: str) -> bool:
        ended = self.yod.poll() is not None
        return step == "at once" or ended or any(event["event"] == step for event in self.events)

    def launcher(self) -> int | None:
        return next((event["launcher"] for event in self.events if event["event"] == "allocated"), None)

    def end(self) -> int:
        status = self.yod.wait()
        self._reader.join(PATIENCE_S)
        return status

    def complaint(self) -> str:
        assert self.yod.stderr is not None
        return self.yod.stderr.read()


class Faults(RuleBasedStateMachine):
    """Rules kill; after each the mesh has to come back to a state where everything agrees."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.bystander = Launch(self.world, 2, f"{MARK}.1")
        wait_until(lambda: self.bystander.reached("started"), "the bystander runs")

    @rule(data=st.data(), step=st.sampled_from(STEPS), size=st.integers(1, 4))
    def launch_and_kill(self, data: st.DataObject, step: str, size: int) -> None:
        victim = data.draw(st.sampled_from(self.world.victims()))
        launch = Launch(self.world, size, f"0.{MARK}")
        wait_until(lambda: launch.reached(step), f"the launch reaches {step!r}", step_s=0.0005)
        self.world.kill(victim, launch.yod)
        status = launch.end()
        said = launch.complaint()
        if victim == "yod":
            assert status in (-signal.SIGKILL, 0), (status, said)
        elif victim in ("rca", "keeper"):
            assert status == 0, f"{victim} killed at {step!r}: status {status}, {said}"
        else:
            assert status in (0, 125), f"{victim} killed at {step!r}: status {status}, {said}"
            assert status == 0 or said.strip(), "a refusal without a word"
        assert "Traceback" not in said
        self._agree(f"{victim} killed at {step!r} (status {status}: {said.strip()})")

    @precondition(lambda self: self.bystander is not None)
    @rule(data=st.data())
    def kill_beside_a_running_launch(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from([one for one in self.world.victims() if one != "yod"]))
        self.world.kill(victim, None)
        self._agree(f"{victim} killed beside a running launch")

    def _agree(self, after: str) -> None:
        assert self.bystander.yod.poll() is None, f"{after}: the bystander died: {self.bystander.complaint()}"
        only = {self.bystander.launcher()}
        wait_until(lambda: self.world.live() == only, f"{after}: the database knows just the bystander")
        wait_until(lambda: len(self.world.ranks()) == 2, f"{after}: only the bystander's ranks run")
        wait_until(self.world.healthy, f"{after}: every node is up again")

    def teardown(self) -> None:
        if not hasattr(self, "bystander"):
            return
        self.bystander.yod.kill()  # the last orphan: nothing of it may be left either
        self.bystander.yod.wait()
        wait_until(lambda: not self.world.live(), "the database knows nobody")
        wait_until(lambda: not self.world.ranks(), "no rank is left")
        free = [one for one in self.world.read().processors if one.launcher is None and one.partition is None]
        assert len(free) == PROCESSORS, "every processor is free"


@pytest.fixture(params=["sqlite", "mariadb"])
def world(request: pytest.FixtureRequest, mesh: MakeMesh) -> Iterator[World]:
    if request.param == "sqlite":
        yield World(mesh(PROCESSORS, NODES, cpas=2), None)
        return
    server: Server = request.getfixturevalue("sql_server")
    yield World(mesh(PROCESSORS, NODES, cpas=2, database=server.new_database()), server)


@pytest.mark.timeout(long(400, 3600))
@pytest.mark.storm
def test_anything_may_die_at_any_time(world: World) -> None:
    machine = type("FaultsHere", (Faults,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=long(4, 40),  # hypothesis's first two are trivial: the second has no rule at all
            stateful_step_count=7,
            deadline=None,
            derandomize=not LONG,
            suppress_health_check=list(HealthCheck),
        ),
    )
