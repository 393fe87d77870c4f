"""A login processor without a CPA (row A12): its RCA brings requests to the CPA of another one, over TLS."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client, Unreachable
from agents.link.trust import Trust, use
from agents.wire.errors import AgentError
from console.deploy.trust.authority import Authority, authority, identity, write_private
from tests.support.far_mesh import TlsMesh
from tests.support.look import look, processors
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until

OTHER_LOGIN = "login2"


class OtherLogin:
    """A login processor that has no CPA, joined by the commands that people use; and commands run there."""

    def __init__(self, mesh: PrivateMesh, *, views: bool = True) -> None:
        self.mesh = mesh
        config = json.loads((mesh.state / "keeper.json").read_text())
        self.address = f"tls://{config['cpa_listen']}/cpa/{config['login']}"
        self.keys: Authority = authority(str(mesh.state), config["mesh"])
        self.home = mesh.home / "other"
        for path in (self.home, self.home / "state", self.home / "run"):
            path.mkdir(mode=0o700)
        self.run_dir = self.home / "run" / "redmesh" / config["mesh"]
        self.env = {
            **mesh.env, "XDG_STATE_HOME": str(self.home / "state"), "XDG_RUNTIME_DIR": str(self.home / "run"),
            "REDMESH_DATABASE": mesh.database,
        }  # fmt: skip
        of_db_init = (("view", "whole"), (f"view-{OTHER_LOGIN}", "side")) if views else ()  # what `mesh db init` leaves
        for name, user in of_db_init:
            (mesh.state / f"{name}.url").write_text(f"mysql://{user}:secret@db/redmesh\n")
        self.file = self.home / "grant.json"
        mesh.run("mesh", "login", "grant", OTHER_LOGIN, str(self.file), check=True)
        assert self.file.stat().st_mode & 0o777 == 0o600
        joined = self.run("mesh", "login", "join", str(self.file))
        assert joined.returncode == 0, joined.stderr

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command on this login processor."""
        return self.mesh.run(*command, env=self.env)

    def rca(self) -> list[int]:
        """The process of its RCA; empty while the keeper starts another one."""
        with Client(str(self.run_dir / "keeper.sock"), "admin") as keeper:
            daemons = keeper.call({"op": "status"})["daemons"]
        return [int(one["pid"]) for one in daemons if one["name"] == "rca" and one["pid"]]

    def close(self) -> None:
        """It is not a login processor any more."""
        assert self.run("mesh", "down").returncode == 0
        wait_until(lambda: not self.run_dir.exists(), "its run directory is gone")
        shutil.rmtree(self.home)


@pytest.fixture(scope="module")
def mesh() -> Iterator[PrivateMesh]:
    with while_up(TlsMesh(processors=4, nodes=2)) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def other(mesh: PrivateMesh) -> Iterator[OtherLogin]:
    other = OtherLogin(mesh)
    yield other
    other.close()


def test_it_is_given_the_view_of_its_own_side_alone(other: OtherLogin) -> None:
    assert "whole" not in other.file.read_text()
    given = other.home / "state" / "redmesh" / f"view-{OTHER_LOGIN}.url"
    assert (given.read_text(), given.stat().st_mode & 0o777) == ("mysql://side:secret@db/redmesh\n", 0o600)
    assert not given.with_name("view.url").exists()
    assert str(given) in other.run("mesh", "login", "join", str(other.file)).stdout


def _launchers(mesh: PrivateMesh) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = look(mesh)["launchers"]
    return found


def _all_free(mesh: PrivateMesh) -> None:
    wait_until(lambda: processors(mesh, "free") == 4, "all is free")


def test_launches_from_there(mesh: PrivateMesh, other: OtherLogin) -> None:
    done = other.run("yod", "-sz", "4", "sh", "-c", "echo $YOD_RANK; exit 3")
    assert (sorted(done.stdout.split()), done.returncode) == (["0", "1", "2", "3"], 3), done.stderr
    _all_free(mesh)


def test_launches_from_both_at_once(mesh: PrivateMesh, other: OtherLogin) -> None:
    here = mesh.start("yod", "-sz", "2", "sleep", "1")
    assert other.run("yod", "-sz", "2", "--wait-for-nodes=10", "hostname").returncode == 0
    assert here.wait() == 0
    _all_free(mesh)


def test_a_yod_there_that_is_killed_leaves_nothing(mesh: PrivateMesh, other: OtherLogin) -> None:
    yod = mesh.start("yod", "-sz", "3", "sleep", "600", env=other.env)
    wait_until(lambda: processors(mesh, "busy") == 3, "it runs")
    yod.kill()
    _all_free(mesh)


def test_it_is_shown_where_it_was_launched(mesh: PrivateMesh, other: OtherLogin) -> None:
    yod = mesh.start("yod", "-sz", "1", "sleep", "600", env=other.env)
    wait_until(lambda: processors(mesh, "busy") == 1, "it runs")
    asked = [line for line in (mesh.state / "log" / "cpa-0.jsonl").read_text().splitlines() if '"allocate"' in line]
    assert json.loads(asked[-1])["login"] == OTHER_LOGIN
    yod.send_signal(signal.SIGTERM)
    yod.wait()
    _all_free(mesh)


def test_signals_reach_a_launch_where_it_is_and_elsewhere_it_is_told_where(
    mesh: PrivateMesh, other: OtherLogin
) -> None:
    """pingd and yod on the launch's own login processor, whose CPA is on another one; and on another one."""
    there = mesh.start("yod", "-sz", "1", "sleep", "600", env=other.env, stderr=subprocess.PIPE)
    wait_until(lambda: processors(mesh, "busy") == 1, "it runs")
    launcher = str(_launchers(mesh)[0]["id"])
    here = mesh.start("yod", "-sz", "1", "sleep", "600", stderr=subprocess.PIPE)
    wait_until(lambda: processors(mesh, "busy") == 2, "both run")
    for words in (("--attach", launcher), ("--signal", "TERM", launcher)):
        done = mesh.run("yod", *words)
        assert done.returncode and f"launcher {launcher} is on login processor {OTHER_LOGIN}" in done.stderr, done
    done = mesh.run("pingd", "-NoInquire", "-interrupt", "-mine")
    assert done.returncode == 1 and "SIGTERM sent to launcher" in done.stdout, done
    assert f"launcher {launcher} is on login processor {OTHER_LOGIN}: pingd -interrupt there" in done.stderr
    assert (here.wait(), there.poll()) == (128 + signal.SIGTERM, None)
    done = other.run("pingd", "-NoInquire", "-interrupt", "-job", launcher)
    assert (done.returncode, done.stdout) == (0, f"SIGTERM sent to launcher {launcher}\n"), done
    assert there.wait() == 128 + signal.SIGTERM
    _all_free(mesh)


def test_a_cpa_that_dies_is_found_again(mesh: PrivateMesh, other: OtherLogin) -> None:
    yod = mesh.start("yod", "-sz", "2", "sh", "-c", "sleep 2; echo over", env=other.env, stdout=subprocess.PIPE)
    wait_until(lambda: processors(mesh, "busy") == 2, "it runs")
    os.kill(next(d["pid"] for d in mesh.keeper()["daemons"] if d["name"] == "cpa-0"), signal.SIGKILL)
    assert yod.communicate()[0] == b"over\nover\n"
    assert yod.returncode == 0
    _all_free(mesh)
    assert other.run("yod", "-sz", "1", "hostname").returncode == 0


def test_an_rca_there_that_dies_takes_no_launch_with_it(mesh: PrivateMesh, other: OtherLogin) -> None:
    yod = mesh.start("yod", "-sz", "2", "sh", "-c", "sleep 2; echo over", env=other.env, stdout=subprocess.PIPE)
    wait_until(lambda: processors(mesh, "busy") == 2, "it runs")
    (rca,) = other.rca()
    os.kill(rca, signal.SIGKILL)
    assert yod.communicate()[0] == b"over\nover\n"
    assert yod.returncode == 0
    _all_free(mesh)


class TestWhoMayVouch:
    """The CPA's port."""

    def _connect(self, other: OtherLogin, role: str, name: str = OTHER_LOGIN) -> Client:
        directory = other.home / f"{role}-{name}"
        directory.mkdir(exist_ok=True)
        write_private(str(directory / "ca.pem"), other.keys.ca_pem)
        own = ""
        if role:
            own = str(directory / "own.pem")
            write_private(own, other.keys.issue([identity(other.keys.mesh, role, name)], []))
        use(Trust(other.keys.mesh, str(directory / "ca.pem"), own))
        try:
            return Client(other.address, "rca")
        finally:
            use(None)

    def _reasons(self, other: OtherLogin) -> list[str]:
        lines = (other.mesh.state / "log" / "cpa-0.jsonl").read_text().splitlines()
        return [line["reason"] for line in map(json.loads, lines) if line["event"] == "refused"]

    @pytest.mark.parametrize(("role", "reason"), [("", "no_certificate"), ("pct", "wrong_role"), ("cpa", "wrong_role")])
    def test_only_an_rca(self, other: OtherLogin, role: str, reason: str) -> None:
        before = len(self._reasons(other))
        with pytest.raises(Unreachable), self._connect(other, role) as client:
            client.call({"op": "idle"})
        wait_until(lambda: self._reasons(other)[before:] == [reason], "the reason is logged")

    def test_not_before_it_has_said_for_whom(self, other: OtherLogin) -> None:
        with self._connect(other, "rca") as client, pytest.raises(AgentError, match="names the user before"):
            client.call({"op": "idle"})

    def test_who_a_connection_speaks_for_is_said_once(self, other: OtherLogin) -> None:
        with self._connect(other, "rca") as client:
            client.tell({"op": "vouch", "pid": 1, "uid": 65534, "gid": 65534})
            with pytest.raises(AgentError, match="administrators"):
                client.call({"op": "drain", "nodes": ["n0"]})
            with pytest.raises(AgentError, match="named before"):
                client.call({"op": "vouch", "pid": 1, "uid": 0, "gid": 0})

    def test_for_its_own_processor_alone(self, other: OtherLogin, mesh: PrivateMesh) -> None:
        login = json.loads((mesh.state / "keeper.json").read_text())["login"]
        with self._connect(other, "rca") as client:
            client.tell({"op": "vouch", "pid": 1, "uid": os.geteuid(), "gid": os.getegid()})
            with pytest.raises(AgentError, match=f"this is login processor {OTHER_LOGIN}"):
                client.call({"op": "launchers_of", "login": login})

    def test_nobody_over_a_unix_socket(self, mesh: PrivateMesh) -> None:
        with Client(str(mesh.run_dir / "cpa-0.sock"), "admin") as client, pytest.raises(AgentError, match="named"):
            client.call({"op": "vouch", "pid": 1, "uid": 0, "gid": 0})

    def test_half_open_connections_hold_up_nobody(self, mesh: PrivateMesh, other: OtherLogin) -> None:
        import socket

        host, port = other.address[6:].partition("/")[0].rsplit(":", 1)

        def launches_beside_them() -> bool:
            with contextlib.ExitStack() as stack:
                held = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(150)]
                assert other.run("yod", "-sz", "1", "hostname").returncode == 0
                return len(select.select(held, [], [], 0)[0]) < len(held)

        wait_until(launches_beside_them, "it is served before their time is over")


def test_joining_again_is_how_it_gets_new_keys(mesh: PrivateMesh, other: OtherLogin) -> None:
    told = mesh.run("mesh", "trust", "rotate", check=True).stdout
    assert f"{OTHER_LOGIN}: mesh up brings" in told and "mesh login grant it again" in told
    with pytest.raises(Unreachable), Client(str(other.run_dir / "cpa-0.sock"), "admin") as client:
        client.call({"op": "idle"})
    mesh.run("mesh", "login", "grant", OTHER_LOGIN, str(other.file), check=True)
    assert other.run("mesh", "login", "join", str(other.file)).returncode == 0
    done = other.run("yod", "-sz", "1", "hostname")
    assert done.returncode == 0, (done.stderr, mesh.run("mesh", "status").stdout, mesh.run("showmesh").stdout)
    _all_free(mesh)


def test_what_cannot_be_granted_or_joined(mesh: PrivateMesh, other: OtherLogin, tmp_path: Path) -> None:
    assert "compute node" in mesh.run("mesh", "login", "grant", "n0", str(tmp_path / "x")).stderr
    assert "cannot be a node's name" in mesh.run("mesh", "login", "grant", "../x", str(tmp_path / "x")).stderr
    (tmp_path / "none").write_text("{}")
    assert "not a file of mesh login grant" in other.run("mesh", "login", "join", str(tmp_path / "none")).stderr
    assert "is up here" in mesh.run("mesh", "login", "join", str(other.file)).stderr


def test_keys_are_changed_where_the_mesh_was_brought_up(mesh: PrivateMesh, other: OtherLogin) -> None:
    for words in (("trust", "rotate"), ("login", "revoke", OTHER_LOGIN)):
        done = other.run("mesh", *words)
        assert done.returncode and "granted by another one" in done.stderr, done
    assert other.run("yod", "-sz", "1", "hostname").returncode == 0
    login = json.loads((mesh.state / "keeper.json").read_text())["login"]
    for name in (login, "n0", "nobody"):
        assert mesh.run("mesh", "login", "revoke", name).returncode
    assert mesh.run("yod", "-sz", "1", "hostname").returncode == 0
    _all_free(mesh)
