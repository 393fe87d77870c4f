"""A login processor is revoked while its requests wait, and by a command that is cut short; all on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from db.connection import open_store
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until
from tests.system.test_other_login import OTHER_LOGIN, ROOT, OtherLogin


@pytest.fixture
def mesh() -> Iterator[PrivateMesh]:
    mesh = PrivateMesh(processors=4, nodes=2, PYTHONPATH=ROOT)
    try:
        mesh.run(sys.executable, "-m", "tests.support.far_up", "--processors", "4", "--nodes", "2", check=True)
        yield mesh
    finally:
        mesh.close()


@pytest.fixture
def other(mesh: PrivateMesh) -> Iterator[OtherLogin]:
    other = OtherLogin(mesh)
    yield other
    other.run("mesh", "down", "--force")


def waiting(mesh: PrivateMesh, count: int) -> None:
    with open_store(mesh.database) as store:
        asked = "SELECT COUNT(*) FROM waiting"
        wait_until(lambda: store.read(asked) == [(count,)], f"{count} wait", 10.0, 0.05)


def test_what_waits_there_keeps_nobody_waiting_here(mesh: PrivateMesh, other: OtherLogin) -> None:
    """Though its connections stay open, and its requests stood first."""
    holds = mesh.start("yod", "-sz", "4", "sleep", "600")
    wait_until(lambda: mesh.json("showmesh")["states"]["busy"] == 4, "it runs", 10.0, 0.05)
    theirs = mesh.start(
        "yod", "-sz", "4", "--wait-for-nodes=120", "true", env=other.env, stderr=subprocess.PIPE, text=True
    )
    waiting(mesh, 1)
    ours = mesh.start("yod", "-sz", "4", "--wait-for-nodes=120", "true")
    waiting(mesh, 2)
    mesh.run("mesh", "login", "revoke", OTHER_LOGIN, check=True)
    waiting(mesh, 1)
    holds.terminate()
    assert ours.wait(10) == 0
    _, said = theirs.communicate(timeout=20)
    assert theirs.returncode == 125 and "Traceback" not in said, said
