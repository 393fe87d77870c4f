"""Launchers of low priority (yod -nice), and when one that is being preempted will be killed."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


def up(migrator: Any, db: pw.Database) -> None:
    columns: dict[str, pw.Field] = {"nice": pw.BooleanField(default=False), "end_by": pw.DoubleField(null=True)}
    add_columns(migrator, db, "launcher", columns)
