"""The node that holds the standby copy of a job's state object (db/jobs/locations.py); "" for none."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "state_location", {"standby": pw.CharField(max_length=255, default="")})
