"""Which login processor's RCA receives a node's heartbeats (db/machine/rcas.py); ``by`` says who changed it last, which
may be an administrator."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False


def up(migrator: Any, db: pw.Database) -> None:
    if "rca" not in {column.name for column in db.get_columns("node")}:
        migrator.add_column("node", "rca", pw.CharField(max_length=255, default="")).run()
