"""What the viewers of one login processor see: their own side of the machine, as it is now. Light enough for viewers.

The same definitions on both databases, under the tables' own names, so that a viewer asks the same questions of either.
On MySQL they are views in a schema of their own (``db/view_schemas.py``), and an account's rights end there; in an
SQLite file, which is its owner's altogether, they are a connection's temporary ones: a filter, no right.

A viewer sees the nodes of its side. Of what another login processor launched, and of what happened on a node, it sees
what has been since the two came within reach of each other (``node.side_from``); its own launches it sees always.
"""

from __future__ import annotations

from db.rows import EventRow, LauncherRow, MeshRow, NodeRow, PartitionRow, ProcessorRow, ResourceRow, WaitingRow
from db.schema_version import SCHEMA_VERSION

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Events about no node, launcher or partition that are about the whole machine, and tell of nobody's work.
OF_ALL = ("boot", "down", "sides")

#: By subtraction, so that no planner takes the two for the same column and the mask (below) for needless.
_NEAR = "n.side - me.side = 0"
_SINCE_NEAR = f"{_NEAR} AND (n.id = me.id OR (t.changed >= n.side_from AND t.changed >= me.side_from))"
_KINDS = ", ".join(f"'{kind}'" for kind in OF_ALL)

#: Of each table: the columns shown, those among them that need no mask (below), the node that a row belongs to, and
#: what has to hold of that node ``n`` and the viewer's login processor ``me``.
_SHOWN = {
    "node": (NodeRow._fields, ("id", "changed"), "t.id", _NEAR),
    "node_resource": (ResourceRow._fields, ("node", "changed"), "t.node", _NEAR),
    "processor": (ProcessorRow._fields, ("id", "node", "slot", "changed"), "t.node", _NEAR),
    "launcher": (LauncherRow._fields, ("id", "ended_at", "changed"), "t.login_processor", _SINCE_NEAR),
    "partition": (PartitionRow._fields, ("id", "ended_at", "changed"), "t.login_processor", _SINCE_NEAR),
    "waiting": (WaitingRow._fields, ("id", "changed"), "t.login_processor", _NEAR),
    "event": (
        EventRow._fields,
        ("id",),
        "COALESCE(t.node, l.login_processor, p.login_processor)",
        f"((t.kind IN ({_KINDS}) AND t.node IS NULL AND t.launcher IS NULL AND t.`partition` IS NULL)"
        f" OR ({_SINCE_NEAR}))",
    ),
}
_ABOUT = " LEFT JOIN {base}launcher l ON l.id = t.launcher LEFT JOIN {base}`partition` p ON p.id = t.`partition`"

TABLES = ("mesh", *_SHOWN)


def select(table: str, login: str, base: str, masked: bool) -> str:
    """The SELECT of the view ``table`` for the login processor that the SQL text ``login`` names.

    ``base`` stands before every table's name. ``masked``: rows of other sides hold nothing, whatever is evaluated
    before they are left out. A server hands the conditions of a viewer's own query down into the view, and may try
    them on rows that the view would not show: a condition with an effect of its own would tell what they hold. What
    stays in the open (ids, change numbers, when something ended) finds rows by an index, and tells of no work.
    """
    if table == "mesh":
        return _mesh(base)
    columns, in_the_open, node, seen = _SHOWN[table]
    columns_shown = ", ".join(
        f"CASE WHEN {seen} THEN t.`{name}` END AS `{name}`" if masked and name not in in_the_open else f"t.`{name}`"
        for name in columns
    )
    also = "" if "changed" in columns else ", t.`changed`"
    # left: whatever the planner thinks of it, the table that is asked for comes first, and its own index with it
    return (
        f"SELECT {columns_shown}{also} FROM {base}`{table}` t{_ABOUT.format(base=base) if table == 'event' else ''}"
        f" LEFT JOIN {base}`node` n ON n.id = {node} JOIN {base}`node` me ON me.name = {login} WHERE {seen}"
    )


def _mesh(base: str) -> str:
    return f"SELECT {shown(('id', *MeshRow._fields))} FROM {base}`mesh` t"


def shown(columns: Iterable[str]) -> str:
    """These columns of a table ``t``, as they are."""
    # views that an older program made must not pass for this schema's
    version = f"LEAST(t.schema_version, {SCHEMA_VERSION}) AS schema_version"
    return ", ".join(version if name == "schema_version" else f"t.`{name}`" for name in columns)


def temporary_views(login: str) -> list[str]:
    """Statements that let a connection to an SQLite file see what ``login`` sees, under the tables' own names."""
    named = "'" + login.replace("'", "''") + "'"
    return [
        f"CREATE TEMP VIEW `{table}` AS {select(table, named, 'main.', masked=False)}"
        for table in TABLES
        if table != "mesh"
    ]
