"""The schema number that this version works with. Viewers import this, so it is light."""

from __future__ import annotations

from db.errors import NO_MESH, SchemaError

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: The number of the newest file in db/schema/migrations.
SCHEMA_VERSION = 13


def check_version(rows: Callable[[], list[Any]], where: str) -> None:
    """Raise SchemaError unless the database has exactly this version's schema.

    ``rows`` reads the schema's number; its errors pass through, except for a missing table.
    """
    try:
        found = rows()
    except Exception as error:
        text = str(error).lower()
        if "no such table" in text or "doesn't exist" in text or "1146" in text:
            raise SchemaError(f"there is no system database at {where} yet", NO_MESH) from None
        raise
    if not found:
        raise SchemaError(f"the system database at {where} is not finished", "run: mesh db init")
    version = int(found[0][0])
    if version > SCHEMA_VERSION:
        raise SchemaError(
            f"the system database at {where} has schema {version}, newer than this program's {SCHEMA_VERSION}",
            "use the version of redmesh that the mesh runs",
        )
    if version < SCHEMA_VERSION:
        raise SchemaError(
            f"the system database at {where} has schema {version}, older than this program's {SCHEMA_VERSION}",
            "bring it up to date: mesh db migrate",
        )
