"""Makes the current schema in a new SQLite file, in one transaction.

Playing all migrations takes 130 ms of CPU, a quarter of the first ``mesh up`` (and of a yod that starts a mesh).
``sqlite.sql`` is what they make; tools/sqlite_schema.py writes it after a new migration.
"""

from __future__ import annotations

import os

from db.store.orm import pw
from db.store.store import Store

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sqlite.sql")
#: Separates statements; no text in them has it.
END = ";\n"


def make(store: Store) -> list[str]:
    """Make the schema if the file is empty; returns the names of the migrations that are in it, [] if it is not empty.

    The caller holds the migrations' lock. Raises peewee's errors.
    """
    if store.db.get_tables():
        return []
    with open(SCHEMA, encoding="ascii") as file:
        statements = file.read().split(END)
    with store.db.atomic():
        for statement in filter(str.strip, statements):
            store.execute(statement)
    done = pw.Table("schema_migration").bind(store.db)
    return [str(name) for (name,) in done.select(done.c.name).order_by(done.c.id).tuples()]
