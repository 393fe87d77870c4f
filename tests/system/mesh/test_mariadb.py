"""A personal mesh over a real MariaDB, with the two accounts that ``mesh db init`` makes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pymysql
import pytest

from db.allocation import finish, waiting_requests
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.types import Demand
from db.store.store import open_store
from db.views.viewer import open_viewer
from tests.support.look import processors
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh, PrivateMesh, while_up
from tests.support.shared_mesh import borrowed, is_in_use
from tests.support.waiting import freeze, wait_until
from tests.support.yods import ranks_left


@pytest.fixture(scope="module")
def one_site(sql_server: Server) -> Iterator[PrivateMesh]:
    """A mesh of four processors whose database has been made by ``mesh db init --run``."""
    url = sql_server.new_database()
    name = url.split("/")[3].split("?")[0]
    with while_up(PrivateMesh(4, 2, 2), up=False) as private:
        accounts = ("--cpa-account", f"{name[-12:]}_c@localhost", "--view-account", f"{name[-12:]}_v@localhost")
        private.run("mesh", "db", "init", "--run", "--url", url, *accounts, check=True)
        private.env["REDMESH_DATABASE"] = (private.state / "view.url").read_text().strip()
        private.env["REDMESH_CPA_DATABASE_FILE"] = str(private.state / "cpa.url")
        private.up()
        yield private
    sql_server.drop_database(url)


@pytest.fixture
def site(one_site: PrivateMesh, sql_server: Server) -> Iterator[PrivateMesh]:
    """The module's mesh; its database may be killed."""
    with borrowed(one_site):
        yield one_site
        sql_server.revive()


def test_launches_and_views(site: PrivateMesh) -> None:
    assert site.json("mesh", "status")["healthy"]
    assert site.run("yod", "-sz", "4", "hostname", check=True).stdout.splitlines() == [os.uname().nodename] * 4
    [ended] = [one for one in site.json("mesh", "history") if one["command"] == "hostname"]
    assert (ended["exit_status"], ended["size"]) == (0, 4)
    assert site.json("showmesh")["states"]["free"] == 4
    assert site.run("pingd", check=True).stdout.startswith("    0 ( n0 )\n")


def test_passwords_stand_in_private_files_alone(site: PrivateMesh) -> None:
    for role in ("cpa", "view"):
        assert (site.state / f"{role}.url").stat().st_mode & 0o777 == 0o600
        password = (site.state / f"{role}.url").read_text().split(":")[2].split("@")[0]
        assert password not in (site.state / "keeper.json").read_text() + site.logs(10_000)
        assert password not in site.run("mesh", "status", "--json").stdout
        assert not any(password in command for command in site.processes().values())


def test_the_viewers_account_cannot_read_cookies(site: PrivateMesh, sql_server: Server) -> None:
    account, _, place = site.env["REDMESH_DATABASE"].partition("://")[2].partition("@")
    user, _, password = account.partition(":")
    name = place.split("/")[1].split("?")[0]
    with pymysql.connect(unix_socket=sql_server.socket, user=user, password=password, database=name) as connection:
        cursor = connection.cursor()
        cursor.execute("CALL launchers_ended(10)")
        tables = name.removesuffix("__view")
        for secret in ("cookie FROM launcher", "allocation_cookie FROM `partition`", f"* FROM {tables}.launcher"):
            with pytest.raises(pymysql.err.MySQLError, match=r"denied|doesn't exist"):
                cursor.execute(f"SELECT {secret}")
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute("UPDATE node SET state = 'up'")


def test_an_account_of_an_older_program_is_upgraded_and_a_user_has_one_of_his_own(
    site: PrivateMesh, sql_server: Server
) -> None:
    new = site.env["REDMESH_DATABASE"]
    name = new.split("/")[3].split("?")[0]
    account, url = f"{name[-18:-6]}_v@localhost", sql_server.url(name.removesuffix("__view"))
    assert name.endswith("__view")
    # what the older program left: rights on the tables, and a URL of them in every configuration
    sql_server.admin(f"GRANT SELECT ON `{name.removesuffix('__view')}`.mesh TO {account}")
    old = new.replace("__view", "")
    (site.state / "view.url").write_text(f"{old}\n")
    accounts = ("--cpa-account", account.replace("_v@", "_c@"), "--view-account", account)
    said = site.run("mesh", "db", "init", "--run", "--url", url, *accounts, "--view-user", "ada", check=True)
    assert f"for ada: database = the line in {site.state}/user-ada.url" in said.stdout
    assert (site.state / "view.url").read_text().strip() == new, "the password is the one that it was"
    ada = (site.state / "user-ada.url").read_text().strip()
    assert f"{account.partition('@')[0]}__ada:" in ada
    for database in (old, new, ada):
        shown = site.run("showmesh", "--json", env={"REDMESH_DATABASE": database}, check=True).stdout
        assert json.loads(shown)["states"]["free"] == 4
    assert site.run("mesh", "db", "init", "--url", url, "--view-connections", "0").returncode == 2
    crowded = site.run("mesh", "db", "init", "--run", "--url", url, *accounts, "--view-connections", "500", check=True)
    assert "raise max_connections" in crowded.stderr


def test_without_run_the_grants_are_printed_and_nothing_is_granted(mesh: MakeMesh, sql_server: Server) -> None:
    url = sql_server.new_database()
    private = mesh(2, 1, up=False)
    said = private.run("mesh", "db", "init", "--url", url, "--view-login", "it's\\", check=True).stdout
    assert "GRANT SELECT, INSERT, UPDATE, DELETE" in said and "CREATE USER 'redmesh_cpa'@'%'" in said
    assert said.count("CREATE OR REPLACE") == 8 and said.count("PROCEDURE `") == 2 * 11
    assert "CREATE USER 'redmesh_view_it-s-" in said
    assert not (private.state / "cpa.url").exists()
    assert "up to date" in private.run("mesh", "db", "migrate", "--url", url, check=True).stdout
    sql_server.drop_database(url)


def test_a_second_mesh_takes_nobodys_database(mesh: MakeMesh, sql_server: Server) -> None:
    """Two state directories with one URL: the second would give away processors on which the first's launches run."""
    url = sql_server.new_database()
    first, second = mesh(2, 1, database=url), mesh(2, 1, up=False, database=url)
    yod = first.start("yod", "-sz", "2", "sleep", "600")
    wait_until(lambda: is_in_use(first, 2), "it runs")
    refused = second.run("mesh", "up")
    assert refused.returncode and "is that of mesh" in refused.stderr and "1 launcher run" in refused.stderr
    assert not second.processes() and second.run("yod", "-sz", "1", "true").returncode == 125
    assert is_in_use(first, 2) and yod.poll() is None
    name = refused.stderr.partition("that of mesh ")[2].split()[0]
    assert "is up here" in first.run("mesh", "db", "release", name).stderr
    assert "is not that of mesh" in second.run("mesh", "db", "release", "0000").stderr
    living = second.run("mesh", "db", "release", name)
    assert living.returncode == 125 and "connection" in living.stderr and "--force" in living.stderr, living
    assert is_in_use(first, 2), "a mesh that uses its database is not lost"
    first.run("mesh", "down", "--force", check=True)
    yod.wait()
    second.up()  # the first one was taken down
    assert second.json("showmesh")["states"]["free"] == 2
    again = first.run("mesh", "up").stderr
    own = again.partition("mesh db release ")[2].partition(")")[0]
    assert "is up here" in second.run("mesh", "db", "release", own).stderr
    assert processors(second, "free") == 2
    yod = second.start("yod", "-sz", "2", "sleep", "600", stderr=subprocess.PIPE)
    wait_until(lambda: is_in_use(second, 2), "it runs")
    for pid in [*second.processes(), yod.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gone = first.run("mesh", "db", "release", own, check=True)
    assert "1 launcher ended" in gone.stdout, "silence for some seconds is evidence enough"


def test_a_database_that_does_not_answer_is_named(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False, database="mysql://nobody:secret@127.0.0.1:9/redmesh")
    for command in (["mesh", "up"], ["showmesh"], ["mesh", "history"]):
        got = private.run(*command)
        assert got.returncode == 125 and got.stderr.count("\n") == 1, got.stderr
        assert "does not answer" in got.stderr and "secret" not in got.stderr
    assert not private.processes()


def test_viewers_work_again_when_the_database_is_back(site: PrivateMesh, sql_server: Server) -> None:
    sql_server.kill()
    assert site.run("showmesh").returncode == 125
    status = json.loads(site.run("mesh", "status", "--json").stdout)
    assert status["up"] and not status["healthy"] and "does not answer" in status["database_error"]
    sql_server.start()
    assert site.json("showmesh")["states"]["free"] == 4
    wait_until(lambda: site.run("yod", "-sz", "4", "true").returncode == 0, "and launches start again")


def test_launches_that_wait_keep_their_places_through_a_restart_of_the_database(
    site: PrivateMesh, sql_server: Server
) -> None:
    holder = site.start("yod", "-sz", "4", "sleep", "1000")
    wait_until(lambda: is_in_use(site, 4), "it runs")
    order = site.work / "order"

    def waiter(name: str) -> "subprocess.Popen[str]":
        command = ("sh", "-c", f"test $YOD_RANK = 0 && echo {name} >>{order} || true")
        return site.start("yod", "-sz", "4", "--wait-for-nodes", "100", *command, stderr=subprocess.PIPE, text=True)

    with open_viewer(site.database) as viewer:
        waiters = []
        for count, name in enumerate(("a", "b"), 1):
            waiters.append(waiter(name))
            wait_until(lambda count=count: len(viewer.waiting()) == count, "it waits")  # type: ignore[misc]
    before = site.logs(10_000).count("database_away")
    sql_server.stop()
    wait_until(lambda: site.logs(10_000).count("database_away") > before, "the CPAs know", step_s=0.2)
    waiters.append(waiter("late"))  # and one that comes while nobody can be asked
    time.sleep(2.0)  # what anybody had who does not wait
    assert [one.poll() for one in waiters] == [None] * 3
    sql_server.start()
    with open_viewer(site.database) as viewer:
        wait_until(lambda: len(viewer.waiting()) == 3, "they all wait again")
    holder.terminate()
    for one in waiters:
        told = one.communicate()[1]
        assert one.returncode == 0 and told.count("does not answer") == 1, told
        assert "this launch keeps its place and waits until it does" in told
    assert order.read_text().split() == ["a", "b", "late"]


def test_a_launch_that_waits_outlives_its_reservation(mesh: MakeMesh, sql_server: Server) -> None:
    """Its CPA was killed with the answer to the COMMIT, and the database was back after the pending time."""
    url = sql_server.new_database()
    private = mesh(4, 2, database=url)
    holder = private.start("yod", "-sz", "4", "sleep", "1000")
    wait_until(lambda: is_in_use(private, 4), "it runs")
    waiter = private.start("yod", "-sz", "4", "--wait-for-nodes", "100", "echo", "ran", stdout=subprocess.PIPE)
    with open_store(url) as store:
        wait_until(lambda: waiting_requests.line(store), "it waits")
        one = waiting_requests.of_key(store.read, waiting_requests.line(store)[0][0])
        assert one is not None
        keeper, cpa = private.pid_of("keeper"), private.pid_of("cpa-0")
        freeze(keeper)  # no other CPA yet
        try:
            os.kill(cpa, signal.SIGKILL)
            holder.kill()
            wait_until(lambda: not ranks_left(private), "nothing of it runs")
            (login,) = store.read("SELECT name FROM node WHERE role = 'login'")[0]
            (held,) = store.read("SELECT id FROM launcher WHERE ended_at IS NULL")[0]
            finish.lose(store, held, "a test")
            me = Demand(one.request_key, one.uid, one.user, login, one.pid, one.pid_started, "x", 4)
            granted = allocate(store, Machine(), me, lambda free, count: free[:count])
            finish.lose(store, granted.launcher, finish.NEVER_STARTED)
        finally:
            os.kill(keeper, signal.SIGCONT)
    assert waiter.communicate()[0] == b"ran\n" * 4 and waiter.returncode == 0
    private.run("mesh", "down", "--force", check=True)
    sql_server.drop_database(url)


def test_a_mesh_goes_down_without_its_database_and_says_that_it_was_not_told(
    one_site: PrivateMesh, sql_server: Server
) -> None:
    sql_server.kill()
    try:
        down = one_site.run("mesh", "down")
        assert down.returncode == 0 and down.stdout == "mesh down\n"
        assert "the database was not told" in down.stderr and down.stderr.count("\n") == 1
        assert not one_site.processes()
    finally:
        sql_server.revive()
        one_site.up()
    assert one_site.run("yod", "-sz", "4", "true").returncode == 0
    try:
        one_site.run("mesh", "down", check=True)
        shown = one_site.run("showmesh", "--json")
        assert shown.returncode == 1 and json.loads(shown.stdout)["states"]["down"] == 4
    finally:
        one_site.up()


def test_a_mesh_up_without_its_database_ends_no_launch(site: PrivateMesh, sql_server: Server) -> None:
    yod = site.start("yod", "-sz", "2", "sleep", "600")
    wait_until(lambda: is_in_use(site, 2), "the launch runs")
    site.kill("keeper")
    sql_server.kill()
    up = site.run("mesh", "up")
    assert up.returncode == 1 and "under a new keeper" in up.stdout and "cannot be told" in up.stderr
    assert json.loads(site.run("mesh", "up", "--json").stdout)["nodes_up"] is None
    sql_server.start()
    wait_until(lambda: site.run("mesh", "up").returncode == 0, "all is well again")
    assert yod.poll() is None and is_in_use(site, 2)


def test_db_init_changes_nothing_before_it_has_checked(mesh: MakeMesh, sql_server: Server) -> None:
    private = mesh(2, 1, up=False)
    url = sql_server.new_database()
    name = url.split("/")[3].split("?")[0]
    sql_server.admin(f"DROP DATABASE {name}", f"CREATE USER '{name[-12:]}_s'@'localhost' IDENTIFIED BY 'x'")
    sql_server.admin(f"GRANT ALL ON {name}.* TO '{name[-12:]}_s'@'localhost'")
    small = f"mysql://{name[-12:]}_s:x@localhost/{name}?unix_socket={sql_server.socket}"
    for words in (("--url", url, "--cpa-account", "@x"), ("--url", small)):
        refused = private.run("mesh", "db", "init", "--run", *words)
        assert refused.returncode in (2, 125) and "Traceback" not in refused.stderr
        assert not sql_server.admin(f"SHOW DATABASES LIKE '{name}'"), refused.stderr
    assert "may not make accounts" in refused.stderr and "nothing was changed" in refused.stderr
    (private.home / "state").chmod(0o500)
    (private.home / "state" / "redmesh").mkdir(exist_ok=True)
    (private.home / "state" / "redmesh").chmod(0o755)
    refused = private.run("mesh", "db", "init", "--run", "--url", url)
    assert refused.returncode == 125 and not sql_server.admin(f"SHOW DATABASES LIKE '{name}'"), refused.stderr
    (private.home / "state").chmod(0o700)
    shutil.rmtree(private.home / "state" / "redmesh")
    sql_server.admin(f"DROP USER '{name[-12:]}_s'@'localhost'")
