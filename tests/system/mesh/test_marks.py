"""What a killed launch child leaves is found by whatever PCT comes next: by its mark, control group or session."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.link.journal import Journal
from agents.linux import cgroup, processes
from agents.pct.ranks.process_tracking import ProcessTracking, Record, Session, belonging, now
from tests.support.mesh import PrivateMesh, while_up
from tests.support.mpis import needs_open_mpi
from tests.support.shared_mesh import borrowed, is_in_use
from tests.support.waiting import PATIENCE_S, freeze, wait_until


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    with while_up(PrivateMesh(processors=1, nodes=1)) as made:
        yield made


@pytest.fixture
def mesh(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh of one processor."""
    with borrowed(one_mesh):
        yield one_mesh


def test_strays_of_a_pct_and_a_launch_child_that_were_killed_together(mesh: PrivateMesh) -> None:
    pct = next(one["pid"] for one in mesh.keeper()["daemons"] if one["name"] == "n0")
    yod = mesh.start("yod", "-sz", "1", "sh", "-c", "setsid sleep 4720 & sleep 4720")
    wait_until(lambda: is_in_use(mesh, 1), "it runs")
    (child,) = [pid for pid in processes.children(pct) if processes.alive(pid)]
    strays = wait_until(lambda: _sleepers(processes.descendants(child)), "both sleep")
    freeze(pct)  # so that it cannot clean up behind its child
    os.kill(child, signal.SIGKILL)
    os.kill(pct, signal.SIGKILL)
    wait_until(lambda: not any(processes.alive(pid) for pid in strays), "the next PCT has found them")
    yod.wait(PATIENCE_S)


def _sleepers(pids: list[int]) -> list[int]:
    found = [pid for pid in pids if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in ("sleep", "coreutils")]
    return found if len(found) == 2 else []


_WITHOUT_GROUPS = ("unshare", "-m", "sh", "-c", 'umount -a -t cgroup2; exec "$@"', "sh")
#: A child in the session of its rank, and one in a session of its own; neither has a variable of ours.
_UNMARKED = "env -i sleep 4721 & setsid env -i sleep 4721 & sleep 4721"


def _up(mesh: PrivateMesh, groups: bool, processors: int = 1) -> None:
    if groups or not cgroup.parent_directory():
        mesh.up()
    else:
        mesh.run(*_WITHOUT_GROUPS, "mesh", "up", "--processors", str(processors), "--nodes", "1", check=True)


_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root unmounts cgroup v2")


@pytest.mark.parametrize(
    ("groups", "shared"),
    [
        pytest.param(
            True, False, marks=pytest.mark.skipif(not cgroup.parent_directory(), reason="no cgroup v2 to write to")
        ),
        pytest.param(False, False, marks=_AS_ROOT),
        pytest.param(False, True, marks=[_AS_ROOT, needs_open_mpi]),
    ],
    ids=["cgroup", "sessions", "one session"],
)
def test_unmarked_children_of_a_keeper_pct_and_launch_child_killed_together(groups: bool, shared: bool) -> None:
    mesh = PrivateMesh(processors=1, nodes=1)
    strangers = [subprocess.Popen(["env", "-i", "sleep", "4721"], start_new_session=True)]
    try:
        _up(mesh, groups)
        ranks = len(os.sched_getaffinity(0)) + 1 if shared else 1
        options = ["--mpi=pmix", "-overcommit"] if shared else []
        yod = mesh.start("yod", *options, "-sz", str(ranks), "sh", "-c", _UNMARKED)
        (child,) = wait_until(lambda: _launch_children(mesh), "a launch child has a record")
        sleepers = wait_until(lambda: _all_asleep(child, 3 * ranks), "three of each rank sleep")
        assert (child in {os.getsid(pid) for pid in sleepers}) == shared
        record = mesh.state / "launch-children" / f"n0-{child}-{processes.start_time(child)}"
        if groups:
            group = Path(next(line for line in record.read_text().splitlines() if line.startswith("group ")).split()[1])
            assert set(sleepers) <= set(cgroup.members(str(group))), "they are in the launch's group"
            assert child not in cgroup.members(str(group))
        else:
            wait_until(lambda: all(f"process {pid} " in record.read_text() for pid in sleepers), "they are recorded")
            assert "group" not in record.read_text()
        doomed = [mesh.pid_of("keeper"), mesh.pid_of("n0"), child]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                os.kill(pid, number)
        wait_until(lambda: not any(processes.alive(pid) for pid in doomed), "they are dead")
        assert [pid for pid in sleepers if processes.alive(pid)], "the unmarked ones live on"
        _up(mesh, groups)
        wait_until(lambda: not any(processes.alive(pid) for pid in sleepers), "the next PCT has found them")
        wait_until(lambda: not record.exists(), "and nothing is left of the record")
        assert not groups or not group.exists()
        assert all(processes.alive(one.pid) for one in strangers), "what was nobody's launch is left alone"
        yod.wait(PATIENCE_S)
    finally:
        left = mesh.close()
        for one in strangers:
            one.kill()
            one.wait()
    assert not left


@_AS_ROOT
@needs_open_mpi
def test_what_a_launch_in_one_session_leaves_is_not_its_neighbours() -> None:
    """A helper of its launch child is in the session of PCT and launch children, and proves nothing about them."""
    mesh = PrivateMesh(processors=2, nodes=1)
    try:
        _up(mesh, groups=False, processors=2)
        neighbour = mesh.start("yod", "-sz", "1", "sleep", "4724")
        (spared,) = wait_until(lambda: _launch_children(mesh), "the neighbour has a launch child")
        ranks = len(os.sched_getaffinity(0)) + 1
        yod = mesh.start("yod", "--mpi=pmix", "-overcommit", "-sz", str(ranks), "sleep", "4725")
        (child,) = wait_until(
            lambda: [pid for pid in _launch_children(mesh) if pid != spared], "a second one has a record"
        )
        record = mesh.state / "launch-children" / f"n0-{child}-{processes.start_time(child)}"
        sleepers = wait_until(lambda: _all_asleep(child, ranks), "its ranks sleep")
        assert os.getsid(child) == child
        (helper,) = [pid for pid in processes.children(child) if os.getsid(pid) == os.getsid(mesh.pid_of("n0"))]
        wait_until(lambda: all(f"process {pid} " in record.read_text() for pid in sleepers), "they are recorded")
        os.kill(child, signal.SIGKILL)
        yod.wait(PATIENCE_S)
        wait_until(lambda: not record.exists(), "nothing of the second launch is left")
        assert not [pid for pid in (helper, *sleepers) if processes.alive(pid)]
        assert processes.alive(spared) and neighbour.poll() is None
    finally:
        left = mesh.close()
    assert not left


def test_an_adopted_launch_keeps_its_group(mesh: PrivateMesh) -> None:
    yod = mesh.start("yod", "-sz", "1", "sh", "-c", _UNMARKED)
    (child,) = wait_until(lambda: _launch_children(mesh), "a launch child has a record")
    sleepers = wait_until(lambda: _all_asleep(child, 3), "all three sleep")
    before = mesh.kill("n0")
    wait_until(lambda: mesh.pid_of("n0") not in (0, before) and is_in_use(mesh, 1), "adopted")
    assert all(processes.alive(pid) for pid in (child, *sleepers)) and yod.poll() is None
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not any(processes.alive(pid) for pid in sleepers), "the PCT that adopted it ends the rest")
    wait_until(lambda: not _launch_children(mesh), "and removes its record")
    yod.wait(PATIENCE_S)


def test_a_launch_without_its_runtime_directory_is_left_alone(mesh: PrivateMesh) -> None:
    yod = mesh.start("yod", "-sz", "1", "sleep", "4722")
    (child,) = wait_until(lambda: _launch_children(mesh), "a launch child has a record")
    (rank,) = wait_until(lambda: _all_asleep(child, 1), "it sleeps")
    for path in mesh.run_dir.glob("launch-*"):
        path.unlink()  # as logind does at the last logout
    before = mesh.kill("n0")
    wait_until(lambda: mesh.pid_of("n0") not in (0, before) and mesh.answers("n0"), "the next PCT answers")
    assert processes.alive(child) and processes.alive(rank) and yod.poll() is None


def _launch_children(mesh: PrivateMesh) -> list[int]:
    found = []
    for path in (mesh.state / "launch-children").glob("n0-*"):
        with contextlib.suppress(FileNotFoundError):  # its launch has ended meanwhile
            if "launcher 0\n" not in path.read_text():
                found.append(int(path.name.split("-")[1]))
    return found


def _all_asleep(child: int, count: int) -> list[int]:
    found = []
    for pid in processes.descendants(child):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"]:
            found.append(pid)
    return found if len(found) == count else []


class TestBelonging:
    """Who provably is of a launch: numbers that were used again prove nothing."""

    @pytest.fixture
    def family(self) -> Iterator[tuple[int, int]]:
        """A session's leader and its child."""
        leader = subprocess.Popen(["env", "-i", "sh", "-c", "sleep 4723 & wait"], start_new_session=True)
        try:
            (child,) = wait_until(lambda: processes.children(leader.pid), "it has a child")
            yield leader.pid, child
        finally:
            processes.kill_all([*processes.descendants(leader.pid), leader.pid])
            leader.wait()

    def _found(self, sid: int, since: int, seen: int, autogroup: int) -> set[int]:
        sessions = {sid: Session(sid, since, seen, autogroup)}
        return {pid for pid, _started in belonging(sessions, set(), 0)}

    def test_by_the_time_the_session_was_known(self, family: tuple[int, int]) -> None:
        leader, child = family
        started = processes.start_time(leader)
        assert self._found(leader, started, started + 1, 0) == {leader, child}
        assert self._found(leader, 0, started, 0) == set(), "a session of the same number, before this one"
        assert self._found(leader, now() + 1, now() + 2, 0) == set()

    @pytest.mark.skipif(not os.path.exists("/proc/self/autogroup"), reason="a kernel without autogroups")
    def test_by_its_autogroup(self, family: tuple[int, int]) -> None:
        leader, child = family
        number = int(Path(f"/proc/{child}/autogroup").read_text().split()[0].rpartition("-")[2])
        assert self._found(leader, 0, 0, number) == {leader, child}
        assert self._found(leader, 0, now(), number + 1) == set()

    def test_processes_belong_by_pid_and_start_time(self, family: tuple[int, int]) -> None:
        leader, child = family
        assert belonging({}, {(child, processes.start_time(child) - 1)}, 0) == []
        assert {pid for pid, _ in belonging({}, {(child, processes.start_time(child))}, 0)} == {leader, child}


def test_a_record_that_is_kept_outlives_a_pct_of_another_host(tmp_path: Path) -> None:
    """Two hosts share STATE, and have nodes of the same name: one of them finds the other's record."""
    record = Record(str(_shared(tmp_path)), "n0", "another-boot 1", "", lambda work: work())
    record.begin(7)
    (path,) = (tmp_path / "launch-children").iterdir()
    os.utime(path, (0, 0))
    record.keep()
    tracking = ProcessTracking(str(tmp_path), "n0", Journal("", "pct"))
    assert tracking.end_dead() == 0 and path.exists()
    os.utime(path, (0, 0))
    assert tracking.end_dead() == 0 and not path.exists(), "nobody has kept it"


def _shared(path: Path) -> Path:
    (path / "launch-children").mkdir(mode=0o700)
    path.chmod(0o700)
    return path
