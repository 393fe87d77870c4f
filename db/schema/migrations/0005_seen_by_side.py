"""Data for viewers of one side (db/schema/login_views.py): the login processor of partitions, and since when nodes
are near.

``partition.login_processor``: where it was requested; ``node.side_from``: the counter at which others last came within
reach of the node.
"""

from __future__ import annotations

from typing import Any

import peewee as pw

from db.schema.new_columns import add_columns

#: A partition that no launcher was in has no login processor, and only viewers of the whole machine see it.
OF_ITS_LAUNCHERS = (
    "UPDATE `partition` SET login_processor = (SELECT MIN(l.login_processor) FROM launcher l"
    " WHERE l.`partition` = `partition`.id) WHERE login_processor IS NULL"
)
#: Everything before the last recorded change of sides stays visible to its own side only.
SINCE_THE_SIDES = (
    "UPDATE node SET side_from = (SELECT COALESCE(MAX(e.changed), 0) FROM event e WHERE e.kind = 'sides')"
    " WHERE side_from = 0"
)


def up(migrator: Any, db: pw.Database) -> None:
    add_columns(migrator, db, "partition", {"login_processor": pw.IntegerField(null=True)})
    db.execute_sql(OF_ITS_LAUNCHERS)  # type: ignore[no-untyped-call]
    add_columns(migrator, db, "node", {"side_from": pw.BigIntegerField(default=0)})
    db.execute_sql(SINCE_THE_SIDES)  # type: ignore[no-untyped-call]
