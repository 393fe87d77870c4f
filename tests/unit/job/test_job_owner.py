"""The owner of a job as it begins: what people want is done to all of its tasks, or not yet."""

import subprocess
import time
from pathlib import Path

from agents.job.description import META, Description
from agents.job.job_owner import JobOwner
from agents.job.parts.moves import Moves
from agents.job.phase import Phase
from agents.link.loop import Loop
from agents.link.sockets import connect
from agents.linux.processes import start_time
from agents.wire.control import control
from redmesh.state import CANCELLED, StateObject, job_path, new_uuid, open_for_reading
from tests.support.waiting import PATIENCE_S


def test_a_job_that_waits_for_launches_of_a_lost_owner_is_cancelled_as_a_whole(tmp_path: Path) -> None:
    uuid, loop = new_uuid(), Loop()
    path = job_path(str(tmp_path), uuid)
    left = subprocess.Popen(["sleep", "1000"])
    meta = {"uuid": uuid, META: Description(["true"], "/").dump(), "yods": f"[[{left.pid}, {start_time(left.pid)}]]"}
    job = StateObject.create(path, meta, durable=False)
    job.add_array(1, 5)
    ended: list[bool] = []
    JobOwner(loop, job, lambda: ended.append(True)).begin()
    try:
        with connect(f"{tmp_path}/{uuid}.sock", 5.0) as sock:  # the path may be too long for connect(2)
            sock.sendall(control({"op": "cancel", "id": 1}))
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                loop.run_once(0.1)
            assert not ended
            left.kill()
            left.wait()
            until = time.monotonic() + PATIENCE_S
            while not ended and time.monotonic() < until:
                loop.run_once(0.1)
    finally:
        left.kill()
        left.wait()
        loop.close()
    db = open_for_reading(path)
    assert db.execute("SELECT state, sum(last - first + 1) FROM task GROUP BY state").fetchall() == [(CANCELLED, 5)]
    db.close()


def test_a_job_that_never_begins_has_its_tasks_cancelled(tmp_path: Path) -> None:
    uuid, loop = new_uuid(), Loop()
    path = job_path(str(tmp_path), uuid)
    job = StateObject.create(path, {"uuid": uuid, META: Description(["true"], "/").dump()}, durable=False)
    job.add_array(1, 5)
    JobOwner(loop, job, loop.stop).fail("the job before it failed")
    loop.close()
    db = open_for_reading(path)
    assert db.execute("SELECT state, sum(last - first + 1) FROM task GROUP BY state").fetchall() == [(CANCELLED, 5)]
    db.close()


def test_a_job_with_nothing_left_to_do_ends_once_its_loop_runs(tmp_path: Path) -> None:
    uuid, loop = new_uuid(), Loop()
    meta = {"uuid": uuid, META: Description(["true"], "/").dump()}
    job = StateObject.create(job_path(str(tmp_path), uuid), meta, durable=False)
    ended: list[bool] = []
    JobOwner(loop, job, lambda: ended.append(True)).begin()
    assert not ended, "its process would wait for ever in a loop that begins after its end"
    while not ended:
        loop.run_once(0.1)
    loop.close()


def test_a_job_that_waits_for_launches_of_a_lost_owner_moves_once_they_have_ended(tmp_path: Path) -> None:
    """Elsewhere it would run tasks a second time that these launches still run."""
    uuid, loop = new_uuid(), Loop()
    left = subprocess.Popen(["sleep", "1000"])
    yods = f"[[{left.pid}, {start_time(left.pid)}]]"
    meta = {"uuid": uuid, META: Description(["true"], "/").dump(), "yods": yods, "held": 1}
    job = StateObject.create(job_path(str(tmp_path), uuid), meta, durable=False)
    job.add_array(1, 5)
    owner = JobOwner(loop, job, loop.stop)
    moves = next(part for part in owner._parts if isinstance(part, Moves))
    try:
        owner.begin()
        moves._standby.node = "n2"
        with connect(f"{tmp_path}/{uuid}.sock", 5.0) as sock:
            sock.sendall(control({"op": "move", "node": "n2", "id": 1}))
            until = time.monotonic() + PATIENCE_S
            while not owner._early and time.monotonic() < until:
                loop.run_once(0.1)
            assert owner.phase.now is Phase.AWAITING and owner._early and not moves._waiting
            left.kill()
            left.wait()
            while not moves._waiting and time.monotonic() < until:
                loop.run_once(0.1)
            assert owner.phase.now is Phase.SERVING and moves._waiting, "the standby was asked"
            owner.suspend()
            assert owner.phase.now is Phase.OVER
    finally:
        left.kill()
        left.wait()
        loop.close()
