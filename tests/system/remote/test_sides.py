"""Switches between hosts that SSH leads to: what changes sides is wiped, and nothing it knew before opens anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.wire import heartbeat, keys
from tests.support.far_mesh import FarMesh
from tests.support.hosts import LOGIN_ADDRESS, MakeHosts, NamespaceHost, NamespaceHosts
from tests.support.look import processors
from tests.support.mesh import while_up
from tests.support.waiting import wait_until

#: A cabinet a column with one board of four processors: a host. The login processor stands at column 0.
MACHINE = """
[topology]
kind = "mesh"
rows = 1
columns = 4
cages = 1
boards = 1
switches = [{ name = "cut", after = 1 }]
"""
NAP = ("sleep", "987654")
SECRETS = "/root/.local/state/redmesh/nodes/*/trust"


@pytest.fixture(scope="module")
def hosts(netns_hosts: MakeHosts) -> NamespaceHosts:
    made: NamespaceHosts = netns_hosts(4)
    return made


@pytest.fixture
def mesh(hosts: NamespaceHosts) -> Iterator[FarMesh]:
    made = FarMesh(hosts, processors=4)
    with open(made.home / "config" / "redmesh" / "mesh.toml", "a") as file:
        file.write(MACHINE)
    with while_up(made):
        yield made


def secret(host: NamespaceHost, name: str) -> bytes:
    return host.run("sh", "-c", f"cat {SECRETS}/{name}", check=True).stdout.encode()


def images(host: NamespaceHost) -> list[str]:
    return host.run("sh", "-c", "find /dev/shm/redmesh-0 -type f -size +0").stdout.split()


def set_switch(mesh: FarMesh, word: str, *options: str) -> str:
    told = mesh.run("mesh", "side", "set", word, *options, check=True).stdout
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "all are up again", step_s=0.1)
    return told


def start(mesh: FarMesh, nodes: str, size: int) -> subprocess.Popen[str]:
    before = processors(mesh, "busy")
    yod = mesh.start("yod", "-w", nodes, "-sz", str(size), "--bcast=always", *NAP, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(mesh, "busy") == before + size, "it runs", step_s=0.05)
    return yod


def end(yod: subprocess.Popen[str]) -> int:
    yod.send_signal(signal.SIGTERM)
    yod.communicate()
    return yod.returncode


def test_what_changes_sides_is_wiped_and_begins_anew(mesh: FarMesh) -> None:
    near, far = mesh.hosts[:2], mesh.hosts[2:]
    files = ("launch.key", "beat.key", "node.pem")
    former = {host.name: {name: secret(host, name) for name in files} for host in mesh.hosts}
    shutil.copytree(mesh.state / "trust", mesh.home / "former")
    stays, goes = start(mesh, "h[1-2]", 8), start(mesh, "h[3-4]", 8)
    assert all(images(host) for host in mesh.hosts)
    refused = mesh.run("mesh", "side", "set", "cut=open")
    assert refused.returncode == 125 and "cut in two" in refused.stderr, refused.stderr
    assert end(goes) == 128 + signal.SIGTERM
    for host in far:  # what a launch child leaves that is killed while its PCT does not run
        host.run("sh", "-c", "mkdir -p -m 700 /dev/shm/redmesh-0/images; ns=$(stat -Lc %i /proc/self/ns/pid); "
                             "d=/dev/shm/redmesh-0/launch-$ns-4000000-1-x; mkdir -m 700 $d; echo old > $d/program; "
                             "ln $d/program /dev/shm/redmesh-0/images/4-00")  # fmt: skip
    lives = dict(lives_of(mesh))
    told = set_switch(mesh, "cut=open")
    assert "2 nodes changed sides and were wiped" in told and "the former ones are gone" in told
    for host in far:
        assert images(host) == [], "what was there is gone"
        assert lives_of(mesh)[host.name] != lives[host.name]
    for host in near:
        assert lives_of(mesh)[host.name] == lives[host.name]
    for host in mesh.hosts:
        for name, content in former[host.name].items():
            assert secret(host, name) != content, (host.name, name)
    assert processors(mesh, "busy") == 8, "what runs on this side runs on"
    assert mesh.run("yod", "-sz", "9", "true").returncode == 125
    nothing_former_opens(mesh, far[0], former["h3"]["beat.key"])
    assert end(stays) == 128 + signal.SIGTERM
    mesh.run("yod", "-sz", "8", "true", check=True)
    set_switch(mesh, "cut=closed")
    mesh.run("yod", "-sz", "16", "--bcast=always", "/bin/true", check=True)


def lives_of(mesh: FarMesh) -> dict[str, tuple[str, int]]:
    import sqlite3

    with sqlite3.connect(f"file:{mesh.state}/mesh.db?mode=ro", uri=True) as database:
        rows = database.execute("SELECT name, boot_id, incarnation FROM node")
        return {name: (boot, number) for name, boot, number in rows}


def nothing_former_opens(mesh: FarMesh, host: NamespaceHost, key: bytes) -> None:
    """Neither a daemon's certificate of before, at a node, nor a node's key of before, at the RCA."""
    former = mesh.home / "former"
    script = WIPE.format(trust=str(former), mesh=mesh_name(mesh), address=f"tls://{host.address}:7117/{host.name}")
    done = mesh.run("python", "-c", script, env={"PYTHONPATH": str(Path(__file__).parents[3])})
    assert "refused" in done.stdout and "wiped" not in done.stdout, done
    before = rca_log(mesh).count("under a key that is not the node's")
    boot, number = lives_of(mesh)[host.name]
    datagram = heartbeat.Beat(host.name, boot, number, int(time.monotonic() * 1e6), kind=heartbeat.GONE).encode(
        keys.from_file(key, "")[0]
    )
    place = (LOGIN_ADDRESS, 7117)
    send = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto({datagram!r}, {place!r})"
    assert host.run("/usr/bin/python3", "-c", send).returncode == 0
    wait_until(lambda: rca_log(mesh).count("under a key that is not the node's") > before, "it is refused", step_s=0.1)
    assert mesh.states()[host.name] == "up"


WIPE = """
from agents.link.client import Client
from agents.link.trust import Trust, use
from agents.wire.errors import AgentError
use(Trust("{mesh}", "{trust}/ca.pem", "{trust}/login.pem"))
try:
    with Client("{address}", "cpa") as client:
        client.call({{"op": "wipe"}})
    print("wiped")
except AgentError as error:
    print("refused:", error.message)
"""


def mesh_name(mesh: FarMesh) -> str:
    return os.path.basename(mesh.run_dir)


def rca_log(mesh: FarMesh) -> str:
    return (mesh.state / "log" / "rca.jsonl").read_text()
