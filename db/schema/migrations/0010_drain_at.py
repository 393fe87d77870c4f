"""Nodes that will be drained at a given time (db/machine/nodes_bulk.py, ``drain_at``)."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns

COLUMNS: dict[str, pw.Field] = {
    "drain_at": pw.DoubleField(null=True),
    "drain_reason": pw.CharField(max_length=600, default=""),
}


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "node", COLUMNS)
