"""Creates the system database and migrates it to the current schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from db.errors import DatabaseUnavailable, SchemaError, StoreError, damage
from db.schema import login_views, new_sqlite
from db.schema.accounts import quoted
from db.schema.models import Mesh
from db.schema.version import SCHEMA_VERSION
from db.store import drivers, raw_sql
from db.store.orm import pw
from db.store.statements import Query, mysql_statement, statement
from db.store.store import Store, open_store
from db.store.url import in_database, mysql_options

MIGRATIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")
MIGRATION_LOCK = "redmesh.migrate"
LOCK_S = 10
MIGRATION_S = 600.0  # a step over a large table may take long


@statement
def _version() -> Query:
    return Mesh.select(Mesh.schema_version).where(Mesh.id == 1)


@statement
def _set_version(*, version: int) -> Query:
    return Mesh.update({Mesh.schema_version: version}).where(Mesh.id == 1)


@mysql_statement
def _lock() -> Query:
    return pw.Select(columns=[pw.fn.GET_LOCK(MIGRATION_LOCK, LOCK_S)])


@mysql_statement
def _unlock() -> Query:
    return pw.Select(columns=[pw.fn.RELEASE_LOCK(MIGRATION_LOCK)])


def migrate(url: str, *, make_file: bool = True) -> list[str]:
    """Create or migrate the schema; returns the names of the steps that were run.

    ``make_file``: as in open_store. Raises SchemaError if the schema is newer than this version, or
    DatabaseUnavailable.
    """
    return _migrated(url, make_file, new_sqlite.make)


def migrate_by_steps(url: str) -> list[str]:
    """Like ``migrate``, but a new SQLite database also gets its schema from the migrations, as tools and tests need."""
    return _migrated(url, True, lambda _: [])


def _migrated(url: str, make_file: bool, make: Callable[[Store], list[str]]) -> list[str]:
    store = open_store(url, patience_s=MIGRATION_S, any_schema=True, make_file=make_file)
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
            steps = make(store) if store.dialect == "sqlite" else []
            if steps:
                return steps
            steps = _run_steps(store)
            store.together(store.sent(_set_version.bind(version=SCHEMA_VERSION)))
            if store.dialect == "mysql":
                steps += login_views.make_anew(store, str(mysql_options(url)["database"]))
            return steps
    except pw.PeeweeException as error:
        raise damage(store.url, drivers.reason(error)) or StoreError(
            f"the system database at {store.url} could not be made or migrated: {drivers.reason(error)}",
            "the account needs CREATE, ALTER, INDEX and DROP on the database",
        ) from error
    finally:
        store.close()


def _run_steps(store: Store) -> list[str]:
    from playhouse.migrations import Runner  # slow to import, and rarely needed

    steps: list[str] = Runner(store.db, MIGRATIONS).up()
    return steps


def version(store: Store) -> int:
    """The number of the present schema, 0 for none. Raises StoreError."""
    try:
        store.connect()
        if not store.db.table_exists("mesh"):
            return 0
        rows = store.together(store.sent(_version.bind()))[0]
    except pw.PeeweeException as error:
        raise damage(store.url, drivers.reason(error)) or StoreError(
            f"the system database at {store.url} cannot be used: {drivers.reason(error)}",
            "look at its disk and at the account's rights",
        ) from error
    return int(rows[0][0]) if rows else 0


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Allow one migration at a time: the writers' lock on SQLite, GET_LOCK on MySQL, where no transaction covers
    DDL."""
    lock = store.writer()
    if lock is not None:
        lock.acquire(drivers.ANSWER_S)
        try:
            yield
        finally:
            lock.release()
        return
    if store.together(store.sent(_lock.bind()))[0][0][0] != 1:
        raise DatabaseUnavailable("another migration of the system database is under way", "wait for it")
    try:
        yield
    finally:
        store.together(store.sent(_unlock.bind()))


def create_database(admin_url: str) -> None:
    """Create the empty database named in a MySQL URL, with an account that may do so."""
    name = str(mysql_options(admin_url)["database"])
    store = open_store(in_database(admin_url, "information_schema"), any_schema=True)
    try:
        store.connect()
        store.execute(raw_sql.make_database(quoted(name)))
    except pw.PeeweeException as error:
        raise StoreError(f"database {name} could not be made: {drivers.reason(error)}") from error
    finally:
        store.close()
