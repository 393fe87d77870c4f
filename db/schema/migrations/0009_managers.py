"""Managers (db/allocation/managers.py): the manager of a waiting request, and its place in the line of the manager's
part."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns

COLUMNS: dict[str, pw.Field] = {
    "manager": pw.CharField(max_length=64, default=""),
    "part": pw.CharField(max_length=64, default=""),
    "precedence": pw.IntegerField(default=0),
}
#: This index finds the head of each line, however long the line is.
LINE = ("partition", "login_processor", "part", "precedence", "id")


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "waiting", COLUMNS)
    if not any(tuple(index.columns) == LINE for index in db.get_indexes("waiting")):
        migrator.add_index("waiting", LINE, False).run()
