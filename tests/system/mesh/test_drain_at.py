"""``mesh drain --at``: launches that take too long avoid nodes that will be drained; at the time nobody has to act."""

from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

import pytest

from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server | None:
    """The server of the system databases; None for SQLite."""
    return request.getfixturevalue("sql_server") if request.param == "mariadb" else None


@pytest.fixture(scope="module")
def kept(server: Server | None) -> Iterator[list[PrivateMesh]]:
    """The mesh of `four`, if a test has begun one."""
    meshes: list[PrivateMesh] = []
    yield meshes
    left = [line for one in meshes for line in ended(one, server)]
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def four(kept: list[PrivateMesh], server: Server | None) -> Iterator[PrivateMesh]:
    """A mesh of several tests: two nodes with two processors each, and two CPAs. No node is drained, or will be.

    If that cannot be had after a test, the test fails, and the next has a new mesh: what is wrong may be in the
    database.
    """
    try:
        if not kept:
            kept.append(PrivateMesh(4, 2, 2, server.new_database() if server else ""))
            kept[0].up()
        with borrowed(kept[0]) as mesh:
            yield mesh
            if any(one["state"] != "up" or one["drain_at"] is not None for one in look(mesh)["nodes"]):
                mesh.run("mesh", "resume", "n[0-1]", check=True)
    except BaseException:
        ended(kept.pop(), server)
        raise


def ended(mesh: PrivateMesh, server: Server | None) -> list[str]:
    """Take a mesh down, with its database; return what it left."""
    left = mesh.close()
    if server:
        server.drop_database(mesh.database)
    return left


def node(mesh: PrivateMesh, place: int) -> dict[str, Any]:
    found: dict[str, Any] = look(mesh)["nodes"][place]
    return found


def test_nodes_are_drained_at_a_time(four: PrivateMesh) -> None:
    told = four.run("mesh", "drain", "n1", "--at", "+2:00:00", "--reason", "bad fan", check=True).stdout
    assert told.startswith("1 node will be drained at 20") and told.endswith("; mesh resume takes it back\n")
    found = node(four, 1)
    assert found["state"] == "up" and found["drain_reason"].startswith("bad fan (")
    assert 7000 < found["drain_at"] - look(four)["at"] < 7200
    for viewer in (("showmesh",), ("mesh", "status")):
        assert "n1 will be drained at 20" in four.run(*viewer, check=True).stdout, "status 0: nothing is wrong yet"
    refused = four.run("yod", "-sz", "3", "-time", "3h", "true")
    assert refused.returncode == 125 and "2 are free" in refused.stderr
    assert "1 node (n1) will be drained before this launch's time limit" in refused.stderr
    for words in (("-sz", "2", "-time", "3h"), ("-sz", "4", "-time", "1h"), ("-sz", "4")):
        four.run("yod", *words, "true", check=True)
    waits = four.start("yod", "-sz", "4", "-time", "3h", "--wait-for-nodes", "600", "true", stderr=PIPE, text=True)
    assert waits.stderr is not None and waits.stderr.readline() == "yod: waiting for processors (4)\n"
    assert four.run("mesh", "resume", "n[0-1]", check=True).stderr == "mesh: n0 was in service\n"
    assert waits.wait() == 0 and node(four, 1)["drain_at"] is None


def test_what_runs_then_runs_on(four: PrivateMesh) -> None:
    process = four.start("yod", "-sz", "4", "sleep", "600")
    wait_until(lambda: processors(four, "busy") == 4, "it runs")
    four.run("mesh", "drain", "n1", "--at", "now+1", "--reason", "bad fan", check=True)
    wait_until(lambda: node(four, 1)["state"] == "draining", "a CPA drains it")
    assert process.poll() is None and node(four, 0)["state"] == "up"
    process.terminate()
    wait_until(lambda: node(four, 1)["state"] == "drained", "it is drained")
    assert "bad fan" in node(four, 1)["reason"] and four.run("yod", "-sz", "3", "true").returncode == 125
    for words, why in ((("n1", "--at", "25:00"), "not a time"), (("n1", "--at", "2020-01-01"), "in the past")):
        refused = four.run("mesh", "drain", *words)
        assert refused.returncode == 2 and why in refused.stderr, refused.stderr
    assert "n1 is drained already" in four.run("mesh", "drain", "n1", "--at", "+1h", check=True).stderr
