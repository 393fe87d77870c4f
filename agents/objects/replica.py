"""The copy of a running job's object on its standby: the owner's statements, run again in the same order.

Every commit of the owner has a number (``meta``: ``commits``). A copy with commit N accepts only N + 1, as the
statements and their values. These read no clock and nothing outside the file, so the copy stays identical. Pages are
not sent, because their order depends on the owner's checkpoints and its SQLite.
"""

from __future__ import annotations

import os
import sqlite3

from agents.wire.errors import AgentError
from redmesh.state import damaged, decode_commit, own_connection
from redmesh.state_graph import TABLES
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

#: The statement kinds of an owner; none of them reaches another file. It makes the tables of redmesh/state_graph.py
#: besides.
_ALLOWED = frozenset((
    sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_TRANSACTION,
))  # fmt: skip


class Replica:
    """The copy at ``path``, held by the process that receives commits. Raises StateError if it is damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._free = False  # True while any statement may run
        self._db = own_connection(path)
        try:
            self._db.execute("PRAGMA journal_mode = wal")
            self._db.execute("PRAGMA synchronous = normal")
            self.commits = commits_of(path)
            self._db.set_authorizer(
                lambda what, *_: sqlite3.SQLITE_OK if self._free or what in _ALLOWED else sqlite3.SQLITE_DENY
            )
        except sqlite3.Error as error:
            self._db.close()
            raise damaged(path, error) from None

    def apply(self, data: bytes) -> None:
        """Run the commits in ``data`` in one transaction: all or none. Raises AgentError if one is missing."""
        try:
            commits = [decode_commit(line) for line in data.splitlines()]
            self._db.execute("BEGIN IMMEDIATE")
            try:
                number = self.commits
                for number, statements in commits:
                    if number <= self.commits:
                        continue  # the copy already contains it
                    if number != self.commits + 1:
                        raise ValueError(f"commit {number} came after {self.commits}")
                    for statement, rows in statements:
                        self._run(statement, rows)
                    self.commits = number
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        except (ValueError, TypeError, KeyError, sqlite3.Error) as error:
            told = f"the commits for {os.path.basename(self.path)} cannot be applied: {error}"
            raise AgentError(told, "the owner sends the whole object again", code="state") from None

    def _run(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        if statement not in TABLES:
            self._db.executemany(statement, rows)
            return
        self._free = True  # a task of this job was the first to add others
        try:
            self._db.execute(statement)
        finally:
            self._free = False

    def close(self) -> None:
        """Leave one file."""
        self._free = True
        try:
            self._db.execute("PRAGMA journal_mode = delete")
        except sqlite3.Error:
            pass  # a reader has it open, and uses the log beside it
        self._db.close()


def commits_of(path: str) -> int:
    """The number of the last commit in a copy. Raises StateError."""
    with StateReader(path) as job:
        return int(job.meta("commits") or 0)


def copy(source: str, target: str) -> int:
    """Copy an object as of one moment, even while its owner writes; returns the number of its last commit."""
    with StateReader(source) as job:
        try:
            job.copy_to(target)
        except sqlite3.Error as error:
            raise damaged(source, error) from None
    return commits_of(target)
