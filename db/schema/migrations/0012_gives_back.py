"""Launches of jobs that give processors back when other requests wait for some."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


def up(migrator: Any, db: pw.Database) -> None:
    columns: dict[str, pw.Field] = {"gives_back": pw.BooleanField(default=False)}
    add_columns(migrator, db, "launcher", columns)
