"""The keeper over real daemons: started, started again, adopted, ended, and nothing left."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agents.link.client import Client, Unreachable
from agents.linux import processes
from agents.wire.errors import AgentError
from console.deploy.personal.schema import define
from redmesh.settings.keeper_file import read_keeper_file
from tests.support.pcts import MESH, Launcher
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, freeze, wait_until


class Mesh:
    """A personal mesh's keeper over its own directories; nodes and address() are what a Launcher asks for."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        self.directory = str(private_directory("rk-"))
        self.run, self.state = f"{self.directory}/run", f"{self.directory}/state"
        os.mkdir(self.run, 0o700)
        os.mkdir(self.state, 0o700)
        self.nodes = [{"id": i + 1, "name": f"n{i}", "processors": [2 * i, 2 * i + 1]} for i in range(nodes)]
        self.config = {
            "mesh": MESH, "run": self.run, "state": self.state, "boot_id": "b1", "login": "login0", "auto": False,
            "idle_s": 1800, "fanout": 32, "database": f"sqlite://{self.state}/mesh.db", "database_file": None,
            "nodes": self.nodes, "cpas": 1, "cleanup": None, "batch_accounts": [], "admins": [], "suspect_s": 5.0,
            "down_s": 15.0, "silent_s": 10.0, "history_days": 30, "history_rows": 10000, **options,
        }  # fmt: skip
        self.file = f"{self.state}/keeper.json"
        with open(self.file, "w") as file:
            json.dump(self.config, file)
        define(self.config["database"], read_keeper_file(self.config))
        self.keepers: list[subprocess.Popen[bytes]] = []
        self.seen: set[int] = set()

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        """One more keeper."""
        command = [sys.executable, "-P", "-m", "agents.keeper", "--config", self.file, *options]
        keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self.keepers.append(keeper)
        return keeper

    def status(self) -> dict[str, Any]:
        """What the keeper says; empty while it does not answer."""
        try:
            with Client(f"{self.run}/keeper.sock", "admin") as client:
                status = client.call({"op": "status"})
        except Unreachable:
            return {}
        self.seen |= {status["pid"], *(daemon["pid"] for daemon in status["daemons"] if daemon["pid"])}
        return status

    def pids(self) -> dict[str, int]:
        """The daemons' pids by name."""
        return {daemon["name"]: daemon["pid"] for daemon in self.status().get("daemons", [])}

    def answers(self, name: str) -> bool:
        """Whether a daemon takes connections."""
        try:
            Client(f"{self.run}/{name}.sock", "admin").close()
        except Unreachable:
            return False
        return True

    def up(self) -> None:
        """Start, and wait for everybody."""
        self.start()
        names = ["keeper", "rca", "cpa-0", *(str(node["name"]) for node in self.nodes)]
        for name in names:
            wait_until(lambda name=name: self.answers(name), f"{name} answers")  # type: ignore[misc]
        self.status()

    def address(self, name: str) -> str:
        """Where a node's PCT listens."""
        return f"{self.run}/{name}.sock"

    def down(self, force: bool = False) -> None:
        """Ask the keeper to end it all."""
        with Client(f"{self.run}/keeper.sock", "admin") as client:
            client.call({"op": "down", "force": force})

    def close(self) -> None:
        """Kill what is left."""
        for keeper in self.keepers:
            if keeper.poll() is None:
                keeper.terminate()
                try:
                    keeper.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    keeper.kill()
            keeper.wait()
            if keeper.stderr:
                keeper.stderr.close()
        for pid in self.seen:
            if self.state.encode() in _command(pid):
                processes.kill_all([pid])
        processes.kill_all(processes.marked(f"{MESH}/"))
        shutil.rmtree(self.directory, ignore_errors=True)


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    mesh = Mesh()
    try:
        yield mesh
    finally:
        mesh.close()


def test_up_and_down_leave_nothing(mesh: Mesh) -> None:
    mesh.up()
    daemons = mesh.pids()
    assert set(daemons) == {"cpa-0", "rca", "n0", "n1", "n2"}
    with Client(f"{mesh.run}/rca.sock", "admin") as rca:
        wait_until(lambda: len(rca.call({"op": "status"})["nodes"]) == 3, "every PCT has registered")
    for pid in daemons.values():
        for fd in (0, 1):
            assert os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/null"
        assert os.getsid(pid) == pid
    mesh.down()
    assert mesh.keepers[0].wait(PATIENCE_S) == 0
    assert not os.path.exists(mesh.run)
    assert not [pid for pid in mesh.seen if processes.alive(pid)]


def test_what_dies_is_started_again(mesh: Mesh) -> None:
    mesh.up()
    for victim in ("n1", "rca", "cpa-0"):
        old = mesh.pids()[victim]
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: mesh.pids().get(victim) not in (0, old) and mesh.answers(victim), f"{victim} is back")  # noqa: B023
        [daemon] = [d for d in mesh.status()["daemons"] if d["name"] == victim]
        assert (daemon["restarts"], daemon["state"]) == (1, "running"), victim
        assert not os.path.exists(f"/proc/{old}"), f"no zombie of {victim}"
    with Client(mesh.address("n1"), "admin") as pct:
        assert pct.call({"op": "status"})["incarnation"] == 2


def failures(mesh: Mesh, name: str) -> list[dict[str, Any]]:
    """What the keeper's log says of a daemon that does not come up."""
    with open(f"{mesh.state}/log/keeper.jsonl") as log:
        lines = [json.loads(line) for line in log]
    return [line for line in lines if line["event"] == "daemon failed" and line["name"] == name]


def test_what_does_not_come_up_is_tried_ever_more_seldom_and_told_of_once(mesh: Mesh) -> None:
    """A CPA whose file is damaged; the order to try again, which mesh up gives, is heard at once."""
    mesh.up()
    damaged = {**mesh.config, "history_days": "many"}
    with open(mesh.file, "w") as file:
        json.dump(damaged, file)
    os.kill(mesh.pids()["cpa-0"], signal.SIGKILL)

    def cpa() -> dict[str, Any]:
        return next(one for one in mesh.status()["daemons"] if one["name"] == "cpa-0")

    wait_until(lambda: cpa().get("again_s", 0.0) > 1.0, "it waits for long", step_s=0.05)
    told = cpa()
    assert "many" in told["reason"] and mesh.file in told["reason"] and told["restarts"] >= 5, told
    assert len(failures(mesh, "cpa-0")) == 1
    with open(mesh.file, "w") as file:
        json.dump(mesh.config, file)
    os.kill(mesh.status()["pid"], signal.SIGHUP)
    wait_until(lambda: mesh.answers("cpa-0"), "it is back at once", step_s=0.02)
    assert all(mesh.answers(name) for name in ("rca", "n0"))


def test_a_new_keeper_adopts_what_its_predecessor_left(mesh: Mesh) -> None:
    mesh.up()
    launcher = Launcher(mesh, ["sleep", "300"])  # type: ignore[arg-type]
    launcher.go()
    before = mesh.pids()
    mesh.keepers[0].kill()
    mesh.keepers[0].wait()
    assert all(processes.alive(pid) for pid in before.values()), "daemons outlive their keeper"
    mesh.start()
    wait_until(lambda: mesh.pids() == before, "adopted, not started anew")
    os.kill(before["n2"], signal.SIGKILL)
    wait_until(lambda: mesh.pids()["n2"] not in (0, before["n2"]) and mesh.answers("n2"), "an adopted one is kept too")
    launcher.send({"op": "kill"})
    launcher.finish()
    mesh.down()
    mesh.keepers[1].wait(PATIENCE_S)
    assert not [pid for pid in mesh.seen if processes.alive(pid)]


def test_a_stopped_daemon_without_a_socket_gets_no_second_beside_it(mesh: Mesh) -> None:
    """A new keeper adopts its process, however long it stands still; killed, it is replaced by one."""
    mesh.up()
    before = mesh.pids()
    mesh.keepers[0].kill()
    mesh.keepers[0].wait()
    freeze(before["rca"])
    os.unlink(f"{mesh.run}/rca.sock")
    mesh.start()
    wait_until(lambda: mesh.pids().get("rca"), "the RCA is adopted")
    assert mesh.pids() == before
    told = next(daemon for daemon in mesh.status()["daemons"] if daemon["name"] == "rca")
    assert "stopped" in told["reason"]
    os.kill(before["rca"], signal.SIGCONT)
    wait_until(lambda: mesh.answers("rca"), "it makes its socket again")
    assert mesh.pids() == before and "reason" not in mesh.status()["daemons"][1]
    os.kill(before["rca"], signal.SIGKILL)
    wait_until(lambda: mesh.pids()["rca"] not in (0, before["rca"]) and mesh.answers("rca"), "it is kept too")


def test_two_keepers_of_one_mesh(mesh: Mesh) -> None:
    mesh.up()
    second = mesh.start()
    assert second.wait(PATIENCE_S) == 1
    assert second.stderr is not None
    said = second.stderr.read().decode()
    assert "has a keeper already" in said and said.count("\n") == 1


def test_down_is_refused_while_launches_run(mesh: Mesh) -> None:
    mesh.up()
    launcher = Launcher(mesh, ["bash", "-c", "trap '' TERM; setsid sleep 300 & sleep 300"], per_node=2)  # type: ignore[arg-type]
    launcher.go()
    with pytest.raises(AgentError, match=f"launcher {launcher.number} runs") as refused:
        mesh.down()
    assert refused.value.code == "busy" and "--force" in refused.value.hint
    assert len(mesh.pids()) == 5
    mesh.down(force=True)
    assert mesh.keepers[0].wait(PATIENCE_S) == 0
    assert not [pid for pid in processes.marked(f"{MESH}/") if processes.alive(pid)]
    launcher.sock.close()


def test_an_auto_mesh_ends_when_it_is_idle() -> None:
    mesh = Mesh(nodes=1, auto=True, idle_s=1.0)
    try:
        mesh.up()
        assert mesh.keepers[0].wait(PATIENCE_S) == 0
        assert not os.path.exists(mesh.run)
    finally:
        mesh.close()


def test_detached_keepers_go_on_alone(mesh: Mesh) -> None:
    assert mesh.start("--detach").wait(PATIENCE_S) == 0
    wait_until(lambda: all(mesh.answers(name) for name in ("n0", "rca", "cpa-0")), "it is up")
    mesh.status()
    mesh.down()
    wait_until(lambda: not os.path.exists(mesh.run), "it has ended")
    wait_until(lambda: not [pid for pid in mesh.seen if processes.alive(pid)], "nobody is left")


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        ([], "usage:", 2),
        (["--config", "/no/such"], "/no/such: No such file", 2),
        (["--config", "/etc/passwd"], "no JSON", 2),
    ],
)
def test_bad_calls_get_one_line(arguments: list[str], words: str, status: int) -> None:
    for program in ("agents.keeper", "agents.pct"):
        more = ["--node", "n0"] if arguments and program == "agents.pct" else []
        call = subprocess.run([sys.executable, "-P", "-m", program, *arguments, *more], capture_output=True, text=True)
        assert call.returncode == status and words in call.stderr and call.stderr.count("\n") == 1, call.stderr
