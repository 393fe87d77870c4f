"""The side of the machine that a node is on (db/machine/sides.py): switch columns are in mesh.topology, open or
closed."""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "node", {"side": pw.IntegerField(default=1)})
