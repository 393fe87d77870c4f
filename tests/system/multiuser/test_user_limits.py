"""One user attacks the daemons of a system mesh with all there is (tests/support/attack.py), and others launch on."""

import json
import os
import time
from collections.abc import Iterator

import pytest

from agents.wire.errors import AgentError
from db.store.url import mysql_options
from tests.support.chance import long
from tests.support.hosts import MakeHosts
from tests.support.look import processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import python_for_others
from tests.support.system_mesh import Attacked, SystemMesh
from tests.support.waiting import PATIENCE_S, wait_until

#: tests/bench/attacked.py has longer ones, beside as many processes that spin.
ATTACK_S = long(2.0, 30.0)
#: What each part of the attack sleeps between two turns. Without it the attack has all processors, as in tests/bench.
PAUSE = ("--pause", str(long(0.05, 0.0)))
MOST_MB = 150

pytestmark = pytest.mark.storm


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[SystemMesh]:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    with while_up(SystemMesh(netns_hosts(1, users=("ada", "bob")), sql_server)) as made:
        yield made


def test_others_launch_while_a_user_attacks(mesh: SystemMesh, sql_server: Server) -> None:
    attacked = Attacked(mesh, ATTACK_S)
    parts = ("--pct", f"{mesh.hosts[0].address}:7117", "--database", mesh.viewers_url)
    connections = (  # each but the last has run all statements of the attack once, most of them without an error
        "SELECT COUNT(*) FROM information_schema.processlist"
        f" WHERE user = 'viewer' AND db = '{mysql_options(mesh.viewers_url)['database']}'"
    )
    attacked.launches(*parts, *PAUSE, enough=lambda: sql_server.admin(connections) > ((5,),))
    assert json.loads(attacked.said.split('{"database": ')[1].split("}")[0] + "}")["done"] > 20, attacked.said
    assert all(most < MOST_MB for most in mesh.memory_mb().values()), mesh.memory_mb()
    wait_until(lambda: max(attacked.descriptors().values()) < 64, "its connections are gone")
    assert mesh.as_user("ada", "yod", "-sz", "1", "true").returncode == 0
    assert set(mesh.states().values()) == {"up"}


def test_a_user_with_too_many_connections_is_told_so_and_nobody_else(mesh: SystemMesh) -> None:
    """What the user has running lives on: its registration may be refused, and its connections dropped."""
    running = mesh.start_as("ada", "yod", "-sz", "1", "sleep", "600")
    wait_until(lambda: running.pid in _registered(mesh), "it runs")
    descriptors = Attacked(mesh, 0.0).descriptors
    attack = mesh.attack("ada", 10 * PATIENCE_S, "--only", "greeted", *PAUSE)
    try:
        attack.stdout.readline()  # type: ignore[union-attr]
        wait_until(lambda: min(descriptors().values()) > 4000, "it has all that it may have", step_s=0.2)
        assert mesh.as_user("bob", "yod", "-sz", "1", "true").returncode == 0
        while True:  # a yod may get in while the attack takes its last connections
            began = time.monotonic()
            refused = mesh.as_user("ada", "yod", "-sz", "1", "true")
            if refused.returncode or attack.poll() is not None:
                break
        assert refused.returncode == 125 and "connections to this daemon" in refused.stderr, refused
        assert time.monotonic() - began > 10, "it tries again first"
        told = mesh.as_user("ada", "yod", "--dry-run", "-sz", "1", "true")
        assert told.returncode and "connections to this daemon" in told.stderr, told
        killed = [mesh.kill("rca"), mesh.kill("cpa-0")]

        def again() -> bool:
            try:
                return _pids(mesh).isdisjoint(killed) and descriptors()["rca"] > 4000
            except (OSError, AgentError):  # they are not there again
                return False

        wait_until(again, "the daemons are there again, and so is the attack", step_s=0.2)
    finally:
        attack.terminate()
        attack.wait()
    wait_until(lambda: running.pid in _registered(mesh) or running.poll() is not None, "it registers again", step_s=0.2)
    assert running.poll() is None
    assert processors(mesh, "busy") == 1
    running.terminate()
    assert running.wait() == 128 + 15
    wait_until(lambda: max(descriptors().values()) < 64, "its connections are gone")
    assert mesh.as_user("ada", "yod", "-sz", "1", "true").returncode == 0


def _pids(mesh: SystemMesh) -> set[int]:
    return {int(one["pid"]) for one in mesh.keeper()["daemons"] if one["name"] in ("rca", "cpa-0")}


def _registered(mesh: SystemMesh) -> list[int]:
    from agents.link.client import Client, Unreachable

    try:
        with Client(str(mesh.run_dir / "rca.sock"), "admin") as client:
            return [one["pid"] for one in client.call({"op": "status"})["launchers"]]
    except Unreachable:
        return []


def test_the_logs_keep_what_others_did(mesh: SystemMesh) -> None:
    for daemon in ("cpa-0", "rca"):
        lines = [json.loads(line) for line in (mesh.state / "log" / f"{daemon}.jsonl").read_text().splitlines()]
        about = [line for line in lines if line.get("uid") == 21001]
        starts = sum(line["event"] == "started" for line in lines)  # the test above kills each daemon
        seconds = about[-1]["at"] - about[0]["at"] if about else 0.0
        told = f"{daemon} wrote {len(about)} lines in {seconds:.0f} s and {starts} lives about one user"
        assert len(about) <= 1000 * starts + 50 * seconds + 1, told
    assert any(line["event"] == "allocate" for line in lines) or daemon == "rca"
