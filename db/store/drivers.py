"""Connections to both kinds of database with equal settings, and the meaning of their errors."""

from __future__ import annotations

import enum
import errno
import os
import stat
from typing import Any

from db.errors import DatabaseUnavailable, SchemaError, StoreError
from db.store import raw_sql
from db.store.orm import load_mysql, pw
from db.store.ranges import LONGEST_LIST
from db.store.url import connect_mysql, driver_options, mysql_options, sqlite_path, sqlite_uri
from redmesh.filesystem import NETWORK_FILESYSTEMS, filesystem_of

CONNECT_S = 2
ANSWER_S = 3  # a server that is silent for longer counts as dead
LOCK_WAIT_S = 2  # shorter than ANSWER_S, because waiting for a lock must not look like a dead server

#: Deadlock, lock wait, "SAVEPOINT does not exist" (a disguised deadlock), record changed since last read.
RETRY_CODES = frozenset((1205, 1213, 1305, 1020))
#: Gone, lost, killed, shutting down, too many connections, refused by the network. An administrator's KILL QUERY, or a
#: limit on a statement's time, can also hit a COMMIT; the requester then repeats the request with its key.
LOST_CODES = frozenset(
    (2002, 2003, 2006, 2013, 2014, 2055, 4031, 1927, 1053, 1077, 1079, 1080, 1040, 1152, 1158, 1159, 1160, 1184)
    # Also: a limit of this account is reached, or the server may not write now.
    + (1203, 1226, 1290, 1317, 1836, 1969, 3024)
)


#: Converts the drivers' errors to peewee's, as peewee does for statements that it runs itself.
AS_PEEWEES_ERRORS = pw.ExceptionWrapper(
    {
        error.__name__: error
        for error in (
            pw.DatabaseError,
            pw.DataError,
            pw.IntegrityError,
            pw.InterfaceError,
            pw.InternalError,
            pw.NotSupportedError,
            pw.OperationalError,
            pw.ProgrammingError,
        )
    }
)


class Meaning(enum.Enum):
    """What a driver's error means for its transaction."""

    RETRY = "rolled back: run it again"
    LOST = "no connection any more: it may have happened"
    FAULT = "the statement is wrong"


class MySQL(pw.MySQLDatabase):
    """Session settings: UTC, READ COMMITTED, strict, short waits; row counts are of matched rows, as in SQLite."""

    def _connect(self) -> Any:
        return connect_mysql(database=self.database, autocommit=True, **self.connect_params)

    def _initialize_connection(self, conn: Any) -> None:
        with conn.cursor() as cursor:
            cursor.execute(raw_sql.writer_session(LOCK_WAIT_S, LONGEST_LIST))
            cursor.execute(raw_sql.ISOLATE_WRITER)


def open_mysql(url: str, patience_s: float) -> tuple[MySQL, bool]:
    """The unconnected database of a MySQL URL, and whether the URL accepts a Galera cluster."""
    try:
        load_mysql()
        from pymysql.constants import CLIENT
    except ImportError:
        raise DatabaseUnavailable("the MySQL driver is not installed", "install PyMySQL") from None
    galera = mysql_options(url).get("galera") == "single-writer"
    options = driver_options(url)
    name = options.pop("database")
    database = MySQL(
        name,
        autoconnect=False,
        connect_timeout=CONNECT_S,
        read_timeout=max(ANSWER_S, patience_s),
        write_timeout=max(ANSWER_S, patience_s),
        # Several statements a packet, for Store.together; the driver escapes every value in them.
        client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
        **options,
    )
    return database, galera


def open_sqlite(url: str) -> tuple[pw.SqliteDatabase, str]:
    """The unconnected database of an SQLite URL, and its path."""
    path = sqlite_path(url)
    assert path is not None
    database = pw.SqliteDatabase(
        sqlite_uri(path, "rw"),  # opening must not create a missing file; make_sqlite_file creates files
        uri=True,
        autoconnect=False,
        timeout=LOCK_WAIT_S,
        # The log is truncated after its contents are moved into the file, because writers judge by its size when to
        # move it again.
        pragmas={
            "journal_mode": "wal",
            "synchronous": "normal",
            "wal_autocheckpoint": 0,
            "journal_size_limit": 0,
            "cache_size": -8192,
        },
    )
    return database, path


def refuse_galera(answer: tuple[Any, ...] | None, accepted: bool, where: str) -> None:
    """Raise SchemaError for a Galera cluster, unless the URL says that all write to one server of it.

    ``answer``: the server's variable wsrep_on; MySQL gives no row. A lock on one server of a Galera cluster holds only
    on that server, and a conflicting writer learns of it only at its commit.
    """
    if answer and str(answer[1]).upper() in ("ON", "1") and not accepted:
        raise SchemaError(
            f"{where} is a Galera cluster, which does not keep row locks across its servers",
            "send every CPA to one server of it and add ?galera=single-writer to the URL",
        )


def make_sqlite_file(path: str) -> None:
    """Create the file with mode 0600 if it does not exist. Raises DatabaseUnavailable or SchemaError."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        refuse_network_filesystem(path)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: {error.strerror}", "check the mesh's state directory") from None


def check_sqlite_file(path: str) -> None:
    """Check that the file exists, is ours, and is on a local file system. Raises SchemaError or DatabaseUnavailable.

    The file is not opened: closing an SQLite file drops the locks that other connections of the process hold on it
    (sqlite.org/howtocorrupt.html, 2.2).
    """
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if found.st_uid == os.geteuid() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        raise SchemaError(f"there is no system database at {path}", "start the mesh: mesh up") from None
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: {error.strerror}", "check the mesh's state directory") from None
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"{path} belongs to uid {found.st_uid}, not to you", "move it away, or use another state directory"
        )
    refuse_network_filesystem(path)


def refuse_network_filesystem(path: str) -> None:
    """Raise SchemaError on a network file system, which lacks the shared memory that SQLite's write-ahead log needs."""
    kind = filesystem_of(os.path.dirname(path))
    if kind in NETWORK_FILESYSTEMS:
        raise SchemaError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold",
            "put the state on a local disk (XDG_STATE_HOME), or use a MySQL database",
        )


def meaning(error: pw.PeeweeException) -> Meaning:
    """What ``error`` means for the transaction, for example whether it may be run again."""
    code = next((arg for arg in error.args if isinstance(arg, int)), None)
    if code in RETRY_CODES:
        return Meaning.RETRY
    if code in LOST_CODES or (isinstance(error, pw.InterfaceError) and code in (0, None)):
        return Meaning.LOST
    if isinstance(error, pw.OperationalError) and code is None:
        text = str(error).lower()
        if "locked" in text or "busy" in text:
            return Meaning.RETRY
        if "no such" not in text and "syntax" not in text:
            return Meaning.LOST  # SQLite: cannot open, disk full, I/O error, read-only
    return Meaning.FAULT


def reason(error: pw.PeeweeException) -> str:
    """The driver's own error text."""
    words = [arg for arg in error.args if isinstance(arg, str)]
    return (words[-1] if words else str(error)) or "the connection ended"
