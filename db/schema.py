"""Making the system database, bringing it up to date, and who may read what in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import peewee as pw

from db import drivers
from db.connection import Store, open_store
from db.errors import DatabaseUnavailable, Invalid, SchemaError, StoreError
from db.models import SECRET_COLUMNS, TABLES
from db.schema_version import SCHEMA_VERSION
from db.url import mysql_options, without_password

MIGRATIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")
MIGRATION_LOCK = "redmesh.migrate"
LOCK_S = 10
MIGRATION_S = 600.0  # a step over a large table may take its time


class Account(NamedTuple):
    """A MySQL account; ``password`` None where it exists already or the server knows it by other means."""

    user: str
    host: str = "%"
    password: str | None = None


def migrate(url: str) -> list[str]:
    """Makes the schema, or brings an older one up to date; the names of the steps that were run.

    SchemaError for a schema that is newer than this build, DatabaseUnavailable.
    """
    from playhouse.migrations import Runner  # slow to import, and rarely needed

    store = open_store(url, patience_s=MIGRATION_S, any_schema=True)
    try:
        store.connect()
        with _alone(store):
            found = version(store)
            if found > SCHEMA_VERSION:
                raise SchemaError(
                    f"the system database at {store.url} has schema {found}, newer than this program's"
                    f" {SCHEMA_VERSION}",
                    "use the version of redmesh that the mesh runs",
                )
            steps: list[str] = Runner(store.db, MIGRATIONS).up()
            store.execute("UPDATE mesh SET schema_version = ? WHERE id = 1", (SCHEMA_VERSION,))
            return steps
    except pw.PeeweeException as error:
        raise StoreError(
            f"the system database at {store.url} could not be made or migrated: {drivers.reason(error)}",
            "the account needs CREATE, ALTER, INDEX and DROP on the database",
        ) from error
    finally:
        store.close()


def version(store: Store) -> int:
    """The number of the schema that is there, 0 for none. StoreError."""
    try:
        store.connect()
        if not store.db.table_exists("mesh"):
            return 0
        row = store.execute("SELECT schema_version FROM mesh WHERE id = 1").fetchone()
    except pw.PeeweeException as error:
        raise StoreError(
            f"the system database at {store.url} cannot be used: {drivers.reason(error)}",
            "look at its disk and at the account's rights",
        ) from error
    return int(row[0]) if row else 0


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """One migration at a time: the writers' lock on SQLite, GET_LOCK on MySQL (whose DDL no transaction holds)."""
    lock = store.writer()
    if lock is not None:
        lock.acquire(drivers.ANSWER_S)
        try:
            yield
        finally:
            lock.release()
        return
    row = store.execute("SELECT GET_LOCK(?, ?)", (MIGRATION_LOCK, LOCK_S)).fetchone()
    if not row or row[0] != 1:
        raise DatabaseUnavailable("another migration of the system database is under way", "wait for it")
    try:
        yield
    finally:
        store.execute("SELECT RELEASE_LOCK(?)", (MIGRATION_LOCK,)).fetchone()


def create_database(admin_url: str) -> None:
    """The empty database named in a MySQL URL, by an account that may create it."""
    name = str(mysql_options(admin_url)["database"])
    store = open_store(_server_of(admin_url), any_schema=True)
    try:
        store.connect()
        store.execute(f"CREATE DATABASE IF NOT EXISTS {_quoted(name)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    except pw.PeeweeException as error:
        raise StoreError(f"database {name} could not be made: {drivers.reason(error)}") from error
    finally:
        store.close()


def grants(database: str, cpa: Account, viewer: Account) -> list[str]:
    """The statements that make the CPA's account and a viewer's, whose column grants leave the cookies out."""
    name = _quoted(database)
    statements = [*_account(cpa), *_account(viewer)]
    statements.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO {_at(cpa)}")
    for model in TABLES:
        table = model._meta.table_name
        secret = SECRET_COLUMNS.get(table, frozenset())
        columns = [field.column_name for field in model._meta.sorted_fields]
        open_columns = ", ".join(_quoted(column) for column in columns if column not in secret)
        what = f"SELECT ({open_columns})" if secret else "SELECT"
        statements.append(f"GRANT {what} ON {name}.{_quoted(table)} TO {_at(viewer)}")
    return statements


def printed(statements: Sequence[str]) -> str:
    """The statements as a file for the mysql client, passwords left for the administrator to fill in."""
    shown = [_without_secret(statement) for statement in statements]
    return "".join(f"{statement};\n" for statement in shown)


def run_grants(admin_url: str, statements: Sequence[str]) -> None:
    """Runs them with an account that may GRANT. StoreError names the statement that was refused."""
    store = open_store(admin_url, any_schema=True)
    statement = ""
    try:
        store.connect()
        for statement in statements:
            store.execute(statement)
    except pw.PeeweeException as error:
        raise StoreError(
            f"refused: {_without_secret(statement)}: {drivers.reason(error)}",
            f"the account of {without_password(admin_url)} needs CREATE USER and GRANT OPTION",
        ) from error
    finally:
        store.close()


def _server_of(url: str) -> str:
    """The same server, with a database that is always there."""
    head, _, tail = url.partition("://")
    place, _, rest = tail.partition("/")
    _, question, query = rest.partition("?")
    return f"{head}://{place}/information_schema{question}{query}"


def _account(account: Account) -> list[str]:
    if account.password is None:
        return []
    return [f"CREATE USER IF NOT EXISTS {_at(account)} IDENTIFIED BY {_text(account.password)}"]


def _at(account: Account) -> str:
    return f"{_text(account.user)}@{_text(account.host)}"


def _text(value: str) -> str:
    if any(ord(letter) < 32 for letter in value):
        raise Invalid("a name or password of a database account holds a control character")
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _quoted(name: str) -> str:
    if not name or any(ord(letter) < 32 for letter in name):
        raise Invalid(f"not a name for a database: {name!r}")
    return "`" + name.replace("`", "``") + "`"


def _without_secret(statement: str) -> str:
    head, marker, _ = statement.partition(" IDENTIFIED BY ")
    return f"{head} IDENTIFIED BY '********'" if marker else statement
