"""A mesh whose nodes are reached by TLS alone: launches, images, ends, and keys that change under them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.link.client import Client
from agents.wire.errors import AgentError
from console.deploy.trust.authority import authority
from tests.support.addresses import address
from tests.support.far_mesh import ROOT, TlsMesh
from tests.support.look import look, processors
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import freeze, wait_until

#: ``mesh trust rotate`` that waits half a second for a node.
IMPATIENT = """
import sys
import console.cli.mesh.command, console.deploy.trust.key_rotation
console.deploy.trust.key_rotation.TAKE_S = 0.5
sys.exit(console.cli.mesh.command.main(["trust", "rotate"]))
"""


@pytest.fixture(scope="module")
def mesh() -> Iterator[PrivateMesh]:
    with while_up(TlsMesh(processors=6, nodes=3)) as mesh:
        yield mesh


def _free(mesh: PrivateMesh) -> None:
    wait_until(lambda: processors(mesh, "free") == 6, "all is free")


def _log(mesh: PrivateMesh, node: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (mesh.state / "log" / f"pct-{node}.jsonl").read_text().splitlines()]


def test_ranks_on_every_node(mesh: PrivateMesh) -> None:
    done = mesh.run("yod", "-sz", "6", "sh", "-c", "echo $YOD_RANK $YOD_NODE", check=True)
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{rank} n{rank // 2}" for rank in range(6)]


def test_input_output_and_status_come_through(mesh: PrivateMesh) -> None:
    sent = os.urandom(300_000).hex()
    done = mesh.run("yod", "-sz", "3", "-input", "all", "sh", "-c", "cat | md5sum; exit $YOD_RANK", input=sent)
    assert len(set(done.stdout.split("\n"))) == 2  # the same sum three times, and the end
    assert done.returncode == 2


def test_much_output_arrives_whole(mesh: PrivateMesh) -> None:
    done = mesh.run("yod", "-sz", "6", "sh", "-c", "head -c 3000000 /dev/zero", check=True)
    assert done.stdout.count("\0") == 18_000_000


def test_a_program_travels_from_node_to_node(mesh: PrivateMesh) -> None:
    program = mesh.work / "big"
    program.write_bytes(b"#!/bin/sh\necho $0 $(wc -c < $0)\nexit 0\n" + os.urandom(4 << 20))
    program.chmod(0o755)
    done = mesh.run("yod", "-sz", "6", "-bcast", "always", "--bcast-per=node", str(program), check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all(line.endswith(str(program.stat().st_size)) and line.startswith("/dev/shm/") for line in lines)


def test_an_interrupt_ends_all_ranks(mesh: PrivateMesh) -> None:
    yod = mesh.start("yod", "-sz", "6", "sleep", "4711")
    wait_until(lambda: len(_sleeping(mesh, "4711")) == 6, "six sleep")
    yod.send_signal(signal.SIGINT)
    assert yod.wait() == 130
    assert not _sleeping(mesh, "4711")
    _free(mesh)


def test_a_yod_that_is_killed_leaves_nothing(mesh: PrivateMesh) -> None:
    yod = mesh.start("yod", "-sz", "6", "sleep", "4712")
    wait_until(lambda: len(_sleeping(mesh, "4712")) == 6, "six sleep")
    yod.kill()
    wait_until(lambda: not _sleeping(mesh, "4712"), "they are gone")
    _free(mesh)


def test_pingd_kills_over_the_network(mesh: PrivateMesh) -> None:
    yod = mesh.start("yod", "-sz", "6", "sleep", "4713")
    wait_until(lambda: len(_sleeping(mesh, "4713")) == 6, "six sleep")
    launcher = look(mesh)["launchers"][0]["id"]
    mesh.run("pingd", "-job", str(launcher), "-kill", "-N", check=True)
    assert yod.wait() != 0
    assert not _sleeping(mesh, "4713")
    _free(mesh)


def test_a_program_that_is_not_there(mesh: PrivateMesh) -> None:
    done = mesh.run("yod", "-sz", "6", "/nonexistent/program")
    assert done.returncode == 127
    assert "/nonexistent/program" in done.stderr
    _free(mesh)


def _sleeping(mesh: PrivateMesh, seconds: str) -> list[int]:
    return [pid for pid, command in mesh.processes().items() if command == f"sleep {seconds}"]


class TestCredentials:
    """What a CPA gives out."""

    def _ask(self, mesh: PrivateMesh, request: dict[str, object]) -> dict[str, object]:
        with Client(str(mesh.run_dir / "cpa-0.sock"), "launcher") as cpa:
            return cpa.call(request)

    def _allocate(self, mesh: PrivateMesh) -> dict[str, object]:
        login = json.loads((mesh.state / "keeper.json").read_text())["login"]
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return self._ask(mesh, {
            "op": "allocate", "key": os.urandom(16).hex(), "size": 1, "login": login, "pid": os.getpid(),
            "pid_started": started, "command": "x",
        })  # fmt: skip

    def test_for_a_pending_launcher_with_its_cookie(self, mesh: PrivateMesh) -> None:
        got = self._allocate(mesh)
        request = {"op": "credential", "launcher": got["launcher"], "cookie": got["cookie"], "common": "0" * 64}
        reply = self._ask(mesh, request)
        credential = json.loads(str(reply["credential"]))
        assert credential["launcher"] == got["launcher"] and credential["uid"] == os.geteuid()
        assert list(reply["macs"]) == [got["nodes"][0]["name"]]  # type: ignore[call-overload,index]
        # it ends fifteen seconds before the reservation does
        assert 30 < credential["expires_at"] - time.time() <= 45
        with pytest.raises(AgentError, match="cookie"):
            self._ask(mesh, {**request, "cookie": "0" * 16})
        with pytest.raises(AgentError, match="SHA-256"):
            self._ask(mesh, {**request, "common": "../../etc"})
        self._ask(mesh, {"op": "finish", "launcher": got["launcher"], "cookie": got["cookie"], "exit_status": 0})
        with pytest.raises(AgentError, match="ended"):
            self._ask(mesh, request)
        _free(mesh)

    def test_not_for_one_that_has_started(self, mesh: PrivateMesh) -> None:
        got = self._allocate(mesh)
        mine = {"launcher": got["launcher"], "cookie": got["cookie"]}
        first = got["nodes"][0]["processors"][0]  # type: ignore[index]
        self._ask(mesh, {"op": "started", **mine, "ranks": [first]})
        with pytest.raises(AgentError, match="busy"):
            self._ask(mesh, {"op": "credential", **mine, "common": "0" * 64})
        self._ask(mesh, {"op": "finish", **mine, "exit_status": 0})
        _free(mesh)


def test_keys_change_while_launches_run(mesh: PrivateMesh) -> None:
    before = mesh.json("mesh", "trust", "show")
    out = (mesh.work / "out").open("w+")
    long = mesh.start("yod", "-sz", "3", "sh", "-c", "sleep 3; echo over $YOD_RANK", stdout=out)
    wait_until(lambda: processors(mesh, "busy") == 3, "it runs")
    done = mesh.run("mesh", "trust", "rotate", check=True)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["3 nodes"] * 3
    assert mesh.run("yod", "-sz", "3", "hostname").returncode == 0  # beside it, under the new keys
    assert long.wait() == 0
    out.seek(0)
    assert sorted(out.read().split()) == ["0", "1", "2", "over", "over", "over"]
    after = mesh.json("mesh", "trust", "show")
    assert after["stage"] == "settled" and len(after["fingerprints"]) == 1
    assert after["fingerprints"] != before["fingerprints"]
    assert [line["event"] for line in _log(mesh, "n0")].count("trust renewed") == 3
    _free(mesh)


def test_a_change_of_keys_goes_on_where_it_stopped(mesh: PrivateMesh) -> None:
    pid = next(d["pid"] for d in mesh.keeper()["daemons"] if d["name"] == "n2")
    freeze(pid)
    try:
        done = mesh.run(sys.executable, "-P", "-c", IMPATIENT, env={"PYTHONPATH": ROOT})
        assert done.returncode == 125 and "n2" in done.stderr, done
        assert mesh.json("mesh", "trust", "show")["stage"] == "introduced"
        assert mesh.run("yod", "-sz", "1", "-list", "n0", "hostname").returncode == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    mesh.run("mesh", "trust", "rotate", check=True)
    assert authority(str(mesh.state), mesh.run_dir.name).stage.value == "settled"
    wait_until(lambda: mesh.run("yod", "-sz", "6", "hostname").returncode == 0, "all nodes again")


def test_ranks_are_told_where_to_meet(mesh: PrivateMesh) -> None:
    done = mesh.run("yod", "-sz", "3", "--rendezvous=auto", "sh", "-c", "echo $MASTER_ADDR $WORLD_SIZE", check=True)
    assert done.stdout.splitlines() == [f"{address(2)} 3"] * 3
