"""Adds columns in migrations, also where an earlier attempt broke off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import peewee as pw


def add_columns(migrator: Any, db: pw.Database, table: str, columns: Mapping[str, pw.Field]) -> None:
    """Add those columns that the table lacks; complete one that has no value or may still be NULL.

    SQLite undoes a migration that broke off. MySQL and MariaDB do not: a column that must not be NULL is made in three
    steps (NULL, its default in all rows, NOT NULL), and may be left between two of them.
    """
    there = {column.name: column.null for column in db.get_columns(table)}
    for name, field in columns.items():
        if name not in there:
            migrator.add_column(table, name, field).run()
        elif there[name] and not field.null:
            migrator.apply_default(table, name, field).run()
            migrator.add_not_null(table, name).run()
