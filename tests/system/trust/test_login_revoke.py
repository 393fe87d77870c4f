"""A login processor that is revoked: nobody serves it, what it knew is of no use, and no other launch feels it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agents.wire import keys
from tests.support.hosts import MakeHosts, NamespaceHost
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.waiting import wait_until
from tests.system.remote.test_logins import NAP, ManyLogins, rcas_known, standing

PCTS = "SELECT address FROM node WHERE address LIKE 'tls://%'"
ROOT = str(Path(__file__).resolve().parents[3])


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[ManyLogins]:
    made = ManyLogins(netns_hosts, sql_server)
    with while_up(made):
        yield made


def knew(mesh: ManyLogins, host: NamespaceHost, to: Path) -> Path:
    """A copy of all keys that a login processor has."""
    (trust,) = [path for path in host.home.rglob("trust") if (path / "login.pem").exists()]
    to.mkdir()
    for path in trust.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def node_keys(host: NamespaceHost, name: str) -> list[bytes]:
    """The keys of one kind that a node takes."""
    (path,) = [path for path in host.home.rglob(name) if "nodes" in path.parts]
    return keys.read(str(path))


def beat_keys(taken: Path, node: str) -> list[bytes]:
    """What somebody knows of a node's keys who has these."""
    return [keys.beat_key(master, node) for master in keys.read(str(taken / "beat.key"))]


def launch_keys(mesh: ManyLogins, taken: Path, node: str) -> list[bytes]:
    """The same, of keys that open the node for launches."""
    (name,) = mesh.rows("SELECT name FROM mesh")[0]
    return [keys.launch_key(master, name, node) for master in keys.read(str(taken / "master.key"))]


#: Asks daemons for their state, as an RCA with the certificate and one CA after the other; prints those that answered.
ASK = """
import sys
from agents.link.client import Client, Unreachable
from agents.link.trust import Trust, use
from agents.wire.errors import AgentError
name, own, one, other, *addresses = sys.argv[1:]
for authority in (one, other):
    use(Trust(name, authority, own))
    for address in addresses:
        try:
            with Client(address, "rca", 5.0) as client:
                client.call({"op": "status"})
        except Unreachable:
            continue
        except AgentError:
            pass
        print(address)
"""


def answering(mesh: ManyLogins, trust: Path, addresses: Sequence[str]) -> set[str]:
    """The daemons that do not refuse who shows these certificates."""
    name = json.loads((mesh.state / "keeper.json").read_text())["mesh"]
    # as the one that is revoked believes it, or as one who learned the new certificate elsewhere
    authorities = str(trust / "ca.pem"), str(mesh.state / "trust" / "ca.pem")
    words = (name, str(trust / "login.pem"), *authorities, *addresses)
    return set(mesh.run(sys.executable, "-P", "-c", ASK, *words, env={"PYTHONPATH": ROOT}, check=True).stdout.split())


def busy(mesh: ManyLogins, count: int) -> None:
    wait_until(lambda: processors(mesh, "busy") == count, f"{count} processors are busy", step_s=0.05)


def ends_well(mesh: ManyLogins, host: NamespaceHost, yod: subprocess.Popen[str]) -> None:
    """The yod there was untouched: it ends by our signal, and by nothing else."""
    assert yod.poll() is None, yod.communicate()
    pid = next(pid for pid, words in host.processes().items() if "yod.py" in words and words.endswith(NAP[1]))
    os.kill(pid, signal.SIGTERM)
    said = yod.communicate()
    assert yod.returncode == 128 + signal.SIGTERM, said


def cpa_place(mesh: ManyLogins) -> str:
    config = json.loads((mesh.state / "keeper.json").read_text())
    return f"tls://{config['cpa_listen']}/cpa/{config['login']}"


def one_without_cpas(mesh: ManyLogins, tmp_path: Path) -> None:
    taken = knew(mesh, mesh.asker, tmp_path / "knew")
    here = mesh.start("yod", "-sz", "1", *NAP, stderr=subprocess.PIPE, text=True)
    busy(mesh, 1)
    theirs = mesh.start_on(mesh.asker, "yod", "-sz", "1", *NAP)
    others = mesh.start_on(mesh.own, "yod", "-sz", "1", *NAP)
    busy(mesh, 3)

    places_of = [cpa_place(mesh), *(address for (address,) in mesh.rows(PCTS))]
    assert len(places_of) == 3 and answering(mesh, taken, places_of) == set(places_of)
    assert set(beat_keys(taken, "h1")) == set(node_keys(mesh.hosts[0], "beat.key"))

    described = mesh.run("mesh", "login", "revoke", "h3")
    assert described.returncode and "mesh nodes remove h3" in described.stderr, described
    mesh.run("mesh", "nodes", "remove", "h3", check=True)
    running = mesh.run("mesh", "login", "revoke", "h3")
    assert running.returncode == 1 and "revoke --force h3" in running.stderr, running
    assert mesh.state_of("h3") == "up" and theirs.poll() is None, "nothing was done"
    done = mesh.run("mesh", "login", "revoke", "--force", "h3")
    assert done.returncode == 0, done

    theirs.communicate()
    assert theirs.returncode, "its launch was ended"
    busy(mesh, 2)
    assert not mesh.rows("SELECT id FROM node WHERE name = 'h3' OR rca = 'h3'")
    assert "h3" not in {node["name"] for node in look(mesh)["nodes"]}
    again = mesh.on(mesh.asker, "yod", "-sz", "1", "hostname")
    assert again.returncode == 125 and "Traceback" not in again.stderr, again
    assert not answering(mesh, taken, places_of)
    for host in mesh.hosts[:2]:
        assert not set(beat_keys(taken, host.name)) & set(node_keys(host, "beat.key"))
        assert len(node_keys(host, "beat.key")) == 1

    mesh.up()  # brings the other one its new keys
    wait_until(lambda: all(rcas_known(host) == 2 for host in mesh.hosts[:2]), "nodes beat to it no more", step_s=0.1)
    assert set(mesh.states().values()) == {"up"}
    ends_well(mesh, mesh.own, others)
    assert here.poll() is None
    here.terminate()
    here.communicate()
    busy(mesh, 0)
    assert mesh.on(mesh.own, "yod", "-sz", "4", "true").returncode == 0
    down = mesh.on(mesh.asker, "mesh", "down", "--force")
    assert (down.returncode, down.stderr) == (0, ""), down
    gone = mesh.run("mesh", "login", "revoke", "h3")
    assert gone.returncode and "no node 'h3'" in gone.stderr, gone


def one_with_cpas_of_its_own(mesh: ManyLogins, tmp_path: Path) -> None:
    """What runs there serves nobody any more, though it has a way to the database; its master key opens no node.

    A node that only its RCA heard dies just then: keys are changed when the mesh has noticed.
    """
    taken = knew(mesh, mesh.own, tmp_path / "knew")
    victim = mesh.hosts[1]
    assert set(launch_keys(mesh, taken, "h1")) == set(node_keys(mesh.hosts[0], "launch.key"))
    mesh.run("mesh", "nodes", "remove", "h4", check=True)
    with standing([mesh.pid_of("rca")]):
        wait_until(lambda: set(mesh.heard_by().values()) == {"h4"}, "they beat there", step_s=0.05)
    victim.kill()
    done = mesh.run("mesh", "login", "revoke", "--json", "h4")
    assert done.returncode and "1 node has not taken its files (h2: " in done.stderr, done
    assert "mesh trust rotate goes on" in done.stderr and "password of the database account" in done.stderr
    refusal = mesh.on(mesh.own, "yod", "-sz", "1", "hostname")
    assert refusal.returncode == 125 and "not a login processor of this mesh any more" in refusal.stderr, refusal
    wait_until(lambda: mesh.state_of("h2") == "down", "it is known to be gone", step_s=0.1)
    assert mesh.state_of("h1") == "up"
    mesh.run("mesh", "trust", "rotate", check=True)
    assert not set(launch_keys(mesh, taken, "h1")) & set(node_keys(mesh.hosts[0], "launch.key"))
    assert mesh.heard_by()["h1"] == "h0"
    victim.start()
    mesh.up()
    wait_until(lambda: mesh.states()["h2"] == "up", "it is up", step_s=0.1)
    assert not set(launch_keys(mesh, taken, "h2")) & set(node_keys(victim, "launch.key"))
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0
    assert mesh.on(mesh.own, "mesh", "down", "--force").returncode == 0


def test_one_without_cpas_and_then_one_with_cpas_of_its_own(mesh: ManyLogins, tmp_path: Path) -> None:
    """In this order: nodes beat at the second one when no other is left."""
    for number, revoke in enumerate((one_without_cpas, one_with_cpas_of_its_own)):
        (tmp_path / str(number)).mkdir()
        revoke(mesh, tmp_path / str(number))
