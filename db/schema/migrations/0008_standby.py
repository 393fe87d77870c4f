"""The node that holds the standby copy of a job's state object (db/jobs/locations.py); "" for none."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False


def up(migrator: Any, db: pw.Database) -> None:
    if "standby" not in {column.name for column in db.get_columns("state_location")}:
        migrator.add_column("state_location", "standby", pw.CharField(max_length=255, default="")).run()
