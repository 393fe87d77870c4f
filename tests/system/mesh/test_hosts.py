"""``mesh up``, ``down``, ``upgrade`` and ``doctor`` over real sshds on loopback, as whoever runs the tests."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Unreachable
from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import HostFailed
from console.deploy.ssh.config import SshConfig
from console.deploy.ssh.connection import Ssh
from console.deploy.ssh.remote import Remote
from console.deploy.trust.authority import authority
from tests.support.addresses import address, network
from tests.support.hosts import LoopbackHosts
from tests.support.look import processors, states
from tests.support.loopback_mesh import LoopbackMesh
from tests.support.mesh import BIN, restarted_on_failure, while_up
from tests.support.waiting import PATIENCE_S, freeze, silence, wait_until

MakeLoopback = Callable[..., LoopbackMesh]


@pytest.fixture(scope="module")
def hosts(loopback_hosts: Any) -> LoopbackHosts:
    made: LoopbackHosts = loopback_hosts(4)
    return made


@pytest.fixture
def loopback(hosts: LoopbackHosts) -> Iterator[MakeLoopback]:
    """``loopback(table, …, setting=…)`` makes a mesh that is not up yet; nothing of it is left afterwards."""
    pins = hosts.keys.known_hosts.read_text()
    with ExitStack() as made:

        def make(*tables: dict[str, Any], **settings: Any) -> LoopbackMesh:
            return made.enter_context(while_up(LoopbackMesh(hosts, *tables, **settings), up=False))

        try:
            yield make
        finally:
            hosts.keys.known_hosts.write_text(pins)


@pytest.fixture
def bashrc(hosts: LoopbackHosts) -> Iterator[Path]:
    """The start-up file of the shells on the hosts, which other tests of this module do not have."""
    yield (file := hosts.home / ".bashrc")
    file.unlink(missing_ok=True)


ALL = {"name": "lo[1-4]", "address": address("[1-4]"), "processors": 2}
ONE = {"name": "lo1", "address": address(1), "processors": 2}


@pytest.fixture(scope="class")
def shared(request: pytest.FixtureRequest, hosts: LoopbackHosts) -> Iterator[LoopbackMesh]:
    """The mesh of a class, of the hosts in its ``table``. It is up only while the tests of the class run."""
    with while_up(LoopbackMesh(hosts, request.cls.table), up=False) as made:
        yield made


@pytest.fixture
def mesh(shared: LoopbackMesh) -> Iterator[LoopbackMesh]:
    """The mesh of the class, up or down as the test before has left it: whole, or gone from its hosts.

    A test that describes it otherwise takes it down; the next has the description of the class again.
    """
    described = shared.file.read_text()
    yield shared
    with restarted_on_failure(shared):
        if shared.file.read_text() != described:
            if not _is_gone(shared):  # the test has failed
                shared.down()
            shared.file.write_text(described)
        wait_until(
            lambda: _is_whole(shared) or _is_gone(shared),
            lambda: f"it is whole, or gone: {shared.logs()}",
            step_s=0.1,
        )


def _bring_up(mesh: LoopbackMesh) -> None:
    if not _is_whole(mesh):
        mesh.up()


def _take_down(mesh: LoopbackMesh) -> None:
    if not _is_gone(mesh):
        mesh.run("mesh", "down", check=True)


def _down_leaves_nothing(mesh: LoopbackMesh) -> None:
    """End a test: take the mesh down with what runs on it. The next test brings it up if it needs it."""
    mesh.run("mesh", "down", "--force", check=True)
    assert mesh.left_on_hosts() == []
    wait_until(lambda: not _left_here(mesh), lambda: f"nothing is left: {_left_here(mesh)}")


def _left_here(mesh: LoopbackMesh) -> list[str]:
    """Processes, files in the runtime directory, and shared memory of a mesh, on the machine of its user."""
    files = [str(path) for path in (mesh.home / "run").rglob("*") if not path.is_dir()]
    memory = [name for name in os.listdir("/dev/shm") if mesh.home.name in name]
    return [*mesh.processes().values(), *files, *memory]


def _is_gone(mesh: LoopbackMesh) -> bool:
    return not _left_here(mesh) and not mesh.left_on_hosts()


def _is_whole(mesh: LoopbackMesh) -> bool:
    """Whether every daemon runs, every node has its files and sockets, and every processor is free."""
    try:
        answering = all(mesh.answers(one["name"]) for one in mesh.keeper()["daemons"])
    except (OSError, Unreachable):
        return False
    nodes = states(mesh)
    return (
        answering
        and set(nodes.values()) == {"up"}
        and processors(mesh, "free") == 2 * len(nodes)
        and len(_daemons(mesh)) == 2 * len(nodes)
        and len(list(mesh.far_state.glob("nodes/*/keeper.json"))) == len(nodes)
        and len([place for place in _places(mesh) if list(place.glob("*.sock"))]) == len(nodes)
    )


def _places(mesh: LoopbackMesh) -> list[Path]:
    """The directories of the sockets of a mesh's nodes."""
    return list(Path(f"{'/tmp' if os.geteuid() else '/run'}/redmesh-{os.geteuid()}").glob(f"{mesh.name}-*"))


def _look_at_files(mesh: LoopbackMesh) -> None:
    for path in mesh.far_state.rglob("*"):
        status = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        assert stat.S_ISLNK(status.st_mode) or stat.S_IMODE(status.st_mode) == wanted, path


def _look_at_ports(mesh: LoopbackMesh) -> None:
    shown = subprocess.run(["ss", "-ltnuH"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in shown.splitlines() if f":{mesh.port} " in line and network() in line]
    tcp, udp = [f"{address(n)}:{mesh.port}" for n in range(1, 5)], f"{address(200)}:{mesh.port}"
    assert sorted((words[0], words[4]) for words in lines) == [*(("tcp", place) for place in tcp), ("udp", udp)]


def _look_at_daemons(mesh: LoopbackMesh) -> None:
    for pid in _daemons(mesh):
        assert os.readlink(f"/proc/{pid}/cwd") == "/" and os.getsid(pid) != os.getsid(0)
        open_here = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        pipes = [name for name in open_here if name.startswith("pipe:")]
        assert all(pipes.count(name) == 2 for name in pipes)  # its own: nothing of the connection is held


def test_hosts_that_fail_stop_no_other(loopback: MakeLoopback, hosts: LoopbackHosts, bashrc: Path) -> None:
    """Each failure has its word, the others come up, the exit status tells, and the next time they may do better."""
    mesh = loopback(*_ill(hosts), connect_s=3.0)
    _leave_no_ciphers(hosts)
    _spoil_pins(hosts)
    bashrc.write_text("echo hello\necho hello >&2\n")
    with socket.socket() as taken:
        taken.bind((address(4), mesh.port))
        taken.listen()
        up = mesh.run("mesh", "up", "--json")
        rows = {row["name"]: row for row in json.loads(up.stdout)["hosts"]}
        # the agent says so before the mesh hears of it
        assert "TLS cannot be used here: library has no ciphers" in rows["strict"]["message"]
        found = {name: row["code"] or row["state"] for name, row in rows.items()}
        assert up.returncode == 1
        assert found == {
            "good": "up", "unknown": "host_key_unknown", "changed": "host_key_changed", "taken": "port",
            "nopython": "python", "refused": "refused", "noname": "name", "nouser": "auth", "strict": "agent",
        }  # fmt: skip
        assert mesh.run("yod", "-sz", "1", "echo", "ran", check=True).stdout == "ran\n"
        told = mesh.run("mesh", "doctor")
        assert told.returncode == 1 and "1 of 9 hosts is well" in told.stdout
        assert re.search(r"changed: NOT WELL\n  host_key_changed: .*SHA256:\S{43}.* – .*ssh-keygen -R", told.stdout)
        ours = rf"port: a process of \S+ \(.*, process {os.getpid()}\) listens at {address(4)}"
        assert re.search(rf"taken: NOT WELL .*\n(  .*\n)?  {ours}", told.stdout)
    alone = mesh.run("mesh", "up", "--only", "changed,noname")
    assert alone.returncode == 1 and "2 of 2 hosts could not be had" in alone.stdout  # the mesh is up all the same
    again = mesh.outcome("mesh", "up", "--accept-new")
    assert (again["unknown"]["state"], again["taken"]["state"]) == ("up", "up")
    assert again["changed"]["code"] == "host_key_changed"  # --accept-new is for keys of hosts that have none
    pinned = f"[{address(2)}]:{hosts[1].port} {hosts.keys.host_public}"
    assert pinned in hosts.keys.known_hosts.read_text().splitlines()
    assert mesh.run("mesh", "up").returncode == 1
    bashrc.write_text("echo This account is currently not available.; exit 1\n")  # as nologin does
    told = mesh.run("mesh", "doctor", "--only", "good,nouser").stdout
    assert "shell: its shell ended without an answer: This account is currently not available. – " in told
    assert "with a home, and not locked (there: passwd -S " in told


def test_files_of_the_user_end_no_other_host(loopback: MakeLoopback, hosts: LoopbackHosts) -> None:
    """Red Hat's ``Match final all``, a command that cannot run, known_hosts that cannot be read, an agent of no use."""
    mesh = loopback(ALL)
    config, policy = mesh.home / "ssh_config", mesh.home / "policy"
    policy.write_text("Ciphers aes256-gcm@openssh.com\n")
    config.write_text(
        f"Match final all\n  Include {policy}\n  GSSAPIAuthentication yes\n"
        f'Match originalhost {address(3)} exec "true"\n  ProxyCommand /nowhere/relay %h %p\n'
        f"Match originalhost {address(4)}\n  Nonsense\n"
        f"Host *\n  GlobalKnownHostsFile {hosts.directory}\n{hosts.keys.config.read_text()}"
    )
    mesh.describe(ALL, ssh_config=str(config))
    assert all("no argument after keyword" in row["message"] for row in mesh.outcome("mesh", "up").values())
    config.write_text(config.read_text().replace("Nonsense", "Compression no"))
    with socket.socket(socket.AF_UNIX) as agent:
        mesh.env["SSH_AUTH_SOCK"] = str(mesh.home / "agent")
        agent.bind(mesh.env["SSH_AUTH_SOCK"])
        agent.listen()  # and never answers
        found = {name: row["code"] or row["state"] for name, row in mesh.outcome("mesh", "up").items()}
    assert found == {"lo1": "up", "lo2": "up", "lo3": "route", "lo4": "up"}
    assert "3 of 4 hosts are well" in mesh.run("mesh", "doctor").stdout
    mesh.run("mesh", "down", check=True)


@pytest.mark.parametrize("reads", ["read x", "cat >/dev/null", "exec bash"])
def test_a_start_up_file_that_reads_standard_input_is_named(hosts: LoopbackHosts, bashrc: Path, reads: str) -> None:
    bashrc.write_text(f"{reads}\n")
    connection = Ssh(SshConfig(str(hosts.keys.config)), PATIENCE_S).connect(Host("lo1", address(1)))
    try:
        with pytest.raises(HostFailed, match="reads standard input") as failed:
            Remote(connection, Host("lo1", address(1)), 2.0)
        assert failed.value.code == "shell" and "~/.bashrc" in failed.value.hint
    finally:
        connection.close()


def _ill(hosts: LoopbackHosts) -> list[dict[str, Any]]:
    return [
        {"name": "good", "address": address(1), "processors": 1},
        {"name": "unknown", "address": address(2), "processors": 1},
        {"name": "changed", "address": address(3)},
        {"name": "taken", "address": address(4), "processors": 1},
        {"name": "nopython", "address": address(1), "agent_port": 1111, "python": "/nowhere/python3"},
        {"name": "refused", "address": address(1), "agent_port": 1112, "port": 1},
        {"name": "noname", "address": "host.invalid"},
        {"name": "nouser", "address": address(1), "agent_port": 1113, "user": "nobody-here"},
        {"name": "strict", "address": address(1), "agent_port": 1114, "python": str(hosts.directory / "strict")},
    ]


def _leave_no_ciphers(hosts: LoopbackHosts) -> None:
    """Make a Python whose OpenSSL is one that a site has left no ciphers to."""
    policy, python = hosts.directory / "openssl.cnf", hosts.directory / "strict"
    policy.write_text("openssl_conf = a\n[a]\nproviders = b\n[b]\nbase = c\n[c]\nactivate = 1\n")
    python.write_text(f'#!/bin/sh\nOPENSSL_CONF={policy} exec {sys.executable} "$@"\n')
    python.chmod(0o755)


def _spoil_pins(hosts: LoopbackHosts) -> None:
    unknown, changed = (f"[{address(number)}]" for number in (2, 3))
    other = hosts.keys.host_public.split()[1][:-8] + "AAAAAAAA"
    lines = []
    for line in hosts.keys.known_hosts.read_text().splitlines():
        name, kind, key = line.split()
        if name.startswith(unknown):
            continue
        lines.append(f"{name} {kind} {other if name.startswith(changed) else key}\n")
    hosts.keys.known_hosts.write_text("".join(lines))


def test_without_any_host_nothing_is_up(loopback: MakeLoopback) -> None:
    mesh = loopback({"name": "gone", "address": address(1), "port": 1})
    up = mesh.run("mesh", "up")
    assert up.returncode == 1 and "no sshd listens" in up.stderr and "nothing is up" in up.stderr
    assert mesh.run("mesh", "status").stdout.startswith("no mesh is up")
    sized = mesh.run("mesh", "up", "--processors", "4")
    assert sized.returncode == 2 and "for a mesh of this machine alone" in sized.stderr
    yod = mesh.run("yod", "true")
    assert yod.returncode == 125 and "does not answer" in yod.stderr  # and no personal mesh in its stead


def _sockets(mesh: LoopbackMesh) -> Path:
    """The directory of the sockets of a mesh's one node."""
    (found,) = _places(mesh)
    return found


def _by_name(mesh: LoopbackMesh) -> dict[str, int]:
    """Keeper and PCT of a mesh's one node."""
    return {_name(pid): pid for pid in _daemons(mesh)}


def _daemons(mesh: LoopbackMesh) -> set[int]:
    """Keepers and PCTs, which a launch child is a fork of."""
    return {pid for pid in mesh.agents() if _name(pid) in ("redmesh-keeper", "redmesh-pct")}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # a launch child that has exited meanwhile


def test_a_mesh_grows_while_it_is_up(loopback: MakeLoopback) -> None:
    mesh = loopback(
        {"name": "lo1", "address": address(1), "processors": 2}, {"name": "lo2", "address": address(2), "port": 1}
    )
    assert mesh.run("mesh", "up").returncode == 1  # of lo2 nobody knows how large it is
    mesh.run("yod", "-sz", "2", "true", check=True)
    mesh.run("mesh", "nodes", "set", "lo2", "port=", check=True)
    mesh.run("mesh", "nodes", "add", "lo3", f"address={address(3)}", "processors=3", check=True)
    mesh.run("mesh", "up", check=True)
    cores = len(os.sched_getaffinity(0))
    mesh.run("yod", "-sz", str(5 + cores), "true", check=True)
    mesh.run("yod", "-list", "lo2,lo3", "true", check=True)
    listed = {row["name"]: row["state"] for row in json.loads(mesh.run("mesh", "nodes", "list", "--json").stdout)}
    assert listed == {"lo1": "up", "lo2": "up", "lo3": "up"}


def test_by_way_of_another_host_and_with_ssh_agent(loopback: MakeLoopback, hosts: LoopbackHosts) -> None:
    mesh = loopback({"name": "inner", "address": "behind", "processors": 1})
    config = mesh.home / "ssh_config"
    own = f"UserKnownHostsFile {hosts.keys.known_hosts}\nUser {hosts.user}\nPort {hosts[0].port}\n"
    config.write_text(f"Include {mesh.home}/more\nHost *\n{own}")
    (mesh.home / "more").write_text(
        f"Host behind\n  HostName {address(2)}\n  ProxyJump jump\nHost jump\n  HostName {address(1)}\n"
    )
    mesh.describe({"name": "inner", "address": "behind", "processors": 1}, ssh_config=str(config))
    assert mesh.outcome("mesh", "up")["inner"]["code"] == "auth"  # there is no key in this HOME
    socket_path = mesh.home / "agent"
    agent = mesh.start("ssh-agent", "-D", "-a", str(socket_path), stdout=subprocess.DEVNULL)
    mesh.env["SSH_AUTH_SOCK"] = str(socket_path)  # the file is there before anybody listens: 2 is "cannot connect"
    wait_until(lambda: mesh.run("ssh-add", "-l").returncode != 2, "ssh-agent listens")
    mesh.run("ssh-add", str(hosts.keys.directory / "id"), check=True)
    mesh.run("mesh", "up", check=True)
    mesh.run("mesh", "down", check=True)
    agent.terminate()


def test_an_interrupted_up_leaves_nothing(loopback: MakeLoopback) -> None:
    # the RCA has no address where agents could say that they are up, so mesh up cannot be done before its interruption
    mesh = loopback(ALL, login_address="host.invalid")
    up = mesh.start("mesh", "up", stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_until(mesh.agents, "the first agent is there")
    up.send_signal(signal.SIGINT)
    assert up.wait(PATIENCE_S) == 130, up.stderr.read()
    wait_until(lambda: not mesh.left_on_hosts(), "nothing is left")


class TestOneHost:
    """Tests that share a mesh of one host."""

    table = ONE

    @pytest.mark.parametrize("killed", [set(), {"redmesh-keeper"}], ids=["keeper lives", "keeper killed"])
    @pytest.mark.parametrize("removed", [False, True], ids=["sockets there", "sockets removed"])
    def test_a_node_that_lives_is_adopted(self, mesh: LoopbackMesh, killed: set[str], removed: bool) -> None:
        """Its PCT holds the port of the agent; that is no reason to take it for another program."""
        _bring_up(mesh)
        yod = mesh.start("yod", "-sz", "2", "sh", "-c", "echo in; read go; echo out", stdin=-1, stdout=-1, text=True)
        assert yod.stdout.readline() == "in\n"
        before = _by_name(mesh)
        for name in killed:
            os.kill(before[name], signal.SIGKILL)
        if removed:
            shutil.rmtree(_sockets(mesh))
        assert mesh.outcome("mesh", "up")["lo1"]["state"] == "up"
        after = _by_name(mesh)
        assert {name for name in before if before[name] != after[name]} == killed
        yod.communicate("\n")
        assert yod.returncode == 0
        mesh.run("yod", "-sz", "2", "true", check=True)
        if killed and removed:  # one case is enough: this one leaves mesh down the least to find the node by
            _down_leaves_nothing(mesh)

    def test_a_node_whose_files_are_damaged_is_told_of_and_mended(self, mesh: LoopbackMesh) -> None:
        """Its keeper tries ever more seldom, the doctor says why it is not up, and mesh up has it tried at once."""
        _take_down(mesh)
        mesh.describe(ONE, suspect_s=silence(2.0), down_s=silence(4.0))  # it is waited for
        mesh.up()
        node = mesh.far_state / "nodes" / f"{mesh.name}-lo1"
        log = node / "log" / "keeper.jsonl"
        before = log.read_text().count('"daemon failed"')
        (node / "trust" / "beat.key").write_text("damaged")
        os.kill(_by_name(mesh)["redmesh-pct"], signal.SIGKILL)
        wait_until(lambda: log.read_text().count('"daemon failed"') > before, "the keeper says so")
        wait_until(lambda: states(mesh) == {"lo1": "down"}, "the mesh knows", step_s=0.1)
        doctor = mesh.run("mesh", "doctor")
        assert doctor.returncode == 1 and "beat.key holds no keys" in doctor.stdout, doctor
        assert "its PCT does not come up" in doctor.stdout
        assert log.read_text().count('"daemon failed"') == before + 1, log.read_text()
        mesh.run("mesh", "up", check=True)
        assert mesh.run("yod", "-sz", "1", "true").returncode == 0
        _down_leaves_nothing(mesh)

    def test_yod_waits_while_the_mesh_of_hosts_is_brought_up_or_upgraded(self, mesh: LoopbackMesh) -> None:
        if not mesh.state.exists():
            mesh.up()
        _take_down(mesh)
        with open(mesh.state / "up.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as mesh up and mesh upgrade do
            words = ("yod", "-sz", "2", "-wait-for-nodes", "60", "echo", "ran")
            yod = mesh.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert "at work: waiting for it" in yod.stderr.readline()
            up = mesh.start("mesh", "up", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = yod.communicate()
        assert (out, yod.returncode) == ("ran\nran\n", 0), err
        up.communicate()
        assert up.returncode == 0

    def test_what_does_not_answer_is_not_ended(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        before = _by_name(mesh)
        os.kill(before["redmesh-keeper"], signal.SIGKILL)
        freeze(before["redmesh-pct"])
        try:
            shutil.rmtree(_sockets(mesh))
            failed = mesh.outcome("mesh", "up")["lo1"]
            told = failed["message"] + failed["hint"]
            assert f"pct (process {before['redmesh-pct']}) runs" in told and "kill -CONT" in told, failed
            assert _by_name(mesh) == {"redmesh-pct": before["redmesh-pct"]}
        finally:
            os.kill(before["redmesh-pct"], signal.SIGCONT)
        mesh.run("mesh", "up", check=True)
        assert _by_name(mesh)["redmesh-pct"] == before["redmesh-pct"]

    def test_a_node_whose_life_cannot_be_told_is_not_ended(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        before = _by_name(mesh)
        (file,) = mesh.far_state.glob("nodes/*/keeper.json")
        aside = file.rename(mesh.home / "keeper-of-the-node.json")
        try:
            mesh.run("mesh", "up", check=True)  # a file beside its sockets tells it too
            assert _by_name(mesh) == before
            freeze(before["redmesh-keeper"])  # else it makes the files again
            freeze(before["redmesh-pct"])
            shutil.rmtree(_sockets(mesh))
            assert "nothing was ended" in mesh.outcome("mesh", "up")["lo1"]["message"]
        finally:
            aside.rename(file)
            os.kill(before["redmesh-keeper"], signal.SIGCONT)
            os.kill(before["redmesh-pct"], signal.SIGCONT)
        assert _by_name(mesh) == before

    def test_an_agent_that_is_damaged_is_not_run_but_sent_again(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        mesh.run("mesh", "down", "--keep-agent", check=True)
        (sent,) = mesh.far_state.glob("agents/*.pyz")
        content = sent.read_bytes()
        sent.write_bytes(content[: len(content) // 2])
        up = mesh.run("mesh", "up")
        assert up.returncode == 1 and f"lo1: the agent arrived damaged at {sent}, or was since" in up.stderr, up.stderr
        assert mesh.outcome("mesh", "up")["lo1"]["state"] == "up" and sent.read_bytes() == content

    def test_adopted_launches_end_with_the_mesh(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        yod = mesh.start("yod", "-sz", "2", "sh", "-c", "echo in; exec sleep 1000", stdout=subprocess.PIPE, text=True)
        assert yod.stdout.readline() == "in\n"
        for pid in _daemons(mesh):  # nobody is their parent then
            os.kill(pid, signal.SIGKILL)
        mesh.run("mesh", "up", check=True)
        mesh.run("mesh", "down", "--force", check=True)
        assert mesh.left_on_hosts() == [] and yod.wait() != 0

    def test_down_finds_what_has_no_sockets(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        os.kill(_by_name(mesh)["redmesh-keeper"], signal.SIGKILL)
        shutil.rmtree(_sockets(mesh))
        mesh.run("mesh", "down", "--force", check=True)
        assert mesh.left_on_hosts() == []


class TestFourHosts:
    """Tests that share a mesh of four hosts."""

    table = ALL

    def test_the_table_on_a_terminal(self, mesh: LoopbackMesh) -> None:
        _take_down(mesh)
        shutil.rmtree(mesh.state, ignore_errors=True)  # as before the first mesh up
        words = ["script", "-qec", f"{BIN}/mesh up", "/dev/null"]
        shown = mesh.run(*words, check=True, env={"TERM": "xterm", "COLUMNS": "100"}).stdout
        assert "hosts:" in shown and "mesh up: 8 processors on 4 nodes" in shown

    def test_a_node_that_was_not_told_of_new_keys_gets_them_from_up(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        config = json.loads((mesh.state / "keeper.json").read_text())
        keys = authority(str(mesh.state), config["mesh"])
        keys.rotate(lambda now: now.equip_login(config["login"], ["127.0.0.1"], config["run"]))
        assert mesh.run("yod", "-sz", "8", "hostname").returncode == 125
        mesh.run("mesh", "up", check=True)
        wait_until(lambda: mesh.run("yod", "-sz", "8", "hostname").returncode == 0, "launches again", step_s=0.2)
        told = mesh.run("mesh", "trust", "rotate", check=True).stdout.splitlines()
        assert [line.partition(":")[0] for line in told] == ["4 nodes"] * 3
        assert mesh.run("yod", "-sz", "8", "hostname").returncode == 0

    def test_launches_survive_an_upgrade(self, mesh: LoopbackMesh) -> None:
        _bring_up(mesh)
        go = mesh.home / "go"
        waiting = f"echo in; until [ -e {go} ]; do sleep 0.05; done; echo out"
        yod = mesh.start("yod", "-sz", "8", "sh", "-c", waiting, stdout=subprocess.PIPE, text=True)
        assert yod.stdout.readline() == "in\n"
        before = _daemons(mesh)
        done = mesh.run("mesh", "upgrade", check=True)  # the same version, so nothing is to be done
        assert done.stdout.startswith("mesh upgrade: 4 hosts") and _daemons(mesh) == before
        mesh.describe(ALL, fanout=3)  # another configuration has agents changed too
        done = mesh.run("mesh", "upgrade", check=True)
        assert done.stderr.count(": up (") == 4
        assert len(_daemons(mesh)) == 8 and not _daemons(mesh) & before
        refused = mesh.run("mesh", "down")
        assert refused.returncode == 1 and re.search(r"launcher \d+ runs", refused.stderr)
        go.touch()
        assert yod.wait() == 0 and yod.stdout.read().count("out") == 8
        mesh.run("yod", "-sz", "8", "true", check=True)
        _down_leaves_nothing(mesh)

    def test_lost_state_is_found_again(self, mesh: LoopbackMesh) -> None:
        """What a mesh that was killed has left on hosts is replaced by the next, of which mesh down leaves nothing."""
        _bring_up(mesh)
        for pid in [mesh.pid_of(name) for name in ("keeper", "cpa-0", "rca")]:
            os.kill(pid, signal.SIGKILL)
        old = set(mesh.agents())
        mesh.run("mesh", "up", check=True)
        assert not old & set(mesh.agents())
        mesh.run("yod", "-sz", "8", "true", check=True)
        _down_leaves_nothing(mesh)

    def test_up_and_down_leave_nothing(self, mesh: LoopbackMesh, hosts: LoopbackHosts) -> None:
        _take_down(mesh)
        up = mesh.run("mesh", "up", check=True)
        assert up.stdout.startswith("mesh up: 8 processors on 4 nodes (") and up.stderr.count(": up (") == 4
        ranks = mesh.run("yod", "-sz", "8", "sh", "-c", "echo $YOD_RANK", check=True).stdout.split()
        assert sorted(ranks) == list("01234567")
        _look_at_files(mesh)
        _look_at_ports(mesh)
        _look_at_daemons(mesh)
        (sent,) = mesh.far_state.glob("agents/*.pyz")
        before = sent.stat().st_mtime_ns
        assert {row["state"] for row in mesh.outcome("mesh", "up").values()} == {"up"}  # again: nothing to do
        assert sent.stat().st_mtime_ns == before
        assert len(_daemons(mesh)) == 8  # a keeper and a PCT for each
        down = mesh.run("mesh", "down", check=True)
        assert down.stdout == "mesh down\n" and mesh.left_on_hosts() == []
        assert not mesh.far_state.exists()
