"""Where the state objects of jobs are (db/jobs/locations.py)."""

from __future__ import annotations

from typing import Any

import peewee as pw


class StateLocation(pw.Model):
    uuid = pw.CharField(max_length=36, primary_key=True)
    url = pw.CharField(max_length=255)
    counter = pw.BigIntegerField()
    proxied = pw.BooleanField()
    uid = pw.BigIntegerField()

    class Meta:
        table_name = "state_location"


def up(_migrator: Any, db: pw.Database) -> None:
    if not db.table_exists("state_location"):
        with db.bind_ctx([StateLocation]):
            db.create_tables([StateLocation])
