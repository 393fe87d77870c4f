"""``mesh drain --at``: launches that take too long avoid nodes that will be drained; at the time nobody has to act."""

from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

import pytest

from tests.support.look import look, processors
from tests.support.mesh import PrivateMesh, while_up
from tests.support.shared_mesh import borrowed
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def one_mesh(request: pytest.FixtureRequest) -> Iterator[PrivateMesh]:
    """A mesh of two nodes with two processors each, with two CPAs, for all tests of a database."""
    if request.param == "sqlite":
        with while_up(PrivateMesh(4, 2, 2)) as made:
            yield made
        return
    server = request.getfixturevalue("sql_server")
    url = server.new_database()
    with while_up(PrivateMesh(4, 2, 2, url)) as made:
        yield made
    server.drop_database(url)


@pytest.fixture
def four(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The mesh; no node of it is drained, or will be."""
    with borrowed(one_mesh):
        yield one_mesh
        if node(one_mesh, 1)["state"] != "up" or node(one_mesh, 1)["drain_at"] is not None:
            one_mesh.run("mesh", "resume", "n1")


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
