"""A login processor is revoked while its requests wait, and by a command that is cut short; all on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from agents.wire import keys
from db.store.store import open_store
from tests.support.far_mesh import TlsMesh
from tests.support.look import processors
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until
from tests.system.remote.test_other_login import OTHER_LOGIN, OtherLogin


@pytest.fixture(scope="module")
def mesh() -> Iterator[PrivateMesh]:
    with while_up(TlsMesh(processors=4, nodes=2)) as mesh:
        yield mesh


@pytest.fixture
def other(mesh: PrivateMesh) -> Iterator[OtherLogin]:
    other = OtherLogin(mesh)
    yield other
    other.run("mesh", "down", "--force")
    shutil.rmtree(other.home)


def waiting(mesh: PrivateMesh, count: int) -> None:
    with open_store(mesh.database) as store:
        asked = "SELECT COUNT(*) FROM waiting"
        wait_until(lambda: store.read(asked) == [(count,)], f"{count} wait", step_s=0.05)


def test_what_waits_there_keeps_nobody_waiting_here(mesh: PrivateMesh, other: OtherLogin) -> None:
    """Though its connections stay open, and its requests stood first."""
    holds = mesh.start("yod", "-sz", "4", "sleep", "600")
    wait_until(lambda: processors(mesh, "busy") == 4, "it runs", step_s=0.05)
    theirs = mesh.start(
        "yod", "-sz", "4", "--wait-for-nodes=120", "true", env=other.env, stderr=subprocess.PIPE, text=True
    )
    waiting(mesh, 1)
    ours = mesh.start("yod", "-sz", "4", "--wait-for-nodes=120", "true")
    waiting(mesh, 2)
    mesh.run("mesh", "login", "revoke", OTHER_LOGIN, check=True)
    waiting(mesh, 1)
    holds.terminate()
    assert ours.wait() == 0
    _, said = theirs.communicate()
    assert theirs.returncode == 125 and "Traceback" not in said, said


def test_a_command_that_was_killed_goes_on_when_it_is_said_again(mesh: PrivateMesh, other: OtherLogin) -> None:
    """Its launches end, and the keys change, whoever says what is next: this one or a change of keys."""
    knew = set(keys.read(str(mesh.state / "trust" / "master.key")))
    theirs = mesh.start("yod", "-sz", "1", "sleep", "600", env=other.env, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(mesh, "busy") == 1, "it runs", step_s=0.05)
    words = ("mesh", "login", "revoke", "--force", OTHER_LOGIN)
    cut_short = mesh.start(*words, stdout=subprocess.PIPE, text=True)
    assert "not a login processor any more" in cut_short.stdout.readline()
    cut_short.kill()
    cut_short.wait()
    assert f"{OTHER_LOGIN} was revoked, and knows keys" in mesh.run("mesh", "trust", "show", check=True).stdout
    nobody = mesh.run("mesh", "login", "revoke", "login3")
    assert nobody.returncode and "no node 'login3'" in nobody.stderr, nobody
    assert mesh.json("mesh", "trust", "show")["revoked"] == [OTHER_LOGIN]
    mesh.run(*words, check=True)
    assert theirs.wait() != 0 and processors(mesh, "free") == 4
    assert not knew & set(keys.read(str(mesh.state / "trust" / "master.key")))
    assert mesh.json("mesh", "trust", "show")["revoked"] == []
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0
    again = mesh.run(*words)
    assert again.returncode and f"no node '{OTHER_LOGIN}'" in again.stderr, again


NAMES = ("", "../../x", "a\nb", "\x1b[31mred", "-x", "n0'; DROP TABLE node; --", "\udcff", "x" * 9999)


def test_names_that_no_login_processor_has(mesh: PrivateMesh) -> None:
    for name in NAMES:
        done = mesh.run("mesh", "login", "revoke", "--", name)
        assert done.returncode and "Traceback" not in done.stderr and "\x1b" not in done.stderr, (name, done)
    assert mesh.json("mesh", "trust", "show")["revoked"] == []
