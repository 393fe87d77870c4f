"""On MySQL: schemas of views, and the accounts of people who look at the machine through them.

One schema shows the whole machine, and there is one for every login processor whose users are to see its side alone.
The account may read these views and nothing else, so what it may see is the server's to say. The views run with the
rights of the CPA's account (SQL SECURITY DEFINER). They are TEMPTABLE: a query of theirs takes no row lock, so that
nobody who may only look stops a transaction, and what it asks is asked of the rows that are shown.
"""

from __future__ import annotations

import hashlib
import re

from db.errors import Invalid
from db.schema.accounts import Account, at, limited, made, quoted
from db.schema.models import SECRET_COLUMNS, columns_of
from db.schema.models import TABLES as MODELS
from db.schema.version import SCHEMA_VERSION
from db.store.store import Store
from db.store.url import WHOLE
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, PartitionRow, ProcessorRow, ResourceRow, WaitingRow

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable


# What the viewers of one login processor see: their own side of the machine, as it is now. Light enough for viewers.
#
# The same definitions on both databases, under the tables' own names, so that a viewer asks the same questions of
# either. On MySQL they are views in a schema of their own (``db/schema/login_views.py``), and an account's rights end
# there; in an SQLite file, which is its owner's altogether, they are a connection's temporary ones: a filter, no right.
#
# A viewer sees the nodes of its side. Of what another login processor launched, and of what happened on a node, it sees
# what has been since the two came within reach of each other (``node.side_from``); its own launches it sees always.


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


LONGEST_DATABASE, LONGEST_ACCOUNT = 64, 32  # letters, as MySQL has it
_PLAIN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_DIGEST = 12


def label(login: str) -> str:
    """A short name of a login processor for schemas, accounts and files; its own where that is plain.

    Any other keeps what is plain of it and gets a digest: servers and disks may take upper for lower case, and ``_``
    stands between the database's name and the label alone. Invalid for no name at all.
    """
    if not login or any(ord(letter) < 32 for letter in login):
        raise Invalid(f"{login!r} is no login processor's name")
    if _PLAIN.fullmatch(login):
        return login
    plain = re.sub(r"[^a-z0-9]+", "-", login.lower()).strip("-")[:16]
    return f"{plain or 'login'}-{_digest(login)}"


def whole_name(database: str) -> str:
    """The schema of the views of the whole machine: no login processor's, whose labels begin otherwise. Invalid."""
    return _short_enough(f"{database}{WHOLE}")


def schema_name(database: str, login: str) -> str:
    """The schema of that login processor's views. Invalid when the names are too long together."""
    return _short_enough(f"{database}_{label(login)}")


def _short_enough(name: str) -> str:
    if len(name) > LONGEST_DATABASE:
        raise Invalid(
            f"{name!r} is longer than the {LONGEST_DATABASE} letters of a database's name",
            "give the system database a shorter one",
        )
    return name


def viewer_of(login: str, viewer: Account) -> Account:
    """The account of that login processor's viewers, after the one that sees the whole machine; without a password."""
    return _named_after(viewer, "_", login)


def account_of(user: str, viewer: Account) -> Account:
    """One user's own account, which sees the whole machine; without a password."""
    return _named_after(viewer, "__", user)  # no login processor's: a label begins with no _


def _named_after(viewer: Account, joint: str, whose: str) -> Account:
    name = f"{viewer.user}{joint}{label(whose)}"
    if len(name) > LONGEST_ACCOUNT:
        name = f"{viewer.user[: LONGEST_ACCOUNT - _DIGEST - len(joint)]}{joint}{_digest(whose)}"
    return Account(name, viewer.host)


def whole(database: str, cpa: Account) -> list[str]:
    """What makes the views of the whole machine; running them again makes them what they should be."""
    return [_schema(whole_name(database)), *_whole_views(database, at(cpa))]


def for_viewer(database: str, viewer: Account) -> list[str]:
    """What makes an account that may read the views of the whole machine, and nothing else, within its limits.

    One that could read the tables itself, which an older program let it, loses that after it may read the views.
    """
    base = quoted(database)
    tables = [f"{base}.{quoted(table)}" for table in MODELS]
    return [
        *made(viewer),
        *limited(viewer),
        *_readable(quoted(whole_name(database)), viewer),
        # REVOKE fails where there is nothing to revoke
        *(
            statement
            for table in tables
            for statement in (
                f"GRANT REFERENCES ON {table} TO {at(viewer)}",
                f"REVOKE ALL PRIVILEGES ON {table} FROM {at(viewer)}",
            )
        ),
    ]


def statements(database: str, login: str, cpa: Account, viewer: Account) -> list[str]:
    """What makes the schema, its views and its account; running them again makes them what they should be."""
    schema = schema_name(database, login)
    views = _views(database, login, at(cpa))
    return [_schema(schema), *views, *made(viewer), *limited(viewer), *_readable(quoted(schema), viewer)]


def _schema(name: str) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {quoted(name)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def _readable(schema: str, viewer: Account) -> list[str]:
    return [f"GRANT SELECT ON {schema}.{quoted(table)} TO {at(viewer)}" for table in TABLES]


def make_anew(store: Store, database: str) -> list[str]:
    """Makes the views that are there, as far as this account sees them, what they are now; the names of their schemas.

    Errors are peewee's.
    """
    pattern = database.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%") + "\\_%"
    there = store.execute(
        "SELECT TABLE_SCHEMA, DEFINER FROM information_schema.VIEWS WHERE TABLE_NAME = 'mesh' AND TABLE_SCHEMA LIKE ?",
        (pattern,),
    ).fetchall()
    if not there:
        return []
    logins = {}
    for (name,) in store.execute("SELECT name FROM node WHERE role IN ('login', 'service')").fetchall():
        logins[f"{database}_{label(name)}"] = name
    made_anew = []
    for schema, definer in sorted((str(schema), str(definer)) for schema, definer in there):
        user, _, host = definer.rpartition("@")
        who = at(Account(user, host))
        if schema == f"{database}{WHOLE}":
            views, told = _whole_views(database, who), "views of the whole machine"
        elif schema in logins:
            views, told = _views(database, logins[schema], who), f"views of {logins[schema]}"
        else:
            continue
        for statement in views:
            store.execute(statement)
        made_anew.append(told)
    return made_anew


def _whole_views(database: str, definer: str) -> list[str]:
    schema, base = quoted(whole_name(database)), quoted(database)
    texts = []
    for table, model in MODELS.items():
        secret = SECRET_COLUMNS.get(table, frozenset())
        columns = [field.column_name for field in columns_of(model) if field.column_name not in secret]
        texts.append(
            f"CREATE OR REPLACE ALGORITHM = TEMPTABLE DEFINER = {definer} SQL SECURITY DEFINER VIEW"
            f" {schema}.{quoted(table)} AS SELECT {shown(columns)} FROM {base}.{quoted(table)} t"
        )
    return texts


def _views(database: str, login: str, definer: str) -> list[str]:
    schema, base = quoted(schema_name(database, login)), f"{quoted(database)}."
    # in hexadecimal digits: no name is more than a name, whatever the server's SQL mode makes of a backslash
    named = f"_utf8mb4 X'{login.encode().hex()}' COLLATE utf8mb4_bin"
    return [
        f"CREATE OR REPLACE ALGORITHM = TEMPTABLE DEFINER = {definer} SQL SECURITY DEFINER"
        f" VIEW {schema}.{quoted(table)} AS {select(table, named, base, masked=True)}"
        for table in TABLES
    ]


def _digest(login: str) -> str:
    return hashlib.sha256(login.encode()).hexdigest()[:_DIGEST]
