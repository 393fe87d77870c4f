"""The system database for writers: one call runs one whole transaction.

A transaction begins by locking the mesh row, so all transactions are in one order, which the mesh's change counter
numbers. A whole transaction is retried if the database asks for it, but never after the connection was lost: then it
may have been committed, and only the caller's idempotency key can tell.
"""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from db.errors import DatabaseUnavailable, Invalid, SchemaError, StoreError, damage
from db.schema.models import Event, Mesh
from db.schema.version import SCHEMA_VERSION, check_version
from db.store import drivers, raw_sql
from db.store.drivers import Meaning
from db.store.orm import pw
from db.store.sqlite_lock import WriterLock
from db.store.statements import (
    INSTANT,
    NOW,
    STAMP,
    Bound,
    Each,
    Query,
    Sent,
    mysql_statement,
    sqlite_statement,
    statement,
)
from db.store.url import sqlite_path, without_password

T = TypeVar("T")
Row = tuple[Any, ...]
#: A statement on the tables, or a text and its values if peewee cannot express it (``?`` marks parameters).
Question = Bound | tuple[str, Sequence[Any]]


PATIENCE_S = 3.0
#: With 16 MiB, pages are written a quarter as often as with 4 MiB, and synced a quarter as often.
WAL_CHECKPOINT_BYTES = 16 << 20
COMMITS_BETWEEN_LOOKS = 64
AT_ONCE_S = 0.5
NO_SUCH_DATABASE, NULL_REFUSED = 1049, 1048
#: Translated statements that are kept. Longer texts name processors and do not occur again.
KEPT_TEXTS, KEPT_LENGTH = 500, 1000

_LOCKED = (Mesh.boot_id, Mesh.counter, Mesh.next_partition, Mesh.next_launcher, Mesh.trimmed_to, NOW)


@sqlite_statement
def _locked_mesh() -> Query:
    """Read the mesh's row under the writer's lock of BEGIN IMMEDIATE."""
    return Mesh.select(*_LOCKED).where(Mesh.id == 1)


@mysql_statement
def _lock_mesh() -> Query:
    """Lock and read the mesh's row as one column: the driver takes longer for six column headers than for their
    contents."""
    return Mesh.select(pw.fn.CONCAT_WS(" ", *_LOCKED)).where(Mesh.id == 1).for_update()


@statement
def _schema_version() -> Query:
    return Mesh.select(Mesh.schema_version).where(Mesh.id == 1)


@statement
def _count_up(*, next_partition: int, next_launcher: int, trimmed_to: int) -> Query:
    return Mesh.update(
        {
            Mesh.counter: STAMP,
            Mesh.next_partition: next_partition,
            Mesh.next_launcher: next_launcher,
            Mesh.trimmed_to: trimmed_to,
        }
    ).where(Mesh.id == 1)


@mysql_statement
def _count_up_after(*, matched: int, next_partition: int, next_launcher: int, trimmed_to: int) -> Query:
    """As ``_count_up`` if the statement before matched ``matched`` rows; otherwise it fails, and the server stops
    reading."""
    return Mesh.update(
        {
            Mesh.counter: pw.fn.IF(pw.fn.ROW_COUNT() == matched, STAMP, None),
            Mesh.next_partition: next_partition,
            Mesh.next_launcher: next_launcher,
            Mesh.trimmed_to: trimmed_to,
        }
    ).where(Mesh.id == 1)


@statement
def _insert_event(*, kind: str, text: str, node: int | None, launcher: int | None, partition: int | None) -> Query:
    return Event.insert(
        {
            Event.at: INSTANT,
            Event.kind: kind,
            Event.node: node,
            Event.launcher: launcher,
            Event.partition: partition,
            Event.text: text,
            Event.changed: STAMP,
        }
    )


class Transaction:
    """A running transaction. It exists while the function given to ``Store.run`` runs."""

    __slots__ = (
        "_exactly",
        "_own",
        "_unsent",
        "answers",
        "boot_id",
        "changed",
        "counter",
        "freed",
        "moved_line",
        "moved_nodes",
        "next_launcher",
        "next_partition",
        "now",
        "queued_for",
        "stamp",
        "store",
        "trimmed_to",
    )

    def __init__(self, store: Store, row: Row, answers: Sequence[list[Row]] = ()) -> None:
        self.store = store
        self.answers = answers  # the answers to the questions that were sent with the lock
        self._unsent: list[Sent | Each] = []
        # the row count that the last statement must have, and the error otherwise
        self._exactly: tuple[int, StoreError] | None = None
        self.boot_id: str = row[0]
        self.counter: int = row[1]
        self.next_partition: int = row[2]
        self.next_launcher: int = row[3]
        self.trimmed_to: int = row[4]
        self.now: float = row[5]
        self.stamp = self.counter + 1
        self._own = {"stamp": self.stamp, "instant": self.now}  # the values of STAMP and INSTANT for its statements
        self.changed = False
        self.freed = False  # True if its writes may have freed processors
        self.moved_nodes = False  # True if states of nodes have changed
        self.moved_line = False  # True if another request may now be the first of its line
        self.queued_for = ""  # the user whose request it put into a line

    def rows(self, question: Bound | str, params: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query, each in the order of its columns."""
        answers = self._now(self._sent(question, params))
        return answers[0] if len(answers) == 1 else [row for rows in answers for row in rows]

    def row(self, question: Bound | str, params: Sequence[Any] = ()) -> Row | None:
        """The first row of a query; None if there is none."""
        found = self.rows(question, params)
        return found[0] if found else None

    def rows_of(self, questions: Sequence[Bound]) -> list[Row]:
        """The rows of several queries, in order, sent together."""
        return [row for rows in self._now([one for each in questions for one in self._sent(each, ())]) for row in rows]

    def change(self, statement: Bound | str, params: Sequence[Any] = ()) -> int:
        """Run a statement that changes (and stamps) rows; returns how many rows it matched."""
        count: int = sum(self._now(self._sent(statement, params)))
        self.changed |= count > 0
        return count

    def write(self, statement: Bound | str, params: Sequence[Any] = ()) -> None:
        """As ``change``, without the row count: it is sent with the next statement, or with the commit."""
        self._write(self._sent(statement, params))

    def change_exactly(self, statement: Bound, count: int, error: StoreError) -> None:
        """As ``write``, for ``count`` rows exactly: otherwise raises ``error``, here or from the commit.

        On MySQL the server checks the count in the packet that commits, which saves a round trip under the lock.
        """
        self.changed = True
        self._send_exact()
        statements = self._sent(statement, ())
        if self.store.dialect == "mysql" and len(statements) == 1:
            self._unsent += statements
            self._exactly = count, error
            return
        unsent, self._unsent = self._unsent, []
        if sum(self.store.together([*unsent, *statements])[len(unsent) :]) != count:
            raise error

    def insert_rows(self, rows: Sequence[Bound]) -> None:
        """Insert many rows with few statements."""
        if rows:
            values = [row.values for row in rows]
            self._write(rows[0].statement.sent_rows(self.store.dialect, values, self._own))

    def _write(self, statements: Sequence[Sent | Each]) -> None:
        self.changed |= bool(statements)
        self._send_exact()
        self._unsent += statements

    def _now(self, statements: Sequence[Sent | Each]) -> list[Any]:
        if not statements:
            return []
        self._send_exact()
        unsent, self._unsent = self._unsent, []
        return self.store.together([*unsent, *statements])[len(unsent) :]

    def _sent(self, statement: Bound | str, params: Sequence[Any]) -> list[Sent | Each]:
        if isinstance(statement, Bound):
            return statement.statement.sent(self.store.dialect, {**self._own, **statement.values})
        return self.store.sent((statement, params))

    def _send_exact(self) -> None:
        """Send the exact statement alone and check its count here, because another statement follows."""
        if self._exactly is not None:
            (wanted, error), self._exactly = self._exactly, None
            unsent, self._unsent = self._unsent, []
            if self.store.together(unsent)[-1] != wanted:
                raise error

    def event(
        self, kind: str, text: str, node: int | None = None, launcher: int | None = None, partition: int | None = None
    ) -> None:
        """Record an event for people in the same transaction."""
        self.write(_insert_event.bind(kind=kind, text=text, node=node, launcher=launcher, partition=partition))

    def commit(self) -> None:
        """Send the last statements. The counter increases by one if anything changed."""
        last: list[Sent | Each] = [(raw_sql.COMMIT, ())]
        if self.changed:
            counters = {
                "next_partition": self.next_partition,
                "next_launcher": self.next_launcher,
                "trimmed_to": self.trimmed_to,
            }
            exact = self._exactly
            count = _count_up.bind(**counters) if exact is None else _count_up_after.bind(matched=exact[0], **counters)
            last = [*self._sent(count, ()), *last]
        try:
            self.store.together([*self._unsent, *last])
        except pw.IntegrityError as error:
            if self._exactly is not None and NULL_REFUSED in error.args:
                raise self._exactly[1] from None
            raise


class Serving(Protocol):
    """Allocates what a transaction frees to waiting requests before the commit (db.allocation.scheduling.line)."""

    def serve(self, t: Transaction) -> None:
        """Serve requests in a transaction that freed processors or changed a line."""

    def committed(self) -> None:
        """The transaction was committed."""

    def undone(self) -> None:
        """The transaction was rolled back, or its outcome is unknown."""


class Store:
    """A writer's connection, opened when first needed and again after it was lost. Not thread-safe."""

    def __init__(
        self, url: str, patience_s: float = PATIENCE_S, any_schema: bool = False, make_file: bool = False
    ) -> None:
        self.url = without_password(url)
        self.patience_s = patience_s
        self.any_schema = any_schema
        self._make_file = make_file
        self.serving: Serving | None = None
        # the number of connections opened so far; a higher number shows that the database was away
        self.connections = 0
        self.on_nodes_moved: Callable[[], None] = lambda: None
        self._commits = 0
        self._inside = False  # True inside a transaction, which ends with its connection
        self._texts: dict[str, str] = {}
        self._lock: WriterLock | None = None
        self._path = ""
        self.db: pw.Database
        if sqlite_path(url) is not None:
            self.dialect = "sqlite"
            self.db, self._path = drivers.open_sqlite(url)
            self._lock = WriterLock(self._path + ".lock")
        else:
            self.dialect = "mysql"
            self.db, self._galera = drivers.open_mysql(url, patience_s)
        self._first = self.sent((_lock_mesh if self.dialect == "mysql" else _locked_mesh).bind())

    def run(self, work: Callable[[Transaction], T], asks: Sequence[Question] = ()) -> T:
        """Run ``work`` as one transaction and return its result.

        ``asks``: queries sent together with the lock, for ``Transaction.answers``, which saves a round trip under the
        lock. The whole transaction is retried if the database broke a deadlock or was busy. Raises DatabaseUnavailable
        if that goes on for too long, or if the connection is lost. An exception from ``work`` rolls everything back.
        """
        return self._retried(lambda deadline: self._once(work, asks, deadline))

    def _retried(self, do: Callable[[float], T]) -> T:
        deadline = time.monotonic() + self.patience_s
        pause_s = 0.001
        while True:
            try:
                return do(deadline)
            except pw.PeeweeException as error:
                self._settle(error)
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        f"the system database is busy: {drivers.reason(error)}", "try again"
                    ) from error
            time.sleep(pause_s * (0.5 + random.random()))  # the back-off of a transaction that the database rolled back
            pause_s = min(pause_s * 2, 0.1)

    def change_alone(self, statement: Bound) -> int:
        """Run one guarded statement as its own transaction without the mesh row's lock; returns the rows it matched.

        Only for rows that no other transaction reads, and if a repetition changes nothing (db/jobs/locations.py).
        Raises the errors of ``run``.
        """

        def once(deadline: float) -> int:
            self.connect()
            if self._lock is not None:
                self._lock.acquire(max(0.05, deadline - time.monotonic()))
            try:
                count: int = sum(self.together(self.sent(statement)))
                return count
            finally:
                if self._lock is not None:
                    self._lock.release()

        return self._retried(once)

    def read(self, question: Bound | str, params: Sequence[Any] = ()) -> list[Row]:
        """Read rows outside every lock, each query by itself."""
        answers = self._read(self.sent(question if isinstance(question, Bound) else (question, params)))
        return answers[0] if len(answers) == 1 else [row for rows in answers for row in rows]

    def read_together(self, questions: Sequence[Question]) -> list[list[Row]]:
        """Read the rows of several queries, each by itself as in ``read``."""
        return self._read([one for question in questions for one in self.sent(question)])

    def _read(self, questions: Sequence[Sent | Each]) -> list[list[Row]]:
        if not questions:
            return []
        began = time.monotonic()
        for last in (self._inside, True):
            if not self._inside:
                self.connect()
            try:
                return self.together(questions)
            except pw.PeeweeException as error:
                if drivers.meaning(error) is not Meaning.FAULT and not last and _was_idle(began):
                    self._drop()  # reading twice is harmless
                    continue
                self._settle(error)
                raise DatabaseUnavailable(f"the system database is busy: {drivers.reason(error)}") from error
        raise AssertionError("the second round returns or raises")

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Run one statement on the open connection; ``?`` marks parameters on both databases. Raises peewee's
        errors."""
        try:
            return self.db.execute_sql(self._text(sql), params)  # type: ignore[no-untyped-call]
        except (OverflowError, UnicodeEncodeError) as error:
            raise _out_of_range(error) from None

    def sent(self, question: Question) -> list[Sent | Each]:
        """The texts, with the driver's marks, and the values to send for a query."""
        if isinstance(question, Bound):
            return question.statement.sent(self.dialect, question.values)
        sql, params = question
        return [(self._text(sql), params)]

    def together(self, statements: Sequence[Sent | Each]) -> list[Any]:
        """Run several statements in order; for each returns its rows, or how many rows it matched. Raises peewee's
        errors.

        MySQL gets them in one packet and stops at the first failure.
        """
        try:
            with drivers.AS_PEEWEES_ERRORS:
                cursor = self.db.cursor()  # type: ignore[no-untyped-call]
                if self.dialect == "sqlite":
                    return [_of_sqlite(cursor, statement) for statement in statements]
                texts = [cursor.mogrify(text, values) for text, values in statements]
                cursor.execute(";".join(texts))
                found = [_outcome(cursor)]
                while cursor.nextset():
                    found.append(_outcome(cursor))
                return found
        except (OverflowError, UnicodeEncodeError) as error:
            raise _out_of_range(error) from None

    def _text(self, sql: str) -> str:
        if self.dialect == "sqlite":
            return sql
        text = self._texts.get(sql)
        if text is None:
            text = sql.replace("%", "%%").replace("?", "%s")
            if len(sql) < KEPT_LENGTH and len(self._texts) < KEPT_TEXTS:
                self._texts[sql] = text
        return text

    def connect(self) -> None:
        """Open the connection if it is closed. Raises DatabaseUnavailable or SchemaError."""
        if not self.db.is_closed():
            return
        try:
            if self._make_file and self._path:
                drivers.make_sqlite_file(self._path)
            if self._path:
                drivers.check_sqlite_file(self._path)
            self.db.connect()
            self.connections += 1
            if self.dialect == "mysql":
                answer = self.execute(raw_sql.IS_GALERA).fetchone()
                drivers.refuse_galera(answer, self._galera, self.url)
            if not self.any_schema:
                check_version(lambda: self.together(self.sent(_schema_version.bind()))[0], self.url)
        except pw.PeeweeException as error:
            self._drop()
            raise self._unavailable(error) from error
        except StoreError:
            self._drop()
            raise

    def is_open(self) -> bool:
        """True if the connection is alive as far as this host knows. Nothing is sent."""
        if self.db.is_closed():
            return False
        if self._path:
            return os.path.exists(self._path)
        sock = getattr(self.db.connection(), "_sock", None)  # type: ignore[no-untyped-call]
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        return not poll.poll(0)

    def writer(self) -> WriterLock | None:
        """The lock for writing outside ``run`` (migrations)."""
        return self._lock

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file as far as readers allow. SQLite only."""
        if self._lock is None:
            return
        self.connect()
        self._lock.acquire(self.patience_s)
        try:
            self.execute(raw_sql.CHECKPOINT).fetchall()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection; on SQLite under the writers' lock, because the last one to close checkpoints."""
        if self._lock is None:
            self._drop()
            return
        if not self.db.is_closed():
            try:
                self._lock.acquire(self.patience_s)
            except DatabaseUnavailable:
                pass  # the process that holds the lock is connected, so this close is not the last
        self._drop()
        self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _once(self, work: Callable[[Transaction], T], asks: Sequence[Question], deadline: float) -> T:
        self.connect()
        served: Serving | None = None
        if self._lock is not None:
            self._lock.acquire(max(0.05, deadline - time.monotonic()))
        try:
            _, mesh, *answers = self._begin(asks)
            if not mesh:
                raise SchemaError(f"{self.url} contains no mesh yet", "start one: mesh up")
            transaction = Transaction(self, self._of_mesh(mesh[0]), answers)
            self._inside = True
            result = work(transaction)
            if self.serving is not None and (transaction.freed or transaction.moved_line):
                served = self.serving
                served.serve(transaction)
            transaction.commit()
            self._look_at_wal()
        except BaseException:
            self._roll_back()
            if served is not None:
                served.undone()
            raise
        finally:
            self._inside = False
            if self._lock is not None:
                self._lock.release()
        if served is not None:
            served.committed()
        if transaction.moved_nodes:
            self.on_nodes_moved()
        return result

    def _of_mesh(self, row: Row) -> Row:
        if self.dialect == "sqlite":
            return row
        boot_id, *numbers, now = row[0].rsplit(" ", 5)
        return (boot_id, *map(int, numbers), float(now))

    def _begin(self, asks: Sequence[Question]) -> list[Any]:
        """Begin, lock the mesh row and ask; if the connection died while idle, once more on a new one."""
        statements: list[Sent | Each] = [(raw_sql.BEGIN[self.dialect], ()), *self._first]
        statements += [one for ask in asks for one in self.sent(ask)]
        began = time.monotonic()
        try:
            return self.together(statements)
        except pw.PeeweeException as error:
            if drivers.meaning(error) is not Meaning.LOST or not _was_idle(began):
                raise
        self._drop()  # nothing was changed yet, so a repetition is harmless
        self.connect()
        return self.together(statements)

    def _roll_back(self) -> None:
        if self.db.is_closed():
            return
        try:
            self.execute(raw_sql.ROLLBACK)
        except pw.PeeweeException as error:
            if "no transaction is active" not in str(error):
                self._drop()

    def _settle(self, error: pw.PeeweeException) -> None:
        """Return if the transaction may be run again; otherwise raise the error to report."""
        what = drivers.meaning(error)
        if what is Meaning.RETRY:
            return
        damaged = damage(self.url, drivers.reason(error)) if self._path else None
        if damaged is not None:
            raise damaged from error
        if what is Meaning.LOST:
            self._drop()
            raise self._unavailable(error) from error
        raise StoreError(
            f"the system database refused a statement: {drivers.reason(error)}", "report this as a fault of redmesh"
        ) from error

    def _unavailable(self, error: pw.PeeweeException) -> StoreError:
        text = drivers.reason(error)
        if NO_SUCH_DATABASE in error.args:
            return SchemaError(f"there is no database at {self.url}", "make it: mesh db init")
        if self._path:
            return damage(self.url, text) or DatabaseUnavailable(
                f"the system database ({self.url}) cannot be used: {text}", "the file or its disk is at fault"
            )
        return DatabaseUnavailable(
            f"the system database ({self.url}) does not answer: {text}",
            "see that the server runs and the account may log in",
        )

    def _drop(self) -> None:
        """Drop the connection, whatever its state."""
        if self.db.is_closed():
            return
        connection = self.db.connection()  # type: ignore[no-untyped-call]
        self.db.dispose()
        try:
            connection.close()
        except Exception:  # the connection is unusable, so its errors do not matter
            pass

    def _look_at_wal(self) -> None:
        if self._lock is None:
            return
        self._commits += 1
        if self._commits % COMMITS_BETWEEN_LOOKS:
            return
        try:
            if os.stat(self._path + "-wal").st_size > WAL_CHECKPOINT_BYTES:
                self.execute(raw_sql.CHECKPOINT).fetchall()
        except (OSError, pw.PeeweeException):
            pass  # the commit succeeded; the next checkpoint tries again


def _of_sqlite(cursor: Any, statement: Sent | Each) -> Any:
    if type(statement) is Each:
        return cursor.executemany(*statement).rowcount
    return _outcome(cursor.execute(*statement))


def _outcome(cursor: Any) -> Any:
    """The rows of a query, or the row count of another statement."""
    return list(cursor.fetchall()) if cursor.description is not None else cursor.rowcount


def _out_of_range(error: Exception) -> Invalid:
    if isinstance(error, OverflowError):
        return Invalid("a number in the request is out of range", "ids and sizes fit in 63 bits")
    return Invalid("a text in the request is not Unicode")


def _was_idle(began: float) -> bool:
    """True if a statement failed at once: the connection died while idle, so a new one may work.

    If the server took the whole time-out, it is away, and the caller must learn that within 5 s.
    """
    return time.monotonic() - began < AT_ONCE_S


def open_store(url: str, *, patience_s: float = PATIENCE_S, any_schema: bool = False, make_file: bool = False) -> Store:
    """The system database at ``url``, not yet connected, so that a CPA can start while it is down. Raises BadUrl.

    ``any_schema``: for creating and migrating; without it, connecting raises SchemaError for a foreign schema.
    ``make_file``: create a missing SQLite file. Only for callers that know that no mesh uses it: otherwise a file that
    is only temporarily away would be created anew under a running mesh.
    """
    return Store(url, patience_s, any_schema, make_file)


__all__ = ["SCHEMA_VERSION", "Row", "Store", "Transaction", "open_store"]
