"""While a program travels between the nodes of one machine: what stands still or dies, and how soon that is told.

Beside test_far_image_faults.py, where hosts are cut off too; each row of the table that ``-s`` shows is a test.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chance import long
from tests.support.look import processors, states
from tests.support.mesh import PrivateMesh, restarted_on_failure, while_up
from tests.support.waiting import freeze, wait_until
from tests.support.watched import Watched

#: To distribute so much takes half a second or more, six times. No other run has an image of this size.
SIZE = (64 << 20) + os.getpid()
STORE = Path(f"/dev/shm/redmesh-{os.geteuid()}")
#: Places in a data tree of two children a node: n1 gives to n3 and n4, n2 to n5.
ROLES = {"root": "n0", "interior": "n1", "leaf": "n5"}


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("huge") / "huge"
    with path.open("wb") as file:
        file.write(b"#!/bin/sh\nexit 0\n")
        file.truncate(SIZE)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    with while_up(PrivateMesh(8, 8, REDMESH_FAILED_S="1")) as made:
        yield made


@pytest.fixture
def private(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh; afterwards it is as it was."""
    yield one_mesh
    with restarted_on_failure(one_mesh):
        wait_until(lambda: processors(one_mesh, "free") == 8, "every processor is free again")
        wait_until(lambda: not stored(one_mesh), "nothing of it is left")
        wait_until(lambda: set(states(one_mesh).values()) == {"up"}, "every node is up")


def stored(mesh: PrivateMesh, node: str = "") -> list[int]:
    """The launch children of this mesh (on ``node``) that have a place in the RAM disk."""
    names = os.listdir(STORE) if STORE.exists() else []
    places = [name.split("-") for name in names if name.startswith("launch-")]
    return [int(place[2]) for place in places if place[4] == mesh.run_dir.name and node in ("", place[5])]


SIGNALS = {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL, "terminated": signal.SIGTERM}
#: Where it matters which place in the tree the node has, each; of the others one in ``make test``.
CASES = [
    *(("node", "launch child", how, role) for how in ("stopped", "killed", "terminated") for role in ROLES),
    ("host", "launch child", "stopped", "interior"), ("node", "pct", "stopped", "interior"),
    ("node", "pct", "killed", "root"),
]  # fmt: skip
REST = [
    *(("host", "launch child", "stopped", role) for role in ("root", "leaf")),
    *(("node", "pct", "stopped", role) for role in ("root", "leaf")),
    *(("node", "pct", "killed", role) for role in ("interior", "leaf")),
]


@pytest.mark.storm
@pytest.mark.parametrize(("per", "what", "how", "role"), long(CASES, CASES + REST))
def test_a_fault_while_a_program_travels_ends_or_moves_the_launch_and_leaves_nothing(
    private: PrivateMesh, huge: Path, per: str, what: str, how: str, role: str
) -> None:
    node, pct = ROLES[role], private.pid_of(ROLES[role])
    watched = Watched(private, "-bcast", "always", "-bcast-per", per, "-sz", "6", str(huge))
    victim = 0
    try:
        child = wait_until(lambda: stored(private, node), "it begins to arrive", step_s=0.002)[0]
        victim = pct if what == "pct" else child
        os.kill(victim, SIGNALS[how])
        began = time.monotonic()
        ended = watched.end()
    finally:
        if victim and how == "stopped":
            try:
                os.kill(victim, signal.SIGCONT)
            except ProcessLookupError:
                pass
    decided = watched.decided()
    status = watched.process.returncode
    told = f"{decided[0] - began:.1f} s: {decided[1]}" if decided else f"went on, ended after {ended - began:.1f} s"
    print(f"| {per} | {what} {how} | {role} | {told} | {status} |")
    if decided is None:
        assert status == 0, watched.said
    else:
        assert node in decided[1], "it names the node"


def test_without_another_try_a_stopped_node_in_the_middle_is_named(private: PrivateMesh, huge: Path) -> None:
    command = ("yod", "-bcast", "always", "-bcast-per", "node", "-sz", "8", str(huge))
    yod = private.start(*command, stderr=subprocess.PIPE, text=True, env={"YODRETRYCOUNT": "0"})
    child = wait_until(lambda: stored(private, ROLES["interior"]), "it begins to arrive", step_s=0.002)[0]
    freeze(child)
    try:
        told = yod.communicate()[1]
    finally:
        os.kill(child, signal.SIGKILL)
    assert yod.returncode == 125 and ROLES["interior"] in told and "trying" not in told, told


@pytest.mark.parametrize("per", ["node", "host"])
def test_a_launcher_that_its_user_stops_is_waited_for(private: PrivateMesh, huge: Path, per: str) -> None:
    """^Z: it took its root, and the next ones, out of service."""
    watched = Watched(private, "-bcast", "always", "-bcast-per", per, "-sz", "6", str(huge))
    try:
        wait_until(lambda: stored(private), "it begins to arrive", step_s=0.002)
        freeze(watched.process.pid)
        time.sleep(8.0)
        watched.process.send_signal(signal.SIGCONT)
    finally:
        watched.end()
    assert watched.process.returncode == 0 and not watched.decided(), watched.said
    assert set(states(private).values()) == {"up"}


@pytest.mark.parametrize("how", ["removed", "cut short"])
@pytest.mark.parametrize("per", ["node", "host"])
def test_a_user_in_its_own_way_takes_no_node_out(private: PrivateMesh, huge: Path, per: str, how: str) -> None:
    """Files in the RAM disk are the user's: gone or cut while they are passed on, they ended four nodes' service."""
    watched = Watched(private, "-bcast", "always", "-bcast-per", per, "-sz", "6", str(huge))
    mine = private.run_dir.name
    try:
        while watched.process.poll() is None:
            with contextlib.suppress(OSError):  # a directory may go while it is looked through
                for path in (*STORE.glob(f"launch-*-{mine}-*/huge*"), *STORE.glob(f"images/{SIZE}-*")):
                    path.unlink() if how == "removed" else os.truncate(path, 4096)
            time.sleep(0.002)
    finally:
        watched.end()
    print(f"| {per} | {how} | {watched.said} | {watched.process.returncode} |")
    assert not any("trying other nodes" in line for _, line in watched.said), watched.said
    assert set(states(private).values()) == {"up"}
