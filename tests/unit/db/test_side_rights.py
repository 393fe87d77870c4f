"""What the account of a side's viewers can do on a MySQL server: read its views, and nothing else by any statement."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from db.allocation.free import Machine
from db.errors import DatabaseUnavailable, Invalid, SchemaError
from db.machine.nodes import NodeSpec, define_machine
from db.machine.sides import set_open
from db.schema import login_views
from db.schema.accounts import STATEMENT_S, Account
from db.schema.install import create_database, crowding, grants, migrate, run_grants
from db.store.store import Store, open_store
from db.store.url import in_database, mysql_options
from db.views.viewer import open_viewer
from tests.support.mariadb import Server
from tests.support.two_sides import CPA, LEFT, LOGIN, LOGINS, NODES, RIGHT, SECTION, granted, seen, switch, take
from tests.support.waiting import within


@pytest.fixture
def sides(sql_server: Server) -> Iterator[tuple[Store, str]]:
    """A machine in two pieces with a launch on each, and the URL of the left's viewers."""
    admin = sql_server.url("side_attacked")
    sql_server.admin("DROP DATABASE IF EXISTS side_attacked")
    create_database(admin)
    migrate(admin)
    url = granted(admin, LOGINS)[LEFT]
    with open_store(admin) as store:
        define_machine(store, "m", "b1", LOGIN, NODES, SECTION)
        switch(store, "middle")
        machine = Machine()
        for login in (LEFT, RIGHT):
            take(store, machine, login, 2)
        # so many nodes that the server looks at the launchers first
        more = [(100 + n, f"more{n}", "compute", "", "up", "", "", "", 0, "", "", 0.0, 2, 1) for n in range(2000)]
        columns = ("id", "name", "role", "address", "state", "reason", "by", "boot_id", "incarnation", "agent", "rca")
        store.run(lambda t: t.insert_rows("node", (*columns, "state_at", "side", "side_from"), more))
        store.execute("ANALYZE TABLE node, launcher").fetchall()
        yield store, url


def connected(url: str) -> Any:
    options = mysql_options(url)
    return pymysql.connect(autocommit=True, connect_timeout=2, **options)


def test_the_account_has_its_views_and_nothing_else(sides: tuple[Store, str], sql_server: Server) -> None:
    with connected(sides[1]) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert {row[0] for row in cursor.fetchall()} == {
            "mesh", "node", "node_resource", "processor", "launcher", "partition", "waiting", "event",
        }  # fmt: skip
        cursor.execute("SHOW DATABASES")
        assert {row[0] for row in cursor.fetchall()} == {"information_schema", f"side_attacked_{LEFT}"}
        cursor.execute("SELECT DISTINCT table_schema FROM information_schema.columns WHERE table_name = 'launcher'")
        assert cursor.fetchall() == ((f"side_attacked_{LEFT}",),)
        cursor.execute("SELECT table_name FROM information_schema.views WHERE view_definition <> ''")
        assert cursor.fetchall() == ()
        for statement in (
            "SELECT * FROM side_attacked.launcher",
            "SELECT id FROM side_attacked.node",
            f"SELECT * FROM side_attacked_{RIGHT}.launcher",
            f"SELECT * FROM side_attacked_{LOGIN}.node",
            "SHOW CREATE VIEW launcher",
            "SHOW CREATE TABLE side_attacked.launcher",
            "SHOW COLUMNS FROM side_attacked.launcher",
            "EXPLAIN SELECT * FROM launcher",
            "ANALYZE FORMAT=JSON SELECT * FROM launcher",
            "LOCK TABLES launcher READ",
            "UPDATE launcher SET user = ''",
            "DELETE FROM event",
            "INSERT INTO event (id) VALUES (1)",
            "DROP VIEW launcher",
            "CREATE TABLE x (a INT)",
            "CREATE VIEW x AS SELECT 1",
            "ALTER SQL SECURITY INVOKER VIEW launcher AS SELECT 1",
            "SELECT cookie FROM launcher",
            "SELECT request_key FROM launcher",
            "SELECT request FROM waiting",
            "SELECT request_key FROM `partition`",
            "SET GLOBAL max_connections = 1",
            "SELECT * FROM mysql.user",
            "SELECT LOAD_FILE('/etc/passwd') INTO OUTFILE '/dev/shm/x'",
        ):
            with pytest.raises(pymysql.err.Error):
                cursor.execute(statement)


@pytest.mark.parametrize(
    "leak",
    (
        "(@told := CONCAT(IFNULL(@told, ''), IFNULL(command, '-'), IFNULL(user, '-'))) IS NULL",
        "EXP(710 * (command = 'secret of p10')) < 0",
        "command = 'secret of p10' AND SLEEP(5)",
        "user LIKE '%p10' AND GET_LOCK('told', 0)",
    ),
)
def test_a_condition_with_effects_is_not_tried_on_what_others_have(sides: tuple[Store, str], leak: str) -> None:
    """A view's filter is no wall where a server tries what it was asked first; the mask is
    (db/schema/login_views.py)."""
    for settings in ("condition_pushdown_for_derived=on", "derived_merge=on,condition_pushdown_for_derived=off"):
        with connected(sides[1]) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION optimizer_switch = '{settings}'")
            began = time.monotonic()
            cursor.execute(f"SELECT id FROM launcher WHERE {leak}")
            assert cursor.fetchall() == () and within(5, began)
            cursor.execute("SELECT @told, IS_USED_LOCK('told')")
            told, lock = cursor.fetchone()
            assert RIGHT not in str(told) and lock is None


@pytest.mark.parametrize("table", ("mesh", "node", "processor", "launcher", "`partition`"))
@pytest.mark.parametrize("how", ("FOR UPDATE", "LOCK IN SHARE MODE"))
def test_who_may_only_look_locks_nobody_out(sides: tuple[Store, str], table: str, how: str) -> None:
    store, url = sides
    connection = connected(url)
    with connection, connection.cursor() as cursor:
        connection.begin()
        try:
            cursor.execute(f"SELECT * FROM {table} {how}")
        except pymysql.err.Error:
            return  # a server that needs a right for that
        store.patience_s = 0.1
        store.run(lambda t: [t.change(f"UPDATE {one} SET changed = changed + 1") for one in ("node", "processor")])
        store.run(
            lambda t: [t.change(f"UPDATE {one} SET changed = changed + 1") for one in ("launcher", "`partition`")]
        )


@pytest.mark.parametrize(
    "name", ("a`b", "a'b", 'a"b', "a\\", "a%_b", "a.b", "ñandú", "名", "x" * 200, "A", "a b", "-- x", "a;b", "../../x")
)
def test_whatever_a_login_processor_is_called_its_view_is_its_own(sql_server: Server, name: str) -> None:
    admin = sql_server.url("side_named")
    sql_server.admin("DROP DATABASE IF EXISTS side_named")
    create_database(admin)
    migrate(admin)
    label = login_views.label(name)
    assert label != login_views.label("a") and set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    urls = granted(admin, (name, "a"))
    with open_store(admin) as store:
        define_machine(store, "m", "b1", name, [*NODES[:10], NodeSpec(77, "a", [10, 11], "service")], SECTION)
        set_open(store, ["right"], "root")
    with open_viewer(urls[name]) as one, open_viewer(urls["a"]) as other:
        assert 0 in seen(one)[0] and seen(other)[0] == [77]
    for url in urls.values():
        sql_server.admin(f"DROP DATABASE `{mysql_options(url)['database']}`")


def test_names_too_long_or_none_at_all_are_refused() -> None:
    with pytest.raises(Invalid, match="longer than"):
        login_views.schema_name("x" * 60, "login1")
    for name in ("", "a\nb"):
        with pytest.raises(Invalid):
            login_views.label(name)
    assert len(login_views.viewer_of("login-of-a-long-name-it-is", Account("redmesh_view_of_a_site")).user) <= 32
    with pytest.raises(Invalid):
        grants("what?", CPA, CPA)


def test_a_migration_makes_the_views_anew(sides: tuple[Store, str], sql_server: Server) -> None:
    store, url = sides
    admin = sql_server.url("side_attacked")
    schema = f"`side_attacked_{LEFT}`"
    store.execute(f"CREATE OR REPLACE VIEW {schema}.`node` AS SELECT 1 AS id")  # as an older program's
    store.execute(
        f"CREATE OR REPLACE DEFINER = side_cpa@localhost VIEW {schema}.`mesh` AS"
        " SELECT id, boot_id, name, topology, 4 AS schema_version, counter, trimmed_to, booted_at"
        " FROM side_attacked.mesh"
    )
    with open_viewer(url) as viewer, pytest.raises(SchemaError, match="older than this program's"):
        viewer.read()
    assert sorted(migrate(admin)) == sorted(f"views of {who}" for who in (*LOGINS, "the whole machine"))
    with open_viewer(url) as viewer:
        assert seen(viewer)[0] == [0, 1, 2, 3, 4, 9, 10]
    assert migrate(f"{admin}&galera=single-writer")  # again, by another URL


@pytest.fixture
def whole(sql_server: Server) -> Iterator[tuple[Store, str]]:
    """A machine, and the URL of a viewer of all of it whose account may have three connections at once."""
    admin = sql_server.url("whole_attacked")
    sql_server.admin("DROP DATABASE IF EXISTS whole_attacked", "DROP DATABASE IF EXISTS whole_attacked__view")
    create_database(admin)
    migrate(admin)
    # as an older program granted it
    viewer = Account("whole_v", "localhost", "v", connections=3)
    sql_server.admin(
        "CREATE USER IF NOT EXISTS whole_v@localhost IDENTIFIED BY 'v'",
        "GRANT SELECT ON whole_attacked.mesh TO whole_v@localhost",
        "GRANT SELECT (id, command) ON whole_attacked.launcher TO whole_v@localhost",
    )
    old = sql_server.url("whole_attacked", "whole_v", "v")
    with connected(old) as before:
        before.cursor().execute("SELECT counter FROM mesh LOCK IN SHARE MODE")
    for _ in range(2):  # the same again does no harm
        run_grants(admin, grants("whole_attacked", CPA, viewer))
    with open_store(admin) as store:
        define_machine(store, "m", "b1", LOGIN, NODES, SECTION)
        switch(store)
        take(store, Machine(), LEFT, 2)
        yield store, old
    sql_server.admin(
        "DROP USER whole_v@localhost", "DROP DATABASE whole_attacked", "DROP DATABASE whole_attacked__view"
    )


def test_a_viewer_of_the_whole_machine_stops_nobody(whole: tuple[Store, str]) -> None:
    store, old = whole
    with connected(in_database(old, "whole_attacked__view")) as viewer, viewer.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        for table in ("mesh", "node", "processor", "launcher", "`partition`", "waiting", "event", "node_resource"):
            for lock in ("LOCK IN SHARE MODE", "FOR UPDATE"):
                with contextlib.suppress(pymysql.err.OperationalError):  # a server that needs a right for that
                    cursor.execute(
                        f"SELECT changed FROM {table} {lock}" if table != "mesh" else f"SELECT * FROM mesh {lock}"
                    )
        store.patience_s = 0.1
        for table in ("node", "processor", "launcher", "`partition`"):
            store.run(lambda t, table=table: t.change(f"UPDATE {table} SET changed = changed + 1"))  # type: ignore[misc]


def test_the_account_of_an_older_program_loses_the_tables_and_still_sees(whole: tuple[Store, str]) -> None:
    _, old = whole
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        connected(old)
    with connected(in_database(old, "whole_attacked__view")) as viewer, viewer.cursor() as cursor:
        for what in (
            "id FROM whole_attacked.launcher", "counter FROM whole_attacked.mesh", "cookie FROM launcher",
            "request_key FROM launcher", "request FROM waiting", "admin_cookie FROM `partition`",
        ):  # fmt: skip
            with pytest.raises(pymysql.err.OperationalError):
                cursor.execute(f"SELECT {what}")
        cursor.execute("SELECT command, changed FROM launcher")
        assert [row[0] for row in cursor.fetchall()] == [f"secret of {LEFT}"]
    with open_viewer(old) as viewer:
        assert seen(viewer) == ([0, *(node.id for node in NODES)], [1], [])


def test_an_account_of_viewers_has_limits(whole: tuple[Store, str], sql_server: Server) -> None:
    _, old = whole
    url = in_database(old, "whole_attacked__view")
    three = [connected(url) for _ in range(3)]
    with pytest.raises(pymysql.err.OperationalError, match="max_user_connections"):
        connected(url)
    with open_viewer(url) as viewer, pytest.raises(DatabaseUnavailable, match="has reached its limit") as limit:
        viewer.counter()
    assert "--view-user" in limit.value.hint
    with three[0].cursor() as cursor:
        cursor.execute("SELECT @@max_statement_time")
        assert float(cursor.fetchone()[0]) == STATEMENT_S
    for connection in three:
        connection.close()
    assert crowding(sql_server.url("whole_attacked")) == ""
    sql_server.admin("ALTER USER whole_v@localhost WITH MAX_USER_CONNECTIONS 140")
    assert "connections together" in crowding(sql_server.url("whole_attacked"))


def test_a_viewer_that_looks_while_its_account_is_changed_goes_on(sql_server: Server) -> None:
    admin = sql_server.url("whole_changed")
    sql_server.admin("DROP DATABASE IF EXISTS whole_changed", "DROP DATABASE IF EXISTS whole_changed__view")
    create_database(admin)
    migrate(admin)
    with open_store(admin) as store:
        define_machine(store, "m", "b1", LOGIN, NODES, SECTION)
    sql_server.admin(
        "CREATE USER changed_v@localhost IDENTIFIED BY 'v'", "GRANT SELECT ON whole_changed.* TO changed_v@localhost"
    )
    with open_viewer(sql_server.url("whole_changed", "changed_v", "v")) as viewer:
        counter = viewer.counter()
        sql_server.admin("REVOKE ALL ON whole_changed.* FROM changed_v@localhost")
        run_grants(admin, grants("whole_changed", CPA, Account("changed_v", "localhost")))
        assert viewer.counter() == counter
    sql_server.admin(
        "DROP USER changed_v@localhost", "DROP DATABASE whole_changed", "DROP DATABASE whole_changed__view"
    )


def test_making_it_all_again_changes_nothing(sides: tuple[Store, str], sql_server: Server) -> None:
    _, url = sides
    admin = sql_server.url("side_attacked")
    assert granted(admin, LOGINS)[LEFT] == url
    with open_viewer(url) as viewer:
        assert seen(viewer)[1] == [1]


def test_a_viewer_says_when_its_views_do_not_fit(sides: tuple[Store, str]) -> None:
    store, url = sides
    store.execute("REVOKE ALL ON side_attacked.* FROM side_cpa@localhost")
    with open_viewer(url) as viewer, pytest.raises(SchemaError, match="do not fit"):
        viewer.read()
