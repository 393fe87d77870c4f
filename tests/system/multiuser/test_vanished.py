"""Clients that get processors and exit without a word: their processors come back. Launches that run keep theirs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.link.client import Client, Unreachable
from tests.support import vanishing
from tests.support.allocations import allocation, finish
from tests.support.hosts import MakeHosts
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import python_for_others
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.waiting import freeze, wait_until

NAP = ("sleep", "987655")
SIZE = 5
VARIANTS = ("other-login", "never", "unregisters", "other-process")


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[SystemMesh]:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    made = SystemMesh(netns_hosts(1, users=("ada", "bob")), sql_server, processors=SIZE)
    shutil.copy(vanishing.__file__, made.bin)
    with while_up(made):
        yield made


def vanish(mesh: SystemMesh, variant: str, launcher: str = "null") -> int:
    """Return the launcher of a client of ada's that has exited. At the RCA it said that it is ``launcher``."""
    login = (mesh.run_dir / "login").read_text().strip()
    script = str(mesh.bin / Path(vanishing.__file__).name)
    done = mesh.as_user("ada", "python", script, str(mesh.run_dir), login, variant, launcher, check=True)
    assert "error" not in done.stderr, done.stderr
    return int(done.stdout)


def launchers(mesh: SystemMesh) -> dict[int, str]:
    """Return the live launches and their commands."""
    return {one["id"]: one["command"] for one in look(mesh)["launchers"]}


def registered(mesh: SystemMesh) -> set[int | None]:
    """Return the launches whose yod the RCA knows; none while it does not answer."""
    try:
        with Client(str(mesh.run_dir / "rca.sock"), "admin") as client:
            return {one["launcher"] for one in client.call({"op": "status"})["launchers"]}
    except Unreachable:
        return set()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_processors_of_a_client_that_vanished_are_free_again(mesh: SystemMesh, variant: str) -> None:
    launcher = vanish(mesh, variant)
    wait_until(lambda: launcher not in launchers(mesh), lambda: f"launcher {launcher} has ended: {look(mesh)}")
    assert processors(mesh, "free") == SIZE


def test_launches_that_run_keep_their_processors(mesh: SystemMesh) -> None:
    """Beside a client that vanishes, and while the RCA is killed and started again."""
    runs = mesh.start_as("ada", "yod", "-sz", "1", *NAP)
    stands = mesh.start_as("bob", "yod", "-sz", "1", *NAP)
    try:
        detached = int(mesh.as_user("ada", "yod", "-batch", "-detach", "-sz", "1", *NAP, check=True).stdout)
        wait_until(lambda: processors(mesh, "busy") == 3, "they run")
        all_three = set(launchers(mesh))
        wait_until(lambda: registered(mesh) >= all_three, "all are registered")
        before = mesh.pid_of("rca")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: registered(mesh) >= all_three, "all have registered again")
        freeze(stands.pid)
        for variant in VARIANTS[:3]:
            launcher = vanish(mesh, variant)
            wait_until(lambda launcher=launcher: launcher not in launchers(mesh), f"{variant} has ended")  # type: ignore[misc]
        assert mesh.pid_of("rca") != before and set(launchers(mesh)) == all_three
        assert processors(mesh, "free") == SIZE - 3
        os.kill(stands.pid, signal.SIGCONT)
        mesh.as_user("ada", "yod", "-signal", "KILL", str(detached), check=True)
        wait_until(lambda: processors(mesh, "free") == SIZE - 2, "the detached one has ended")
    finally:
        for process in (runs, stands):
            process.kill()
            process.wait()
    wait_until(lambda: processors(mesh, "free") == SIZE, "every processor is free")


def test_nobody_removes_the_socket_of_another_users_launch(mesh: SystemMesh) -> None:
    """The RCA removes the observers' socket of a lost launch, but not of one that only the lost client named."""
    yod = mesh.start_as("bob", "yod", "-sz", "1", *NAP)
    try:
        wait_until(lambda: processors(mesh, "busy") == 1, "it runs")
        (bobs,) = launchers(mesh)
        socket = mesh.run_dir / "users" / str(USERS["bob"]) / f"yod-{bobs}.sock"
        wait_until(socket.exists, "it can be observed")
        adas = vanish(mesh, "other-login", str(bobs))
        wait_until(lambda: adas not in launchers(mesh), "the other has ended")
        with Client(str(mesh.run_dir / "rca.sock"), "admin") as client:
            wait_until(lambda: not client.call({"op": "status"})["events"], "the RCA has its answer")
        assert socket.exists()
    finally:
        yod.terminate()
        yod.wait()
    wait_until(lambda: processors(mesh, "free") == SIZE, "every processor is free")


def test_another_users_process_cannot_continue_a_launch(mesh: SystemMesh) -> None:
    """Not even with its cookie."""
    with Client(str(mesh.run_dir / "cpa-0.sock"), "launcher") as client:
        login = (mesh.run_dir / "login").read_text().strip()
        got = client.call(allocation(1, login=login))  # root's
        mine = {"launcher": got["launcher"], "cookie": got["cookie"]}
        script = f"import sys; sys.path.insert(0, {str(mesh.bin)!r}); import vanishing, os; "
        script += f"wire = vanishing.Wire({str(mesh.run_dir)!r} + '/cpa-0.sock'); "
        script += f"print(wire.call(op='moved', pid=1, pid_started=1, **{mine!r})['error']['code'])"
        assert mesh.as_user("ada", "python", "-c", script, check=True).stdout == "denied\n"
        client.call(finish(got))


#: A process that registers and exits while no CPA answers, and another one of the same user that leaves its end.
LEAVES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from vanishing import Wire, started
def registered(launcher):
    rca = Wire(sys.argv[2] + "/rca.sock")
    rca.call(op="register", launcher=launcher, pid=os.getpid(), pid_started=started(os.getpid()))
    return rca
if not (pid := os.fork()):
    registered(990001)
    os._exit(0)
os.waitpid(pid, 0)
while True:
    told = registered(990002).call(op="finish", launcher=990002, cookie="0" * 16, exit_status=0,
                                   processor_error=False, reason="")
    print(told, flush=True)
    sys.stdin.readline() or sys.exit()
"""


def test_ends_that_a_user_leaves_with_the_rca_beside_a_lost_launch(mesh: SystemMesh) -> None:
    """Both wait for the CPA, which does not answer; the RCA counts the ends alone."""
    rca, cpa = mesh.pid_of("rca"), mesh.pid_of("cpa-0")
    freeze(cpa)
    try:
        words = ("python", "-c", LEAVES, str(mesh.bin), str(mesh.run_dir))
        leaves = mesh.start_as("ada", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert leaves.stdin is not None and leaves.stdout is not None
        log = mesh.state / "log" / "rca.jsonl"
        for _ in range(2):  # the second one after the RCA has noticed the exit
            assert "re" in leaves.stdout.readline()
            wait_until(lambda: '"launcher": 990001' in log.read_text(), "the exit was noticed")
            leaves.stdin.write("\n")
            leaves.stdin.flush()
        assert "re" in leaves.stdout.readline() and mesh.pid_of("rca") == rca
        leaves.stdin.close()
    finally:
        os.kill(cpa, signal.SIGCONT)
    with Client(str(mesh.run_dir / "rca.sock"), "admin") as client:
        wait_until(lambda: not client.call({"op": "status"})["events"], "the RCA has its answers")
