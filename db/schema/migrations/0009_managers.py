"""Managers (db/allocation/managers.py): the manager of a waiting request, and its place in the line of the manager's
part."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False

COLUMNS: dict[str, Any] = {
    "manager": lambda: pw.CharField(max_length=64, default=""),
    "part": lambda: pw.CharField(max_length=64, default=""),
    "precedence": lambda: pw.IntegerField(default=0),
}
#: This index finds the head of each line, however long the line is.
LINE = ("partition", "login_processor", "part", "precedence", "id")


def up(migrator: Any, db: pw.Database) -> None:
    there = {column.name for column in db.get_columns("waiting")}
    for name, make in COLUMNS.items():
        if name not in there:
            migrator.add_column("waiting", name, make()).run()
    if not any(tuple(index.columns) == LINE for index in db.get_indexes("waiting")):
        migrator.add_index("waiting", LINE, False).run()
