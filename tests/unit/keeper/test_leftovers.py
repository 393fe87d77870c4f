"""What a killed mesh of a batch job left on a host is removed, and nothing else."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agents.keeper import leftovers
from agents.keeper.errors import KeeperError
from agents.keeper.job_files import JobFiles
from agents.keeper.keeper import LOCK_IN_JOB_S, LOCK_S, take_lock
from agents.keeper.leftovers import LOCAL, STARTS_S, YOUNG_S
from agents.link.journal import Journal
from agents.link.sockets import listen
from agents.linux import processes
from agents.pct.ranks.fork import file_system
from console.deploy.personal import lifecycle
from console.settings import load
from redmesh.settings.keeper_file import read_keeper_file
from redmesh.state import StateObject, job_path, new_uuid
from tests.support.waiting import wait_until

_DEPLOY = Path(__file__).parents[3] / "console" / "deploy"
#: A pid that no process has, and a start time.
_NOBODY = [1 << 22, 5]
#: Required in every keeper.json, and not looked at here.
_FILE = {"boot_id": "b", "login": "", "nodes": [], "cpas": 0}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "redmesh-7" / "jobs"


def state_at(path: Path, *, age_s: float = YOUNG_S + 60, run: Path | None = None, **more: object) -> Path:
    """A keeper's directory, as old as that."""
    run = run or path / "run" / path.name
    for directory in (path, run):
        directory.mkdir(parents=True, exist_ok=True)
    (run / "rca.sock").touch()
    (path / "keeper.json").write_text(
        json.dumps({**_FILE, "mesh": path.name, "run": str(run), "state": str(path), **more})
    )
    (path / "mesh.lock").touch()
    grow_old(path, age_s)
    grow_old(run, age_s)
    return path


def grow_old(path: Path, age_s: float = YOUNG_S + 60) -> None:
    then = time.time() - age_s
    for place in (*path.rglob("*"), path):
        os.utime(place, (then, then), follow_symlinks=False)


def node_at(mesh: Path, host: str = "n1") -> Path:
    state = state_at(mesh / "nodes" / host / "redmesh" / "nodes" / f"ab-{host}", ends_with="parent")
    state.parents[1].chmod(0o700)
    grow_old(mesh)
    return state


def sweep(jobs: Path) -> list[str]:
    # The directory of the tests may be on a file system that is not in LOCAL.
    return [os.path.basename(path) for path in leftovers.sweep(str(jobs), {file_system(os.fsencode(jobs))})]


def locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def test_a_dead_mesh_and_those_of_its_nodes_are_removed(jobs: Path) -> None:
    mesh = state_at(jobs / "slurm-c.1", ends_with=_NOBODY)
    node_at(mesh)
    assert sweep(jobs) == ["slurm-c.1"]
    assert not jobs.exists(), "directories that were made for jobs go with the last one"


@pytest.mark.parametrize(
    "name", ["mesh.lock", "up.lock", "nodes/n1/redmesh/start.lock", "nodes/n1/redmesh/nodes/ab-n1/mesh.lock"]
)
def test_a_mesh_stays_while_somebody_has_one_of_its_locks(jobs: Path, name: str) -> None:
    """``up.lock``: the id of the job was requeued, and ``mesh up`` finds what the first try of the job left."""
    mesh = state_at(jobs / "slurm-c.1", ends_with=_NOBODY)
    node_at(mesh)
    before = sorted(mesh.rglob("*"))
    held = locked(mesh / name)
    grow_old(mesh)
    try:
        assert sweep(jobs) == []
        assert sorted(mesh.rglob("*")) == sorted({*before, mesh / name}), "no lock is left that only the sweep took"
    finally:
        os.close(held)
    grow_old(mesh)
    assert sweep(jobs) == ["slurm-c.1"]


def test_a_mesh_stays_while_its_script_or_a_process_of_it_runs(jobs: Path) -> None:
    state_at(jobs / "slurm-c.1", ends_with=[os.getpid(), processes.start_time(os.getpid())])
    node = node_at(jobs / "slurm-c.2")
    program = "import sys; print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-S", "-c", program, "-m", "agents.keeper", f"{node}/keeper.json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert sweep(jobs) == []
        process.communicate()
    assert sweep(jobs) == ["slurm-c.2"]


def test_a_mesh_stays_while_something_in_it_is_new(jobs: Path) -> None:
    state_at(jobs / "slurm-c.1", ends_with=_NOBODY, age_s=0)
    node = node_at(jobs / "slurm-c.2")
    os.utime(node / "keeper.json")
    (node_at(jobs / "slurm-c.3").parents[2] / "n2").mkdir()
    (jobs / "slurm-c.4" / "agents").mkdir(parents=True)
    grow_old(jobs / "slurm-c.4", STARTS_S - 60)
    assert sweep(jobs) == []
    grow_old(jobs / "slurm-c.4", STARTS_S + 60)
    assert sweep(jobs) == ["slurm-c.4"], "a keeper was never started in it"


def starter(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the program that a manager runs on each host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    names: dict[str, Any] = {"__name__": "starter"}
    for part in ("ssh/bootstrap.py", "managed/starter.py"):
        exec(compile((_DEPLOY / part).read_text(), part, "exec"), names)
    return names


def test_a_node_stays_from_the_moment_at_which_its_host_starts_it(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_at(jobs / "slurm-c.1")  # of an earlier start of the job, on a host that is not its script's
    first, second = (starter(node.parents[2], monkeypatch) for _ in range(2))
    held = [first["hold_start"](), second["hold_start"]()]
    try:
        for _ in range(2):
            grow_old(jobs)
            assert sweep(jobs) == []
            os.close(held.pop(0))
    finally:
        for fd in held:
            os.close(fd)
    grow_old(jobs)
    assert sweep(jobs) == ["slurm-c.1"]
    os.close(first["hold_start"]())
    assert os.path.exists(first["start_lock"]()), "a start that comes a moment later finds an empty place"


def test_mesh_up_waits_for_a_sweep_and_has_the_lock_of_its_own_directory(tmp_path: Path) -> None:
    settings = load(environ={"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path), "REDMESH_CONFIG": ""})
    lifecycle.make_directories(settings)
    path, seen = Path(settings.state_dir) / "up.lock", []
    held = locked(path)
    inode = os.fstat(held).st_ino

    def up() -> None:
        with lifecycle.locked(settings):
            seen.append(leftovers._is_held(str(path)))

    thread = threading.Thread(target=up)
    thread.start()
    try:
        wait_until(
            lambda: any("->" in line and f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines()),
            "mesh up waits for the lock",
        )
        shutil.rmtree(settings.state_dir)
    finally:
        os.close(held)
        thread.join()
    assert seen == [True]


def test_a_keeper_in_a_job_waits_longer_for_its_lock_than_a_sweep_holds_it(tmp_path: Path) -> None:
    held = locked(tmp_path / "mesh.lock")
    try:
        with pytest.raises(KeeperError, match="has a keeper already"):
            take_lock(str(tmp_path), LOCK_S)
        os.unlink(tmp_path / "mesh.lock")  # a sweep removed it
        os.close(take_lock(str(tmp_path), 0))
    finally:
        os.close(held)
    assert LOCK_IN_JOB_S >= 2


def test_the_directory_of_sockets_goes_too_unless_it_is_used_or_has_another_name(jobs: Path, tmp_path: Path) -> None:
    runs = {name: tmp_path / "run" / f"slurm-c.{number}" for number, name in enumerate(("dead", "used", "new"))}
    runs["other"] = tmp_path / "run" / "somebody"
    for number, run in enumerate(runs.values()):
        state_at(jobs / f"slurm-c.{number}", run=run, ends_with=_NOBODY)
    os.utime(runs["new"])
    with listen(str(runs["used"] / "cpa-0.sock")):  # the path may be too long for bind(2)
        os.utime(runs["used"], (0, 0))
        assert sweep(jobs) == ["slurm-c.0", "slurm-c.1", "slurm-c.3"]
    assert [name for name, run in runs.items() if run.exists()] == ["used", "new", "other"]


def test_objects_are_carried_and_one_that_cannot_be_keeps_everything(jobs: Path, tmp_path: Path) -> None:
    def made(mesh: Path) -> Path:
        path = job_path(str(mesh / "jobs"), new_uuid())
        os.makedirs(os.path.dirname(path), exist_ok=True)
        StateObject.create(path, {"uuid": os.path.basename(path).partition(".")[0]}).close()
        grow_old(mesh)
        return Path(path)

    target = tmp_path / "kept"
    one, two, three = (
        state_at(jobs / f"slurm-c.{number}", ends_with=_NOBODY, keep_jobs=str(target)) for number in (1, 2, 3)
    )
    kept, sent, unknown = made(one), made(two), made(three)
    os.rename(sent, f"{sent}.sent")
    (three / "keeper.json").unlink()  # nobody knows where to carry them
    grow_old(two)
    grow_old(three, STARTS_S + 60)
    assert sweep(jobs) == ["slurm-c.1"]
    assert (target / kept.name).exists() and not kept.exists()
    assert Path(f"{sent}.sent").exists() and unknown.exists() and (two / "keeper.json").exists()


@pytest.mark.parametrize(
    "kind",
    [0x6969, 0x0BD00BD0, 0xAAD7AAEA, 0x20030528, 0x794C7630, 0x65735546, 0x47504653, 0x19830326, 0x12345678, 0],
    ids=["NFS", "Lustre", "PanFS", "OrangeFS", "overlay", "FUSE", "GPFS", "BeeGFS", "another", "unknown"],
)
def test_only_local_file_systems_are_known_to_show_every_lock(kind: int) -> None:
    assert kind not in LOCAL


def test_nothing_is_removed_on_a_file_system_that_is_not_known_to_be_local(jobs: Path) -> None:
    mesh = state_at(jobs / "slurm-c.1", ends_with=_NOBODY)
    assert leftovers.sweep(str(jobs), LOCAL - {file_system(os.fsencode(jobs))}) == [] and mesh.is_dir()
    assert not leftovers.sweep_own(str(mesh), LOCAL - {file_system(os.fsencode(jobs))}) and mesh.is_dir()


def test_the_mesh_of_ones_own_job_is_removed_at_once_when_it_is_dead(jobs: Path) -> None:
    local = {file_system(os.fsencode(jobs.parent.parent))}
    state_at(jobs / "slurm-c.1", age_s=0, ends_with=[os.getpid(), processes.start_time(os.getpid())])
    mesh = state_at(jobs / "slurm-c.2", age_s=0, ends_with=_NOBODY)
    other = state_at(jobs / "slurm-c.3", ends_with=_NOBODY)
    assert not leftovers.sweep_own(str(jobs / "slurm-c.1"), local)
    held = locked(mesh / "mesh.lock")
    assert not leftovers.sweep_own(str(mesh), local)
    os.close(held)
    assert leftovers.sweep_own(str(mesh), local) and not mesh.exists() and other.exists()


def test_what_cannot_be_read_stays(tmp_path: Path) -> None:
    mesh = state_at(tmp_path / "slurm-c.1")
    (mesh / "keeper.json").write_text("{")
    grow_old(mesh)
    assert sweep(tmp_path) == [] and mesh.is_dir()
    assert sweep(tmp_path / "nowhere") == []


def leave(state: Path) -> None:
    """Let the keeper of the job's script remove its files."""
    JobFiles(read_keeper_file(json.loads((state / "keeper.json").read_text())), Journal("", "keeper")).leave(0.0)


def test_a_mesh_that_ends_leaves_a_node_its_directory_while_the_node_s_keeper_runs(jobs: Path) -> None:
    """A keeper imports modules from its directory until it exits."""
    mesh = state_at(jobs / "slurm-c.1", ends_with=_NOBODY)
    node = node_at(mesh)
    lock = os.open(node / "mesh.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    leave(mesh)
    os.close(lock)
    assert (node / "keeper.json").exists() and [path.name for path in mesh.iterdir()] == ["nodes"]


def test_a_mesh_that_ends_removes_the_sockets_of_its_nodes_whose_keepers_were_killed(jobs: Path) -> None:
    mesh, run = state_at(jobs / "slurm-c.1", ends_with=_NOBODY), jobs.parent / "ab-n1"
    state_at(mesh / "nodes" / "n1" / "redmesh" / "nodes" / "ab-n1", run=run, ends_with="parent")
    leave(mesh)
    assert not run.exists() and not jobs.exists()


def test_a_mesh_that_ends_removes_a_killed_node_beside_one_whose_keeper_runs(jobs: Path) -> None:
    """Hosts may share the directory. The next job would remove it, but not before some minutes have passed."""
    mesh, run = state_at(jobs / "slurm-c.1", ends_with=_NOBODY), jobs.parent / "ab-n2"
    lock = locked(node_at(mesh) / "mesh.lock")
    state_at(mesh / "nodes" / "n2" / "redmesh" / "nodes" / "ab-n2", run=run, ends_with="parent")
    leave(mesh)
    os.close(lock)
    assert not run.exists() and [path.name for path in (mesh / "nodes").iterdir()] == ["n1"]


def test_a_mesh_that_ends_removes_its_configuration_last(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``mesh down`` knows by it that the clients in steps.json end by themselves."""
    mesh = state_at(jobs / "slurm-c.1", ends_with=_NOBODY)
    lock = locked(node_at(mesh) / "mesh.lock")
    for number in range(20):
        (mesh / f"file-{number}").touch()
    removed: list[str] = []
    unlink = os.unlink

    def record(path: Any, **more: Any) -> None:
        removed.append(os.path.basename(path))
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", record)
    leave(mesh)
    os.close(lock)
    assert set(removed[-2:]) == {"keeper.json", "mesh.lock"}
