"""Requests whose processors are posted back (db/allocation/scheduling/line.py): addresses for post-backs, and
unconfirmed grants."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


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


COLUMNS: dict[str, dict[str, pw.Field]] = {
    "launcher": {"time_s": pw.DoubleField(null=True)},
    "waiting": {
        "partial": pw.BooleanField(default=False),
        "place": pw.CharField(max_length=255, default=""),
        "cpa": pw.CharField(max_length=255, default=""),
        "sequence": pw.IntegerField(default=0),
        "time_s": pw.DoubleField(null=True),
    },
}
#: This index finds the head of each line, however long the line is.
LINE = ("partition", "login_processor", "id")


def up(migrator: Any, db: pw.Database) -> None:
    for table, columns in COLUMNS.items():
        add_columns(migrator, db, table, columns)
    if not any(tuple(index.columns) == LINE for index in db.get_indexes("waiting")):
        migrator.add_index("waiting", LINE, False).run()
    if not db.table_exists("post_back"):
        with db.bind_ctx([PostBack]):
            db.create_tables([PostBack])
