"""Which login processor's RCA receives a node's heartbeats (db/machine/rcas.py); ``by`` says who changed it last, which
may be an administrator."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "node", {"rca": pw.CharField(max_length=255, default="")})
