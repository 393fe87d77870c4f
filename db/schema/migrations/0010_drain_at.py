"""Nodes that will be drained at a given time (db/machine/nodes_bulk.py, ``drain_at``)."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False

COLUMNS: dict[str, Any] = {
    "drain_at": lambda: pw.DoubleField(null=True),
    "drain_reason": lambda: pw.CharField(max_length=600, default=""),
}


def up(migrator: Any, db: pw.Database) -> None:
    there = {column.name for column in db.get_columns("node")}
    for name, make in COLUMNS.items():
        if name not in there:
            migrator.add_column("node", name, make()).run()
