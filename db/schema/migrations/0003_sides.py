"""The side of the machine that a node is on (db/machine/sides.py): switch columns are in mesh.topology, open or
closed."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False


def up(migrator: Any, db: pw.Database) -> None:
    if "side" not in {column.name for column in db.get_columns("node")}:
        migrator.add_column("node", "side", pw.IntegerField(default=1)).run()
