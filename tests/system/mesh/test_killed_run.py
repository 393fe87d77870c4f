"""A test process that is killed or interrupted: its meshes end with it."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from agents.linux import processes
from tests.support.hosts import NOT_ROOT, can_have_namespaces
from tests.support.mariadb import find_server
from tests.support.stores import NO_SERVER
from tests.support.waiting import Process, wait_until

ROOT = Path(__file__).parents[3]
#: Brings up a mesh, starts a launch whose ranks have no environment, and never ends.
RUN = """
import os, signal, sys
from tests.support.mesh import PrivateMesh
from tests.support.hosts import NOT_ROOT, can_have_namespaces
from tests.support.mariadb import find_server
from tests.support.stores import NO_SERVER
from tests.support.waiting import freeze, wait_until
mesh = PrivateMesh(2, 1)
mesh.up()
mesh.start("yod", "-sz", "2", "env", "-i", "sleep", sys.argv[1])
wait_until(lambda: mesh.json("showmesh")["states"]["busy"] == 2, "it runs")
if sys.argv[2] == "stopped":
    freeze(mesh.pid_of("n0"))
print(mesh.home, *(mesh.pid_of(daemon) for daemon in ("keeper", "cpa-0", "rca", "n0")), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("pct", ["runs", "stopped"])
def test_what_a_killed_test_process_started_ends(pct: str) -> None:
    seconds = f"1{os.getpid():07}"  # so that only the ranks of this test are found
    run = Process([sys.executable, "-c", RUN, seconds, pct], cwd=ROOT, stdout=PIPE, text=True)
    try:
        home, *daemons = run.stdout.readline().split()
        wait_until(lambda: len(_sleeping(seconds)) == 2, "its ranks run")
        assert all(processes.alive(int(pid)) for pid in daemons) and len(daemons) == 4
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
    wait_until(lambda: not _sleeping(seconds), "no rank is left")
    wait_until(lambda: not any(processes.alive(int(pid)) for pid in daemons), "no daemon is left")
    wait_until(lambda: not os.path.exists(home), "its directory is gone")


#: Interrupted together with all that is in its process group, it takes its mesh down; hosts and the database must live.
INTERRUPTED = """
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts
from tests.support.mariadb import private_server
from tests.support.mesh import while_up
hosts = NamespaceHosts(1)
try:
    with private_server() as server, while_up(FarMesh(hosts, database=server.new_database())):
        try:
            print(flush=True)
            while True:
                signal.pause()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
finally:
    hosts.close()
"""


@pytest.mark.skipif(find_server() is None, reason=NO_SERVER)
@pytest.mark.skipif(not can_have_namespaces(), reason=NOT_ROOT)
def test_an_interrupted_test_process_still_has_what_it_takes_its_mesh_down_with() -> None:
    run = Process([sys.executable, "-c", INTERRUPTED], cwd=ROOT, process_group=0, stdout=PIPE, stderr=PIPE, text=True)
    try:
        run.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGINT):  # the first ends the run's process group but not the run
            os.killpg(run.pid, number)
        printed, errors = run.communicate()
    finally:
        run.kill()
    assert (printed, errors, run.returncode) == ("interrupted\n", "", 0)


def _sleeping(seconds: str) -> list[int]:
    command = f"sleep\0{seconds}\0".encode()
    found = []
    for pid in processes.pids():
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes() == command:
                found.append(pid)
        except OSError:
            pass  # it has exited meanwhile
    return found
