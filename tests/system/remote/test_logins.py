"""Several login processors, made by ``mesh up``: each hears nodes and launches, and none is needed by the others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.linux.processes import children
from db.store.store import open_store
from redmesh.state import owned
from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts, NamespaceHost
from tests.support.look import processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import INSTALLED, install
from tests.support.waiting import Process, freeze, wait_until
from tests.system.remote.test_standby import done as tasks_done
from tests.system.remote.test_standby import meta

NAP = ("sleep", "987654")
#: Of both nodes.
PROCESSORS = 8
#: Of launches from the first login processor.
HERE = ("sleep", "987655")
SAID = "SELECT at, kind, text FROM event WHERE kind LIKE 'node_%' ORDER BY id DESC LIMIT 12"
OF_NODES = (
    "SELECT COUNT(*) FROM event e JOIN node n ON n.id = e.node"
    " WHERE n.role <> 'login' AND e.kind IN ('node_suspect', 'node_down')"
)
ENVIRONMENT = {"HOME": "/root", "PATH": f"{INSTALLED}:/usr/sbin:/usr/bin:/sbin:/bin"}
LOGINS = """
[[hosts]]
name = "h3"
role = "login"
python = "{python}"

[[hosts]]
name = "h4"
role = "login"
cpas = 1
python = "{python}"
"""


class ManyLogins(FarMesh):
    """Nodes on h1 and h2; login processors are this one, h3 (which asks our CPA) and h4 (with one of its own)."""

    def __init__(self, make: MakeHosts, server: Server, processors: int = 2) -> None:
        self.url = server.new_database()
        # what a node needs to change over in, and what it may be silent for, are to be far apart on a busy machine
        super().__init__(make(4), processors, cpa_port=7200, database=self.url, suspect_s=4.0, down_s=8.0)
        file = self.home / "config" / "redmesh" / "mesh.toml"
        here = file.read_text().replace('"h[1-4]"', '"h[1-2]"')
        file.write_text(here + LOGINS.format(python=f"{INSTALLED}/python"))
        self.asker, self.own = self.hosts[2], self.hosts[3]
        for host in (self.asker, self.own):
            install(host)
        self._let_in(server)

    def _let_in(self, server: Server) -> None:
        # the host's /tmp is its own: what stands for a database on the network is the server's socket, linked there
        os.link(server.socket, self.own.directory / "sql")
        self.own.run("mkdir", "-p", server.directory, check=True)
        self.own.run("ln", "-s", "/run/host/sql", server.socket, check=True)

    def on(self, host: NamespaceHost, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on another login processor."""
        return host.run(*words, env=ENVIRONMENT)

    def start_on(self, host: NamespaceHost, *words: str) -> subprocess.Popen[str]:
        """A command there that goes on."""
        process = Process(
            [*host.enter, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._started.append(process)
        return process

    def end_launches(self) -> None:
        """End what a test that failed has left running."""
        left = [one for one in self._started if one.poll() is None]
        yods = [pid for host in (self.asker, self.own) for pid, words in host.processes().items() if "yod.py" in words]
        for pid in [*yods, *(one.pid for one in left)] if left else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for one in left:
            one.communicate()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the system database."""
        with open_store(self.url) as store:
            return list(store.read(sql))

    def heard_by(self) -> dict[str, str]:
        """Which login processor hears each node."""
        return dict(self.rows("SELECT name, rca FROM node WHERE role <> 'login'"))  # type: ignore[arg-type]

    def state_of(self, name: str) -> str:
        """A node's, or a login processor's."""
        return str(self.rows(f"SELECT state FROM node WHERE name = '{name}'")[0][0])

    def own_launches(self) -> int:
        """How many launches from h4 run."""
        sql = "SELECT COUNT(*) FROM launcher l JOIN node n ON n.id = l.login_processor"
        return int(self.rows(f"{sql} WHERE n.name = 'h4' AND l.started_at IS NOT NULL AND l.ended_at IS NULL")[0][0])

    def events(self, *kinds: str) -> int:
        """How many of these the mesh has had."""
        some = ", ".join(f"'{kind}'" for kind in kinds)
        return int(self.rows(f"SELECT COUNT(*) FROM event WHERE kind IN ({some})")[0][0])


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[ManyLogins]:
    made = ManyLogins(netns_hosts, sql_server, PROCESSORS // 2)
    with while_up(made):
        yield made


@pytest.fixture(autouse=True)
def settled(mesh: ManyLogins) -> Iterator[None]:
    """Before each test every node knows every RCA; after it all is up, and all is free."""
    wait_until(lambda: all(rcas_known(host) == 3 for host in mesh.hosts[:2]), "the nodes know three RCAs", step_s=0.1)
    yield
    mesh.end_launches()
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "every node is up", step_s=0.1)
    wait_until(lambda: processors(mesh, "free") == PROCESSORS, "every processor is free", step_s=0.1)


def rcas_known(host: NamespaceHost) -> int:
    """How many RCAs a node knows."""
    return sum(path.read_text().count(":7117") for path in host.glob("run/redmesh-0/*/rcas-*"))


def end(mesh: ManyLogins, yod: subprocess.Popen[str]) -> None:
    """SIGTERM for a launch from another login processor, which ends by it and by nothing else."""
    pid = next(pid for pid, words in mesh.own.processes().items() if "yod.py" in words and words.endswith(NAP[1]))
    os.kill(pid, signal.SIGTERM)
    _, said = yod.communicate()
    assert yod.returncode == 128 + signal.SIGTERM, said


def runs(mesh: ManyLogins, size: int = 4) -> None:
    wait_until(lambda: processors(mesh, "busy") == size, "it runs", step_s=0.05)


def test_every_login_processor_launches(mesh: ManyLogins) -> None:
    for host in (mesh.asker, mesh.own):
        done = mesh.on(host, "yod", "-sz", "4", "sh", "-c", "echo $YOD_RANK; exit 3")
        assert (sorted(done.stdout.split()), done.returncode) == (["0", "1", "2", "3"], 3), done.stderr
    assert mesh.run("yod", "-sz", "4", "true").returncode == 0
    asked = mesh.rows("SELECT DISTINCT n.name FROM launcher l JOIN node n ON n.id = l.login_processor")
    logins = {name for (name,) in asked}
    assert logins >= {"h3", "h4"}


def test_an_up_that_finds_all_up_changes_nothing(mesh: ManyLogins) -> None:
    before = mesh.on(mesh.own, "mesh", "status", "--json").stdout
    yod = mesh.start_on(mesh.own, "yod", "-sz", "4", *NAP)
    runs(mesh)
    mesh.up()
    assert mesh.on(mesh.own, "mesh", "status", "--json").stdout.count("pid") == before.count("pid")
    end(mesh, yod)


def test_one_that_only_another_does_not_reach_is_not_taken_for_lost(mesh: ManyLogins) -> None:
    """The way between login processors is cut, and the database hears each still: no node is as much as suspect."""
    wait_until(lambda: set(mesh.heard_by().values()) == {"h0"}, "they beat to one that others will miss", step_s=0.1)
    before, said = mesh.rows(OF_NODES), len(rca_log(mesh))

    def missed() -> int:
        return sum('"missed": true' in line and '"h4"' in line for line in rca_log(mesh)[said:])

    mesh.own.cut()
    try:
        wait_until(lambda: missed() >= 2, "it was missed, and has contradicted, again and again", step_s=0.1)
        assert set(mesh.states().values()) == {"up"}
        assert mesh.run("yod", "-sz", "4", "true").returncode == 0
    finally:
        mesh.own.heal()
    assert mesh.rows(OF_NODES) == before, mesh.rows(SAID)
    wait_until(lambda: {mesh.state_of(login) for login in ("h0", "h3", "h4")} == {"up"}, "all are there", step_s=0.1)


@contextmanager
def standing(pids: Sequence[int]) -> Iterator[None]:
    """These processes do not run meanwhile."""
    for pid in pids:
        freeze(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def rca_of(mesh: ManyLogins, login: str) -> int:
    """The process of a login processor's RCA."""
    for host in (mesh.asker, mesh.own):
        if host.name == login:
            return next(pid for pid, words in host.processes().items() if "start_command.py rca" in words)
    return mesh.pid_of("rca")


def test_an_rca_that_is_gone_makes_no_node_down_and_ends_no_launch(mesh: ManyLogins) -> None:
    """Nor when it is back: nodes that had gone over to another one are no news to it."""
    wait_until(lambda: set(mesh.heard_by().values()) == {"h0"}, "all beat to one RCA", step_s=0.1)
    before = mesh.events("node_down", "node_suspect")
    lives = mesh.rows("SELECT name, boot_id FROM node ORDER BY id")
    yod = mesh.start_on(mesh.own, "yod", "-sz", "4", *NAP)
    runs(mesh)
    with standing([mesh.pid_of("rca")]):
        wait_until(lambda: "h0" not in mesh.heard_by().values(), "they beat to others", step_s=0.05)
        wait_until(lambda: mesh.state_of("h0") == "down", "its own processor is known to be gone", step_s=0.1)
    wait_until(lambda: mesh.state_of("h0") == "up", "it says that it is there", step_s=0.1)
    assert set(mesh.states().values()) == {"up"}
    assert processors(mesh, "busy") == 4
    own = mesh.events("node_down", "node_suspect") - before
    assert own == 2, f"the login processor was suspect, then down, and no node: {mesh.rows(SAID)}\n{mesh.logs(40)}"
    end(mesh, yod)
    assert mesh.rows("SELECT name, boot_id FROM node ORDER BY id") == lives


class Gone:
    """The first login processor, with all that stands still on it: its daemons, a yod, the owner of a job and its yods.

    The job's tasks need one processor at a time, and so does the yod.
    """

    def __init__(self, mesh: ManyLogins) -> None:
        self.mesh = mesh
        self.yod = mesh.start("yod", "-sz", "1", *HERE, stderr=subprocess.PIPE, text=True)
        runs(mesh, 1)
        [(self.launcher, pid)] = mesh.rows("SELECT id, pid FROM launcher WHERE ended_at IS NULL")
        words = ("--limit", "1", "--array", "1-400", "--", "sleep", "1")
        self.job = mesh.run("mesh", "submit", *words, cwd=Path("/"), check=True).stdout.strip()
        self.path = mesh.state / "jobs" / f"{self.job}.job"
        self.path_there = mesh.own.home / ".local" / "state" / "redmesh" / "jobs" / self.path.name
        where = f"SELECT standby FROM state_location WHERE uuid = '{self.job}'"
        wait_until(lambda: mesh.rows(where) > [("",)], "the job has a copy")
        owner = int(str(meta(self.path, "pid")))
        self.pids = [*daemons_here(mesh), int(pid), owner, *children(owner)]


def daemons_here(mesh: ManyLogins) -> list[int]:
    """The daemons of the first login processor."""
    return [mesh.pid_of(daemon) for daemon in ("keeper", "rca", "cpa-0")]


def launches(mesh: ManyLogins, host: NamespaceHost) -> None:
    done = mesh.on(host, "yod", "-sz", "2", "hostname")
    assert done.returncode == 0 and {"h1", "h2"} >= set(done.stdout.split()), done


def frees_what_it_holds(gone: Gone) -> None:
    """Whoever administers the mesh does, from another login processor."""
    mesh, launcher = gone.mesh, gone.launcher
    words = ("env", f"REDMESH_DATABASE={mesh.url}", "pingd", "-NoInquire", "-reset", "-job", str(launcher))
    done = mesh.on(mesh.own, *words)
    assert done.returncode == 0 and "drained" not in done.stdout, done
    assert not mesh.rows(f"SELECT id FROM processor WHERE launcher = {launcher}")
    for host in mesh.hosts[:2]:
        assert not [words for words in host.processes().values() if words == " ".join(HERE)]


def goes_on_with_its_job(gone: Gone) -> None:
    """The CPA there has it go on from the standby by itself."""
    there = gone.path_there
    wait_until(lambda: there.exists() and owned(str(there)), "an owner is on h4")
    before = tasks_done(there)
    wait_until(lambda: tasks_done(there) > before, "tasks end there")


def writes_nothing_more(gone: Gone) -> None:
    """The job's owner here, which runs again."""
    mesh, job = gone.mesh, gone.job
    wait_until(lambda: not gone.path.exists(), "the owner before has stopped", step_s=0.1)
    assert gone.path.with_name(f"{job}.job.fenced").exists()
    assert mesh.on(mesh.own, "mesh", "cancel", job).returncode == 0
    assert mesh.on(mesh.own, "mesh", "wait", job).returncode == 130
    shown = json.loads(mesh.on(mesh.own, "mesh", "job", "show", job, "--json").stdout)
    assert shown["state"] == "cancelled" and shown["counter"] == 2, shown
    assert "the standby goes on: the owner on" in mesh.on(mesh.own, "mesh", "job", "log", job).stdout


def test_what_a_login_processor_that_is_gone_leaves_to_the_others(mesh: ManyLogins) -> None:
    """All of it stands still for longer than any lease, and then goes on; what others launched is not touched."""
    lives = mesh.rows("SELECT name, boot_id FROM node ORDER BY id")
    gone = Gone(mesh)
    yod = mesh.start_on(mesh.own, "yod", "-sz", "1", *NAP)
    wait_until(lambda: mesh.own_launches() == 1, "a launch from another one runs")
    knows_of_the_other_cpa(mesh)
    with standing(gone.pids):
        wait_until(lambda: mesh.state_of("h0") == "down", "it is known to be gone", step_s=0.1)
        assert set(mesh.states().values()) == {"up"}
        launches(mesh, mesh.own)
        launches(mesh, mesh.asker)  # which has no CPAs, and asked those of the first one
        os.kill(rca_of(mesh, "h3"), signal.SIGKILL)
        launches(mesh, mesh.asker)
        frees_what_it_holds(gone)
        goes_on_with_its_job(gone)
    _, said = gone.yod.communicate()
    assert gone.yod.returncode and "Traceback" not in said, said
    writes_nothing_more(gone)
    end(mesh, yod)
    assert mesh.rows("SELECT name, boot_id FROM node ORDER BY id") == lives
    wait_until(lambda: mesh.state_of("h0") == "up", "it is there again", step_s=0.1)


def knows_of_the_other_cpa(mesh: ManyLogins) -> None:
    def known() -> str:
        places = ("run", "tmp")  # a login processor has its run directory below either
        files = [path for place in places for path in mesh.asker.glob(f"{place}/redmesh-0/*/cpas-afar")]
        return "".join(path.read_text() for path in files)

    wait_until(lambda: "/cpa/h4" in known(), "it knows of the other", step_s=0.1)


def test_one_without_cpas_asks_those_of_another_when_nobody_listens_at_the_first(mesh: ManyLogins) -> None:
    knows_of_the_other_cpa(mesh)
    keeper, cpa = mesh.pid_of("keeper"), mesh.pid_of("cpa-0")
    with standing([keeper]):
        os.kill(cpa, signal.SIGKILL)
        launches(mesh, mesh.asker)
    launches(mesh, mesh.asker)


def test_a_node_that_dies_with_the_rca_that_heard_it_is_noticed(mesh: ManyLogins) -> None:
    victim = mesh.hosts[0]
    with standing([rca_of(mesh, mesh.heard_by()["h1"])]):
        victim.kill()
        wait_until(lambda: mesh.state_of("h1") != "up", "nobody is given it", step_s=0.05)
        wait_until(lambda: mesh.state_of("h1") == "down", "it is down", step_s=0.05)
        assert mesh.state_of("h2") == "up"
        assert mesh.on(mesh.own, "yod", "-sz", "4", "hostname").stdout.split() == ["h2"] * 4
        assert mesh.on(mesh.own, "yod", "-sz", "5", "true").returncode == 125
    victim.start()
    mesh.up()
    wait_until(lambda: mesh.state_of("h1") == "up", "it is up", step_s=0.1)


def rca_log(mesh: ManyLogins) -> list[str]:
    return (mesh.state / "log" / "rca.jsonl").read_text().splitlines()


def test_an_up_brings_new_keys(mesh: ManyLogins) -> None:
    """After a rotation launches from there are let in again, and their RCAs hear nodes again."""
    told = mesh.run("mesh", "trust", "rotate", check=True).stdout
    assert "h3: mesh up brings" in told and "h4: mesh up brings" in told
    mesh.up()
    for host in (mesh.asker, mesh.own):
        done = mesh.on(host, "yod", "-sz", "4", "true")
        assert done.returncode == 0, done.stderr
    with standing([mesh.pid_of("rca")]):
        wait_until(lambda: "h0" not in mesh.heard_by().values(), "they beat to others", step_s=0.05)
        assert set(mesh.states().values()) <= {"up", "suspect"}


#: What an RCA's heartbeat asks: the database's clock.
CLOCK = re.compile(r"SELECT [^,]*UNIX_TIMESTAMP[^,]* FROM `mesh` AS `t1` WHERE \(`t1`\.`id` = 1\)( LIMIT \d+)?")
_LOG = "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Query' AND thread_id IN"
REST_S = 4.5  # what was asked every second or two comes in it


def asked_meanwhile(mesh: ManyLogins, work: Callable[[], object]) -> list[str]:
    """What the daemons ask of the database while ``work`` runs."""
    with open_store(mesh.url) as watcher:
        watcher.connect()

        def own() -> set[int]:
            sql = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            return {row[0] for row in watcher.read(sql)}

        watcher.execute("SET GLOBAL log_output = 'TABLE'")
        watcher.execute("TRUNCATE mysql.general_log")
        watcher.execute("SET GLOBAL general_log = 1")
        try:
            threads = own()
            work()
            threads |= own()
        finally:
            watcher.execute("SET GLOBAL general_log = 0")
        return [row[0] for row in watcher.read(f"{_LOG} ({','.join(map(str, sorted(threads)))})")]


def rest() -> None:
    end = time.monotonic() + REST_S
    wait_until(lambda: time.monotonic() > end, "the time is over")


def test_at_rest_nobody_asks_for_a_state_and_what_changes_anywhere_is_an_event(mesh: ManyLogins) -> None:
    """A request waits at the CPA of h4 meanwhile, for processors of a launch of ours."""
    ours = mesh.start("yod", "-sz", str(PROCESSORS), *HERE)
    runs(mesh, PROCESSORS)
    theirs = mesh.start_on(mesh.own, "yod", "-wait-for-nodes", "600", "-sz", "1", "true")
    wait_until(lambda: mesh.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "it waits")
    for _ in range(5):  # what has happened is looked after a second later; a beat that is late is an event too
        asked = asked_meanwhile(mesh, rest)
        states = [text for text in asked if not CLOCK.fullmatch(text)]
        if not states:
            break
    assert asked and not states, states

    def end_ours() -> None:
        ours.send_signal(signal.SIGTERM)
        _, said = theirs.communicate()
        assert theirs.returncode == 0, said

    beats = [text for text in asked_meanwhile(mesh, end_ours) if CLOCK.fullmatch(text)]
    assert len(beats) < 2 * len(asked), "it had its processors when ours ended, not by a look a minute later"
