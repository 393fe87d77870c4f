"""What dies, is cut off or stands still in a mesh of many hosts: no processor twice, no orphan, no hang.

One mesh over four namespace hosts serves all tests; each leaves it as it found it, or fails.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts, NamespaceHost, NamespaceHosts
from tests.support.look import look, processors
from tests.support.mesh import while_up
from tests.support.waiting import wait_until

#: A program that is easily told from everything else on a host.
NAP = ("sleep", "987654")


@pytest.fixture(scope="module")
def hosts(netns_hosts: MakeHosts) -> NamespaceHosts:
    made: NamespaceHosts = netns_hosts(4, rate="80mbit")
    return made


@pytest.fixture(scope="module")
def mesh(hosts: NamespaceHosts) -> Iterator[FarMesh]:
    made = FarMesh(hosts, fanout=2)  # h4 hangs below h3
    with while_up(made):
        yield made


@pytest.fixture(autouse=True)
def settled(mesh: FarMesh) -> Iterator[None]:
    """After each test every node is up, every processor free, and no host has anything of a launch."""
    yield
    for host in mesh.hosts:
        host.heal()
        mesh.kill_on(host, "redmesh-pct", signal.SIGCONT)
    settle(mesh)


def settle(mesh: FarMesh) -> None:
    def unsettled() -> dict[str, Any]:
        shown = look(mesh)
        wrong: dict[str, Any] = {node["name"]: node["state"] for node in shown["nodes"] if node["state"] != "up"}
        if shown["launchers"]:
            wrong["launchers"] = [launcher["id"] for launcher in shown["launchers"]]
        if shown["states"]["free"] != 2 * len(mesh.hosts):
            wrong["free"] = shown["states"]["free"]
        for host in mesh.hosts:
            if left := naps(mesh, host):
                wrong[f"{host.name} runs"] = left
        return wrong

    last: dict[str, Any] = {}

    def is_settled() -> bool:
        nonlocal last
        last = unsettled()
        return not last

    def logs() -> str:
        of_nodes = "\n".join(f"--- {host.name}\n{mesh.node_log(host)[-3000:]}" for host in mesh.hosts)
        return f"the mesh is as it was: {last}\n{mesh.logs(25)}\n{of_nodes}"

    wait_until(is_settled, logs, step_s=0.1)


def naps(mesh: FarMesh, host: NamespaceHost) -> list[int]:
    """The ranks of a launch on a host."""
    return [pid for pid, words in host.processes().items() if NAP[1] in words]


@contextmanager
def run_everywhere(mesh: FarMesh, *options: str, program: Sequence[str] = NAP) -> "Iterator[subprocess.Popen[Any]]":
    """A launch over all processors; it is not waited for when the test has failed."""
    yod = mesh.start("yod", *options, *program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield yod
    finally:
        if yod.poll() is None:
            yod.kill()
        yod.wait()


def until_it_runs(mesh: FarMesh, size: int = 8) -> None:
    wait_until(lambda: processors(mesh, "busy") == size, "the launch runs", step_s=0.05)


def until_nobody_runs(mesh: FarMesh, hosts: "list[NamespaceHost] | None" = None) -> None:
    where = list(hosts or mesh.hosts)
    wait_until(lambda: not any(naps(mesh, host) for host in where), "no rank is left", step_s=0.1)


def end_of(yod: "subprocess.Popen[Any]") -> tuple[int, str]:
    """Its exit status, and what it said."""
    _, said = yod.communicate()
    return yod.returncode, said


@contextmanager
def standing(mesh: FarMesh, host: NamespaceHost) -> Iterator[None]:
    """The PCT of a host does not run meanwhile."""
    mesh.kill_on(host, "redmesh-pct", signal.SIGSTOP)
    try:
        yield
    finally:
        mesh.kill_on(host, "redmesh-pct", signal.SIGCONT)


def yod_of(mesh: FarMesh) -> int:
    """The process of the one launcher there is."""
    (launcher,) = look(mesh)["launchers"]
    return int(launcher["pid"])


# --- kill -9, while a launch runs


@pytest.mark.parametrize("daemon", ["cpa-0", "rca"])
def test_a_daemon_of_the_login_processor_is_killed_while_a_launch_runs(mesh: FarMesh, daemon: str) -> None:
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        mesh.kill(daemon)
        wait_until(lambda: mesh.pid_of(daemon) > 0, f"another {daemon}")
        os.kill(yod_of(mesh), signal.SIGTERM)
        status, said = end_of(yod)
    assert status == 128 + signal.SIGTERM, said
    assert "lost" not in said


def test_yod_is_killed_while_its_launch_runs(mesh: FarMesh) -> None:
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        os.kill(yod_of(mesh), signal.SIGKILL)
        end_of(yod)
    until_nobody_runs(mesh)


def test_a_pct_is_killed_while_a_launch_runs_and_its_successor_adopts_it(mesh: FarMesh) -> None:
    host = mesh.hosts[1]
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        # The RCA passes over the death of a PCT that it has not heard of yet: one that has just replaced another.
        for _ in range(3):
            before = of_node(mesh, "incarnation", "h2")
            mesh.kill_on(host, "redmesh-pct")
            wait_until(
                lambda: "PCT has died" in rca_log(mesh) or of_node(mesh, "incarnation", "h2") != before,  # noqa: B023
                "the RCA has noticed it, or has heard of the one that replaced it",
                step_s=0.01,
            )
            if "PCT has died" in rca_log(mesh):
                break
        assert "PCT has died" in rca_log(mesh)
        wait_until(lambda: mesh.states()["h2"] == "up", "another PCT is there", step_s=0.05)
        assert len(naps(mesh, host)) == 2
        os.kill(yod_of(mesh), signal.SIGTERM)
        status, said = end_of(yod)
    assert status == 128 + signal.SIGTERM, said
    assert '"event": "adopted"' in mesh.node_log(host)


@pytest.mark.parametrize("number", [1, 3], ids=["the root's", "a leaf's"])
def test_a_launch_child_is_killed_while_its_launch_runs(mesh: FarMesh, number: int) -> None:
    """Its PCT clears up behind it and says so: the node stays in service."""
    host = mesh.hosts[number - 1]
    lives = [boot_of(mesh, node.name) for node in mesh.hosts]
    with run_everywhere(mesh, "-kill", "-sz", "8") as yod:
        until_it_runs(mesh)
        mesh.kill_on(host, "redmesh-launch")
        status, said = end_of(yod)
    assert status and host.name in said
    until_nobody_runs(mesh)
    assert set(mesh.states().values()) == {"up"}
    assert [boot_of(mesh, node.name) for node in mesh.hosts] == lives


def rca_log(mesh: FarMesh) -> str:
    return (mesh.state / "log" / "rca.jsonl").read_text()


# --- kill -9, while a launch is being loaded


@pytest.mark.parametrize("victim", ["yod", "cpa-0", "rca", "pct", "launch child"])
def test_killed_while_a_launch_is_loaded(mesh: FarMesh, victim: str) -> None:
    slow, host = mesh.hosts[1], mesh.hosts[0]
    with run_everywhere(mesh, "-sz", "6") as yod:
        with standing(mesh, slow):
            wait_until(lambda: is_loading(mesh, host), "the load has come to h1")
            if victim == "yod":
                os.kill(yod_of(mesh), signal.SIGKILL)
            elif victim == "pct":
                mesh.kill_on(host, "redmesh-pct")
            elif victim == "launch child":
                mesh.kill_on(host, "redmesh-launch")
            else:
                mesh.kill(victim)
        if victim == "yod":
            end_of(yod)
            until_nobody_runs(mesh)
            return
        if victim == "launch child":  # its PCT lives, and says so: no node is blamed, and nothing is tried again
            status, said = end_of(yod)
            assert status == 125 and "SIGKILL" in said and host.name in said and "trying" not in said
            assert set(mesh.states().values()) == {"up"}
            return
        until_it_runs(mesh, 6)
        os.kill(yod_of(mesh), signal.SIGTERM)
        assert end_of(yod)[0] == 128 + signal.SIGTERM


def is_loading(mesh: FarMesh, host: NamespaceHost) -> bool:
    # a launch child of an earlier launch may wait for the next one
    return processors(mesh, "pending") == 6 and bool(naps(mesh, host))


# --- the plug is pulled


def test_a_host_is_cut_off_while_a_launch_runs_and_comes_back(mesh: FarMesh) -> None:
    """Its ranks are gone before anybody gets its processors; the launch ends by its rule, and names the host."""
    host = mesh.hosts[1]
    with run_everywhere(mesh, "-kill", "-sz", "8") as yod:
        until_it_runs(mesh)
        host.cut()
        wait_until(lambda: mesh.states()["h2"] == "down", "h2 counts as down", step_s=0.1)
        status, said = end_of(yod)
        assert status and "h2" in said
        until_nobody_runs(mesh, [host])
        refused = mesh.run("yod", "-list", "h2", "true")
        assert refused.returncode == 125
        other = mesh.run("yod", "-sz", "6", "true")
        assert other.returncode == 0, other.stderr
    host.heal()
    wait_until(lambda: mesh.states()["h2"] == "up", "h2 is back", step_s=0.1)
    assert "begins anew" in mesh.node_log(host)
    assert mesh.run("yod", "-sz", "8", "true").returncode == 0


def test_links_are_cut_one_way_while_a_launch_runs(mesh: FarMesh) -> None:
    """Whichever way nothing passes, the launch ends and nothing of it stays, there or elsewhere."""
    mute, deaf = mesh.hosts[2], mesh.hosts[3]
    with run_everywhere(mesh, "-kill", "-sz", "8") as yod:
        until_it_runs(mesh)
        mute.cut("out")
        deaf.cut("in")
        status, said = end_of(yod)
        assert status and ("h3" in said or "h4" in said)
        until_nobody_runs(mesh)


def test_idle_hosts_are_cut_off_for_a_while(mesh: FarMesh) -> None:
    _, off, mute, deaf = mesh.hosts
    off.cut()
    mute.cut("out")
    deaf.cut("in")
    wait_until(
        lambda: set(list(mesh.states().values())[1:]) <= {"suspect", "down"}, "they are not given out", step_s=0.1
    )
    done = mesh.run("yod", "-sz", "2", "true")
    assert done.returncode == 0, done.stderr
    assert mesh.run("yod", "-sz", "3", "true").returncode == 125
    for host in (off, mute, deaf):
        host.heal()
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "they are back", step_s=0.1)


# --- slow, and dead to all appearances


def test_a_pct_that_stands_still_for_less_than_the_lease_is_slow_not_dead(mesh: FarMesh) -> None:
    host = mesh.hosts[1]
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        with standing(mesh, host):
            wait_until(lambda: mesh.states()["h2"] == "suspect", "h2 is suspect", step_s=0.05)
        wait_until(lambda: mesh.states()["h2"] == "up", "h2 is up", step_s=0.05)
        assert len(naps(mesh, host)) == 2
        os.kill(yod_of(mesh), signal.SIGTERM)
        assert end_of(yod)[0] == 128 + signal.SIGTERM


def test_a_pct_that_stands_still_for_longer_begins_anew(mesh: FarMesh) -> None:
    host = mesh.hosts[1]
    with run_everywhere(mesh, "-kill", "-sz", "8") as yod:
        until_it_runs(mesh)
        with standing(mesh, host):
            wait_until(lambda: mesh.states()["h2"] == "down", "h2 is down", step_s=0.05)
        status, said = end_of(yod)
    assert status and "h2" in said
    wait_until(lambda: mesh.states()["h2"] == "up", "h2 is up", step_s=0.05)


def test_an_rca_that_stands_still_for_longer_than_any_lease_ends_no_job(mesh: FarMesh) -> None:
    lives = [boot_of(mesh, node.name) for node in mesh.hosts]
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        mesh.kill("rca", signal.SIGSTOP)
        try:
            wait_until(lambda: all("lease lapsed" in mesh.node_log(host) for host in mesh.hosts), "they feel it")
            time.sleep(2.0)
        finally:
            mesh.kill("rca", signal.SIGCONT)
        wait_until(lambda: all("held again" in mesh.node_log(host) for host in mesh.hosts), "they are heard")
        assert all(len(naps(mesh, host)) == 2 for host in mesh.hosts)
        os.kill(yod_of(mesh), signal.SIGTERM)
        assert end_of(yod)[0] == 128 + signal.SIGTERM
    assert [boot_of(mesh, node.name) for node in mesh.hosts] == lives


# --- a host that boots


def test_a_host_boots_while_a_launch_runs(mesh: FarMesh) -> None:
    host = mesh.hosts[3]
    before = boot_of(mesh, "h4")
    with run_everywhere(mesh, "-kill", "-sz", "8") as yod:
        until_it_runs(mesh)
        host.reboot()
        status, said = end_of(yod)
    assert status and "h4" in said
    wait_until(lambda: mesh.states()["h4"] == "down", "h4 is down", step_s=0.1)
    mesh.up()
    wait_until(lambda: mesh.states()["h4"] == "up", "h4 is up", step_s=0.1)
    assert boot_of(mesh, "h4") != before
    assert mesh.run("yod", "-sz", "8", "true").returncode == 0


def boot_of(mesh: FarMesh, node: str) -> str:
    return str(of_node(mesh, "boot_id", node))


def of_node(mesh: FarMesh, column: str, node: str) -> object:
    import sqlite3

    with sqlite3.connect(f"file:{mesh.state}/mesh.db?mode=ro", uri=True) as database:
        return database.execute(f"SELECT {column} FROM node WHERE name = ?", (node,)).fetchone()[0]


# --- the tree


def test_an_interior_node_of_the_tree_is_gone_while_a_launch_runs(mesh: FarMesh) -> None:
    """What hung below it ends too, and is named; the rest goes on, as nobody asked for anything else."""
    with run_everywhere(mesh, "-sz", "8") as yod:
        until_it_runs(mesh)
        mesh.kill_on(mesh.hosts[2], "redmesh-launch")
        until_nobody_runs(mesh, [mesh.hosts[2], mesh.hosts[3]])
        assert len(naps(mesh, mesh.hosts[0])) == len(naps(mesh, mesh.hosts[1])) == 2
        os.kill(yod_of(mesh), signal.SIGTERM)
        status, said = end_of(yod)
    assert status and "h3" in said and "h4" in said


# --- a program on its way


@pytest.fixture(scope="module")
def large(mesh: FarMesh) -> str:
    """A program that sleeps and takes two seconds to arrive."""
    path = mesh.home / "large"
    path.write_bytes(Path("/bin/sleep").read_bytes() + os.urandom(8 << 20))
    path.chmod(0o755)
    return str(path)


def test_a_host_is_cut_off_while_a_program_is_on_its_way(mesh: FarMesh, large: str) -> None:
    """Nothing has begun: it begins on the others."""
    host = mesh.hosts[1]
    with run_everywhere(mesh, "-sz", "6", program=(large, NAP[1])) as yod:
        wait_until(lambda: host.glob("dev/shm/redmesh-*/images/*"), "it arrives")
        host.cut()
        wait_until(lambda: on_other_hosts(mesh, host), "it runs on the others", step_s=0.1)
        os.kill(yod_of(mesh), signal.SIGTERM)
        status, said = end_of(yod)
    assert status == 128 + signal.SIGTERM, said
    host.heal()


def on_other_hosts(mesh: FarMesh, off: NamespaceHost) -> bool:
    return all(len(naps(mesh, host)) == 2 for host in mesh.hosts if host is not off)


def test_a_full_ram_disk_is_said_of_its_host(mesh: FarMesh, large: str) -> None:
    host = mesh.hosts[2]
    host.run("sh", "-c", "head -c 60m /dev/zero > /dev/shm/filler")
    try:
        done = mesh.run("yod", "-sz", "8", large, "0")
        assert done.returncode == 0 and "h3: /dev/shm has too little room" in done.stderr, done.stderr
        host.run("sh", "-c", "cat /dev/zero > /tmp/filler")
        done = mesh.run("yod", "-sz", "8", large, "0")
        assert done.returncode and "h3" in done.stderr and "room" in done.stderr, "and no other place has any"
    finally:
        host.run("rm", "-f", "/dev/shm/filler", "/tmp/filler")
    wait_until(lambda: mesh.states()["h3"] == "up", "h3 serves again", step_s=0.1)
    assert mesh.run("yod", "-sz", "8", large, "0").returncode == 0


def test_a_full_disk_ends_no_daemon(mesh: FarMesh) -> None:
    """Where RUN has no room nothing can be launched, and yod names the host; what is there stays."""
    host = mesh.hosts[2]
    pct = mesh.pids_on(host, "redmesh-pct")
    host.run("sh", "-c", "cat /dev/zero > /tmp/filler")
    try:
        done = mesh.run("yod", "-list", "h3", "-sz", "2", "true")
        assert done.returncode == 0 or "h3" in done.stderr
    finally:
        host.run("rm", "/tmp/filler")
    wait_until(lambda: mesh.states()["h3"] == "up", "h3 serves", step_s=0.1)
    assert mesh.run("yod", "-sz", "8", "true").returncode == 0
    assert mesh.pids_on(host, "redmesh-pct") == pct


# --- a clock that is wrong


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_clock_that_is_an_hour_ahead_changes_nothing(mesh: FarMesh) -> None:
    host = mesh.hosts[3]
    source, library = mesh.home / "ahead.c", host.directory / "ahead.so"
    source.write_text(AHEAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    profile = host.home / ".bashrc"  # read by the shell that sshd starts
    profile.write_text("export LD_PRELOAD=/run/host/ahead.so\n")
    try:
        host.reboot()
        mesh.up()
        lines = lambda: map(json.loads, mesh.node_log(host).splitlines())  # noqa: E731
        wait_until(lambda: any(line["at"] - time.time() > 3000 for line in lines()), "the PCT there sees another time")
        wait_until(lambda: mesh.states()["h4"] == "up", "h4 is up", step_s=0.1)
        for _ in range(3):
            done = mesh.run("yod", "-sz", "8", "true")
            assert done.returncode == 0, done.stderr
    finally:
        profile.unlink()
        host.reboot()
        mesh.up()


AHEAD = r"""
#define _GNU_SOURCE
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now)
{
    int status = syscall(SYS_clock_gettime, which, now);
    if (status == 0 && which == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return status;
}
"""
