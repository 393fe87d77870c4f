"""On MySQL: schemas of procedures, and the accounts of viewers who read the machine through them.

One schema shows the whole machine; each login processor has a schema that shows only its own side. A viewer's account
may call these procedures and nothing else, so the server decides what it may see. The procedures run with the rights of
the CPA's account (SQL SECURITY DEFINER), each in a transaction of its own that takes no locks, whatever the session has
set. A view cannot do this: in a transaction of isolation level SERIALIZABLE, which every session may choose, reading a
view locks rows, and a lock on the row of ``mesh`` stops every launch.
"""

from __future__ import annotations

import hashlib
import re

from db.errors import Invalid
from db.schema.accounts import Account, at, everything_in, limited, made, quoted
from db.schema.models import TABLES as MODELS
from db.schema.version import SCHEMA_VERSION
from db.store.store import Store
from db.store.url import WHOLE
from db.views import texts
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, PartitionRow, ProcessorRow, ResourceRow, WaitingRow

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# The views of the viewers of one login processor: their own side of the machine, as it is now. Viewers import this, so
# it is light. Both databases have the same views under the tables' own names, so that a viewer sends the same queries
# to either. On MySQL the views are in the schema of the side's procedures, which alone may read them. In an SQLite
# file, which belongs wholly to its owner, they are temporary views of a connection: a filter, not a right. A viewer
# sees the nodes of its side. Of launches from other login processors, and of events on a node, it sees those since the
# two came within reach of each other (``node.side_from``). It always sees its own launches.


#: Events about no node, launcher or partition that concern the whole machine and reveal nobody's work.
OF_ALL = ("boot", "down", "sides")

#: Written as a subtraction, so that no planner turns it into a join of nodes with nodes: the requested table comes
#: first.
_NEAR = "n.side - me.side = 0"
_SINCE_NEAR = f"{_NEAR} AND (n.id = me.id OR (t.changed >= n.side_from AND t.changed >= me.side_from))"
_KINDS = ", ".join(f"'{kind}'" for kind in OF_ALL)

#: For each table: the columns shown, the node that a row belongs to, and the condition on that node ``n`` and the
#: viewer's login processor ``me``.
_SHOWN = {
    "node": (NodeRow._fields, "t.id", _NEAR),
    "node_resource": (ResourceRow._fields, "t.node", _NEAR),
    "processor": (ProcessorRow._fields, "t.node", _NEAR),
    "launcher": (LauncherRow._fields, "t.login_processor", _SINCE_NEAR),
    "partition": (PartitionRow._fields, "t.login_processor", _SINCE_NEAR),
    "waiting": (WaitingRow._fields, "t.login_processor", _NEAR),
    "event": (
        EventRow._fields,
        "COALESCE(t.node, l.login_processor, p.login_processor)",
        f"((t.kind IN ({_KINDS}) AND t.node IS NULL AND t.launcher IS NULL AND t.`partition` IS NULL)"
        f" OR ({_SINCE_NEAR}))",
    ),
}
_ABOUT = " LEFT JOIN {base}launcher l ON l.id = t.launcher LEFT JOIN {base}`partition` p ON p.id = t.`partition`"

TABLES = ("mesh", *_SHOWN)


def select(table: str, login: str, base: str) -> str:
    """The SELECT of the view ``table`` for the login processor given by the SQL text ``login``.

    ``base`` is put in front of every table name.
    """
    if table == "mesh":
        return f"SELECT {', '.join(f't.`{name}`' for name in ('id', *MeshRow._fields))} FROM {base}`mesh` t"
    columns, node, seen = _SHOWN[table]
    names = columns if "changed" in columns else (*columns, "changed")
    # A LEFT JOIN makes every planner start with the requested table and use its own index.
    return (
        f"SELECT {', '.join(f't.`{name}`' for name in names)} FROM {base}`{table}` t"
        f"{_ABOUT.format(base=base) if table == 'event' else ''}"
        f" LEFT JOIN {base}`node` n ON n.id = {node} JOIN {base}`node` me ON me.name = {login} WHERE {seen}"
    )


def temporary_views(login: str) -> list[str]:
    """Statements that create temporary views in an SQLite connection, under the tables' own names, of what ``login``
    sees."""
    named = "'" + login.replace("'", "''") + "'"
    return [f"CREATE TEMP VIEW `{table}` AS {select(table, named, 'main.')}" for table in TABLES if table != "mesh"]


LONGEST_DATABASE, LONGEST_ACCOUNT = 64, 32  # MySQL's limits in characters
_PLAIN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_DIGEST = 12


def label(login: str) -> str:
    """A short name of a login processor for schemas, accounts and files; the plain name if it is safe.

    Other names keep their safe characters and get a digest: servers and disks may ignore case, and ``_`` separates the
    database's name from the label. Raises Invalid for an empty name.
    """
    if not login or any(ord(letter) < 32 for letter in login):
        raise Invalid(f"{login!r} is not a login processor's name")
    if _PLAIN.fullmatch(login):
        return login
    plain = re.sub(r"[^a-z0-9]+", "-", login.lower()).strip("-")[:16]
    return f"{plain or 'login'}-{_digest(login)}"


def whole_name(database: str) -> str:
    """The schema that shows the whole machine; no login processor's label begins like it. Raises Invalid."""
    return _short_enough(f"{database}{WHOLE}")


def schema_name(database: str, login: str) -> str:
    """The schema of that login processor's procedures and views. Raises Invalid if the name is too long."""
    return _short_enough(f"{database}_{label(login)}")


def _short_enough(name: str) -> str:
    if len(name) > LONGEST_DATABASE:
        raise Invalid(
            f"{name!r} is longer than the {LONGEST_DATABASE} letters of a database's name",
            "give the system database a shorter one",
        )
    return name


def viewer_of(login: str, viewer: Account) -> Account:
    """The account of that login processor's viewers, named after the one for the whole machine; without a password."""
    return _named_after(viewer, "_", login)


def account_of(user: str, viewer: Account) -> Account:
    """A single user's account that sees the whole machine; without a password."""
    return _named_after(viewer, "__", user)  # cannot be a login processor's, because a label does not begin with _


def _named_after(viewer: Account, joint: str, whose: str) -> Account:
    name = f"{viewer.user}{joint}{label(whose)}"
    if len(name) > LONGEST_ACCOUNT:
        name = f"{viewer.user[: LONGEST_ACCOUNT - _DIGEST - len(joint)]}{joint}{_digest(whose)}"
    return Account(name, viewer.host)


def whole(database: str, cpa: Account) -> list[str]:
    """Statements that create or update the procedures for the whole machine."""
    schema = quoted(whole_name(database))
    return [
        _schema(schema),
        *_procedures(schema, f"{quoted(database)}.", at(cpa)),
        f"GRANT SELECT, EXECUTE ON {everything_in(whole_name(database))} TO {at(cpa)}",
    ]


def for_viewer(database: str, viewer: Account) -> list[str]:
    """Statements that create an account that may only call the procedures for the whole machine, with its limits.

    They also remove rights to tables or views that an older version granted.
    """
    schema, base = quoted(whole_name(database)), quoted(database)
    return [
        *made(viewer),
        *limited(viewer),
        f"GRANT EXECUTE ON {everything_in(whole_name(database))} TO {at(viewer)}",
        *_without_rights(base, MODELS, viewer),
        *(f"DROP VIEW IF EXISTS {schema}.{quoted(table)}" for table in MODELS),
    ]


def statements(database: str, login: str, cpa: Account, viewer: Account) -> list[str]:
    """Statements that create or update the schema of a side and its account."""
    name = schema_name(database, login)
    schema = quoted(name)
    return [
        _schema(schema),
        f"GRANT SELECT, EXECUTE ON {everything_in(name)} TO {at(cpa)}",
        *_of_a_side(schema, database, login, at(cpa)),
        *made(viewer),
        *limited(viewer),
        f"GRANT EXECUTE ON {everything_in(name)} TO {at(viewer)}",
        *_without_rights(schema, TABLES, viewer),
    ]


def _schema(quoted_name: str) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {quoted_name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def _without_rights(schema: str, tables: Iterable[str], viewer: Account) -> Iterator[str]:
    """Revoke an account's rights on tables or views. REVOKE fails if there is nothing to revoke, so grant first."""
    for table in tables:
        yield f"GRANT REFERENCES ON {schema}.{quoted(table)} TO {at(viewer)}"
        yield f"REVOKE ALL PRIVILEGES ON {schema}.{quoted(table)} FROM {at(viewer)}"


def make_anew(store: Store, database: str) -> list[str]:
    """Update the existing procedures and views, as far as this account sees them.

    Returns what was updated, in words; raises peewee's errors.
    """
    pattern = database.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%") + "\\_%"
    there = store.execute(
        "SELECT ROUTINE_SCHEMA, DEFINER FROM information_schema.ROUTINES"
        f" WHERE ROUTINE_NAME = '{READING}' AND ROUTINE_SCHEMA LIKE ?",
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
            these, told = _procedures(quoted(schema), f"{quoted(database)}.", who), "procedures for the whole machine"
        elif schema in logins:
            login = logins[schema]
            these, told = _of_a_side(quoted(schema), database, login, who), f"procedures and views of {login}"
        else:
            continue
        for statement in these:
            store.execute(statement)
        made_anew.append(told)
    return made_anew


def _of_a_side(schema: str, database: str, login: str, definer: str) -> list[str]:
    # In hexadecimal digits the name is safe, whatever the server's SQL mode makes of a backslash.
    named = f"_utf8mb4 X'{login.encode().hex()}' COLLATE utf8mb4_bin"
    views = [
        f"CREATE OR REPLACE DEFINER = {definer} SQL SECURITY DEFINER"
        f" VIEW {schema}.{quoted(table)} AS {select(table, named, f'{quoted(database)}.')}"
        for table in TABLES
    ]
    return [*views, *_procedures(schema, f"{schema}.", definer)]


#: The procedure for a viewer's poll; schemas of views that an older version created do not have it.
READING = "reading"
#: Up to ``_END`` nothing takes a lock, whatever the session has set or begun.
_BEGIN = (
    "ROLLBACK AND NO CHAIN NO RELEASE; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
    " START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"
)
_END = "ROLLBACK AND NO CHAIN NO RELEASE;"


def _procedures(schema: str, place: str, definer: str) -> list[str]:
    """The procedures of a schema: viewers' queries (db/views/texts.py) on the tables of ``place``."""
    bodies = {
        name.lower(): (text[2].count("%s"), f"{_asked(text, place)};")
        for name, text in vars(texts).items()
        if name.isupper() and text[2] and isinstance(text[2], str)
    }
    # Procedures of an older version must not be mistaken for this schema's.
    version = _asked(texts.SCHEMA_VERSION, place)
    bodies["schema_version"] = (0, f"SELECT LEAST(schema_version, {SCHEMA_VERSION}) FROM ({version}) found;")
    whole, changed = (
        f"IF p2 THEN {_all_asked(alike, place)} ELSE {_all_asked(each, place)} END IF;"
        for alike, each in ((texts.WHOLE_ALIKE, texts.WHOLE), (texts.CHANGED_ALIKE, texts.CHANGED))
    )
    bodies[READING] = (
        2,
        f"{_asked(texts.MESH_AND_CLOCK, place)}; IF p1 IS NULL THEN {whole}"
        f" ELSEIF p1 <> ({_asked(texts.COUNTER, place)}) THEN {changed} END IF;",
    )
    made = []
    for name, (count, body) in bodies.items():
        parameters = ", ".join(f"p{number + 1} BIGINT" for number in range(count))
        made += [
            f"DROP PROCEDURE IF EXISTS {schema}.{quoted(name)}",
            f"CREATE DEFINER = {definer} PROCEDURE {schema}.{quoted(name)}({parameters}) READS SQL DATA"
            f" SQL SECURITY DEFINER BEGIN {_BEGIN} {body} {_END} END",
        ]
    return made


def _all_asked(reading: Iterable[tuple[str, str, str]], place: str) -> str:
    return " ".join(f"{_asked(text, place)};" for text in reading)


def _asked(text: tuple[str, str, str], place: str) -> str:
    """A query on the tables of ``place``, with its marks replaced by a procedure's parameters."""
    pieces = text[1].replace("FROM `", f"FROM {place}`").split("%s")
    marks = (f"p{number + 1}" for number in range(len(pieces) - 1))
    return "".join(piece for both in zip(pieces, (*marks, ""), strict=True) for piece in both).replace("%%", "%")


def _digest(login: str) -> str:
    return hashlib.sha256(login.encode()).hexdigest()[:_DIGEST]
