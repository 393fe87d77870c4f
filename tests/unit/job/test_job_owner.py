"""The owner of a job as it begins: what people want is done to all of its tasks, or not yet."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.job.description import META, Description
from agents.job.grants.grant import Grant
from agents.job.job_owner import JobOwner
from agents.job.parts.moves import Moves
from agents.job.phase import Phase
from agents.job.tasks.adding import checked, write
from agents.job.tasks.new_tasks import NewTask
from agents.job.workers.commands import Command
from agents.job.workers.worker import Connection, Worker
from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.sockets import connect
from agents.linux.processes import start_time
from agents.wire.control import control, decode
from agents.wire.frames import Decoder
from agents.wire.launch_events import GiveBack
from redmesh.answers import said_file
from redmesh.state import CANCELLED, UNSURE, StateFull, StateGone, StateObject, job_path, new_uuid, open_for_reading
from tests.support.chance import examples
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
        process, ours = socket.socketpair()  # in the place of mesh job standby
        moves._standby._link = Link(loop, ours, lambda *_: None, lambda *_: None)
        with process, connect(f"{tmp_path}/{uuid}.sock", 5.0) as sock:
            sock.sendall(control({"op": "move", "node": "n2", "id": 1}))
            until = time.monotonic() + PATIENCE_S
            while not owner._early and time.monotonic() < until:
                loop.run_once(0.1)
            assert owner.phase.now is Phase.AWAITING and owner._early and not moves._waiting
            left.kill()
            left.wait()
            while not moves._waiting and time.monotonic() < until:
                loop.run_once(0.1)
            assert owner.phase.now is Phase.SERVING and moves._waiting
            process.settimeout(PATIENCE_S)
            asked = [decode(payload) for _, payload in Decoder().feed(process.recv(65536))]
            assert asked == [{"op": "leave", "login": "n2"}], "the standby was asked"
            owner.suspend()
            assert owner.phase.now is Phase.OVER
    finally:
        left.kill()
        left.wait()
        loop.close()


def test_a_move_that_another_login_processor_asks_for_waits_for_launches_of_a_lost_owner(tmp_path: Path) -> None:
    uuid, loop = new_uuid(), Loop()
    left = subprocess.Popen(["sleep", "1000"])
    yods = f"[[{left.pid}, {start_time(left.pid)}]]"
    meta: dict[str, str | int | float | bytes | None] = {
        "uuid": uuid,
        META: Description(["true"], "/").dump(),
        "yods": yods,
        "held": 1,
    }
    job = StateObject.create(job_path(str(tmp_path), uuid), meta, durable=False)
    job.add_array(1, 5)
    ended: list[bool] = []
    owner = JobOwner(loop, job, lambda: ended.append(True))
    moves = next(part for part in owner._parts if isinstance(part, Moves))
    try:
        owner.begin()
        moves._on_leave("l2", "")  # what the standby's process reports
        loop.run_once(0.0)
        assert owner.phase.now is Phase.AWAITING
        left.kill()
        left.wait()
        until = time.monotonic() + PATIENCE_S
        while not ended and time.monotonic() < until:
            loop.run_once(0.1)
        assert ended and owner.phase.closed
    finally:
        left.kill()
        left.wait()
        loop.close()
    db = open_for_reading(job.path)
    assert db.execute("SELECT value FROM meta WHERE key = 'handed_to'").fetchall() == [("l2",)]
    db.close()


def test_a_worker_of_a_launch_that_is_wanted_by_others_has_a_task_before_it_exits(tmp_path: Path) -> None:
    """Otherwise requests that come and go would have workers started for nothing, and the job would never go on."""
    uuid, loop = new_uuid(), Loop()
    path, text = job_path(str(tmp_path), uuid), Description(["true"], "/").dump()
    job = StateObject.create(path, {"uuid": uuid, META: text}, durable=False)
    job.add_array(1, 5)
    owner = JobOwner(loop, job, lambda: None)
    owner.tasks.add(1, 5)
    process = subprocess.Popen(["true"])
    grant = Grant(1, 1, process, said_file(), waits=True, grows=False, excludes=())
    grant.allocated, grant.launcher, grant.nodes = True, 7, [{"name": "n0", "processors": [0]}]
    owner.processors.grants[1] = grant
    owner.processors._giving.ask(GiveBack("k", [7], 0, "bob", pause=False))
    connection = Connection()
    connection.grant = grant
    answers: list[bytes] = []
    worker = Worker(connection, "n0", 0, 0, None)
    owner.workers.append(worker)
    try:
        for ended in range(2):
            worker.reply = answers.append
            owner.dispatch.serve()
            for number, attempt in list(owner.tasks.given_to(worker).items()):
                owner.tasks.end(worker, number, attempt, failed=False)
            assert worker.stopped is bool(ended)
        assert owner.tasks.waiting < 5 and len(answers) == 2
    finally:
        process.wait()
        loop.close()


EVENTS: dict[str, Callable[[JobOwner, Moves], object]] = {
    "full": lambda owner, _: owner.owner._fail(StateFull("full", "")),
    "gone": lambda owner, _: owner.owner._fail(StateGone("gone", "")),
    "fenced": lambda owner, _: owner.fence("it is elsewhere"),
    "leaves": lambda _, moves: moves._on_leave("l2", ""),
    "stays": lambda _, moves: moves._on_leave("l2", "no"),
    "SIGTERM": lambda owner, _: owner.suspend(),
    "time to leave": lambda owner, _: owner._leave_now(),
    "no launch is left": lambda owner, _: owner.on_grant_over(),
    "serve": lambda owner, _: owner.serve(),
    "commit": lambda owner, _: owner.owner.commit(),
    "loop": lambda owner, _: owner.loop.run_once(0.0),
}
COMMANDS = ("cancel", "hold", "retry", "suspend", "move", "wait", "unknown")


@given(st.lists(st.sampled_from([*EVENTS, *COMMANDS]), max_size=6), st.booleans())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_order_of_events_ends_an_owner_by_an_error(tmp_path: Path, events: list[str], at_once: bool) -> None:
    """A held job gets no processors; what its owner hears may come in every phase."""
    uuid, loop = new_uuid(), Loop()
    meta: dict[str, str | int | float | bytes | None] = {
        "uuid": uuid,
        META: Description(["true"], "/").dump(),
        "held": 1,
    }
    job = StateObject.create(job_path(str(tmp_path), uuid), meta, durable=False)
    job.add_array(1, 2)
    owner = JobOwner(loop, job, lambda: None)
    moves = next(part for part in owner._parts if isinstance(part, Moves))
    try:
        owner.begin()
        if at_once:
            owner._await_left([])
        for event in events:
            if event in COMMANDS and owner.phase.closed:
                continue  # its links are closed
            if event in COMMANDS:
                owner.on_command(Connection(), Command({"op": event, "id": 1, "node": "l2"}))
            else:
                EVENTS[event](owner, moves)
    finally:
        loop.close()


def test_after_a_takeover_every_task_with_an_order_may_have_begun(tmp_path: Path) -> None:
    """The copy lacks the last commits of its owner: which tasks these handed out depends on which had ended."""
    uuid, loop = new_uuid(), Loop()
    meta = {"uuid": uuid, META: Description(["true"], "/").dump(), "held": 1, UNSURE: 1}
    job = StateObject.create(job_path(str(tmp_path), uuid), meta, durable=False)
    lines = [NewTask(str(number), [str(number - 1)] if number > 1 else [], "x") for number in range(1, 301)]
    write(job, checked(job, lines))
    owner = JobOwner(loop, job, loop.stop)
    owner.begin()
    while owner.phase.now is not Phase.SERVING:
        loop.run_once(0.1)
    assert (owner.tasks.waiting, owner.tasks.blocked) == (1, 299)
    assert job.read("SELECT min(attempt), max(attempt) FROM task") == [(1, 1)]
    owner.suspend()
    loop.close()
