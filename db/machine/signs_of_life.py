"""Whether a mesh uses its database: the evidence needed before another mesh may declare this one lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from db.machine.nodes import count_live
from db.store.orm import pw
from db.store.statements import Query, mysql_statement
from db.store.store import Store
from db.store.url import sqlite_path
from db.views.questions import counter
from redmesh.text import counted

#: Seconds to watch a database: an RCA has a CPA read it every 2 s, and a CPA reconnects within 5 s.
WATCH_S, _LOOK_S = 6.0, 0.5
_PROCESSES = pw.Table("PROCESSLIST", schema="information_schema")


@mysql_statement
def _connected() -> Query:
    """Hosts of the other connections to this database; those of other accounts only with the privilege PROCESS."""
    one = _PROCESSES.c
    return _PROCESSES.select(one.HOST).where(pw.fn.DATABASE() == one.DB, pw.fn.CONNECTION_ID() != one.ID)


def signs_of_life(store: Store, url: str, is_locked: Callable[[], bool]) -> str:
    """The evidence, within ``WATCH_S``, that a mesh uses the database at ``url``; empty if there is none. Raises
    StoreError.

    ``is_locked()``: True if a keeper holds the lock beside an SQLite file.
    """
    until = time.monotonic() + WATCH_S
    before = store.read(counter.bind())[0][0]
    while True:
        if sqlite_path(url) is not None:
            if is_locked():
                return "a keeper holds the mesh.lock beside the file"
        else:
            hosts = sorted(str(host).rpartition(":")[0] or str(host) for (host,) in store.read(_connected.bind()))
            if hosts:
                return f"{counted(len(hosts), 'connection')} from {', '.join(dict.fromkeys(hosts))}"
        if store.read(counter.bind())[0][0] != before:
            return "it was written to a moment ago"
        if time.monotonic() >= until:
            return ""
        time.sleep(_LOOK_S)  # poll: a database does not report changes


def launchers_alive(store: Store) -> int:
    """The number of launchers that have not ended. Raises StoreError."""
    return int(store.read(count_live.bind())[0][0])
