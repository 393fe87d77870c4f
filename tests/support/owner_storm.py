"""Lose the host of a job's owner while its tasks run: the job goes on elsewhere, and each result counts once.

    python -m tests.support.owner_storm [--tasks 100000] [--hosts 8] [--processors 8] [--outage 60] [--cut]

Needs root for the namespace hosts. The job is submitted on a login processor with a host of its own, which is killed,
or (``--cut``) cut off from network and database and healed later. A CPA of the other login processor has the job go on
from its standby. Then MariaDB is stopped (SIGSTOP) for ``--outage`` seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from db.store.store import open_store
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts
from tests.support.look import asked
from tests.support.mariadb import Server, private_server
from tests.support.mesh import while_up
from tests.support.others import INSTALLED, install
from tests.support.tasks_storm import check_runs, outage
from tests.support.waiting import PATIENCE_S, wait_until

ENVIRONMENT = {"HOME": "/root", "PATH": f"{INSTALLED}:/usr/sbin:/usr/bin:/sbin:/bin"}
LOGIN = """
[[hosts]]
name = "{name}"
role = "login"
cpas = 1
python = "{python}"
"""


class TwoLogins(FarMesh):
    """A mesh with two login processors with a CPA each: h0, and the last of ``hosts``. The others are its nodes."""

    def __init__(self, hosts: NamespaceHosts, server: Server, processors: int) -> None:
        self.url = server.new_database()
        super().__init__(hosts, processors, database=self.url, cpa_port=7200)
        self.login = hosts[len(hosts) - 1]
        file = self.home / "config" / "redmesh" / "mesh.toml"
        here = file.read_text().replace(f'"h[1-{len(hosts)}]"', f'"h[1-{len(hosts) - 1}]"')
        file.write_text(here + LOGIN.format(name=self.login.name, python=f"{INSTALLED}/python"))
        install(self.login)
        configuration = self.login.home / ".config" / "redmesh" / "mesh.toml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(f'database = "{self.url}"\n')  # without it no standby is found there
        os.link(server.socket, self.login.directory / "sql")  # stands for a database on the network
        self.login.run("mkdir", "-p", server.directory, check=True)
        self.login.run("ln", "-s", "/run/host/sql", server.socket, check=True)

    def on_login(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the second login processor, in /."""
        return self.login.run(*words, env=ENVIRONMENT, cwd="/")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Query the system database."""
        with open_store(self.url) as store:
            return list(store.read(query))

    def state_of(self, name: str) -> str:
        return str(self.rows(f"SELECT state FROM node WHERE name = '{name}'")[0][0])

    def ran(self) -> str:
        """Return what tasks wrote on every node: the number of each, once for each time that it ran."""
        files = [host.home / "ran" for host in self.hosts if host is not self.login]
        return "".join(file.read_text() for file in files if file.exists())

    def clear(self) -> None:
        """Delete what an earlier job left on the nodes, and wait until the login processor that it lost is back."""
        self.login.heal()  # a storm that failed may have left it cut off
        for host in self.hosts:
            for name in ("ran", "gate"):
                (host.home / name).unlink(missing_ok=True)
        wait_until(lambda: self.state_of(self.login.name) == "up", "the login processor is up", step_s=0.2)

    def count(self) -> int:
        return self.ran().count("\n")


def storm(
    mesh: TwoLogins, server: Server, tasks: int, limit: int, outage_s: float, *, cut: bool, gated: bool = False,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Run one job whose owner's host is lost in the middle, and check what its object says.

    ``gated``: most of the tasks end only after the job has gone on elsewhere.
    """
    mesh.clear()
    began = time.monotonic()
    script = "echo {} >> /root/ran"
    if gated:
        script += f"; test {{}} -le {tasks // 5} || until test -e /root/gate; do sleep 1; done"
    words = ("--array", f"1-{tasks}", "--limit", str(limit), "--quiet", "--", "sh", "-c", script)
    made = mesh.on_login("mesh", "submit", *words)
    uuid = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    standby = f"SELECT standby FROM state_location WHERE uuid = '{uuid}' AND standby <> ''"
    wait_until(lambda: mesh.rows(standby) and mesh.count() > tasks // 10, "it has a standby, and runs", step_s=0.2)
    path = Path(mesh.state) / "jobs" / f"{uuid}.job"
    old = next((mesh.login.home / ".local/state/redmesh/jobs").glob(f"{uuid}.job"))
    before, lost_at, frozen = mesh.count(), time.monotonic(), []
    try:
        if cut:
            frozen = [pid for pid, words in mesh.login.processes().items() if "cpa-0" in words]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)  # it reaches the database no more
            mesh.login.cut()
        else:
            mesh.login.kill()
        wait_until(lambda: mesh.state_of(mesh.login.name) == "down", "its host is known to be lost", step_s=0.5)
        wait_until(path.exists, "the job is here", step_s=0.1, patience_s=2 * PATIENCE_S)
        here = mesh.count()
        wait_until(lambda: mesh.count() > here, "it goes on here", step_s=0.1)
        say(
            f"{before} tasks had begun when the host was lost; {time.monotonic() - lost_at:.0f} s later it went on, "
            f"at {here}"
        )
        for host in mesh.hosts:
            (host.home / "gate").touch()
        if outage_s:
            meanwhile = outage(mesh, server, mesh.count, outage_s)
            say(f"MariaDB stopped for {outage_s:g} s or more: {meanwhile} tasks began meanwhile")
    finally:
        if cut:
            mesh.login.heal()
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        else:
            mesh.login.start()  # or ``mesh down`` would not reach it
    ended = mesh.run("mesh", "wait", uuid, timeout_s=3600)
    assert ended.returncode == 0, ended.stderr
    if cut:
        wait_until(old.with_name(f"{uuid}.job.fenced").exists, "the old owner has stopped", step_s=0.1)
    twice = check_runs(lambda query: asked(path, query), tasks, mesh.ran())
    took = time.monotonic() - began
    told = sum(row["last"] - row["first"] + 1 for row in asked(path, "SELECT * FROM task WHERE attempt > 1"))
    say(f"{tasks} tasks in {took:.0f} s; {twice} ran twice; the object says so of {told}, and of each of these")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.owner_storm", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--processors", type=int, default=8, help="of each host")
    parser.add_argument("--outage", type=float, default=60.0)
    parser.add_argument("--cut", action="store_true", help="cut the owner's host off; heal it later")
    given = parser.parse_args()
    hosts = NamespaceHosts(given.hosts + 1)
    try:
        with private_server() as server, while_up(TwoLogins(hosts, server, given.processors)) as mesh:
            limit = given.hosts * given.processors // 2  # what the lost launches had stays taken
            storm(
                mesh, server, given.tasks, limit, given.outage, cut=given.cut,
                say=lambda line: print(line, flush=True),
            )  # fmt: skip
    finally:
        hosts.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
