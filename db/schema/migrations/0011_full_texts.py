"""What viewers do not read of a launch in system mode (db/allocation/full_texts.py): its arguments, and the reason that
its yod gave for its end."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


class LongText(pw.TextField):
    field_type = "LONGTEXT"


COLUMNS: dict[str, pw.Field] = {"full_command": LongText(null=True), "full_reason": pw.TextField(null=True)}


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "launcher", COLUMNS)
