"""Writes db/schema/sqlite.sql, the schema of a new SQLite database; run it after a new migration."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from db.schema.migrate import migrate_by_steps
from db.schema.new_sqlite import END, SCHEMA


def schema() -> str:
    """The statements that make what all migrations make, one a line."""
    with tempfile.TemporaryDirectory() as folder:
        migrate_by_steps(f"sqlite://{folder}/mesh.db")
        db = sqlite3.connect(f"{folder}/mesh.db")
        try:
            # the rows of schema_migration get the time at which the database is made
            rows = [line for line in db.iterdump() if line.startswith("INSERT") and "schema_migration" not in line]
            made = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
            names = [name for (name,) in db.execute("SELECT name FROM schema_migration ORDER BY id")]
        finally:
            db.close()
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now', 'localtime')"
    steps = [f'INSERT INTO "schema_migration" ("name", "applied") VALUES (\'{name}\', {now})' for name in names]
    return "".join(f"{statement}{END}" for statement in (*made, *(row.rstrip(";") for row in rows), *steps))


if __name__ == "__main__":
    Path(SCHEMA).write_text(schema(), encoding="ascii")
