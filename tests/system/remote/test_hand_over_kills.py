"""A hand-over of a running job with kill -9 at each of its steps: one object afterwards, one owner, no task lost."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from redmesh.state import StateError, owned
from tests.support.chance import long
from tests.support.far_mesh import TlsMesh
from tests.support.mesh import while_up
from tests.support.waiting import wait_until
from tests.system.remote.test_hand_over import logged, shown
from tests.system.remote.test_other_login import OTHER_LOGIN, OtherLogin
from tests.system.remote.test_standby import meta

KILL_AT = Path(__file__).parents[2] / "support" / "kill_at"
HAND_OVER, HOLDER = "console/tracker/hand_over.py", "agents/objects/holder.py"
RECEIVER, OWNER, MOVES = "agents/objects/receiver.py", "agents/job/job_owner.py", "agents/job/parts/moves.py"
TASKS = 4
#: What is killed, and when; in this order in the life of a hand-over.
STEPS = {
    "the old owner, as it ends its stage": f"call {MOVES} _on_leave 0",
    "the old owner, before it records that it hands over": f"call {OWNER} _record_suspension 0",
    "the old owner, after it has recorded that": f"return {OWNER} _record_suspension 0",
    "its standby process, after the owner has ended": f"call {HAND_OVER} run 0",
    "the same, before the tracker's statement": f"call {HAND_OVER} _take 0",
    "the CPA, before the statement": f"call {HAND_OVER} _take CPA",
    "the CPA, after the statement and before its answer": "return db/jobs/locations.py take_over 0",
    "the standby process, after the statement": f"return {HAND_OVER} _take 0",
    "the same, after the old object is put aside": f"return {HOLDER} fence 0",
    "the same, after the copy became the object": f"return {HAND_OVER} _promoted 0",
    "the process that fetches, before it does": f"call {RECEIVER} fetch 0",
    "the same, with the object on its disk": f"return {HOLDER} store 0",
    "the same, after the object is live there": f"return {RECEIVER} fetch 0",
    "the new owner, as it begins": f"call {OWNER} begin 0",
    "the new owner, as it takes up the tasks": f"call {OWNER} _take_up 0",
}

#: One of each kind; all of them in make storm. test_hand_over.py kills the old owner while it hands over.
SHORT = (
    "the CPA, after the statement and before its answer", "the standby process, after the statement",
    "the same, with the object on its disk", "the new owner, as it takes up the tasks",
)  # fmt: skip


@pytest.fixture(scope="module")
def mesh() -> Iterator[TlsMesh]:
    made = TlsMesh(processors=8, nodes=2)
    made.env["PYTHONPATH"] = f"{KILL_AT}:{made.env['PYTHONPATH']}"
    made.env["KILL_AT"] = str(made.home / "kill-a-cpa")
    made.env["KILL_AT_FUNCTIONS"] = " ".join(sorted({step.split()[2] for step in STEPS.values()}))
    with while_up(made) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def other(mesh: TlsMesh) -> Iterator[OtherLogin]:
    other = OtherLogin(mesh, views=False)
    yield other
    other.close()


def of_daemons(step: str) -> bool:
    """Whether a CPA, or a process that an RCA starts, is killed: they read the mesh's file, not the job's."""
    return step.startswith("return db/") or RECEIVER in step or step == f"return {HOLDER} store 0"


class HandedOver:
    """A job that is handed over and loses a process at ``step``."""

    def __init__(self, mesh: TlsMesh, other: OtherLogin, number: int, step: str) -> None:
        self.mesh, self.other, self.step = mesh, other, step
        self.directory = mesh.work / f"killed-{number}"
        self.directory.mkdir()
        self.gate, self.ran = self.directory / "gate", self.directory / "ran"
        self.spec = Path(mesh.env["KILL_AT"]) if of_daemons(step) else self.directory / "kill"
        self.env = {**mesh.env, "KILL_AT": str(self.directory / "kill")}
        script = f"echo $0 >> {self.ran}; test $0 -le 2 || while ! test -e {self.gate}; do sleep 0.1; done"
        words = ("--array", f"1-{TASKS}", "--limit", "1", "--", "sh", "-c", script, "{}")
        self.uuid = mesh.run("mesh", "submit", *words, env=self.env, check=True).stdout.strip()
        jobs = Path(other.env["XDG_STATE_HOME"]) / "redmesh" / "jobs"
        self.here, self.there = (directory / f"{self.uuid}.job" for directory in (mesh.state / "jobs", jobs))

    def hand_over(self) -> None:
        """Begin, and wait until the step has come."""
        wait_until(lambda: meta(self.here, "standby"), "it has a standby")
        cpa = str(self.mesh.pid_of("cpa-0")) if "CPA" in self.step else ""
        self.spec.write_text(self.step.replace("CPA", cpa))
        env = {**self.other.env, **{key: self.env[key] for key in ("PYTHONPATH", "KILL_AT")}}
        moving = self.mesh.start("mesh", "job", "move", self.uuid, OTHER_LOGIN, env=env)

        def begun() -> bool:
            nonlocal moving
            if logged(self.here, "no more tasks start here") or not self.spec.exists():
                return True
            if moving.poll() is not None:  # another job's step has killed the CPA that it asked
                moving = self.mesh.start("mesh", "job", "move", self.uuid, OTHER_LOGIN, env=env)
            return False

        try:
            wait_until(begun, "it has begun", step_s=0.1)
            self.gate.touch()  # what runs ends, and with it the stage

            def came() -> bool:
                nonlocal moving
                if self.spec.exists() and moving.poll() is not None:  # as above, later
                    moving = self.mesh.start("mesh", "job", "resume", self.uuid, env=env)
                return not self.spec.exists()

            wait_until(came, f"the step has come: {self.step}", step_s=0.1)
        finally:
            moving.kill()
            moving.wait()

    def end(self) -> None:
        """Somebody goes on with the job, on either login processor, as its messages say; it ends."""

        def over() -> bool:
            if self.state() == "done":
                return True
            if not any(owned(str(path)) for path in self.live()):
                for run in (self.mesh.run, self.other.run):
                    resumed = run("mesh", "job", "resume", self.uuid)
                    assert "Traceback" not in resumed.stderr, resumed.stderr
            return False

        wait_until(over, lambda: f"it ends after {self.step}: {self.state()!r}, {self.live()}", step_s=0.2)

    def live(self) -> list[Path]:
        """The objects that an owner could open, on either login processor and on the nodes."""
        live = [path for path in (self.here, self.there) if path.exists()]
        return live + list((self.mesh.state / "jobs").glob(f"n*/{self.uuid}.job"))

    def state(self) -> str:
        """The job's state, as its object says; empty while it moves."""
        with suppress(StateError, ValueError):
            (live,) = self.live()
            return str(meta(live, "state"))
        return ""

    def check(self) -> None:
        """One object, whose word about its tasks is what happened."""
        live = self.live()
        assert len(live) == 1, (self.step, live)
        here = live[0] != self.there
        told = shown(self.mesh.run if here else self.other.run, self.uuid)
        if not here:

            def asked() -> bool:  # its standby, if it had one at its end; the report of the last move may be on its way
                done = self.mesh.run("mesh", "job", "show", self.uuid)
                return f"the login processor {OTHER_LOGIN}" in done.stderr + done.stdout

            wait_until(asked, f"{self.step}: here it is known that the object is there", step_s=0.5)
        assert told["counts"] == {"done": TASKS}, (self.step, told["counts"])
        db = sqlite3.connect(live[0])
        try:
            twice = {int(row[0]) for row in db.execute("SELECT first FROM task WHERE attempt > 1")}
        finally:
            db.close()
        runs = sorted(map(int, self.ran.read_text().split()))
        assert set(runs) == set(range(1, TASKS + 1))
        assert {number for number in runs if runs.count(number) > 1} <= twice, (self.step, runs, twice)


@pytest.mark.storm
def test_whoever_is_killed_at_whichever_step(mesh: TlsMesh, other: OtherLogin) -> None:
    names = long(SHORT, list(STEPS))

    def run(number: int, name: str) -> None:
        job = HandedOver(mesh, other, number, STEPS[name])
        job.hand_over()
        job.end()
        job.check()

    # A CPA that is killed makes other hand-overs take another way, without the step that they wait for.
    numbered = list(enumerate(names))
    alone = [one for one in numbered if "CPA" in one[1] or of_daemons(STEPS[one[1]])]
    begun: list[tuple[str, Future[None]]] = []
    for together in ([one for one in numbered if one not in alone], *([one] for one in alone)):
        with ThreadPoolExecutor(4) as pool:
            begun += [(name, pool.submit(run, number, name)) for number, name in together]
    faults = [
        f"{name}:\n{''.join(traceback.format_exception(error)[-3:])}"
        for name, one in begun
        if (error := one.exception())
    ]
    assert not faults, "\n".join(faults)
