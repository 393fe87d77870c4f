"""Peers of protocol 1: the commands of the version before protocol 2 on a mesh of ours, ours on one of theirs."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.addresses import address
from tests.support.hosts import LoopbackHosts
from tests.support.loopback_mesh import LoopbackMesh
from tests.support.mesh import MakeMesh, PrivateMesh, while_up
from tests.support.wheels import Environment, build_of_commit

#: The last version of protocol 1.
OLD = "f6cd680"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the old version are."""
    directory = tmp_path_factory.mktemp("old")
    wheel = build_of_commit(OLD, directory)
    environment = Environment(directory / "environment")
    environment.install(wheel)
    return environment.bin


def launch_in_every_way(private: PrivateMesh, yod: str) -> None:
    """On four processors of two nodes: whatever has other names in protocol 1, and what is around it."""

    def run(*words: str, **options: Any) -> str:
        return private.run(yod, *words, check=True, **options).stdout

    assert run("-sz", "4", "echo", "ran") == "ran\n" * 4
    # input that a rank of the second node reads: look, waits, deal, dealt
    assert run("-sz", "4", "sh", "-c", "test $YOD_RANK != 3 || cat", input="a\nb\n") == "a\nb\n"
    # payload and run options: cargo, manner
    assert run("--bcast=always", "-sz", "4", "/bin/echo", "sent") == "sent\n" * 4
    assert run("-sz", "4", "--io", str(private.work), "sh", "-c", "yodio ls . && echo found").count("found\n") == 4
    crashed = private.run(yod, "-bt", "-sz", "4", "sh", "-c", "test $YOD_RANK != 3 || kill -SEGV $$")
    assert crashed.returncode == 139 and "stack (by " in crashed.stderr, crashed.stderr


def give_way(private: PrivateMesh, low: str, waiting: str) -> None:
    """A nice launch of one version gives way to one of the other: nice, gives_way."""
    pipe = subprocess.PIPE
    command = ["-nice", "-sz", "4", "sh", "-c", "echo in; exec sleep 600"]
    running = private.start(low, *command, stdout=pipe, stderr=pipe, text=True)
    assert running.stdout.readline() == "in\n"
    private.run(waiting, "-wait-for-nodes", "30", "-sz", "1", "true", check=True)
    assert "gives way to" in running.communicate()[1]


def waits_for(go: Path) -> str:
    return f"echo in; until [ -e {go} ]; do sleep 0.05; done; echo out"


def begun(private: PrivateMesh, yod: str, *words: str) -> "subprocess.Popen[str]":
    started = private.start(yod, *words, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "in\n"
    return started


def test_commands_of_the_old_version_on_a_mesh_of_ours(mesh: MakeMesh, old: Path) -> None:
    private = mesh(4, 2)
    launch_in_every_way(private, f"{old}/yod")
    give_way(private, f"{old}/yod", "yod")
    for words in ((f"{old}/showmesh",), (f"{old}/mesh", "status")):  # their version of the tables was another
        done = private.run(*words)
        assert "has schema" in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_our_commands_on_a_mesh_of_the_old_version_and_its_upgrade(mesh: MakeMesh, old: Path) -> None:
    private = mesh(4, 2, up=False)
    private.run(f"{old}/mesh", "up", "--processors", "4", "--nodes", "2", check=True)
    launch_in_every_way(private, "yod")
    give_way(private, "yod", f"{old}/yod")
    go = private.work / "go"
    theirs, ours = (begun(private, yod, "-sz", "2", "sh", "-c", waits_for(go)) for yod in (f"{old}/yod", "yod"))
    private.run("mesh", "upgrade", check=True)
    assert "another version" not in private.run("mesh", "status", check=True).stdout
    assert theirs.poll() is ours.poll() is None
    go.touch()
    assert (theirs.wait(), ours.wait()) == (0, 0)
    assert theirs.stdout.read().count("out") == ours.stdout.read().count("out") == 2
    launch_in_every_way(private, "yod")


@pytest.fixture
def on_hosts(loopback_hosts: Callable[[int], LoopbackHosts]) -> Iterator[LoopbackMesh]:
    """A mesh of two hosts with two processors each, which is not up yet."""
    hosts = loopback_hosts(2)
    known = hosts.keys.known_hosts.read_text()
    made = LoopbackMesh(hosts, {"name": "lo[1-2]", "address": address("[1-2]"), "processors": 2})
    with while_up(made, up=False):
        try:
            yield made
        finally:
            hosts.keys.known_hosts.write_text(known)


def test_hosts_of_the_old_version_one_after_another(on_hosts: LoopbackMesh, old: Path) -> None:
    on_hosts.run(f"{old}/mesh", "up", check=True)
    go = on_hosts.work / "go"
    running = begun(on_hosts, "yod", "-sz", "4", "sh", "-c", waits_for(go))
    on_hosts.run("mesh", "upgrade", "--only", "lo1", check=True)
    assert running.poll() is None
    go.touch()
    assert running.wait() == 0 and running.stdout.read().count("out") == 4
    for yod in ("yod", f"{old}/yod"):  # the root of the tree is of one version, the other node of the other
        launch_in_every_way(on_hosts, yod)
    on_hosts.run("mesh", "upgrade", check=True)
    for yod in ("yod", f"{old}/yod"):
        assert on_hosts.run(yod, "-sz", "4", "echo", "ran", check=True).stdout == "ran\n" * 4
