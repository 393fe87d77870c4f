"""Two people without system mode on the same hosts, over real sshds: who has a port, who else runs ranks there, and
root's policy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import MakeHosts, NamespaceHosts
from tests.support.look import processors
from tests.support.mesh import while_up
from tests.support.system_mesh import USERS
from tests.support.user_mesh import UserMesh
from tests.support.waiting import PATIENCE_S, wait_until

#: Run on a host by a user who means harm: it takes a PCT's name, says nonsense to every PCT, and keeps connections.
HOSTILE = r"""
import json, socket, sys
names = {line.rpartition("@")[2].strip() for line in open("/proc/net/unix") if "@redmesh-pct-" in line}
claim = {"op": "neighbour", "mesh": "\x1b[31mfake", "started_on": "h0", "processors": 7, "listen": "10.78.0.1:7117"}
def send(sock, data):
    try:
        sock.send(data)
    except OSError:
        pass  # closed by the PCT
kept = []
for number in range(150):
    for name in names:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.connect("\0" + name)
        except OSError:
            continue
        kept.append(sock)
        for said in ((), (b"\xff" * 9000,), (json.dumps(claim).encode(),) * 2, (b"{" * 1000,), (b"",))[number % 5]:
            send(sock, said)
last = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
last.bind("\0redmesh-pct-ffffffff-00")
last.listen(1)  # it never answers
print("said", len(names), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def hosts(netns_hosts: MakeHosts) -> NamespaceHosts:
    made: NamespaceHosts = netns_hosts(2, users=tuple(USERS))
    return made


@pytest.fixture(scope="module")
def ada(hosts: NamespaceHosts) -> Iterator[UserMesh]:
    with while_up(UserMesh(hosts, "ada")) as made:
        yield made


@pytest.fixture
def bob(hosts: NamespaceHosts) -> Iterator[UserMesh]:
    """bob's mesh, which is not up."""
    with while_up(UserMesh(hosts, "bob"), up=False) as made:
        yield made


def shared(mesh: UserMesh) -> list[str]:
    """The lines of a healthy mesh's ``mesh status`` about other meshes."""
    done = mesh.run("mesh", "status", check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("shared")]


def as_user(hosts: NamespaceHosts, user: str, *command: str) -> list[str]:
    uid = str(USERS[user])
    return [*hosts[0].enter, "setpriv", "--reuid", uid, "--regid", uid, "--init-groups", "--", *command]


def test_who_has_a_port_is_named_and_another_one_proposed(ada: UserMesh, bob: UserMesh) -> None:
    doctor = bob.run("mesh", "doctor")
    assert doctor.returncode == 1
    for number in (1, 2):
        agent = (
            f"a process of ada listens at 10.78.0.{number}, port 7117: the agent of mesh {_name(ada)}, started on h0"
        )
        assert f"  port: {agent} – agent_port = 7118 at the top of mesh.toml" in doctor.stdout
    up = bob.run("mesh", "up")
    rca = "mesh: a process of ada has UDP port 10.78.0.254:7117 of this machine, which this mesh's RCA needs"
    assert up.returncode == 1 and f"{rca} (agent_port = 7118 at the top of mesh.toml" in up.stderr
    # another port for the hosts alone: the RCA's UDP port is the cause, not a firewall
    bob.file.write_text(bob.file.read_text() + "agent_port = 7200\n")
    for command in ("doctor", "up"):
        done = bob.run("mesh", command)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and rca.removeprefix("mesh: ") in said and "firewall" not in said, said


def test_both_learn_of_each_other_for_as_long_as_both_are_up(ada: UserMesh, bob: UserMesh) -> None:
    assert shared(ada) == []
    bob.set("agent_port", 7118)
    up = bob.up()
    of_ada = f"h1-h2 are also used by mesh {_name(ada)} of ada (2 processors): "
    of_bob = f"h1-h2 are also used by mesh {_name(bob)} of bob (2 processors): "
    assert f"mesh: {of_ada}" in up.stderr and "firewall" not in up.stderr
    for mesh, told in ((ada, of_bob), (bob, of_ada)):
        wait_until(lambda mesh=mesh, told=told: [told in line for line in shared(mesh)] == [True], told)
        assert "processors on 2 nodes" in mesh.run("mesh", "status", check=True).stdout
    rows = json.loads(ada.run("mesh", "status", "--json", check=True).stdout)
    text = f"also used by mesh {_name(bob)} of bob (2 processors)"
    assert rows["healthy"] and rows["nodes_shared"] == [{"name": name, "reason": text} for name in ("h1", "h2")]
    assert f"  shared: it is {text} – " in ada.run("mesh", "doctor", check=True).stdout
    launch = ada.run("yod", "-sz", "4", "true", check=True)
    assert (launch.stdout, launch.stderr) == ("", "")
    assert {row["reason"] for row in ada.json("mesh", "nodes", "list")} == {text}
    # one user's end touches nothing of the other's
    bob.run("mesh", "down", check=True)
    wait_until(lambda: shared(ada) == [], "ada's mesh has the hosts for itself")
    assert ada.run("yod", "-sz", "4", "hostname", check=True).stdout.split().count("h2") == 2


def test_what_a_hostile_user_says_costs_lines_and_nothing_else(ada: UserMesh, hosts: NamespaceHosts) -> None:
    pcts = ada.pids_on(hosts[0], "redmesh-pct")
    with subprocess.Popen(
        as_user(hosts, "bob", "python3", "-c", HOSTILE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "said 1\n"
            ada.run("yod", "-sz", "4", "true", check=True)
            doctor = ada.run("mesh", "doctor", check=True).stdout
            status = ada.run("mesh", "status", check=True).stdout
        finally:
            process.kill()
    assert "\x1b" not in doctor + status
    assert ada.pids_on(hosts[0], "redmesh-pct") == pcts
    limit = [pid for pid in pcts if len(list(Path(f"/proc/{pid}/fd").iterdir())) > 200]
    assert not limit
    wait_until(lambda: shared(ada) == [], "what was said has gone")


def test_root_may_have_the_hosts_refuse_meshes_of_others(ada: UserMesh, bob: UserMesh, hosts: NamespaceHosts) -> None:
    directory = hosts.etc / "redmesh"
    there = directory.exists()
    directory.mkdir(mode=0o755, exist_ok=True)
    file = directory / "host"
    assert not file.exists()
    bob.set("agent_port", 7118)
    try:
        for text, told in (
            ("meshes_of = ada\n", "this host takes part in meshes of ada only, not of bob (/etc/redmesh/host)"),
            ("meshes for = bob\n", "/etc/redmesh/host, line 1: not `meshes_of = USER …`"),
        ):
            file.write_text(text)
            file.chmod(0o644)
            for command in ("doctor", "up"):
                done = bob.run("mesh", command)
                assert done.returncode == 1 and (done.stdout + done.stderr).count(told) == len(hosts), done
        ada.run("mesh", "up", check=True)  # what runs there runs on, whatever the file says
        file.write_text("meshes_of = root bob\n")
        bob.up()
        ada.run("yod", "-sz", "4", "true", check=True)
        # a PCT that starts asks again
        victims = ada.kill_on(hosts[0], "redmesh-pct")
        log = hosts[0].directory / "home-ada"
        wait_until(lambda: victims and "not of ada" in _errors(log), "its PCT is refused")
        file.unlink()
        ada.run("mesh", "up")
        wait_until(lambda: set(ada.states().values()) == {"up"}, "ada's nodes are up again")
    finally:
        file.unlink(missing_ok=True)
        if not there:
            directory.rmdir()


def test_one_account_from_two_machines_with_the_same_paths(ada: UserMesh) -> None:
    """A mesh has its name from its state directory's path: ada's laptop and desktop have meshes of one name."""
    nap = ada.start("yod", "-sz", "4", "sleep", "987654")
    wait_until(lambda: processors(ada, "busy") == 4, "it runs")
    own = "mode=700,uid=21001 none"
    script = (
        f'hostname laptop; mount -t tmpfs -o {own} "$XDG_STATE_HOME"; mount -t tmpfs -o {own} "$XDG_RUNTIME_DIR";'
        " exec setpriv --reuid 21001 --regid 21001 --init-groups sh -c 'mesh up; mesh doctor; mesh down --force'"
    )
    laptop = subprocess.run(
        [*ada.hosts.enter, "unshare", "--uts", "--mount", "sh", "-ec", script],
        env={**ada.env, "REDMESH_AGENT_PORT": "7300"}, capture_output=True, text=True, timeout=PATIENCE_S, cwd="/",
    )  # fmt: skip
    told = "belongs to a mesh of the same name that was brought up on h0"
    assert laptop.stderr.count(f"its agent {told}: nothing was ended (mesh down there") == len(ada.hosts), laptop
    assert laptop.stdout.count(f"agent: the agent there {told}") == len(ada.hosts) and "firewall" not in laptop.stdout
    assert nap.poll() is None and processors(ada, "busy") == 4 and set(ada.states().values()) == {"up"}
    nap.terminate()
    nap.wait(PATIENCE_S)
    wait_until(lambda: processors(ada, "free") == 4, "its processors are free")


def test_personal_meshes_on_one_machine_name_each_other(hosts: NamespaceHosts) -> None:
    def personal(user: str) -> UserMesh:
        made = UserMesh(hosts, user)
        made.file.write_text("")
        made.env.update(REDMESH_PROCESSORS="2")
        return made

    with while_up(personal("ada")) as one, while_up(personal("bob")) as two:
        for mesh, other in ((one, two), (two, one)):
            told = f"n0 is also used by mesh {_name(other)} of {other.user} (2 processors): "
            wait_until(lambda mesh=mesh, told=told: [told in line for line in shared(mesh)] == [True], told)
        assert f"mesh {_name(two)} of bob" in one.run("mesh", "doctor", check=True).stdout


def _name(mesh: UserMesh) -> str:
    return str(json.loads((mesh.state / "keeper.json").read_text())["mesh"])


def _errors(home: Path) -> str:
    return "".join(path.read_text() for path in home.rglob("*.stderr"))
