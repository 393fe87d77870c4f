"""What the account of a side's viewers can do on a MySQL server: call its procedures, and nothing else."""

import contextlib
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
from db.schema.grants import crowding, grants, run_grants
from db.schema.migrate import create_database, migrate
from db.store.store import Store, open_store
from db.store.url import in_database, mysql_options
from db.views.viewer import open_viewer
from tests.support.mariadb import Server
from tests.support.stores import empty, insert
from tests.support.two_sides import CPA, LEFT, LOGIN, LOGINS, NODES, RIGHT, SECTION, granted, seen, switch, take
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def sides(sql_server: Server) -> Iterator[tuple[Store, str]]:
    """A machine in two pieces with a launch on each, and the URL of the left's viewers. A test leaves it as it was."""
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
        more = [(100 + n, f"more{n}", "compute", "", "up", "", "", "", 0, "", "", 0.0, 2, 1, "") for n in range(2000)]
        columns = ("id", "name", "role", "address", "state", "reason", "by", "boot_id", "incarnation", "agent", "rca")
        store.run(lambda t: insert(t, "node", (*columns, "state_at", "side", "side_from", "drain_reason"), more))
        store.execute("ANALYZE TABLE node, launcher").fetchall()
        yield store, url


def connected(url: str) -> Any:
    options = mysql_options(url)
    return pymysql.connect(autocommit=True, connect_timeout=PATIENCE_S, **options)


def test_the_account_has_its_procedures_and_nothing_else(sides: tuple[Store, str]) -> None:
    with connected(sides[1]) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        assert {row[0] for row in cursor.fetchall()} == {"information_schema", f"side_attacked_{LEFT}"}
        for catalogue, columns in (("views", "view_definition"), ("routines", "routine_definition")):
            cursor.execute("SELECT table_name FROM information_schema.columns WHERE table_schema LIKE 'side%'")
            assert cursor.fetchall() == ()
            cursor.execute(f"SELECT {columns} FROM information_schema.{catalogue} WHERE {columns} <> ''")
            assert cursor.fetchall() == ()
        cursor.execute("SHOW CREATE PROCEDURE reading")
        assert cursor.fetchone()[2] is None
        for statement in (
            "SELECT * FROM side_attacked.launcher",
            "SELECT id FROM side_attacked.node",
            "SELECT id FROM launcher",
            "SELECT changed FROM mesh",
            f"CALL side_attacked_{RIGHT}.launchers_ended(9)",
            f"CALL side_attacked_{LOGIN}.launchers_ended(9)",
            "CALL side_attacked__view.launchers_ended(9)",
            "SHOW CREATE VIEW launcher",
            "SHOW CREATE TABLE side_attacked.launcher",
            "SHOW COLUMNS FROM launcher",
            "EXPLAIN SELECT * FROM launcher",
            "LOCK TABLES launcher READ",
            "HANDLER side_attacked.mesh OPEN",
            "UPDATE launcher SET user = ''",
            "DELETE FROM event",
            "INSERT INTO event (id) VALUES (1)",
            "DROP VIEW launcher",
            "DROP PROCEDURE launchers_ended",
            "CREATE TABLE x (a INT)",
            "CREATE TEMPORARY TABLE x (a INT)",
            "CREATE VIEW x AS SELECT 1",
            "CREATE PROCEDURE x() SELECT 1",
            "ALTER SQL SECURITY INVOKER VIEW launcher AS SELECT 1",
            "SET GLOBAL max_connections = 1",
            "SELECT * FROM mysql.user",
            "SELECT LOAD_FILE('/etc/passwd') INTO OUTFILE '/dev/shm/x'",
        ):
            with pytest.raises(pymysql.err.Error):
                cursor.execute(statement)


#: What a session may set or begin so that what it reads is locked for it.
LOCKING = (
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET autocommit = 0",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET completion_type = CHAIN; BEGIN; ROLLBACK",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION READ ONLY",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; XA START 'its'",
    "SET SESSION tx_isolation = 'SERIALIZABLE'; BEGIN; SAVEPOINT s",
    "SET autocommit = 0; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
)


def lock_all_that_can_be(url: str, locking: str) -> Any:
    """A connection that has called and selected everything as ``locking`` has it."""
    connection = connected(url)
    cursor = connection.cursor()
    for statement in locking.split("; "):
        cursor.execute(statement.replace("'its'", f"'{id(connection)}'"))
    calls = ["CALL counter()", "CALL launchers_ended(100)", "CALL launcher(1)", "CALL events_after(0, 100)"]
    calls += [
        "CALL reading(0, 0)",
        "CALL reading(NULL, 1)",
        "SET STATEMENT tx_isolation = 'SERIALIZABLE' FOR CALL counter()",
    ]
    selects = (f"SELECT * FROM {table} LOCK IN SHARE MODE" for table in ("mesh", "processor", "launcher"))
    for statement in (*calls, *selects, *reversed(calls)):
        with contextlib.suppress(pymysql.err.MySQLError):  # denied, or not in such a transaction
            cursor.execute(statement)
            while cursor.nextset():
                pass
    return connection


@pytest.mark.parametrize("locking", LOCKING)
def test_who_may_only_look_locks_nobody_out(sides: tuple[Store, str], sql_server: Server, locking: str) -> None:
    _, url = sides
    whole = url.replace(f"side_attacked_{LEFT}", "side_attacked__view").replace(f"_v_{LEFT}", "_v")
    with (
        lock_all_that_can_be(url, locking),
        lock_all_that_can_be(whole, locking),
        open_store(sql_server.url("side_attacked"), patience_s=0.1) as store,
    ):
        for tables in (("node", "processor"), ("launcher", "`partition`")):
            store.run(lambda t, tables=tables: [t.change(f"UPDATE {o} SET changed = changed + 1") for o in tables])  # type: ignore[misc]


@pytest.fixture(scope="module")
def named(sql_server: Server) -> str:
    """A database with the schema for machines whose login processors have any name."""
    admin = sql_server.url("side_named")
    sql_server.admin("DROP DATABASE IF EXISTS side_named")
    create_database(admin)
    migrate(admin)
    return admin


@pytest.mark.parametrize(
    "name", ("a`b", "a'b", 'a"b', "a\\", "a%_b", "a.b", "ñandú", "名", "x" * 200, "A", "a b", "-- x", "a;b", "../../x")
)
def test_whatever_a_login_processor_is_called_its_view_is_its_own(sql_server: Server, named: str, name: str) -> None:
    label = login_views.label(name)
    assert label != login_views.label("a") and set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    urls = granted(named, (name, "a"))
    with open_store(named) as store:
        empty(store)
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


def test_a_migration_makes_procedures_and_views_anew(sides: tuple[Store, str], sql_server: Server) -> None:
    store, url = sides
    admin = sql_server.url("side_attacked")
    schema = f"`side_attacked_{LEFT}`"
    store.execute(f"CREATE OR REPLACE VIEW {schema}.`node` AS SELECT 1 AS id")  # as an older program's
    store.execute(f"DROP PROCEDURE {schema}.schema_version")
    store.execute(f"CREATE DEFINER = side_cpa@localhost PROCEDURE {schema}.schema_version() SELECT 4")
    with open_viewer(url) as viewer, pytest.raises(SchemaError, match="older than this program's"):
        viewer.read()
    made = ["procedures for the whole machine", *(f"procedures and views of {login}" for login in LOGINS)]
    assert sorted(migrate(admin)) == sorted(made)
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


def test_the_account_of_an_older_program_loses_the_tables_and_still_sees(whole: tuple[Store, str]) -> None:
    _, old = whole
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        connected(old)
    with connected(in_database(old, "whole_attacked__view")) as viewer, viewer.cursor() as cursor:
        for what in ("whole_attacked.launcher", "whole_attacked.mesh", "launcher", "mesh", "waiting"):
            with pytest.raises(pymysql.err.MySQLError):
                cursor.execute(f"SELECT * FROM {what}")
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


def test_a_viewer_says_when_its_procedures_do_not_fit(sides: tuple[Store, str], sql_server: Server) -> None:
    store, url = sides
    store.execute("REVOKE ALL ON `side\\_attacked`.* FROM side_cpa@localhost")
    with open_viewer(url) as viewer, pytest.raises(SchemaError, match="do not fit"):
        viewer.read()
    granted(sql_server.url("side_attacked"), LOGINS)
    with open_viewer(url) as viewer:
        viewer.read()
