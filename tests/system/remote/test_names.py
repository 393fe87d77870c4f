"""Login processors whose place is a host's name, and a server of names that does not answer any more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.hosts import LOGIN_ADDRESS, MakeHosts, NamespaceHost
from tests.support.mesh import while_up
from tests.support.others import INSTALLED, install
from tests.support.waiting import wait_until

NAME = "login.site"
SILENT = "import socket, time; s = socket.socket(2, 2); s.bind(('127.0.0.1', 53)); time.sleep(600)"
ASK = """
import glob, sys, time
sys.path.insert(0, "/run/project")
from agents.link.client import Client
(path,) = glob.glob("/run/redmesh-0/*/h1.sock")
for _ in range(30):
    with Client(path, "admin", 15.0) as pct:  # a look-up that it waits for takes 20 s
        told = pct.call({"op": "status"})
    time.sleep(0.1)
print(told["incarnation"])
"""


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts) -> Iterator[FarMesh]:
    made = FarMesh(netns_hosts(2), login_address=NAME)
    for directory in (made.hosts.directory, *(host.directory for host in made.hosts)):
        with open(directory / "hosts", "a") as file:
            file.write(f"{LOGIN_ADDRESS} {NAME}\n")
    with while_up(made):
        yield made


def forget(host: NamespaceHost) -> subprocess.Popen[bytes]:
    """The host knows the name no more, and whom it asks says nothing."""
    hosts = host.directory / "hosts"
    hosts.write_text("".join(line for line in hosts.read_text().splitlines(keepends=True) if NAME not in line))
    (host.directory / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
    host.run("mount", "--bind", "/run/host/resolv.conf", "/etc/resolv.conf", check=True)
    return subprocess.Popen([*host.enter, f"{INSTALLED}/python", "-c", SILENT])


def test_a_pct_works_while_the_name_of_its_rca_is_looked_up(mesh: FarMesh) -> None:
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0
    host = mesh.hosts[0]
    install(host)
    silent = forget(host)
    try:
        (pct,) = mesh.kill_on(host, "redmesh-pct")
        wait_until(lambda: mesh.pids_on(host, "redmesh-pct") not in ([], [pct]), "another one is there")
        assert host.run(f"{INSTALLED}/python", "-c", ASK, check=True).stdout == "2\n"
        wait_until(lambda: mesh.states()["h1"] == "down", "it is not heard", step_s=0.1)
        assert mesh.states()["h2"] == "up"
    finally:
        silent.kill()
        silent.wait()
    with open(host.directory / "hosts", "a") as file:
        file.write(f"{LOGIN_ADDRESS} {NAME}\n")
    wait_until(lambda: mesh.states()["h1"] == "up", "it has found its RCA", step_s=0.1)
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0


def deaths(mesh: FarMesh) -> int:
    """How many deaths of PCTs the RCA has been told of."""
    return (mesh.state / "log" / "rca.jsonl").read_text().count("PCT has died")


def test_a_pct_that_died_is_told_of_though_the_name_has_to_be_looked_up_first(mesh: FarMesh) -> None:
    """Its keeper has never had to do with an RCA before; the next PCT does not come up, and so says nothing."""
    host, before = mesh.hosts[1], deaths(mesh)
    (certificate,) = host.home.rglob("node.pem")
    sound = certificate.read_bytes()
    certificate.write_bytes(b"damaged")
    mesh.kill_on(host, "redmesh-pct")
    wait_until(lambda: deaths(mesh) > before, "the RCA has heard of it", step_s=0.02)  # silent: after 3 s
    certificate.write_bytes(sound)
    mesh.up()
    wait_until(lambda: mesh.states()["h2"] == "up", "it is up", step_s=0.1)
