"""System mode with a second login processor that has no CPA: its users launch as they are, and reach no other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support import unread, vanishing
from tests.support.hosts import MakeHosts, NamespaceHost
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import INSTALLED, install
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.waiting import PATIENCE_S, wait_until

NAP = ("sleep", "987654")
CONFIGURATION = """
system = "{system}"
database = "{database}"
"""


class TwoLogins(SystemMesh):
    """A node on h1; h2 is granted to be a login processor, by hand, and root joins there."""

    def __init__(self, make: MakeHosts, server: Server) -> None:
        hosts = make(2, users=tuple(USERS))
        for host in hosts:
            with open(host.directory / "group", "a") as group:
                group.write("readers:x:30002:ada\n")
        super().__init__(hosts, server, cpa_port=7200)
        text = self.site.read_text().replace('"h[1-2]"', '"h1"')
        self.site.write_text(text)
        self.other: NamespaceHost = self.hosts[1]
        install(self.other)
        # every user's, and root's, as /etc/redmesh/mesh.toml would be
        viewer = next(line for line in text.splitlines() if line.startswith("database")).split('"')[1]
        os.link(server.socket, self.other.directory / "sql")
        database = viewer.replace(server.socket, "/run/host/sql")
        (self.other.directory / "mesh.toml").write_text(CONFIGURATION.format(system=self.state, database=database))
        self.other.run("mkdir", "-p", str(self.home), check=True)

    def there(self, user: str, *words: str, ids: Sequence[str] = ()) -> list[str]:
        """The command line of ``words`` as somebody on h2, with the groups that ``ids`` gives setpriv."""
        home = "/root" if user == "root" else f"/home/{user}"
        variables = [f"HOME={home}", f"USER={user}", f"PATH={INSTALLED}:/usr/sbin:/usr/bin:/sbin:/bin"]
        variables.append("REDMESH_CONFIG=/run/host/mesh.toml")
        uid = str(USERS.get(user, 0))
        be = ["setpriv", "--reuid", uid, *(ids or ("--regid", uid, "--init-groups")), "--"] if user != "root" else []
        return [*self.other.enter, "env", "-i", "-C", "/", *variables, *be, *words]

    def on_other(self, user: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        return subprocess.run(self.there(user, *words), capture_output=True, text=True, timeout=PATIENCE_S, **options)


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[TwoLogins]:
    os.chmod(sql_server.directory, 0o755)
    made = TwoLogins(netns_hosts, sql_server)
    with while_up(made):
        given = made.home / "login2.json"
        made.run("mesh", "login", "grant", "login2", str(given), check=True)
        joined = made.on_other("root", "mesh", "login", "join", "-", input=given.read_text())
        assert joined.returncode == 0, joined.stderr
        yield made


@pytest.fixture(autouse=True)
def settled(mesh: TwoLogins) -> Iterator[None]:
    """Afterwards every processor is free."""
    yield
    wait_until(lambda: processors(mesh, "free") == 2, "every processor is free")


@pytest.mark.parametrize("user", USERS)
def test_a_job_from_there_is_its_users(mesh: TwoLogins, user: str) -> None:
    done = mesh.on_other(user, "yod", "-sz", "2", "sh", "-c", "id -un; id -u; exit 4")
    assert (sorted(done.stdout.split()), done.returncode) == ([str(USERS[user])] * 2 + [user] * 2, 4), done.stderr


def test_a_job_from_there_has_its_callers_groups(mesh: TwoLogins) -> None:
    """Its RCA vouches for them, also for more than the standard library's getsockopt has room for."""
    for ids, expected in (
        (("--regid", "30002", "--groups", "21001,30002"), "30002 21001\n"),
        (("--regid", "21001", "--clear-groups"), "21001\n"),
        (("--regid", "0", "--groups", ",".join(map(str, (*range(60000, 60400), 21001, 30002)))), "21001 30002\n"),
    ):
        words = mesh.there("ada", "yod", "-sz", "1", "id", "-G", ids=ids)
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_both_at_once_and_neither_touches_the_other(mesh: TwoLogins) -> None:
    both = ("ada", "bob")
    processes = [
        subprocess.Popen(
            mesh.there(user, "yod", "-sz", "1", *NAP), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for user in both
    ]
    wait_until(lambda: processors(mesh, "busy") == 2, "both run")
    launchers = {one["user"]: one["id"] for one in look(mesh)["launchers"]}
    assert set(launchers) == set(both)
    for user in both:  # each sees the arguments of one launch, on both login processors
        shown = mesh.on_other(user, "showmesh").stdout, mesh.as_user(user, "showmesh").stdout
        for rows in shown:
            (own,) = (line for line in rows.splitlines() if NAP[1] in line)
            assert user in own.split() and rows.count(NAP[0]) == 2
    denied = mesh.on_other("bob", "pingd", "-NoInquire", "-kill", "-job", str(launchers["ada"]))
    assert denied.returncode and "ada" in denied.stderr, denied
    assert processors(mesh, "busy") == 2
    ended = mesh.on_other("ada", "pingd", "-NoInquire", "-kill", "-job", str(launchers["ada"]))
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: processors(mesh, "busy") == 1, "bob's runs on")
    assert mesh.as_user("bob", "pingd", "-NoInquire", "-kill", "-job", str(launchers["bob"])).returncode == 0
    for process in processes:
        process.communicate(timeout=PATIENCE_S)


def test_nobody_but_root_joins_or_sees_the_keys(mesh: TwoLogins) -> None:
    for words in (("ls", str(mesh.state)), ("cat", f"{mesh.state}/trust/login.pem"), ("mesh", "login", "join", "-")):
        done = mesh.on_other("ada", *words, input=(mesh.home / "login2.json").read_text())
        assert done.returncode, done
    assert mesh.on_other("ada", "yod", "-sz", "1", "true").returncode == 0


@pytest.mark.parametrize("variant", ["other-login", "never", "unregisters", "other-process"])
def test_the_processors_of_a_client_there_that_vanished_are_free_again(mesh: TwoLogins, variant: str) -> None:
    """The RCA there watches what the CPA here cannot."""
    shutil.copy(vanishing.__file__, mesh.other.directory)
    script = f"exec {INSTALLED}/python /run/host/vanishing.py $(dirname /run/redmesh/*/cpa-0.sock) login2 {variant}"
    done = mesh.on_other("ada", "sh", "-c", script, check=True)
    launcher = int(done.stdout)
    assert "error" not in done.stderr, done.stderr
    wait_until(lambda: launcher not in {one["id"] for one in look(mesh)["launchers"]}, "it has ended")


@pytest.mark.parametrize("variant", ["slow", "exits", "hangs-up"])
def test_the_relay_serves_slow_clients_and_forgets_those_that_have_left(mesh: TwoLogins, variant: str) -> None:
    """One that reads late gets all answers in order; one that left them unread costs no descriptor."""
    shutil.copy(unread.__file__, mesh.other.directory)
    assert mesh.on_other("ada", "yod", "-sz", "1", "true").returncode == 0, "its RCA has begun"
    (rca,) = (pid for pid, command in mesh.other.processes().items() if " rca --config " in command)
    script = f"exec {INSTALLED}/python /run/host/unread.py /run/redmesh/*/cpa-0.sock {variant}"
    words = mesh.there("ada", "sh", "-c", script)
    client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin is not None and client.stdout is not None
    try:
        assert client.stdout.readline() == "stuck\n"
        during = len(os.listdir(f"/proc/{rca}/fd"))
        client.stdin.write("go on\n")
        client.stdin.flush()
        if variant == "slow":
            assert client.stdout.readline() == "True\n"
        wait_until(lambda: len(os.listdir(f"/proc/{rca}/fd")) <= during - 2, "both of its connections are closed")
    finally:
        client.communicate(timeout=PATIENCE_S)
