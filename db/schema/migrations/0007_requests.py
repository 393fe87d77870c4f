"""Requests whose processors are posted back (db/allocation/scheduling/line.py): addresses for post-backs, and
unconfirmed grants."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False


class PostBack(pw.Model):
    id = pw.BigAutoField()
    request_key = pw.CharField(max_length=64)
    sequence = pw.IntegerField()
    launcher = pw.BigIntegerField()
    missing = pw.IntegerField()
    place = pw.CharField(max_length=255)
    cpa = pw.CharField(max_length=255)
    uid = pw.BigIntegerField()
    failures = pw.IntegerField(default=0)

    class Meta:
        table_name = "post_back"
        indexes = ((("request_key", "sequence"), True),)


COLUMNS: dict[str, dict[str, Any]] = {
    "launcher": {"time_s": lambda: pw.DoubleField(null=True)},
    "waiting": {
        "partial": lambda: pw.BooleanField(default=False),
        "place": lambda: pw.CharField(max_length=255, default=""),
        "cpa": lambda: pw.CharField(max_length=255, default=""),
        "sequence": lambda: pw.IntegerField(default=0),
        "time_s": lambda: pw.DoubleField(null=True),
    },
}
#: This index finds the head of each line, however long the line is.
LINE = ("partition", "login_processor", "id")


def up(migrator: Any, db: pw.Database) -> None:
    for table, columns in COLUMNS.items():
        there = {column.name for column in db.get_columns(table)}
        for name, make in columns.items():
            if name not in there:
                migrator.add_column(table, name, make()).run()
    if not any(tuple(index.columns) == LINE for index in db.get_indexes("waiting")):
        migrator.add_index("waiting", LINE, False).run()
    if not db.table_exists("post_back"):
        with db.bind_ctx([PostBack]):
            db.create_tables([PostBack])
