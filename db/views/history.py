"""Deletes old history in small transactions, so that no other transaction waits for long."""

from __future__ import annotations

from typing import Any

from db.schema.models import Event, Launcher, Partition
from db.store.orm import pw
from db.store.statements import NOW, Ids, Query, among, statement
from db.store.store import Store, Transaction

AT_ONCE = 200
DAY_S = 86400.0

Table = type[Launcher] | type[Partition] | type[Event]


class _History:
    """A table, and the column with the time at which a row ended."""

    def __init__(self, table: Table, ended: pw.Field[Any]) -> None:
        @statement
        def bounds() -> Query:
            return table.select(pw.fn.MIN(table.id), pw.fn.MAX(table.id))

        @statement
        def kept_from(*, rows: int) -> Query:
            """The last of the newest ``rows`` + 1 ended rows."""
            return table.select(table.id).where(ended.is_null(False)).order_by(table.id.desc()).limit(1).offset(rows)

        @statement
        def old(*, first_kept: int, age_s: float, last: int) -> Query:
            late = (table.id < first_kept) | (ended < NOW - age_s)
            found = table.select(table.id, table.changed).where(ended.is_null(False), late, table.id < last)
            return found.order_by(table.id).limit(AT_ONCE)

        @statement
        def delete(*, ids: Ids) -> Query:
            return table.delete().where(among(table.id, ids), ended.is_null(False))

        self.bounds, self.kept_from, self.old, self.delete = bounds, kept_from, old, delete
        self.read_by_counter = table is not Event  # viewers read events by id


_TABLES = (
    _History(Launcher, Launcher.ended_at),
    _History(Partition, Partition.ended_at),
    _History(Event, Event.at),
)


def trim(store: Store, days: float, rows: int, *, steps: int | None = None) -> int:
    """Delete ended launchers, partitions and events older than ``days`` or beyond the last ``rows``; returns how
    many.

    The newest row of each table stays, so that no id is used twice. With ``steps``, runs at most that many transactions
    of AT_ONCE rows a table; if one of them was full, there is more to delete.
    """
    removed = 0
    for table in _TABLES:
        done = 0
        while steps is None or done < steps:
            count = _trim_some(store, table, days, max(rows, 1))
            removed += count
            done += 1
            if count < AT_ONCE:
                break
    return removed


def _trim_some(store: Store, table: _History, days: float, rows: int) -> int:
    """Run one small transaction; returns how many rows it deleted."""
    first, last = store.read(table.bounds.bind())[0]
    if first is None:
        return 0
    first_kept = first
    if last - first >= rows:  # ids may only have gaps, so a smaller difference means too few rows
        kept_from = store.read(table.kept_from.bind(rows=rows - 1))
        first_kept = kept_from[0][0] if kept_from else first
    found = store.read(table.old.bind(first_kept=first_kept, age_s=days * DAY_S, last=last))
    if not found:
        return 0

    def work(t: Transaction) -> int:
        if table.read_by_counter:
            t.trimmed_to = max(t.trimmed_to, *(int(row[1]) for row in found))
        return t.change(table.delete.bind(ids=[int(row[0]) for row in found]))

    return store.run(work)
