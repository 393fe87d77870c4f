"""Reads for viewers, directly from the database: no CPA, no peewee, and no MySQL driver on SQLite.

A viewer reads everything once, then only what changed since the counter it holds.
"""

from __future__ import annotations

import os
import time

from db.errors import NO_MESH, BadUrl, DatabaseUnavailable, Invalid, SchemaError, StoreError, damage
from db.schema.version import check_version
from db.store import raw_sql
from db.store.ranges import LONGEST_LIST, may_be_cut
from db.store.url import WHOLE, connect_mysql, driver_options, sqlite_path, sqlite_uri, without_password
from db.views import texts
from db.views.rows import (
    EventRow,
    LauncherRow,
    MeshRow,
    NodeRow,
    PartitionRow,
    ProcessorRow,
    Reading,
    ResourceRow,
    WaitingRow,
    processor_state,
    typed,
)
from redmesh.resource_limits import OPENING, UNOPENED

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BUSY_S = 3.0
ANSWER_S = 3
AT_ONCE_S = 1.0
#: MySQL's errors: too many connections of one account (its own limit, or the general one), a statement took too long.
_LIMITED = (1226, 1203, 1969, 3024)
#: MySQL's errors for a procedure that does not exist, or that this account may not call.
_NO_PROCEDURE = (1305, 1370)
#: MySQL's errors for an account that may not use the database, or not read a table or column.
_DENIED = (1044, 1142, 1143)

Text = tuple[str, str, str]  # for SQLite, for MySQL's tables, for its procedures (texts.py)
_SQLITE, _TABLES, _PROCEDURES = range(3)


class Viewer:
    """A reader's connection. Raises SchemaError (no database yet, or a foreign schema) or DatabaseUnavailable.

    It is opened when first needed, and again after the database was away. ``login``: from an SQLite file, read only the
    side of that login processor. A viewers' MySQL account calls procedures, which decide what it may see
    (db/schema/login_views.py); any other account reads the tables.
    """

    def __init__(self, url: str, login: str = "") -> None:
        self.url = without_password(url)
        self._login = login
        self._path = sqlite_path(url)
        self._options = {} if self._path is not None else driver_options(url)
        self._connection: Any = None
        self._kind = _SQLITE if self._path is not None else _TABLES
        self._boot_id: str | None = None
        self._file: tuple[int, int] | None = None

    def counter(self) -> int:
        """The mesh's change counter: a cheap query that tells whether there is anything new."""
        return int(self._rows(texts.COUNTER)[0][0])

    def read(self, since: int | None = None) -> Reading:
        """Everything, or what changed after counter ``since``, as of one instant."""
        return self._again(lambda: self._read(since))  # type: ignore[no-any-return]

    def events(self, after: int | None = None, limit: int = 100) -> list[Any]:
        """Events in order: the first ``limit`` after the id ``after``, or the last ``limit``."""
        if after is None:
            rows = self._rows(texts.EVENTS_LAST, limit)[::-1] or self._nothing_there()
        else:
            rows = self._rows(texts.EVENTS_AFTER, after, limit)
        return list(map(EventRow._make, rows))

    def history(self, limit: int = 100) -> list[Any]:
        """Ended launchers, the newest first."""
        return list(map(LauncherRow._make, self._rows(texts.LAUNCHERS_ENDED, limit) or self._nothing_there()))

    def launcher(self, launcher: int) -> Any:
        """A launcher, live or ended; None if the id is unknown."""
        rows = self._rows(texts.LAUNCHER, launcher)
        return LauncherRow._make(rows[0]) if rows else None

    def waiting(self) -> list[Any]:
        """Waiting requests, in order."""
        return list(map(WaitingRow._make, self._rows(texts.WAITING)))

    def resources(self) -> list[Any]:
        """GPUs and other devices, by node."""
        return list(map(ResourceRow._make, self._rows(texts.RESOURCES)))

    def now(self) -> float:
        """The database's clock."""
        return float(self._rows(texts.CLOCK)[0][0])

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # the connection is unusable, so its errors do not matter
                pass

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, since: int | None) -> Reading:
        found = self._snapshot(since)
        *row, now = found[0][0]
        mesh = MeshRow._make(row)
        if since is not None and (
            self._boot_id not in (None, mesh.boot_id) or not mesh.trimmed_to <= since <= mesh.counter
        ):
            self._boot_id = None
            return self._read(None)
        self._boot_id = mesh.boot_id
        if len(found) == 1:  # every change increases the counter
            return Reading(False, mesh.counter, now, mesh, [], [], [], [])
        nodes, processors, launchers, partitions = found[1:]
        if since is None and not nodes and mesh.boot_id:  # every machine has a login processor
            raise _no_side(self._login)
        return Reading(
            since is None,
            mesh.counter,
            now,
            mesh,
            typed(NodeRow, sorted(nodes)),
            typed(ProcessorRow, sorted(processors)),
            typed(LauncherRow, sorted(launchers)),
            typed(PartitionRow, sorted(partitions)),
        )

    def _snapshot(self, since: int | None) -> list[Any]:
        """The mesh's row, then the rows of each table, as of one instant. Only the row if nothing has changed."""
        if self._path is not None:
            return self._selected(since, False)
        ask = self._called if self._kind == _PROCEDURES else self._selected
        found = ask(since, True)
        if len(found) > 1:
            if any(may_be_cut(ids) for ids, *_ in found[2]):
                return ask(since, False)
            found[2] = [(*map(int, one.split(" ")), *alike) for ids, *alike in found[2] for one in ids.split(",")]
        return found

    def _called(self, since: int | None, grouped: bool) -> list[Any]:
        return self._execute("CALL `reading`(%s, %s)", (since, grouped))

    def _selected(self, since: int | None, grouped: bool) -> list[Any]:
        """The same reads as the procedure ``reading`` (db/schema/login_views.py)."""
        self._execute(raw_sql.BEGIN_READING["sqlite" if self._path is not None else "mysql"])
        try:
            found = [self._ask(texts.MESH_AND_CLOCK)]
            if since == MeshRow._make(found[0][0][:-1]).counter:
                return found
            if since is None:
                return found + [self._ask(text) for text in (texts.WHOLE_ALIKE if grouped else texts.WHOLE)]
            parts = texts.CHANGED_ALIKE if grouped else texts.CHANGED
            return found + [self._ask(text, since) for text in parts]
        finally:
            self._execute(raw_sql.ROLLBACK)

    def _nothing_there(self) -> list[Any]:
        """No rows, if the database is truly empty. Raises Invalid if the viewer's side does not exist (any more)."""
        boot_id, nodes = self._rows(texts.BOOT_AND_NODE_COUNT)[0]
        if boot_id and not nodes:
            raise _no_side(self._login)
        return []

    def _rows(self, text: Text, *params: int) -> Any:
        return self._again(lambda: self._ask(text, *params))

    def _ask(self, text: Text, *params: int) -> Any:
        return self._execute(text[self._kind], params)[0]

    def _again(self, work: Any) -> Any:
        """Run a read; if the connection died, once more on a new one (reading twice is harmless)."""
        if self._connection is not None and self._file != self._file_now():
            self.close()  # the database was removed or created anew
        fresh = self._connection is None
        begun = time.monotonic()
        try:
            if fresh:
                self._connect()
            return work()
        except StoreError:
            self.close()
            raise
        except Exception as error:
            self.close()
            if not _is_database_error(error):
                raise
            # the server is silent, and would be on a new connection too
            if fresh or time.monotonic() - begun > AT_ONCE_S:
                raise self._unavailable(error) from error
        return self._again(work)

    def _execute(self, statement: str, params: Sequence[Any] = ()) -> list[Any]:
        """The rows of each result of a statement: one result, or as many as a procedure gives."""
        cursor = self._connection.cursor()
        if self._path is not None:
            return [cursor.execute(statement, params).fetchall()]
        cursor.execute(statement, params)
        found = [cursor.fetchall()]
        while cursor.nextset():
            if cursor.description:  # the last result is the procedure's own status
                found.append(cursor.fetchall())
        return found

    def _connect(self) -> None:
        if self._path is not None:
            self._file = self._file_now()
            self._connection = _connect_sqlite(self._path)
            self._check_version()
        else:
            self._connect_to_what_it_may_read()
        if self._path is not None and self._login:
            from db.schema.login_views import temporary_views  # most viewers see the whole machine

            for statement in temporary_views(self._login):
                self._execute(statement)

    def _connect_to_what_it_may_read(self) -> None:
        """Switch to procedures if a viewers' account of an older version has a URL of the tables."""
        try:
            self._connect_mysql()
        except Exception as error:
            name = self._options["database"]
            if _code(error) not in _DENIED or name.endswith(WHOLE):
                raise
            self.close()
            self._options = {**self._options, "database": name + WHOLE}
            self._connect_mysql()

    def _connect_mysql(self) -> None:
        self._connection = _connect_mysql(self._options)
        self._kind = _PROCEDURES
        try:
            self._check_version()
        except Exception as error:
            if _code(error) not in _NO_PROCEDURE:
                raise
            self._kind = _TABLES
            self._check_version()

    def _check_version(self) -> None:
        check_version(lambda: self._ask(texts.SCHEMA_VERSION), self.url)

    def _file_now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path) if self._path is not None else None
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if status is not None else None

    def _unavailable(self, error: Exception) -> StoreError:
        if isinstance(error.args[0] if error.args else None, int):  # MySQL's: (code, text)
            code, text = error.args[0], str(error.args[-1])
            if code == 1356 or (code in _DENIED and self._kind == _PROCEDURES):
                return SchemaError(
                    f"the procedures of {self.url} do not fit the system database", "run: mesh db init --run"
                )
            if code in _LIMITED:
                return DatabaseUnavailable(
                    f"the account of {self.url} has reached its limit: {text}",
                    "close other viewers of it, or use an account of your own (mesh db init --view-user NAME)",
                )
            if code == 1049:
                return SchemaError(f"there is no database at {self.url}", "make it: mesh db init")
            return DatabaseUnavailable(
                f"the system database ({self.url}) does not answer: {text}",
                "see that the server runs and the account may log in",
            )
        told = f"the system database ({self.url}) cannot be read: {error}"
        hint = OPENING if UNOPENED in str(error) else ""
        return damage(self.url, str(error)) or DatabaseUnavailable(told, hint)


class Picture:
    """The machine as last read, by id: nodes, processors, live launchers and partitions. Updated by reading changes."""

    def __init__(self) -> None:
        self.counter: int | None = None
        self.now = 0.0
        self.mesh: Any = None
        self.nodes: dict[int, Any] = {}
        self.processors: dict[int, Any] = {}
        self.launchers: dict[int, Any] = {}
        self.partitions: dict[int, Any] = {}
        #: A line for each reservation in force; only a caller that wants them reads them.
        self.reservations: list[str] = []

    def update(self, viewer: Viewer) -> Reading:
        """Read and apply what is new; returns it, for callers that repaint only that."""
        reading = viewer.read(self.counter)
        self.take(reading)
        return reading

    def take(self, reading: Reading) -> None:
        if reading.whole:
            self.nodes, self.processors, self.launchers, self.partitions = {}, {}, {}, {}
        self.counter, self.now, self.mesh = reading.counter, reading.now, reading.mesh
        self.nodes.update((row.id, row) for row in reading.nodes)
        self.processors.update((row.id, row) for row in reading.processors)
        for table, rows in ((self.launchers, reading.launchers), (self.partitions, reading.partitions)):
            for row in rows:
                if row.ended_at is None:
                    table[row.id] = row
                else:
                    table.pop(row.id, None)

    def state(self, processor: int) -> str:
        """The state word of a processor (db.views.rows.STATES)."""
        row = self.processors[processor]
        launcher = self.launchers.get(row.launcher)
        node = self.nodes[row.node]
        held = None if row.launcher is None else (launcher.state if launcher is not None else "busy")
        return processor_state(node.state, row.alloc_mode, row.reserved_for, held)


def open_viewer(url: str, login: str = "") -> Viewer:
    """A viewer of the database at ``url``, not yet connected. Raises BadUrl."""
    return Viewer(url, login)


def _no_side(login: str) -> StoreError:
    if login:
        return Invalid(f"there is no node {login[:80]!r} in this mesh", "`login` is to be one of its login processors")
    return Invalid(
        "the login processor of this database account does not exist in the mesh any more",
        "mesh db init --view-login creates an account for another login processor",
    )


def _connect_sqlite(path: str) -> Any:
    import sqlite3

    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise SchemaError(f"there is no system database at {path} yet", NO_MESH) from None
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: {error.strerror}", "the mesh is not yours to look at") from None
    return sqlite3.connect(
        sqlite_uri(path, "ro"), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )


def _connect_mysql(options: dict[str, Any]) -> Any:
    try:
        connection = connect_mysql(
            autocommit=True,
            charset="utf8mb4",
            connect_timeout=2,
            read_timeout=ANSWER_S,
            write_timeout=ANSWER_S,
            **options,
        )
    except ImportError:
        raise DatabaseUnavailable("the MySQL driver is not installed", "install PyMySQL") from None
    with connection.cursor() as cursor:
        cursor.execute(raw_sql.viewer_session(LONGEST_LIST))
        cursor.execute(raw_sql.ISOLATE_VIEWER)
    return connection


def _code(error: Exception) -> int | None:
    """The number of a MySQL driver's error."""
    return error.args[0] if error.args and _is_database_error(error) else None


def _is_database_error(error: Exception) -> bool:
    """True for a driver's error (sqlite3.Error, pymysql.MySQLError), without importing either driver."""
    return any(kind.__module__ in ("sqlite3", "pymysql.err") for kind in type(error).__mro__)


__all__ = ["BadUrl", "Picture", "Viewer", "open_viewer", "processor_state"]
