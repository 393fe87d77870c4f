"""The login processor on which a job is to continue (db/jobs/locations.py); "" for a job that stays where it is."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns

#: Every RCA asks for the few jobs on the move, of however many.
INDEX = ("goes_to",)


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "state_location", {"goes_to": pw.CharField(max_length=255, default="")})
    if not any(tuple(index.columns) == INDEX for index in db.get_indexes("state_location")):
        migrator.add_index("state_location", INDEX, False).run()
