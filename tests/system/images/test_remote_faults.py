"""While a program travels from host to host: whatever stands still, dies or is cut off, in ten seconds there is another
try, or one line that names it, or the bytes go on by another way; and nothing is left behind.

The data tree is a chain, h1 to h2 to h3; h4 is there for another try. A row of the table that ``-s`` shows is a test.
"""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.chance import long
from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts, NamespaceHost, NamespaceHosts
from tests.support.look import look
from tests.support.mesh import while_up
from tests.support.waiting import freeze, wait_until
from tests.support.watched import Watched

#: Seconds for another try to begin, or a line that says why there is none.
RATE_MBIT, SIZE = 8, 6 << 20  # six seconds for the whole of it
COMING = 1 << 20  # so much is at the end of the chain when something happens
ROLES = ("root", "interior", "leaf")


@pytest.fixture(scope="module")
def hosts(netns_hosts: MakeHosts) -> NamespaceHosts:
    made: NamespaceHosts = netns_hosts(4, rate=f"{RATE_MBIT}mbit")
    return made


@pytest.fixture(scope="module")
def mesh(hosts: NamespaceHosts) -> Iterator[FarMesh]:
    with while_up(FarMesh(hosts)) as made:
        yield made


@pytest.fixture(scope="module")
def large(mesh: FarMesh) -> str:
    path = mesh.home / "large"
    path.write_bytes(b"#!/bin/sh\nexit 0\n" + os.urandom(SIZE))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def settled(mesh: FarMesh) -> Iterator[None]:
    yield
    for host in mesh.hosts:
        host.heal()
        for name in ("pct", "launch", "courier"):
            mesh.kill_on(host, f"redmesh-{name}", signal.SIGCONT)

    def unsettled() -> dict[str, Any]:
        shown = look(mesh)
        wrong: dict[str, Any] = {node["name"]: node["state"] for node in shown["nodes"] if node["state"] != "up"}
        if shown["launchers"]:
            wrong["launchers"] = len(shown["launchers"])
        for host in mesh.hosts:
            if left := host.glob("dev/shm/redmesh-*/launch-*") + host.glob("dev/shm/redmesh-*/images/*"):
                wrong[host.name] = left
        return wrong

    wait_until(lambda: not unsettled(), "the mesh is as it was", step_s=0.2)


def strike(mesh: FarMesh, host: NamespaceHost, what: str, how: str) -> None:
    if what == "host":
        host.cut()
    else:
        number = signal.SIGSTOP if how == "stopped" else signal.SIGKILL
        assert mesh.kill_on(host, f"redmesh-{what}", number), f"{host.name} has no {what}"


class Arrival:
    """What comes to the end of the chain."""

    def __init__(self, mesh: FarMesh) -> None:
        self._last = mesh.hosts[2]
        self._before = self._last.received()

    def received(self) -> int:
        """Return how many bytes have come since this began."""
        return self._last.received() - self._before

    def begins(self) -> None:
        """Wait until a part of the program has come."""
        wait_until(lambda: self.received() > COMING, "it comes to the last one")

    def goes_on(self) -> None:
        """Raise AssertionError if all of it may have come: nothing happened while it travelled."""
        assert self.received() < SIZE, "it had not all come yet"


@pytest.mark.parametrize(
    ("size", "kbit"), [(900_000, 1000), (2_000_000, 1000), (900_000, 500)], ids=["pushed", "fetched", "pushed slower"]
)
def test_a_slow_link_is_none_that_stands(mesh: FarMesh, size: int, kbit: int) -> None:
    """Pieces come seconds apart, and the question whether a node lives waits behind them for longer than 6 s.

    The links to those behind the first node are slow, and nothing else is on them: on a link that a stream of others
    fills, TCP may leave a connection without a word for long.
    """
    program = mesh.home / f"slow-{size}"
    program.write_bytes(b"#!/bin/sh\nexit 0\n" + os.urandom(size))
    program.chmod(0o755)
    for host in mesh.hosts[1:]:
        host.limit(f"{kbit}kbit", to_it_alone=True)
    try:
        watched = Watched(mesh, "-bcast", "always", "-sz", "6", str(program))
        began = time.monotonic()
        took = watched.end() - began
    finally:
        for host in mesh.hosts:
            host.limit(f"{RATE_MBIT}mbit")
    print(f"| {size} bytes at {kbit} kbit/s | {took:.1f} s | {watched.said} |")
    assert watched.process.returncode == 0, watched.said
    assert not watched.decided() and took > 8 * size / kbit / 1e3, "it was slow, and nobody was blamed"


def test_a_long_transfer_says_how_far_it_is(mesh: FarMesh) -> None:
    program = mesh.home / "long"
    program.write_bytes(b"#!/bin/sh\nexit 0\n" + os.urandom(12 << 20))
    program.chmod(0o755)
    for host in mesh.hosts:
        host.limit("20mbit")
    try:
        done = mesh.run("yod", "-bcast", "always", "-sz", "6", str(program), check=True)
    finally:
        for host in mesh.hosts:
            host.limit(f"{RATE_MBIT}mbit")
    assert re.search(r"^yod: sending long: \d+ of 12 MiB$", done.stderr, re.MULTILINE), done.stderr


def test_a_launcher_that_its_user_stops_is_waited_for(mesh: FarMesh, large: str) -> None:
    """^Z for longer than anybody waits for a node: the launch goes on where it was."""
    arrival = Arrival(mesh)
    watched = Watched(mesh, "-bcast", "always", "-sz", "6", large)
    try:
        arrival.begins()
        (launcher,) = look(mesh)["launchers"]
        freeze(launcher["pid"])
        arrival.goes_on()
        time.sleep(12.0)
        os.kill(launcher["pid"], signal.SIGCONT)
    finally:
        watched.end()
    assert watched.process.returncode == 0 and not watched.decided(), watched.said


CASES = [
    *(("host", "cut off", role) for role in ROLES), ("launch", "stopped", "interior"), ("launch", "killed", "leaf"),
    ("pct", "stopped", "root"), ("pct", "killed", "interior"),
    ("courier", "stopped", "root"), ("courier", "killed", "interior"),
]  # fmt: skip


#: On one machine, all roles: test_faults.py.
REST = [("launch", "stopped", role) for role in ("root", "leaf")]


@pytest.mark.storm
@pytest.mark.parametrize(("what", "how", "role"), long(CASES, CASES + REST))
def test_a_fault_while_a_program_travels_to_hosts_ends_or_moves_the_launch(
    mesh: FarMesh, large: str, what: str, how: str, role: str
) -> None:
    host = mesh.hosts[ROLES.index(role)]
    arrival = Arrival(mesh)
    watched = Watched(mesh, "-bcast", "always", "-sz", "6", large)
    try:
        arrival.begins()
        strike(mesh, host, what, how)
        began = time.monotonic()
        arrival.goes_on()
    finally:
        ended = watched.end()
    decided = watched.decided()
    told = f"{decided[0] - began:.1f} s: {decided[1]}" if decided else f"went on, ended after {ended - began:.1f} s"
    print(f"| {what} {how} | {role} | {told} | {watched.process.returncode} |")
    if decided is None:
        assert watched.process.returncode == 0, watched.said
    else:
        assert any(one.name in decided[1] for one in mesh.hosts), f"it names a node: {watched.said}"


@pytest.fixture
def elsewhere(mesh: FarMesh) -> Iterator[str]:
    """A directory that every host has."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="redmesh-t-") as folder:
        mesh.env["PARALLEL_FILE_SYSTEM"] = folder
        yield folder
        del mesh.env["PARALLEL_FILE_SYSTEM"]


@pytest.mark.parametrize("full", [(0,), (0, 2)], ids=["root", "root and leaf"])
def test_a_root_without_room_is_waited_for_and_what_it_placed_stays_for_all(
    mesh: FarMesh, elsewhere: str, full: tuple[int, ...]
) -> None:
    """Those below it gave up in milliseconds and were blamed; and it took the file away when its own ranks ended."""
    program = mesh.home / "late"
    program.write_bytes(b"#!/bin/sh\n[ $YOD_RANK -lt 2 ] || sleep 2; [ -e $0 ]; exit\n" + os.urandom(SIZE))
    program.chmod(0o755)
    for at in full:
        mesh.hosts[at].run("sh", "-c", "head -c 60000000 /dev/zero > /dev/shm/fill; cat /dev/zero > /tmp/fill")
    try:
        done = mesh.run("yod", "-bcast", "always", "-sz", "6", str(program))
    finally:
        for at in full:
            mesh.hosts[at].run("rm", "/dev/shm/fill", "/tmp/fill")
    assert done.returncode == 0 and f"goes by the parallel file system, {elsewhere}" in done.stderr, done.stderr
    assert not os.listdir(elsewhere) and set(mesh.states().values()) == {"up"}
