"""Migrations make what the models say; grants keep the cookies from viewers."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pymysql
import pytest

from db.allocation.free import Machine
from db.errors import DatabaseUnavailable, SchemaError, StoreError
from db.schema import migrations, new_sqlite
from db.schema.accounts import Account
from db.schema.grants import grants, printed, run_grants
from db.schema.migrate import MIGRATION_LOCK, create_database, migrate, migrate_by_steps
from db.schema.models import SECRET_COLUMNS, TABLES, columns_of
from db.store import drivers
from db.store.store import Store, open_store
from db.views import texts
from db.views.viewer import open_viewer
from tests.support.mariadb import Server
from tests.support.outcomes import beside_a_process
from tests.support.stores import define, take

CPA, VIEWER = Account("cpa", "localhost", "cpa's secret"), Account("viewer", "localhost", "v")


def test_migrations_make_what_the_models_say(store: Store) -> None:
    store.connect()
    for table, model in TABLES.items():
        there = {column.name: column.null for column in store.db.get_columns(table)}
        said = {field.column_name: field.null for field in columns_of(model)}
        assert there == said, table
        indexed = {tuple(index.columns): bool(index.unique) for index in store.db.get_indexes(table)}
        for field in columns_of(model):
            if field.unique:
                assert indexed.get((field.column_name,)) is True, (table, field.name)
            elif field.index and not field.primary_key:
                assert (field.column_name,) in indexed, (table, field.name)


def test_a_new_sqlite_database_is_what_the_migrations_make(tmp_path: Path) -> None:
    """python tools/sqlite_schema.py writes db/schema/sqlite.sql anew."""
    seen = []
    for name, make in (("at once", migrate), ("by steps", migrate_by_steps)):
        url = f"sqlite://{tmp_path}/{name}.db"
        steps = make(url)
        with open_store(url) as store:
            store.connect()
            made = store.read("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid")
            history = store.read("SELECT id, name FROM schema_migration")
            seen.append((steps, made, history, store.read("SELECT * FROM mesh")))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("left", ["schema_migration", "mesh"])
def test_a_first_migration_that_broke_off_is_completed_by_steps(tmp_path: Path, left: str) -> None:
    """A version without db/schema/sqlite.sql made its first tables one after the other."""
    url = f"sqlite://{tmp_path}/mesh.db"
    with contextlib.closing(sqlite3.connect(tmp_path / "mesh.db")) as db, open(new_sqlite.SCHEMA) as schema:
        db.execute(next(line for line in schema if line.startswith(f'CREATE TABLE "{left}"')))
    assert migrate(url) and migrate(url) == []


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_migrating_twice_does_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """On a database of its own: another test may have made viewers' procedures for the shared one."""
    if kind == "mariadb":
        beside_a_process(request.node)
    server: Server | None = request.getfixturevalue("sql_server") if kind == "mariadb" else None
    url = server.new_database() if server is not None else f"sqlite://{tmp_path}/mesh.db"
    try:
        assert migrate(url) != [] and migrate(url) == []
    finally:
        if server is not None:
            server.drop_database(url)


class BrokenOff(BaseException):
    """Not an error of the database: the migrating process ends here."""


def break_off(monkeypatch: pytest.MonkeyPatch, url: str, after: int) -> bool:
    """Migrate up to the statement that follows so many changes; returns whether it broke off."""
    import peewee as pw

    left = after
    execute = pw.Database.execute_sql

    def until_then(self: pw.Database, sql: str, *rest: object, **more: object) -> object:
        nonlocal left
        if sql.split()[0] in ("ALTER", "CREATE", "DELETE", "DROP", "INSERT", "UPDATE"):
            if left == 0:
                raise BrokenOff
            left -= 1
        return execute(self, sql, *rest, **more)  # type: ignore[no-untyped-call]

    with monkeypatch.context() as patch:
        patch.setattr(pw.Database, "execute_sql", until_then)
        try:
            migrate(url)
        except BrokenOff:
            return True
    return False


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_a_migration_that_broke_off_is_completed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of its statements; what the table had is there, and what must have a value has one."""
    from playhouse.migrations import Runner

    if kind == "mariadb":
        beside_a_process(request.node)
    server: Server | None = request.getfixturevalue("sql_server") if kind == "mariadb" else None
    after, broke_off, ninth = 0, True, tmp_path / "ninth.db"
    while broke_off:
        url = server.new_database() if server is not None else f"sqlite://{tmp_path}/{after}.db"
        if server is None and after:  # a copy of the first one: to come this far takes most of the time
            shutil.copyfile(ninth, tmp_path / f"{after}.db")
        else:
            store = open_store(url, any_schema=True, make_file=True)
            store.connect()
            Runner(store.db, migrations.__path__[0]).up("0009_managers")
            store.execute("INSERT INTO node VALUES (1, 'n0', 'compute', '', 'up', '', '', '', 0, '', 0.0, 7, 1, '', 0)")
            store.close()
            if server is None:
                shutil.copyfile(tmp_path / "0.db", ninth)
        broke_off = break_off(monkeypatch, url, after)
        migrate(url)
        store = open_store(url)
        store.connect()
        assert store.read("SELECT name, changed, drain_at, drain_reason FROM node") == [("n0", 7, None, "")], after
        assert {one.name: one.null for one in store.db.get_columns("node")}["drain_reason"] is False, after
        store.close()
        if server is not None:
            server.drop_database(url)
        after += 1
    assert after > 4


def test_names_differ_by_case(store: Store) -> None:
    """A user called ADA is not ada, nor a node N0 the node n0, on any database."""
    define(store)
    assert store.read("SELECT id FROM node WHERE name = ?", ("N0",)) in ([], ())
    assert store.read("SELECT id FROM node WHERE name = ?", ("n0",))[0][0] == 1


def test_a_migration_waits_for_another_and_says_so(sql_server: Server) -> None:
    url = sql_server.new_database()
    holder = pymysql.connect(unix_socket=sql_server.socket, user="root")
    with holder.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", (MIGRATION_LOCK,))
    import db.schema.migrate as schema

    waited, schema.LOCK_S = schema.LOCK_S, 1
    try:
        with pytest.raises(DatabaseUnavailable):
            migrate(url)
    finally:
        schema.LOCK_S = waited
        holder.close()
    assert migrate(url) == sorted(path.stem for path in Path(migrations.__path__[0]).glob("0*.py"))


@pytest.fixture
def granted(sql_server: Server) -> tuple[str, str]:
    """URLs of the CPA and of a viewer for one database made from nothing."""
    name = "granted"
    sql_server.admin(f"DROP DATABASE IF EXISTS {name}", "DROP USER IF EXISTS cpa@localhost, viewer@localhost")
    admin = sql_server.url(name)
    create_database(admin)
    migrate(admin)
    run_grants(admin, grants(name, CPA, VIEWER))
    return sql_server.url(name, "cpa", "cpa%27s%20secret"), sql_server.url(name, "viewer", "v")


def test_the_viewer_sees_all_but_the_cookies(sql_server: Server, granted: tuple[str, str]) -> None:
    cpa_url, viewer_url = granted
    with open_store(cpa_url) as store, open_viewer(viewer_url) as viewer, open_viewer(cpa_url) as tables:
        define(store)
        before = viewer.counter()
        taken = take(store, Machine(), 3)
        reading = viewer.read()
        for since in (None, before, reading.counter):  # by procedures as from the tables
            assert viewer.read(since)._replace(now=0.0) == tables.read(since)._replace(now=0.0)
        assert viewer.events() == tables.events() and viewer.launcher(taken.launcher) == tables.launcher(taken.launcher)
        assert [row.id for row in reading.launchers] == [taken.launcher]
        assert viewer.events() and viewer.history() == [] and viewer.waiting() == [] and viewer.resources() == []
        assert viewer.read(reading.counter).processors == []
    connection = pymysql.connect(unix_socket=sql_server.socket, user="viewer", password="v", database="granted__view")
    with connection, connection.cursor() as cursor:
        asked = str([text for text in vars(texts).values() if isinstance(text, tuple)])
        for table, columns in SECRET_COLUMNS.items():
            for name in (table, f"granted.`{table}`"):
                with pytest.raises(pymysql.err.MySQLError):
                    cursor.execute(f"SELECT * FROM {name}")
            cursor.execute("SELECT routine_definition FROM information_schema.routines WHERE routine_definition <> ''")
            assert cursor.fetchall() == ()
            assert not any(f"`{column}`" in asked for column in columns)
        for statement in (
            "UPDATE mesh SET counter = 0",
            "DELETE FROM event",
            "INSERT INTO event (at, kind, text, changed) VALUES (0, '', '', 0)",
            "UPDATE processor SET launcher = NULL",
        ):
            with pytest.raises(pymysql.err.MySQLError):
                cursor.execute(statement)


def test_the_cpa_cannot_change_the_schema(granted: tuple[str, str]) -> None:
    with open_store(granted[0]) as store:
        store.connect()
        with pytest.raises(StoreError):
            store.read("DROP TABLE event")


def test_printed_grants_hold_no_password() -> None:
    text = printed(grants("redmesh", CPA, VIEWER))
    assert "secret" not in text and "'********'" in text
    lines = text.splitlines()
    assert all(line.endswith((";", "//")) for line in lines)
    assert (
        lines.count("DELIMITER //")
        == lines.count("DELIMITER ;")
        == text.count("CREATE DEFINER")
        == text.count(" END //")
    )
    for columns in SECRET_COLUMNS.values():
        for column in columns:
            assert f"`{column}`" not in text


def test_refused_grants_name_the_statement(granted: tuple[str, str]) -> None:
    with pytest.raises(StoreError) as caught:
        run_grants(granted[0], ["CREATE USER x@localhost IDENTIFIED BY 'hush'"])
    assert "CREATE USER x@localhost" in caught.value.message and "hush" not in caught.value.message


def test_a_galera_cluster_is_refused_unless_told() -> None:
    for alone in (None, ("wsrep_on", "OFF")):
        drivers.refuse_galera(alone, False, "db")
    with pytest.raises(SchemaError) as caught:
        drivers.refuse_galera(("wsrep_on", "ON"), False, "db")
    assert "galera=single-writer" in caught.value.hint
    drivers.refuse_galera(("wsrep_on", "ON"), True, "db")


def test_a_url_may_accept_a_cluster(sql_database: str) -> None:
    with open_store(sql_database + "&galera=single-writer") as store:
        assert store.run(lambda t: t.counter) >= 0
