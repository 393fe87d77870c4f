"""The viewers' queries, written with peewee. Viewers use the compiled texts.py, without peewee.

``python -m db.views.questions`` writes texts.py anew; a test compares the two.
"""

from __future__ import annotations

import os
from typing import Any

from db.schema.models import Event, Launcher, Mesh, Node, NodeResource, Partition, Processor, Waiting
from db.store.orm import pw
from db.store.statements import MYSQL, NOW, SQLITE, Query, Statement, mysql_statement, statement
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, PartitionRow, ProcessorRow, ResourceRow, WaitingRow

TEXTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "texts.py")


def _columns(table: type[pw.Model], row_type: Any) -> list[pw.Field[Any]]:
    return [getattr(table, name) for name in row_type._fields]


@statement
def schema_version() -> Query:
    return Mesh.select(Mesh.schema_version).where(Mesh.id == 1)


@statement
def counter() -> Query:
    return Mesh.select(Mesh.counter).where(Mesh.id == 1)


@statement
def clock() -> Query:
    return pw.Select(columns=[NOW])


@statement
def mesh_and_clock() -> Query:
    """One query instead of two saves a poll a tenth of a millisecond."""
    return Mesh.select(*_columns(Mesh, MeshRow), NOW).where(Mesh.id == 1)


@statement
def boot_and_node_count() -> Query:
    return Mesh.select(Mesh.boot_id, Node.select(pw.fn.COUNT(Node.id))).where(Mesh.id == 1)


# The viewer sorts what has changed: asked to sort, SQLite would walk the whole table in the order of ids.


@statement
def nodes() -> Query:
    return Node.select(*_columns(Node, NodeRow)).order_by(Node.id)


@statement
def nodes_changed(*, since: int) -> Query:
    return Node.select(*_columns(Node, NodeRow)).where(Node.changed > since)


@statement
def processors() -> Query:
    return Processor.select(*_columns(Processor, ProcessorRow)).order_by(Processor.id)


@statement
def processors_changed(*, since: int) -> Query:
    return Processor.select(*_columns(Processor, ProcessorRow)).where(Processor.changed > since)


def _alike() -> Any:
    """Equal processors in one row: the MySQL driver takes longer for a hundred rows than for all else."""
    alike = _columns(Processor, ProcessorRow)[3:]
    places = pw.fn.GROUP_CONCAT(Processor.id, " ", Processor.node, " ", Processor.slot)
    return Processor.select(places, *alike).group_by(*alike)


@mysql_statement
def processors_alike() -> Query:
    found: Query = _alike()
    return found


@mysql_statement
def processors_alike_changed(*, since: int) -> Query:
    found: Query = _alike().where(Processor.changed > since)
    return found


@statement
def launchers_live() -> Query:
    live = Launcher.ended_at.is_null()
    return Launcher.select(*_columns(Launcher, LauncherRow)).where(live).order_by(Launcher.id)


@statement
def launchers_changed(*, since: int) -> Query:
    return Launcher.select(*_columns(Launcher, LauncherRow)).where(Launcher.changed > since)


@statement
def launchers_ended(*, limit: int) -> Query:
    ended = Launcher.select(*_columns(Launcher, LauncherRow)).where(Launcher.ended_at.is_null(False))
    return ended.order_by(Launcher.ended_at.desc(), Launcher.id.desc()).limit(limit)


@statement
def launcher(*, launcher: int) -> Query:
    return Launcher.select(*_columns(Launcher, LauncherRow)).where(Launcher.id == launcher)


@statement
def partitions_live() -> Query:
    live = Partition.ended_at.is_null()
    return Partition.select(*_columns(Partition, PartitionRow)).where(live).order_by(Partition.id)


@statement
def partitions_changed(*, since: int) -> Query:
    return Partition.select(*_columns(Partition, PartitionRow)).where(Partition.changed > since)


@statement
def waiting() -> Query:
    return Waiting.select(*_columns(Waiting, WaitingRow)).order_by(Waiting.id)


@statement
def resources() -> Query:
    columns = _columns(NodeResource, ResourceRow)
    return NodeResource.select(*columns).order_by(NodeResource.node, NodeResource.name)


@statement
def events_last(*, limit: int) -> Query:
    return Event.select(*_columns(Event, EventRow)).order_by(Event.id.desc()).limit(limit)


@statement
def events_after(*, after: int, limit: int) -> Query:
    return Event.select(*_columns(Event, EventRow)).where(Event.id > after).order_by(Event.id).limit(limit)


#: The parts of a reading after ``mesh_and_clock``: nodes, processors, launchers, partitions.
READINGS = {
    "whole": (nodes, processors, launchers_live, partitions_live),
    "whole_alike": (nodes, processors_alike, launchers_live, partitions_live),
    "changed": (nodes_changed, processors_changed, launchers_changed, partitions_changed),
    "changed_alike": (nodes_changed, processors_alike_changed, launchers_changed, partitions_changed),
}


def _call(name: str, found: Statement[...]) -> str:
    """The procedure call that a viewer's account uses (db/schema/login_views.py); empty for a part of a reading."""
    if found is mesh_and_clock or any(found in parts for parts in READINGS.values()):
        return ""
    return f"CALL `{name}`({', '.join(['%s'] * len(found.parameters))})"


def compiled() -> str:
    """The source of texts.py."""
    lines = [
        '"""What viewers ask: SQLite, MySQL, procedure. Written by db/views/questions.py from db/schema/models.py."""',
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
    ]
    for name, found in globals().items():
        if not isinstance(found, Statement):
            continue
        texts = []
        for kind in (SQLITE, MYSQL):
            text, names = found.text(kind) if kind in found.kinds else ("", found.parameters)
            if names != found.parameters:
                raise TypeError(f"{found.name}: viewers give its parameters in their order")
            texts.append(text)
        texts.append(_call(name, found))
        lines.append(f"{name.upper()} = {tuple(texts)!r}  # {', '.join(found.parameters) or 'no parameters'}")
    named = {id(found): name.upper() for name, found in globals().items() if isinstance(found, Statement)}
    for reading, parts in READINGS.items():
        lines.append(f"{reading.upper()} = ({', '.join(named[id(part)] for part in parts)})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(TEXTS, "w", encoding="utf-8") as file:
        file.write(compiled())
