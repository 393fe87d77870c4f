"""The state object: one SQLite file for each job, with everything that is known about the job
(docs/state-object.md).

The job's owner process holds a :class:`StateObject` and is the only writer. Others read the file with
:func:`open_for_reading` or ``sqlite3 UUID.job`` while the owner writes.

The owner records into an open transaction and commits in batches (:meth:`StateObject.commit`). A committed record
survives the end of the process at any instruction; with ``synchronous=FULL`` it survives a loss of power too.

Measured on 2 cores: starting and ending 100,000 tasks in batches of 20 takes 1.5 s, commits included.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
import stat
import time
from base64 import b64decode, b64encode
from itertools import islice

from redmesh.filesystem import NETWORK_FILESYSTEMS, filesystem_of
from redmesh.resource_limits import OPENING, UNOPENED

TYPE_CHECKING = False  # do not import typing at run time: agents start faster without it
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

    Value = Union[str, int, float, bytes, None]
    #: A follower gets the number of each commit and its statements, in order, each with the rows of values it was run
    #: with. The number 0 means that a statement failed: the copy is no longer valid.
    Statements = List[Tuple[str, List[Sequence[Any]]]]
    Follower = Callable[[int, Statements], None]

#: The number of the format, in ``user_version``: of most objects, and of those whose tasks have an order
#: (redmesh/state_graph.py). Files with a higher number are refused.
PLAIN_FORMAT, GRAPH_FORMAT = 1, 2
FORMAT = GRAPH_FORMAT
#: ``application_id`` of the file: "RMJB".
APPLICATION = 0x524D4A42
SUFFIX = ".job"
#: The file beside an object that keeps room on the disk.
KEPT_ROOM = ".room"
#: The ending of another state of an object, kept beside it (agents/objects/carry.py); a number follows.
OTHER = ".other-"
#: The prefix of a location.
SCHEME = "redmesh://"
#: The largest size of an object in bytes, unless its ``limit`` says otherwise.
LIMIT = 1 << 30
#: Values, log lines, last lines and files are refused above this part of the limit; results of tasks are not.
SOFT = 0.9
#: Limits in bytes: a key and a value of the job's own, a log line, and the last lines kept of a task.
MAX_KEY, MAX_VALUE, MAX_TEXT, MAX_LINES = 200, 64 << 10, 4 << 10, 4 << 10
#: Bytes kept free on the disk for the last records of a job.
ROOM = 1 << 20
_CERTAIN_ROOM = 64 << 20  # on a disk that is not full
_PAGE = 4096
_AT_ONCE = 10_000  # how many tasks of a list one statement inserts
_BUSY_S = 5.0
_LOOKS, _LOOK_S = 10, 0.02  # while an owner removes the log beside the file
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

#: The entry of ``meta`` with the login processor to which the owner hands the job over.
HANDED_TO = "handed_to"
#: The key in ``meta`` of a copy that lacks the last commits of a lost owner.
UNSURE = "unsure"
#: States of a task, of a rank, and of a job.
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"

# Use nothing newer than SQLite 3.8 (2013), because hosts have the SQLite that their Python was built with.
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE request (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, partial INTEGER NOT NULL, asked_at REAL NOT NULL,
  answer TEXT, answered_at REAL);
CREATE TABLE resource (id INTEGER PRIMARY KEY, request INTEGER, node TEXT NOT NULL, processors TEXT NOT NULL,
  count INTEGER NOT NULL, granted_at REAL NOT NULL, freed_at REAL);
CREATE TABLE task (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state TEXT NOT NULL, input TEXT, node TEXT,
  slot INTEGER, attempt INTEGER NOT NULL DEFAULT 0, started_at REAL, ended_at REAL, exit INTEGER, progress REAL,
  lines TEXT);
CREATE INDEX task_waiting ON task (first) WHERE state = 'waiting';
CREATE TABLE transition (id INTEGER PRIMARY KEY, at REAL NOT NULL, first INTEGER, last INTEGER, state TEXT NOT NULL,
  node TEXT, cause TEXT);
CREATE TABLE log (id INTEGER PRIMARY KEY, at REAL NOT NULL, node TEXT, task INTEGER, text TEXT NOT NULL);
CREATE TABLE value (key TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL, node TEXT, task INTEGER) WITHOUT ROWID;
CREATE TABLE file (name TEXT PRIMARY KEY, digest TEXT NOT NULL, size INTEGER NOT NULL, mode INTEGER NOT NULL,
  content BLOB NOT NULL);
CREATE TABLE move (counter INTEGER PRIMARY KEY, at REAL NOT NULL, from_url TEXT NOT NULL, to_url TEXT NOT NULL,
  confirmed_at REAL);
"""
_COLUMNS = "first, last, state, input, node, slot, attempt, started_at, ended_at, exit, progress, lines"


class StateError(Exception):
    """A state object cannot be used as requested; ``message``, ``hint`` and ``exit_status`` are as in AgentError."""

    exit_status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message, self.hint = message, hint


class StateGone(StateError):
    """The file of the object was deleted, or another one has its name, while its owner had it open."""


class StateBusy(StateError):
    """Another process owns or reads the object."""


class StateFull(StateError):
    """The object has reached its size limit, or the disk is full. No more can be recorded."""


if TYPE_CHECKING:

    class Task(NamedTuple):
        """A task that was given to a worker."""

        number: int
        input: Optional[str]
        attempt: int

else:
    from collections import namedtuple

    Task = namedtuple("Task", "number input attempt")


def new_uuid() -> str:
    """A random UUID (version 4), made without the module ``uuid``, whose import costs more than this whole module."""
    digits = bytearray(os.urandom(16))
    digits[6], digits[8] = digits[6] & 0x0F | 0x40, digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def is_uuid(text: str) -> bool:
    """True if ``text`` is a UUID as :func:`new_uuid` writes it. UUIDs become file names, so check them."""
    return _UUID.fullmatch(text) is not None


def job_path(directory: str, uuid: str) -> str:
    """The path of the object ``uuid`` in a directory of objects. Raises StateError if ``uuid`` is not a UUID."""
    if not is_uuid(uuid):
        raise StateError(f"{uuid[:60]!r} is not the UUID of a job", "mesh job list prints them")
    return os.path.join(directory, uuid + SUFFIX)


def url_on(node: str, uuid: str) -> str:
    """The location of the object ``uuid`` on ``node``."""
    return f"{SCHEME}{node}/{uuid}"


class StateObject:
    """A state object, held by its owner process, which is the only writer."""

    def __init__(self, path: str, *, durable: bool = True) -> None:
        """Open an object that :meth:`create` made, and check it. Raises StateError.

        With ``durable``, a commit also survives a loss of power, at the cost of one fsync for each commit.
        """
        _check_there(path)
        self.path = path
        self._lock = take_lock(path)
        try:
            _check_there(path)  # another process may have carried it away while it had the lock
            try:
                self._db = _connect(path)
            except sqlite3.Error as error:
                raise damaged(path, error) from None
            self._file = _identity(path)
            try:
                self._prepare(durable)
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            give_lock(path, self._lock)
            raise

    def _prepare(self, durable: bool) -> None:
        db = self._db
        try:
            _check_format(db, self.path)
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            # With a write-ahead log, readers and the writer never wait for each other, and a commit costs one fsync
            # instead of three. The log needs memory that its users share, so it cannot be used across hosts.
            journal = "delete" if filesystem_of(os.path.dirname(self.path)) in NETWORK_FILESYSTEMS else "wal"
            db.execute(f"PRAGMA journal_mode = {journal}")
            db.execute(f"PRAGMA synchronous = {'full' if durable or journal == 'delete' else 'normal'}")
            db.execute("PRAGMA journal_size_limit = 4194304")
            self.uuid = str(self.meta("uuid"))
            self.limit = int(self.meta("limit") or LIMIT)
            self._commits = int(self.meta("commits") or 0)
            self._counts = dict(db.execute("SELECT state, sum(last - first + 1) FROM task GROUP BY state"))
        except sqlite3.Error as error:
            raise damaged(self.path, error) from None
        self._limit_pages(self.limit // _PAGE)
        self._changes: List[Tuple[Any, ...]] = []
        self._writes = False
        self._follower: Optional[Follower] = None
        self._followed: Statements = []  # statements since the last commit
        self.full = self._used() > self.limit * SOFT

    def keep_room(self) -> None:
        """Keep room on the disk for the end of the job: on a full disk it is used for the last records."""
        if filesystem_of(os.path.dirname(self.path)) in NETWORK_FILESYSTEMS:
            return  # there it would have to be written
        try:
            fd = os.open(self.path + KEPT_ROOM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, ROOM)
            finally:
                os.close(fd)
        except OSError:
            self._use_room()  # the first record that needs more says so

    def _use_room(self) -> bool:
        try:
            os.unlink(self.path + KEPT_ROOM)
        except OSError:
            return False
        return True

    @classmethod
    def create(cls, path: str, meta: Dict[str, Value], *, durable: bool = True) -> StateObject:
        """Create an object at ``path`` and open it. The file is written under another name and renamed when it is
        complete.

        ``meta`` has at least ``uuid``. Raises StateError if the file exists or cannot be written.
        """
        aside = path + ".new"
        try:
            if os.path.exists(path):
                raise StateError(f"{path} exists already", "every job has a UUID of its own")
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
            try:
                cls._lay_out(aside, meta, durable)
                os.rename(aside, path)
            except BaseException:
                os.unlink(aside)
                raise
            if durable:
                sync_directory(os.path.dirname(path) or ".")
        except OSError as error:
            raise StateError(f"{path} cannot be made: {error.strerror}", "check the directory") from None
        except sqlite3.Error as error:
            raise StateError(f"{path} cannot be made: {error}", "check the disk's room and quota") from None
        return cls(path, durable=durable)

    @staticmethod
    def _lay_out(path: str, meta: Dict[str, Value], durable: bool) -> None:
        """Create the tables in an empty file. No journal is needed: the file gets its final name when it is
        complete."""
        db = _connect(path)
        try:
            db.executescript(
                f"PRAGMA page_size = {_PAGE}; PRAGMA journal_mode = memory; PRAGMA application_id = {APPLICATION};"
                f" PRAGMA synchronous = {'full' if durable else 'off'};"
                f" BEGIN; {_SCHEMA} PRAGMA user_version = {PLAIN_FORMAT};"
            )
            now = time.time()
            told = {"state": WAITING, "created_at": now, "counter": 0, "limit": LIMIT, **meta}
            db.executemany("INSERT INTO meta VALUES (?, ?)", told.items())
            db.execute("INSERT INTO transition (at, state) VALUES (?, ?)", (now, told["state"]))
            db.execute("COMMIT")
        finally:
            db.close()

    # The identity of the job

    def meta(self, key: str) -> Value:
        """The value of an entry of ``meta``; None if the entry does not exist."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, **entries: Value) -> None:
        """Write entries of ``meta``."""
        for key, value in entries.items():
            self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def set_state(self, state: str, cause: str = "") -> None:
        """Change the state of the job itself."""
        self.set_meta(state=state)
        self._write_changes()  # record changes of tasks first, so that transitions are in the order of events
        self._write("INSERT INTO transition (at, state, cause) VALUES (?, ?, ?)", (time.time(), state, cause or None))

    # Moves between nodes (agents/objects)

    def departs(self, counter: int, sender: str, receiver: str) -> None:
        """Record the start of move number ``counter``. Returns a token; its holder may read the object from another
        node."""
        if not self.meta("token"):
            self.set_meta(token=os.urandom(24).hex())
        self.set_meta(counter=counter)
        self._write(
            "INSERT INTO move (counter, at, from_url, to_url) VALUES (?, ?, ?, ?)",
            (counter, time.time(), url_on(sender, self.uuid), url_on(receiver, self.uuid)),
        )
        self.commit()

    # Tasks

    def add_array(self, first: int, last: int) -> None:
        """Add the tasks ``first`` to ``last`` as one row. No transition is written, because the row says it."""
        self._write("INSERT INTO task (first, last, state) VALUES (?, ?, ?)", (first, last, WAITING))
        self._count(WAITING, last - first + 1)

    def check_room(self) -> None:
        """Raise StateFull if uncommitted tasks leave too little room for their results."""
        self.full = self._used() > self.limit * SOFT
        self._room("task")

    def check_room_for(self, size: int) -> None:
        """Raise StateFull if ``size`` more bytes of tasks would leave too little room for their results."""
        self.full = self._used() + size > self.limit * SOFT
        try:
            self._room("task")
        finally:
            self.full = self._used() > self.limit * SOFT

    def raise_limit(self, limit: int) -> None:
        """Let the object grow to ``limit`` bytes, if that is more than before."""
        if limit > self.limit:
            self._limit_pages(limit // _PAGE)
            self.set_meta(limit=limit)
            self.limit = limit
            self.full = self._used() > limit * SOFT

    def add_list(self, inputs: Iterable[str], first: int = 1) -> int:
        """Add a task for each of ``inputs``, and return the number of inputs. Raises StateFull."""
        number, rest = first, iter(inputs)
        while texts := list(islice(rest, _AT_ONCE)):
            rows = [(one, one, WAITING, text) for one, text in enumerate(texts, number)]
            self._writemany("INSERT INTO task (first, last, state, input) VALUES (?, ?, ?, ?)", rows)
            number += len(texts)
            self.check_room()
        self._count(WAITING, number - first)
        return number - first

    def take(self, count: int, node: str, slot: int = 0) -> List[Task]:
        """Give the next ``count`` waiting tasks, in order, to a worker on ``node``; fewer if fewer are waiting."""
        rows = self._db.execute(
            "SELECT first, last, input, attempt FROM task WHERE state = 'waiting' ORDER BY first LIMIT ?", (count,)
        ).fetchall()
        return self._take(rows, count, node, slot)

    def take_these(self, numbers: Iterable[int], node: str, slot: int = 0) -> List[Task]:
        """Give these waiting tasks to a worker on ``node``."""
        taken: List[Task] = []
        for number in numbers:
            row = self._db.execute(
                "SELECT first, last, input, attempt, state FROM task WHERE first <= ? ORDER BY first DESC LIMIT 1",
                (number,),
            ).fetchone()
            if row is None or row[4] != WAITING or row[1] < number:
                continue
            if row[0] < number:
                self._split(number)
            taken += self._take([(number, *row[1:4])], 1, node, slot)
        return taken

    def _take(self, rows: List[Tuple[int, int, Optional[str], int]], count: int, node: str, slot: int) -> List[Task]:
        now = time.time()
        taken: List[Task] = []
        for first, last, text, attempt in rows:
            if len(taken) == count:
                break
            through = min(last, first + count - len(taken) - 1)
            if through < last:
                self._split(through + 1)
            for number in range(first, through + 1):
                taken.append(Task(number, text, attempt + 1))
            fields = (RUNNING, node, slot, attempt + 1, now)
            self._write(
                "UPDATE task SET last = first, state = ?, node = ?, slot = ?, attempt = ?, started_at = ?, ended_at ="
                " NULL, exit = NULL, progress = NULL WHERE first = ?", (*fields, first),
            )  # fmt: skip
            if through > first:
                self._writemany(
                    "INSERT INTO task (first, last, state, node, slot, attempt, started_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [(number, number, *fields) for number in range(first + 1, through + 1)],
                )
            self._changed(first, through, RUNNING, node, "", now)
        self._count(WAITING, -len(taken))
        self._count(RUNNING, len(taken))
        return taken

    def copied(self, number: int, node: str) -> Task:
        """Give a second copy of a running task to a worker on ``node``."""
        text, attempt = self._db.execute("SELECT input, attempt FROM task WHERE first = ?", (number,)).fetchone()
        self._write("UPDATE task SET attempt = ? WHERE first = ?", (attempt + 1, number))
        self._changed(number, number, RUNNING, node, "a second copy", time.time())
        return Task(number, text, attempt + 1)

    def ended(
        self, number: int, attempt: int, status: int, *, started_at: float, ended_at: float, cause: str = "",
        lines: str = "", node: str = "", copy: bool = False, most: int = MAX_LINES,
    ) -> bool:  # fmt: skip
        """Record the end of an attempt at a task, with at most the last ``most`` bytes of its output.

        ``copy``: the attempt was one of several copies and ran on ``node``; the row may name the attempt of another
        copy. Returns False if the attempt is no longer running: a late result of a lost worker changes nothing.
        """
        state = DONE if status == 0 and not cause else FAILED
        if lines:
            lines = "" if self.full else lines[-most:]
        changed = self._write(
            "UPDATE task SET state = ?, started_at = ?, ended_at = ?, exit = ?, lines = ?, node = coalesce(?, node)"
            " WHERE first = ? AND (attempt = ? OR ?) AND state = 'running'",
            (state, started_at, ended_at, status, lines or None, node or None, number, attempt, copy),
        )
        if changed:
            self._count(RUNNING, -1)
            self._count(state, 1)
            self._changed(number, number, state, node, cause, ended_at)
        return bool(changed)

    def change(
        self, first: int, last: int, state: str, *, node: str = "", cause: str = "", at: float = 0.0, **columns: Value
    ) -> None:
        """Set the state of the tasks ``first`` to ``last``, whatever it was; ``columns`` are further columns of
        ``task`` to set."""
        at = at or time.time()
        self._split(first)
        self._split(last + 1)
        for before, count in self._db.execute(
            "SELECT state, sum(last - first + 1) FROM task WHERE first BETWEEN ? AND ? GROUP BY state", (first, last)
        ).fetchall():
            self._count(before, -count)
            self._count(state, count)
        if node:
            columns["node"] = node
        names = "".join(f", {name} = ?" for name in columns)
        self._write(
            f"UPDATE task SET state = ?{names} WHERE first BETWEEN ? AND ?", (state, *columns.values(), first, last)
        )
        self._changed(first, last, state, node, cause, at)

    def give_back(self, node: str, cause: str, slot: Optional[int] = None) -> List[int]:
        """Return the running tasks of a lost worker (a node, or one slot of it) to the list. Returns their numbers."""
        rows = self._db.execute(
            "SELECT first FROM task WHERE state = 'running' AND node = ? AND (? IS NULL OR slot = ?)",
            (node, slot, slot),
        ).fetchall()
        for (number,) in rows:
            self.change(number, number, WAITING, cause=cause)
        return [number for (number,) in rows]

    def last_lines(self, number: int, lines: str) -> None:
        """Record the last lines of a task's output. They are dropped if the object is nearly full."""
        if not self.full:
            self._split(number)
            self._split(number + 1)
            self._write("UPDATE task SET lines = ? WHERE first = ?", (lines[-MAX_LINES:], number))

    def progress(self, part: float, task: Optional[int] = None) -> None:
        """Record the progress, 0 to 1, of a task or of the job itself."""
        if task is None:
            self.set_meta(progress=part)
        else:
            self._split(task)
            self._split(task + 1)
            self._write("UPDATE task SET progress = ? WHERE first = ?", (part, task))

    def read(self, query: str, *values: Value) -> List[Tuple[Any, ...]]:
        """The rows of a query."""
        return self._db.execute(query, values).fetchall()

    def rows(self, query: str, *values: Value) -> Iterator[Tuple[Any, ...]]:
        """The rows of a query, one after the other: nothing must be written meanwhile."""
        return self._db.execute(query, values)

    def write(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values. Raises StateError."""
        if len(rows) == 1:
            self._write(statement, rows[0])
        else:
            self._writemany(statement, rows)

    @property
    def counts(self) -> Dict[str, int]:
        """The number of tasks in each state."""
        return {state: count for state, count in self._counts.items() if count}

    def _count(self, state: str, count: int) -> None:
        self._counts[state] = self._counts.get(state, 0) + count

    def _split(self, at: int) -> None:
        """Split the row that contains task ``at``, so that a row begins there."""
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM task WHERE first < ? ORDER BY first DESC LIMIT 1", (at,)
        ).fetchone()
        if row is None or row[1] < at:
            return
        self._write("UPDATE task SET last = ? WHERE first = ?", (at - 1, row[0]))
        self._write(f"INSERT INTO task ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (at, *row[1:]))

    def _changed(self, first: int, last: int, state: str, node: str, cause: str, at: float) -> None:
        self._begin()
        self._changes.append((state, node or None, cause or None, first, last, at))

    def _write_changes(self) -> None:
        """Write the transitions since the last commit; adjacent tasks with the same change share a row."""
        rows: List[List[Any]] = []
        for state, node, cause, first, last, at in self._changes:
            if rows:
                row = rows[-1]
                if row[2] + 1 == first and row[3] == state and row[4] == node and row[5] == cause:
                    row[0], row[2] = at, last
                    continue
            rows.append([at, first, last, state, node, cause])
        self._changes.clear()
        self._writemany("INSERT INTO transition (at, first, last, state, node, cause) VALUES (?, ?, ?, ?, ?, ?)", rows)

    # Processors

    def requested(self, count: int, *, partial: bool) -> int:
        """Record a request for processors. Returns the number of the request in this object."""
        self._write(
            "INSERT INTO request (count, partial, asked_at) VALUES (?, ?, ?)", (count, int(partial), time.time())
        )
        return int(self._db.execute("SELECT last_insert_rowid()").fetchone()[0])

    def answered(self, request: int, answer: str) -> None:
        """Record the answer to a request: ``acknowledged``, or the reason of a refusal."""
        self._write("UPDATE request SET answer = ?, answered_at = ? WHERE id = ?", (answer, time.time(), request))

    def granted(self, request: int, node: str, processors: str, count: int) -> None:
        """Record processors of a node that were posted back."""
        self._write(
            "INSERT INTO resource (request, node, processors, count, granted_at) VALUES (?, ?, ?, ?, ?)",
            (request, node, processors, count, time.time()),
        )

    def freed(self, node: str = "", request: Optional[int] = None) -> None:
        """Record that processors were freed: those of a node, of a request, or all."""
        self._write(
            "UPDATE resource SET freed_at = ? WHERE freed_at IS NULL AND ? IN ('', node) AND coalesce(?, request) ="
            " request", (time.time(), node, request),
        )  # fmt: skip

    # What the job itself records

    def set(self, key: str, value: str, *, node: str = "", task: Optional[int] = None) -> None:
        """Set a value of the job's own. Raises StateError if it is too long, or if the object is nearly full."""
        if not 0 < len(key.encode("utf-8", "replace")) <= MAX_KEY:
            raise StateError(f"a key has 1 to {MAX_KEY} bytes", "choose a shorter name")
        if len(value.encode("utf-8", "replace")) > MAX_VALUE:
            raise StateError(f"{key}: a value has at most {MAX_VALUE} bytes", "write large data into a file")
        self._room("value")
        self._write(
            "INSERT OR REPLACE INTO value VALUES (?, ?, ?, ?, ?)", (key, value, time.time(), node or None, task)
        )

    def get(self, key: str) -> Optional[str]:
        """A value of the job's own; None if it does not exist."""
        row = self._db.execute("SELECT value FROM value WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def log(self, text: str, *, node: str = "", task: Optional[int] = None, at: float = 0.0) -> None:
        """Append a line to the job's log, cut off at MAX_TEXT bytes. Raises StateError if the object is nearly full."""
        self._room("log line")
        self._write(
            "INSERT INTO log (at, node, task, text) VALUES (?, ?, ?, ?)",
            (at or time.time(), node or None, task, text[:MAX_TEXT]),
        )

    # Files that travel with the job

    def add_file(self, name: str, content: bytes, mode: int = 0o600) -> None:
        """Store a file in the object, replacing one of the same name. Raises StateError if the object is nearly
        full."""
        from hashlib import sha256

        self._room("file")
        self._write(
            "INSERT OR REPLACE INTO file (name, digest, size, mode, content) VALUES (?, ?, ?, ?, ?)",
            (name, sha256(content).hexdigest(), len(content), mode, content),
        )

    def file(self, name: str) -> Optional[bytes]:
        """The content of a file in the object; None if the file does not exist."""
        row = self._db.execute("SELECT content FROM file WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0] if isinstance(row[0], bytes) else str(row[0]).encode()

    def files(self, prefix: str) -> List[Tuple[str, str, int, int]]:
        """Name, SHA-256, size and mode of each file whose name begins with ``prefix``, by name."""
        found = self._db.execute("SELECT name, digest, size, mode FROM file ORDER BY name").fetchall()
        return [one for one in found if one[0].startswith(prefix)]

    def mean_s(self) -> Optional[float]:
        """The mean duration of a finished task in seconds; None if no task has finished."""
        row = self._db.execute("SELECT avg(ended_at - started_at) FROM task WHERE state = ?", (DONE,)).fetchone()
        return None if row[0] is None else float(row[0])

    def ranges(self) -> Iterator[Tuple[int, int, str, int]]:
        """The first task, last task, state and attempts of every row of tasks, in order."""
        yield from self._db.execute("SELECT first, last, state, attempt FROM task ORDER BY first").fetchall()

    def _room(self, what: str) -> None:
        if self.full:
            raise StateFull(
                f"no {what} is recorded any more: the state object of job {self.uuid} has nearly reached its limit of"
                f" {self.limit >> 20} MiB", "results of tasks still are; raise job_limit_mb for the next job",
            )  # fmt: skip

    def mark_unsure(self) -> None:
        """Say in a copy that it may lack the last commits of its owner, without making it a later state."""
        if self.meta("state") not in (DONE, FAILED, CANCELLED):
            self._guarded(lambda: self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", (UNSURE,)))

    def contains(self, other: StateObject) -> bool:
        """True if the last change, log line and value of ``other`` are recorded here too: it is an earlier state of
        this object, not another continuation of the job."""
        for table, key, same in (("transition", "id", "="), ("log", "id", "="), ("value", "key", ">=")):
            last = other._db.execute(f"SELECT {key}, at FROM {table} ORDER BY at DESC, {key} DESC LIMIT 1").fetchone()
            if last and not self._db.execute(f"SELECT 1 FROM {table} WHERE {key} = ? AND at {same} ?", last).fetchone():
                return False
        return True

    # Transactions

    @property
    def dirty(self) -> bool:
        """True if there are changes to commit."""
        return self._writes

    def commit(self) -> None:
        """Make all changes since the last commit permanent and visible to readers. Raises StateFull or StateError."""
        if not self._writes:
            return
        if self._changes:
            self._write_changes()
        self._commits += 1
        self._write(
            "INSERT OR REPLACE INTO meta VALUES ('counts', ?), ('commits', ?)", (json.dumps(self.counts), self._commits)
        )
        self._guarded(lambda: self._db.execute("COMMIT"))
        self._writes = False
        self.full = self._used() > self.limit * SOFT
        if self._follower is not None:
            followed, self._followed = self._followed, []
            self._follower(self._commits, followed)

    @property
    def commits(self) -> int:
        """The number of commits so far."""
        return self._commits

    def follow(self, follower: Optional[Follower]) -> None:
        """Call ``follower`` with every commit from now on (None: nobody).

        A copy of the file as it is now stays identical if the same statements are run on it in the same order.
        """
        if follower is not None:
            self.commit()
        self._follower = follower
        self._followed.clear()

    def finish(self, state: str, cause: str = "", **entries: Value) -> None:
        """Record the end of the job and commit. There is always room for this."""
        self._limit_pages(self.limit // _PAGE + 64)
        self.set_state(state, cause)
        self.set_meta(ended_at=time.time(), **entries)
        self.commit()

    def check_name(self) -> None:
        """Raise StateGone if the file that was opened is certainly no longer there under its name, nor on its way to a
        node. A file system that does not answer is no evidence of that."""
        found = _identity(self.path)
        if found is None or self._file is None or found == self._file:
            return
        if _identity(self.path + ".sent") in (None, self._file):
            return
        what = "replaced by another file" if found != _NO_FILE else "deleted"
        raise StateGone(f"{self.path} was {what} while its job ran", "mesh cancel and mesh purge end a job")

    def seal(self) -> bool:
        """Turn the object into exactly one file that can be read from anywhere, for copying or because its job has
        ended.

        Returns False if another process reads it now, because the files beside it are then in use.
        """
        self.commit()
        try:
            self._db.execute("PRAGMA busy_timeout = 200")
            mode = self._db.execute("PRAGMA journal_mode = delete").fetchone()[0]
        except sqlite3.OperationalError:
            mode = ""
        self._db.execute(f"PRAGMA busy_timeout = {int(_BUSY_S * 1000)}")
        return str(mode) == "delete"

    def close(self, *, abandon: bool = False) -> None:
        """Commit, leave a single file, and give up ownership. ``abandon``: discard uncommitted changes."""
        try:
            if abandon and self._writes:
                self._db.execute("ROLLBACK")
                self._writes = False
            self.seal()
        finally:
            self._db.close()
            self._use_room()
            give_lock(self.path, self._lock)

    def _begin(self) -> None:
        if not self._writes:
            self._guarded(lambda: self._db.execute("BEGIN IMMEDIATE"))
            self._writes = True

    def _write(self, statement: str, values: Sequence[Any]) -> int:
        if not self._writes:
            self._begin()
        try:
            changed = self._db.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._failed(error) from None
        if self._follower is not None:
            self._followed.append((statement, [values]))
        return changed

    def _writemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._begin()
        self._guarded(lambda: self._db.executemany(statement, rows))
        if self._follower is not None and rows:
            self._followed.append((statement, list(rows)))

    def _guarded(self, do: Any) -> None:
        try:
            do()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: sqlite3.Error) -> StateError:
        """The error to raise after SQLite failed. SQLite may have rolled back the whole batch, so all uncommitted
        changes are lost."""
        follower, self._follower = self._follower, None
        self._followed.clear()
        if follower is not None:
            follower(0, [])
        try:
            # SQLite may have rolled back already, so that the file is small again: then the disk says which it was.
            of_limit = "full" in str(error) and (self._used() >= self.limit - (64 << 10) or _has_room(self.path))
        except sqlite3.Error:
            of_limit = False  # after an error of the disk SQLite does nothing else before a rollback
        try:
            if not of_limit and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # ``error`` says why
        if self._writes and not self._db.in_transaction:
            self._writes = False
            self._changes.clear()
            try:
                self._counts = dict(self._db.execute("SELECT state, sum(last - first + 1) FROM task GROUP BY state"))
            except sqlite3.Error:
                pass
        if not of_limit:
            self._use_room()
        if "full" in str(error) and not of_limit:
            return StateFull(
                f"the disk of {os.path.dirname(self.path)} is full, or its quota is used up: job {self.uuid} cannot be"
                " recorded", "make room; mesh retry, or mesh sections resume, goes on",
            )  # fmt: skip
        if "full" in str(error):
            return StateFull(
                f"the state object of job {self.uuid} is full: its limit is {self.limit >> 20} MiB",
                f"or the disk of {os.path.dirname(self.path)} is full; raise job_limit_mb, or make room, and mesh retry"
                " goes on",
            )
        return StateError(f"{self.path} cannot be written: {error}", "check the disk; sqlite3 FILE .recover reads it")

    def _used(self) -> int:
        return int(self._db.execute("PRAGMA page_count").fetchone()[0]) * _PAGE

    def _limit_pages(self, pages: int) -> None:
        self._db.execute(f"PRAGMA max_page_count = {max(pages, 16)}")


def encode_commit(number: int, statements: "Statements") -> bytes:
    """Encode a commit for a follower as one line of JSON."""
    return json.dumps([number, statements], default=_packed, separators=(",", ":")).encode() + b"\n"


def decode_commit(line: bytes) -> "Tuple[int, Statements]":
    """Parse a line from :func:`encode_commit`. Raises ValueError."""
    number, statements = json.loads(line, object_hook=lambda told: b64decode(told["bytes"]))
    return number, statements


def _packed(value: Any) -> Dict[str, str]:
    return {"bytes": b64encode(value).decode()}


def own_connection(path: str) -> sqlite3.Connection:
    """Open a copy that nobody else uses, for writing. Raises StateError."""
    db = _connect(path)
    try:
        _check_format(db, path)
    except BaseException:
        db.close()
        raise
    return db


def note_takeover(path: str, counter: int, node: str) -> None:
    """Record in an unused standby copy that it is now the job's object, under ``counter``. Raises StateError."""
    db = own_connection(path)
    try:
        db.execute("PRAGMA journal_mode = delete")
        uuid = db.execute("SELECT value FROM meta WHERE key = 'uuid'").fetchone()[0]
        host = (db.execute("SELECT value FROM meta WHERE key = 'host'").fetchone() or ("",))[0]
        now, here = time.time(), url_on(node, uuid)
        db.execute("BEGIN")
        db.execute("INSERT OR REPLACE INTO move VALUES (?, ?, ?, ?, ?)", (counter, now, f"{SCHEME}{host}", here, now))
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("counter", counter), ("host", node)])
        handed = db.execute("SELECT value FROM meta WHERE key = ?", (HANDED_TO,)).fetchone()
        told = f"the owner on {host} handed the job over to {handed[0]}" if handed and handed[0] else ""
        told = told or f"the standby goes on: the owner on {host} was lost"
        db.execute("DELETE FROM meta WHERE key = ?", (HANDED_TO,))
        if not (handed and handed[0]):
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", (UNSURE,))
        db.execute("INSERT INTO log (at, node, text) VALUES (?, ?, ?)", (now, node, told))
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise damaged(path, error) from None
    finally:
        db.close()


def note_arrival(path: str, counter: int, node: str) -> None:
    """Record the location in a copy that has just arrived and is unused. The caller syncs the file. Raises
    StateError."""
    db = _connect(path)
    try:
        _check_format(db, path)
        db.execute("PRAGMA journal_mode = memory")
        db.execute("PRAGMA synchronous = off")
        db.execute("BEGIN")
        db.execute("UPDATE move SET confirmed_at = ? WHERE counter = ?", (time.time(), counter))
        db.execute("INSERT OR REPLACE INTO meta VALUES ('host', ?)", (node,))
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise damaged(path, error) from None
    finally:
        db.close()


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open an object for reading in one transaction, so that all answers describe the same moment. Raises
    StateError.

    The owner may write meanwhile; neither waits for the other.
    """
    _check_there(path)
    address = f"file:{_quoted(path)}?mode=ro"
    try:
        try:
            return _reading(address, path)
        except sqlite3.OperationalError:
            writable = os.access(os.path.dirname(path) or ".", os.W_OK)
            if writable:
                _roll_back(path)
            if _half_written(path):
                return _read_copy(path)
            if writable:
                return _read_again(address, path)
            # The shared memory of the log cannot be created in this directory, so nobody writes there.
            return _reading(address + "&immutable=1", path)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: SQLite quotes a damaged schema
        raise damaged(path, error) from None


def _roll_back(path: str) -> None:
    """Undo the change during which the last owner was killed: a journal beside the object, which reading alone leaves.

    SQLite does it for whoever may write, unless the one who changes the object is alive: its lock on the file says so.
    """
    if not os.path.exists(path + "-journal") or owned(path) or os.stat(path).st_uid != os.geteuid():
        return
    db = _connect(path)
    try:
        db.execute("SELECT 1 FROM meta").fetchone()
    finally:
        db.close()


def _half_written(path: str) -> bool:
    """True if the last owner was killed and this process may not undo what it wrote last: in a directory that is
    read-only, or of another user."""
    if owned(path):
        return False
    journal, log = _size(path + "-journal"), _size(path + "-wal")
    elsewhere = os.stat(path).st_uid != os.geteuid() or not os.access(os.path.dirname(path) or ".", os.W_OK)
    return elsewhere and bool(journal or log)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read_copy(path: str) -> sqlite3.Connection:
    """Read a temporary copy of an object and of the files beside it, in which SQLite undoes the half-written change."""
    from shutil import copyfile, rmtree  # slow to import, and seldom needed
    from tempfile import mkdtemp

    directory = ""
    try:
        directory = mkdtemp(prefix="redmesh-")
        copy = os.path.join(directory, os.path.basename(path))
        for suffix in ("", "-journal", "-wal"):
            if not suffix or _size(path + suffix):
                copyfile(path + suffix, copy + suffix)
        db = _connect(copy)
        try:
            db.execute("PRAGMA journal_mode = delete")
        finally:
            db.close()
        return _reading(f"file:{_quoted(copy)}?mode=ro", copy)
    except OSError as error:
        raise StateError(
            f"{path} has a half-written change, and no copy can be made to undo it: {error.strerror}",
            "set TMPDIR to a directory with room for the object",
        ) from None
    finally:
        rmtree(directory, ignore_errors=True)  # SQLite has it open


def _read_again(address: str, path: str) -> sqlite3.Connection:
    """Once more, a few times: who opens the log while the owner removes it is told that the file is read-only."""
    for _ in range(_LOOKS):
        time.sleep(_LOOK_S)
        try:
            return _reading(address, path)
        except sqlite3.OperationalError:
            if not os.path.exists(path):
                break
    return _reading(address, path)


def _reading(address: str, path: str) -> sqlite3.Connection:
    db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_BUSY_S)
    try:
        _check_format(db, path)
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM meta").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _check_format(db: sqlite3.Connection, path: str) -> None:
    """Raise StateError if the file is not a state object or has a newer format.

    SQLite itself reads the header: opening and closing the file here would drop the locks of this process.
    """
    try:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        number = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if "not a database" not in str(error):
            raise
        application = number = 0
    if application != APPLICATION:
        raise StateError(f"{path} is not a state object", "a job's file is named UUID.job")
    if number > FORMAT:
        raise StateError(
            f"{path} has format {number}; this Redmesh reads formats up to {FORMAT}", "use a newer Redmesh"
        )


def _check_there(path: str) -> None:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise StateError(f"{path} is not a state object: it is not a file", "a job's file is named UUID.job")
        if found.st_size == 0:
            raise StateError(f"{path} is not a state object: it is empty", "a job's file is named UUID.job")
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}", "mesh job list prints the jobs there are") from None


def owned(path: str) -> bool:
    """True if an owner process holds the object now."""
    try:
        # Open it for reading only: watchers recognise the owner's death by the closing of a file that was open for
        # writing.
        fd = os.open(path + ".lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def damaged(path: str, error: Exception) -> StateError:
    """The error for an object that cannot be read."""
    if UNOPENED in str(error):
        return StateError(f"{path} cannot be read: {error}", OPENING)
    return StateError(f"{path} cannot be read: {error}", "sqlite3 FILE .recover saves what can be read of it")


#: What ``_identity`` says where there is certainly no file.
_NO_FILE = (0, 0)


def _has_room(path: str) -> bool:
    """True if the disk of a file certainly has room for more than a few records."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize > _CERTAIN_ROOM


def _identity(path: str) -> Optional[Tuple[int, int]]:
    """Device and number of a file; _NO_FILE if there is none, None if that cannot be told."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _NO_FILE
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sync_directory(directory: str) -> None:
    """Make changes of names in a directory survive a loss of power. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _connect(path: str) -> sqlite3.Connection:
    # Never create the file here: it may have moved to another node between our check and the lock.
    address = f"file:{_quoted(path)}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=_BUSY_S, isolation_level=None, cached_statements=64)


def _quoted(path: str) -> str:
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def take_lock(path: str) -> int:
    """Take the write lock of the object ``path``, which need not exist, and return its descriptor. Raises StateBusy if
    another process has it, and StateError.

    The lock is on a separate file, because SQLite's own use of the object would drop a lock on it
    (sqlite.org/howtocorrupt.html, 2.2).
    """
    try:
        while True:
            fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # An owner that has just closed the object may have removed the lock file that we opened.
                if os.fstat(fd).st_nlink:
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
    except BlockingIOError:
        raise StateBusy(
            f"{path} belongs to another process, which runs", "only the owner of a job writes; others may read"
        ) from None
    except OSError as error:
        raise StateError(f"{path}.lock: {error.strerror}", "check the directory") from None


def give_lock(path: str, lock: int) -> None:
    """Give up the write lock of the object ``path``."""
    try:
        # If the files were deleted and the object restored meanwhile, the lock file there is that of the next owner.
        if os.path.samestat(os.stat(path + ".lock"), os.fstat(lock)):
            os.unlink(path + ".lock")
    except OSError:
        pass
    os.close(lock)
