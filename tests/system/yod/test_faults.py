"""yod when daemons die, stand still or are not there: every wait has an end, and nothing is left behind."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.look import processors
from tests.support.mesh import MakeMesh, PrivateMesh, restarted_on_failure, while_up
from tests.support.shared_mesh import is_whole
from tests.support.slow_files import slow_file
from tests.support.waiting import SLOWNESS, freeze, wait_until
from tests.support.yods import free, ranks_left, wait_until_nothing_is_left, yods

__all__ = ["yods"]

SLOW = ("sh", "-c", "touch up$YOD_RANK; sleep 0.8; echo done$YOD_RANK; exit 3")


def start(mesh: PrivateMesh, *command: str, size: int = 2) -> "subprocess.Popen[str]":
    process = mesh.start(
        "yod", "-sz", str(size), *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    return process


def running(mesh: PrivateMesh, size: int = 2) -> None:
    wait_until(lambda: all((mesh.work / f"up{rank}").exists() for rank in range(size)), "every rank runs")


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Four processors on two nodes."""
    with while_up(PrivateMesh(4, 2)) as private:
        yield private


@pytest.fixture
def faulty(yods: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh; afterwards its daemons are all there again, and nothing runs."""
    for path in yods.work.iterdir():
        path.unlink()
    yield yods
    with restarted_on_failure(yods):
        wait_until(lambda: is_whole(yods), "every daemon answers")


def test_a_launch_outlives_any_daemon(faulty: PrivateMesh) -> None:
    for daemon in ("cpa-0", "rca", "n1", "n0", "keeper"):
        process = start(faulty, *SLOW, size=4)
        running(faulty, 4)
        faulty.kill(daemon)
        out, said = process.communicate()
        assert (process.returncode, sorted(out.split())) == (3, [f"done{rank}" for rank in range(4)]), (daemon, said)
        for path in faulty.work.glob("up*"):
            path.unlink()
        wait_until_nothing_is_left(faulty)
    faulty.up()  # the keeper that was killed gets a successor


def test_the_end_is_left_with_the_rca_when_no_cpa_comes_back(faulty: PrivateMesh) -> None:
    process = start(faulty, *SLOW)
    running(faulty)
    pid = faulty.pid_of("cpa-0")
    freeze(pid)
    began = time.monotonic()
    process.communicate()
    assert process.returncode == 3
    assert time.monotonic() - began > 3.0
    os.kill(pid, signal.SIGCONT)
    wait_until_nothing_is_left(faulty)
    assert [launch["exit_status"] for launch in faulty.json("mesh", "history", "-n", "1")] == [3]


def test_with_neither_cpa_nor_rca_it_says_so_and_ends(faulty: PrivateMesh) -> None:
    process = start(faulty, *SLOW)
    running(faulty)
    pids = [faulty.pid_of(name) for name in ("cpa-0", "rca")]
    for pid in pids:
        freeze(pid)
    _, said = process.communicate()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert process.returncode == 3
    assert "neither a CPA nor the RCA could be told" in said


def test_cpas_that_die_with_the_request_or_stand_still_are_replaced(mesh: MakeMesh) -> None:
    private = mesh(4, 2, 2)
    pids = [private.pid_of(name) for name in ("cpa-0", "cpa-1")]
    for pid in pids:
        freeze(pid)
    process = start(private, "sh", "-c", "exit 3")
    wait_until(lambda: _asks_a_cpa(process.pid), "it has asked for processors")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == 3
    wait_until_nothing_is_left(private)
    freeze(pid := private.pid_of("cpa-0"))
    try:
        for _ in range(2):  # whichever is asked first
            done = private.run("yod", "sh", "-c", "exit 3")
            assert done.returncode == 3, done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until_nothing_is_left(private)


def test_the_cpa_dies_between_allocation_and_started(faulty: PrivateMesh) -> None:
    root = faulty.pid_of("n0")
    freeze(root)  # the load waits: the CPA has allocated, and is not asked again before READY
    try:
        process = start(faulty, "sh", "-c", "exit 3")
        wait_until(lambda: processors(faulty, "pending") == 2, "it has its processors")
        faulty.kill("cpa-0")
    finally:
        os.kill(root, signal.SIGCONT)
    process.communicate()
    assert process.returncode == 3


def test_a_launch_child_killed_while_the_start_is_confirmed(faulty: PrivateMesh) -> None:
    """The CPA's confirmation comes while yod asks the PCT how its launch child died: yod waited for ranks for ever."""
    root, cpa = faulty.pid_of("n0"), faulty.pid_of("cpa-0")
    freeze(root)  # no READY before the CPA stands still
    process = start(faulty, "sh", "-c", "exit 3")
    try:
        wait_until(lambda: processors(faulty, "pending") == 2, "it has its processors")
        freeze(cpa)
        os.kill(root, signal.SIGCONT)
        wait_until(lambda: len(ranks_left(faulty)) == 2, "its processes are held")
        (child,) = [pid for pid, words in faulty.processes().items() if words.startswith("redmesh-launch n0")]
        freeze(root)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not processes.alive(child), "it is dead, and yod asks the PCT, which does not answer yet")
        os.kill(cpa, signal.SIGCONT)
        wait_until(lambda: processors(faulty, "busy") == 2, "the start is confirmed")
    finally:
        os.kill(cpa, signal.SIGCONT)
        os.kill(root, signal.SIGCONT)
    _, said = process.communicate()
    # 3: no word from the PCT for 2 s, another try; 137: yod read the confirmation first and gave GO
    assert process.returncode in (125, 137, 3), said
    assert process.returncode == 3 or "launch child was killed (SIGKILL)" in said, said


def test_processors_of_a_launch_that_lost_its_root_are_free_when_no_rank_is_left(faulty: PrivateMesh) -> None:
    """The launch child of the other node stands still meanwhile, so its ranks live on until its PCT kills them."""
    process = start(faulty, "sh", "-c", "touch up$YOD_RANK; exec sleep 600", size=4)
    running(faulty, 4)
    of_node = {
        words.split()[1].strip(": "): pid for pid, words in faulty.processes().items() if "redmesh-launch n" in words
    }
    freeze(of_node["n1"])
    try:
        os.kill(of_node["n0"], signal.SIGKILL)
        wait_until(lambda: free(faulty) == 4, "every processor is free")
        assert not ranks_left(faulty)
    finally:
        if processes.alive(of_node["n1"]):
            os.kill(of_node["n1"], signal.SIGCONT)
    _, said = process.communicate()
    assert process.returncode == 137 and "the launch's root" in said, said


def test_no_go_when_the_reservation_has_run_out(faulty: PrivateMesh) -> None:
    root = faulty.pid_of("n0")
    freeze(root)
    try:
        process = start(faulty, "touch", "ran")
        wait_until(lambda: processors(faulty, "pending") == 2, "it has its processors")
        with sqlite3.connect(faulty.state / "mesh.db") as store:  # sixty seconds later
            store.execute("UPDATE launcher SET pending_until = pending_until - 120")
    finally:
        os.kill(root, signal.SIGCONT)
    _, said = process.communicate()
    assert process.returncode == 125 and "the processes were not started" in said
    assert not (faulty.work / "ran").exists()


def test_the_database_does_not_answer(faulty: PrivateMesh) -> None:
    process = start(faulty, *SLOW)
    running(faulty)
    holder = sqlite3.connect(faulty.state / "mesh.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        refused = faulty.run("yod", "true")
        assert refused.returncode == 125 and refused.stderr.count("\n") <= 2
        assert "database" in refused.stderr.lower()
        process.communicate()
        assert process.returncode == 3, "a running job ends as it would"
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def test_killed_yod_leaves_nothing(faulty: PrivateMesh) -> None:
    process = start(faulty, "sh", "-c", "touch up$YOD_RANK; setsid sleep 3600 & sleep 3600", size=4)
    running(faulty, 4)
    process.kill()


def test_a_pct_that_stands_still_while_loading(faulty: PrivateMesh) -> None:
    pid = faulty.pid_of("n1")
    freeze(pid)
    try:
        done = faulty.run("yod", "-sz", "4", "true")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 125
    assert "n1" in done.stderr and "Traceback" not in done.stderr
    wait_until(lambda: not ranks_left(faulty), "no rank is left")


def test_the_root_that_stands_still_is_named_after_two_seconds(faulty: PrivateMesh) -> None:
    pid = faulty.pid_of("n0")
    freeze(pid)
    process = faulty.start("yod", "true", stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        began = time.monotonic()
        line = process.stderr.readline()
        assert "n0" in line and time.monotonic() - began > 1.5
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two that come at once are one, and it waits for n0 a little longer
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
    finally:
        os.kill(pid, signal.SIGCONT)


# Finding a mesh, or starting one


def test_without_a_mesh_a_personal_one_is_started(mesh: MakeMesh) -> None:
    private = mesh(up=False, REDMESH_PROCESSORS="3")
    done = private.run("yod", "-sz", "3", "sh", "-c", "echo $YOD_RANK")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["0", "1", "2"])
    assert done.stderr == "yod: no mesh is up: starting a personal mesh of 3 processors (mesh down ends it)\n"
    assert private.run("yod", "true").stderr == ""
    assert private.keeper()["auto"] is True


def test_many_yods_at_once_start_one_mesh(mesh: MakeMesh) -> None:
    private = mesh(up=False, REDMESH_PROCESSORS="4")
    several = [
        private.start("yod", "-wait-for-nodes", "20", "echo", str(n), stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    assert [process.communicate()[0] for process in several] == ["0\n", "1\n", "2\n", "3\n"]
    assert [process.returncode for process in several] == [0] * 4


def test_never_a_personal_mesh_beside_configured_hosts(mesh: MakeMesh) -> None:
    private = mesh(up=False, REDMESH_HOSTS="c01,c02,c03,c04")
    done = private.run("yod", "true")
    assert done.returncode == 125 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "c01, c02, c03 and 1 more" in done.stderr
    assert not private.processes()
    assert not (private.state / "mesh.db").exists()


def test_a_mesh_that_cannot_come_up_is_one_line(mesh: MakeMesh) -> None:
    private = mesh(up=False)
    private.state.mkdir(mode=0o700)
    with sqlite3.connect(private.state / "mesh.db") as store:
        store.execute("CREATE TABLE mesh (id INTEGER PRIMARY KEY, schema_version INTEGER)")
        store.execute("INSERT INTO mesh VALUES (1, 99999)")
    done = private.run("yod", "-quiet", "true")
    assert done.returncode not in (0, 1) and done.stdout == ""
    assert done.stderr.startswith("yod: no personal mesh: ") and done.stderr.count("\n") == 1
    (private.state / "mesh.db").unlink()


def test_a_missing_program_starts_nothing(mesh: MakeMesh) -> None:
    private = mesh(up=False)
    assert private.run("yod", "nosuchprogram").returncode == 127
    assert not private.processes() and not private.state.exists()


def test_a_batch_job_gets_no_more_than_it_has(mesh: MakeMesh) -> None:
    import pwd

    me = pwd.getpwuid(os.getuid()).pw_name
    private = mesh(8, 2, REDMESH_BATCH_ACCOUNTS=me)
    made = private.run("mesh", "partition", "create", "--batch-job", "42.pbs", "-sz", "4", check=True)
    job = dict(line.removeprefix("export ").split("=", 1) for line in made.stdout.splitlines() if "=" in line)
    job = {name: value.strip("\"'") for name, value in job.items()}
    assert {"REDMESH_PARTITION", "REDMESH_ALLOCATION_COOKIE"} <= set(job)
    inside = private.run(
        "yod", "-sz", "4", "sh", "-c", "echo $YOD_PARTITION_ID ${REDMESH_ALLOCATION_COOKIE-none}", env=job, check=True
    )
    assert inside.stdout == f"{job['REDMESH_PARTITION']} none\n" * 4
    lacks = private.run("yod", "-sz", "1", "yod", "true", env=job)
    assert lacks.returncode == 125 and "-export ALL,REDMESH_ALLOCATION_COOKIE" in lacks.stderr, (
        "a rank has not the right"
    )
    tell = "yod -sz 2 sh -c 'echo $YOD_PARTITION_ID ${REDMESH_ALLOCATION_COOKIE-none}'"
    steps = private.run("yod", "-export", "ALL,REDMESH_ALLOCATION_COOKIE", "sh", "-c", tell, env=job, check=True)
    assert steps.stdout == f"{job['REDMESH_PARTITION']} none\n" * 2, "which goes no further"
    refused = private.run("yod", "-sz", "5", "true", env=job)
    assert refused.returncode == 125 and refused.stderr.count("\n") == 1
    wrong = private.run("yod", "-sz", "1", "true", env={**job, "REDMESH_ALLOCATION_COOKIE": "0" * 16})
    assert wrong.returncode == 125
    outside = private.run("yod", "-sz", "5", "true")
    assert outside.returncode == 125, "four are the job's"


def test_a_yod_that_is_stopped_before_it_speaks_to_a_pct_loses_its_processors(mesh: MakeMesh) -> None:
    private = mesh(processors=4, nodes=2, REDMESH_PENDING_S="5", REDMESH_SILENT_S="60")
    private.kill("cpa-0", signal.SIGSTOP)
    yod = private.start("yod", "-sz", "4", "hostname", stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: _asks_a_cpa(yod.pid), "it has asked for processors")
        freeze(yod.pid)
    finally:
        private.kill("cpa-0", signal.SIGCONT)
    wait_until(lambda: processors(private, "pending") == 4, "they are kept for it")
    wait_until(lambda: processors(private, "free") == 4, "and are free again after pending_s")
    os.kill(yod.pid, signal.SIGCONT)  # its answer is in its socket, and it knows of no time that has passed
    out, errors = yod.communicate()
    assert (yod.returncode, out) == (125, "") and "lapsed" in errors, errors


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="root mounts a slow file system")
def test_a_slow_parallel_file_system_may_take_longer_than_the_pending_time(mesh: MakeMesh, tmp_path: Path) -> None:
    pending_s, rate = round(3 * SLOWNESS), 2_000_000
    private = mesh(
        processors=4,
        nodes=2,
        REDMESH_PENDING_S=str(pending_s),
        REDMESH_LOADING_S=str(pending_s + 1),
        REDMESH_SILENT_S="60",
    )
    seconds = 3 * pending_s
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    os.truncate(program, seconds * rate)
    began = time.monotonic()
    with slow_file(tmp_path / "slow", program, rate) as path:
        done = private.run("yod", "-sz", "4", "--bcast=always", str(path))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began > seconds
    asked = [line for line in (private.state / "log" / "cpa-0.jsonl").read_text().splitlines() if '"loading"' in line]
    assert len(asked) >= 2, "its reservation was renewed again and again"


def _asks_a_cpa(pid: int) -> bool:
    """Whether it has its connections to RCA and CPA, and waits."""
    sockets = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            pass
    return sockets >= 2 and processes.state(pid) == "S"
