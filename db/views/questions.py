"""What viewers ask of the database, as SQL: for connections that read tables, and for procedures that a server keeps.

A ``?`` is a whole number. ``{in}`` stands before every table's name, ``{now}`` for the database's clock.
"""

from __future__ import annotations

from db.views.rows import (
    EventRow,
    LauncherRow,
    MeshRow,
    NodeRow,
    PartitionRow,
    ProcessorRow,
    ResourceRow,
    WaitingRow,
    columns,
)

NOW = {True: "UNIX_TIMESTAMP(NOW(6)) + 0e0", False: "(julianday('now') - 2440587.5) * 86400.0"}  # of a server; SQLite


def _select(row_type: type, table: str) -> str:
    return f"SELECT {columns(row_type)} FROM {{in}}`{table}`"


QUESTIONS = {
    "schema_version": "SELECT schema_version FROM {in}mesh WHERE id = 1",
    "counter": "SELECT counter FROM {in}mesh WHERE id = 1",
    "now": "SELECT {now}",
    "last_events": f"{_select(EventRow, 'event')} ORDER BY id DESC LIMIT ?",
    "events_after": f"{_select(EventRow, 'event')} WHERE id > ? ORDER BY id LIMIT ?",
    "history": f"{_select(LauncherRow, 'launcher')} WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT ?",
    "launcher": f"{_select(LauncherRow, 'launcher')} WHERE id = ?",
    "waiting": f"{_select(WaitingRow, 'waiting')} ORDER BY id",
    "resources": f"{_select(ResourceRow, 'node_resource')} ORDER BY node, name",
    "boot_and_nodes": "SELECT boot_id, (SELECT COUNT(*) FROM {in}node) FROM {in}mesh WHERE id = 1",
}
#: The first of a reading, in one with the clock: a question costs a poll a tenth of a millisecond.
MESH = f"SELECT {columns(MeshRow)}, {{now}} FROM {{in}}mesh WHERE id = 1"
_ALIKE = ", ".join(f"`{name}`" for name in ProcessorRow._fields[3:])


def tables(changed: bool, grouped: bool) -> list[str]:
    """The rest of a reading: nodes, processors, launchers, partitions; all that live, or what ``changed`` since ``?``.

    ``grouped``: processors that are alike are one row, their ids, nodes and slots a list. The MySQL driver, which is
    Python, takes longer for a hundred rows than everything else takes.
    """
    # in no order: told to sort what changed, SQLite would walk the whole table in the order of ids
    where, live = (" WHERE changed > ?",) * 2 if changed else ("", " WHERE ended_at IS NULL")
    processors = f"{_select(ProcessorRow, 'processor')}{where}"
    if grouped:
        ids = "GROUP_CONCAT(id, ' ', node, ' ', slot)"
        processors = f"SELECT {ids}, {_ALIKE} FROM {{in}}processor{where} GROUP BY {_ALIKE}"
    return [
        f"{_select(NodeRow, 'node')}{where}",
        processors,
        f"{_select(LauncherRow, 'launcher')}{live}",
        f"{_select(PartitionRow, 'partition')}{live}",
    ]


def sql(question: str, place: str = "", server: bool = True) -> str:
    """A question as a statement about the tables of ``place``."""
    return question.replace("{in}", place).replace("{now}", NOW[server])
