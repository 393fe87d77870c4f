"""kill -9 of a yod on a whole mesh: no process, processor, partition or socket of it is left within 3 s."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux.processes import alive, start_time
from db.store.store import open_store
from tests.support.mesh import PrivateMesh, restarted_on_failure, while_up
from tests.support.waiting import freeze, wait_until
from tests.support.yods import ranks_left

#: A rank that ignores what can be ignored, and hides a grandchild in a session of its own.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(0), os.close(1), os.close(2)
        time.sleep(600)
    os._exit(0)
os.wait()  # the one in between has gone, the grandchild is there
open(os.path.join(sys.argv[1], os.environ["YOD_RANK"]), "w").close()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Four processors on four nodes, two CPAs."""
    with while_up(PrivateMesh(4, 4, 2, REDMESH_SILENT_S="2")) as made:
        yield made


@pytest.fixture
def running(one_mesh: PrivateMesh, tmp_path: Path) -> Iterator[tuple[PrivateMesh, int]]:
    """The mesh, and the pid of a yod whose four stubborn ranks all run on it; nothing of it may be left afterwards."""
    program, flags = tmp_path / "stubborn.py", tmp_path / "flags"
    program.write_text(STUBBORN)
    flags.mkdir()
    with restarted_on_failure(one_mesh):
        yod = one_mesh.start("yod", "-sz", "4", sys.executable, "-S", str(program), str(flags))
        wait_until(lambda: len(os.listdir(flags)) == 4 and yod.poll() is None, "every rank runs")
        wait_until(lambda: states(one_mesh) == ["busy"], "and the database knows")
        yield one_mesh, yod.pid
        _assert_nothing_left(one_mesh)


def rows(mesh: PrivateMesh, sql: str) -> list[tuple[object, ...]]:
    with open_store(mesh.database) as store:
        return list(store.read(sql))


def states(mesh: PrivateMesh) -> list[object]:
    return [row[0] for row in rows(mesh, "SELECT state FROM launcher WHERE ended_at IS NULL")]


def _assert_nothing_left(mesh: PrivateMesh) -> None:
    def left() -> list[object]:
        sockets = [path.name for path in Path(mesh.run_dir).glob("launch-*")] + [
            path.name for path in Path(mesh.run_dir).glob("yod-*")
        ]
        owned = rows(mesh, "SELECT id FROM processor WHERE launcher IS NOT NULL OR `partition` IS NOT NULL")
        return [*ranks_left(mesh), *states(mesh), *owned, *sockets]

    wait_until(lambda: not left(), lambda: f"nothing is left behind: {left()}", step_s=0.05)
    assert rows(mesh, "SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL") == [(0,)]
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0


def test_a_killed_yod_leaves_no_process_and_no_processor(running: tuple[PrivateMesh, int]) -> None:
    mesh, yod = running
    assert len(ranks_left(mesh)) == 8
    os.kill(yod, signal.SIGKILL)


@pytest.mark.parametrize("daemons", [("rca",), ("cpa-0", "cpa-1"), ("rca", "cpa-0", "cpa-1"), ("n2",)])
def test_killed_together_with(running: tuple[PrivateMesh, int], daemons: tuple[str, ...]) -> None:
    mesh, yod = running
    pids = [mesh.pid_of(name) for name in daemons]
    began = {pid: start_time(pid) for pid in pids}
    for pid in [*pids, yod]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid, began[pid]) for pid in pids), "they are dead")
    wait_until(lambda: all_running(mesh, daemons, pids), "the keeper has started them again")


def all_running(mesh: PrivateMesh, daemons: tuple[str, ...], before: list[int]) -> bool:
    """Whether all of them run again, with other pids."""
    return all(mesh.pid_of(name) not in before for name in daemons)


def test_stopped_by_job_control_is_left_alone(running: tuple[PrivateMesh, int]) -> None:
    mesh, yod = running
    freeze(yod)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 3.0, "longer than a launcher may be silent")
    assert states(mesh) == ["busy"] and len(ranks_left(mesh)) == 8
    os.kill(yod, signal.SIGKILL)
