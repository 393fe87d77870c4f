"""The system database of a mesh over many hosts dies: no node goes down by it, and what runs runs on."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.waiting import silence, wait_until


@pytest.fixture
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[FarMesh]:
    made = FarMesh(netns_hosts(2), suspect_s=4.0, down_s=6.0, database=sql_server.new_database())
    with while_up(made):
        yield made


def test_the_database_is_killed_while_a_launch_runs(mesh: FarMesh, sql_server: Server) -> None:
    yod = mesh.start("yod", "-sz", "4", "sleep", "987654", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: mesh.json("showmesh")["states"]["busy"] == 4, "it runs", step_s=0.1)
    (launcher,) = mesh.json("showmesh")["launchers"]
    log = mesh.state / "log" / "rca.jsonl"
    began = len(log.read_text())  # while the mesh came up, a node may have been late
    sql_server.kill()
    time.sleep(silence(4.0) + 1.0)  # longer than a node may be silent
    sql_server.start()
    wait_until(lambda: mesh.run("showmesh", "--json").returncode == 0, "the database is back", step_s=0.2)
    assert set(mesh.states().values()) == {"up"}
    assert mesh.json("showmesh")["states"]["busy"] == 4
    since = log.read_text()[began:]
    assert "node_suspect" not in since and "node_down" not in since
    os.kill(int(launcher["pid"]), signal.SIGTERM)
    _, said = yod.communicate()
    assert yod.returncode == 128 + signal.SIGTERM, said
    wait_until(lambda: mesh.json("showmesh")["states"]["free"] == 4, "all is free", step_s=0.1)
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0
