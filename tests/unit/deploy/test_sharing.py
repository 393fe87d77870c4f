"""What hosts answer of other meshes and of taken ports, as messages."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from agents.pct.node.neighbours import Introduction
from console.deploy.hosts import other_meshes
from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import HostFailed
from console.deploy.mesh import sharing
from console.deploy.mesh.checks import from_neighbours
from console.deploy.ssh import bootstrap
from console.deploy.ssh.worker_pool import HostTask, WorkerPool
from console.errors import ConsoleError
from console.settings import load
from tests.support.addresses import address, free_port

HERE = os.uname().nodename
BOB = Introduction("b", "login2", 4, "10.0.0.1:7117")


def row(uid: int, user: str, said: Introduction) -> dict[str, Any]:
    return {"uid": uid, "user": user, "said": json.dumps(said.as_message())}


def facts(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"uid": 1000, "user": "ada", "policy": None, "neighbours": list(rows)}


def test_what_any_process_may_say_costs_a_line_at_most() -> None:
    rubbish = {"uid": 1002, "user": "eve", "said": "\x1b{"}
    mine = row(1000, "ada", Introduction("a", HERE, 2))
    found = facts(row(1001, "bob", BOB), rubbish, mine, row(1001, "bob", BOB))
    assert sharing.told(found) == "also used by mesh b of bob (8 processors)"
    (finding,) = from_neighbours(found)
    assert (finding.code, finding.grave) == ("shared", False)


def test_hosts_with_the_same_neighbours_have_one_line() -> None:
    told = [("n0", "also used by x"), ("n1", "also used by x"), ("n2", ""), ("n3", "also used by y")]
    assert other_meshes.lines(told) == ["n0-n1 are also used by x", "n3 is also used by y"]


def test_the_hosts_policy_is_a_finding() -> None:
    found = {**facts(), "policy": ["meshes_of = bob", 0, 0o100644]}
    assert [(one.code, one.grave) for one in from_neighbours(found)] == [("policy", True)]
    found["policy"][1] = 1000
    assert [(one.code, one.grave) for one in from_neighbours(found)] == [("policy", False)]


@pytest.mark.parametrize(
    ("failure", "place", "named"),
    [
        (HostFailed("port", "a process of bob listens at x"), ("10.0.0.1", 7117), True),
        (HostFailed("port", "a process of bobby listens at x"), ("10.0.0.1", 7117), False),  # the claim is bob's
        (HostFailed("port", "a process of bob listens at x"), ("10.0.0.1", 7118), False),
        (HostFailed("space", "a process of bob listens at x"), ("10.0.0.1", 7117), False),
    ],
)
def test_a_taken_port_is_an_agents_if_the_same_user_says_so(
    tmp_path: Path, failure: HostFailed, place: tuple[str, int], named: bool
) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text('ssh_config = "/dev/null"\n')
    settings = load(config=str(file), environ={"XDG_STATE_HOME": str(tmp_path)})
    errand = HostTask(Host("n1", "10.0.0.1"), WorkerPool(settings, _Silent()))
    errand.facts = facts(row(1001, "bob", BOB))
    message = sharing.explained(errand, failure, place).message
    assert message == failure.message + (": the agent of mesh b, started on login2" if named else "")


class _Silent:
    def moved(self, errand: HostTask) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_the_process_that_has_a_port_is_named(kind: str, everywhere: bool) -> None:
    host = address(1)
    port = free_port(host)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as taken:
        assert bootstrap.holder(kind, (host, port)) == ""
        taken.bind(("" if everywhere else host, port))
        if kind == "tcp":
            taken.listen()
        who = bootstrap.holder(kind, (host, port))
        assert who.startswith(f"a process of {bootstrap.user_of(os.geteuid())} (") and f"process {os.getpid()})" in who
        assert bool(bootstrap.holder(kind, (address(2), port))) is everywhere
        assert f"agent_port = {port}" not in bootstrap.other_port(kind, (host, port - 1))
        if kind == "udp":
            with pytest.raises(ConsoleError, match=f"process {os.getpid()}"):
                sharing.need_free((host, port))
    sharing.need_free((host, port))
