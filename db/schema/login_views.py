"""On MySQL: schemas of procedures, and the accounts of people who look at the machine through them.

One schema shows the whole machine, and there is one for every login processor whose users are to see its side alone.
The account may call these procedures and nothing else, so what it may see is the server's to say. The procedures run
with the rights of the CPA's account (SQL SECURITY DEFINER), each in a transaction of its own that takes no locks,
whatever the session asked for. A view would not do, whatever its algorithm: in a transaction whose isolation level is
SERIALIZABLE, which every session may ask for, reading it locks rows, and a lock on the row of ``mesh`` stops every
launch.
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


# What the viewers of one login processor see: their own side of the machine, as it is now. Light enough for viewers.
#
# The same views on both databases, under the tables' own names, so that a viewer asks the same questions of either. On
# MySQL they stand in the schema of the side's procedures, which alone may read them; in an SQLite file, which is its
# owner's altogether, they are a connection's temporary ones: a filter, no right.
#
# A viewer sees the nodes of its side. Of what another login processor launched, and of what happened on a node, it sees
# what has been since the two came within reach of each other (``node.side_from``); its own launches it sees always.


#: Events about no node, launcher or partition that are about the whole machine, and tell of nobody's work.
OF_ALL = ("boot", "down", "sides")

#: By subtraction, which no planner takes for a join of nodes with nodes: the table asked for comes first.
_NEAR = "n.side - me.side = 0"
_SINCE_NEAR = f"{_NEAR} AND (n.id = me.id OR (t.changed >= n.side_from AND t.changed >= me.side_from))"
_KINDS = ", ".join(f"'{kind}'" for kind in OF_ALL)

#: Of each table: the columns shown, the node that a row belongs to, and what has to hold of that node ``n`` and the
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
    """The SELECT of the view ``table`` for the login processor that the SQL text ``login`` names.

    ``base`` stands before every table's name.
    """
    if table == "mesh":
        return f"SELECT {', '.join(f't.`{name}`' for name in ('id', *MeshRow._fields))} FROM {base}`mesh` t"
    columns, node, seen = _SHOWN[table]
    names = columns if "changed" in columns else (*columns, "changed")
    # left: whatever the planner thinks of it, the table that is asked for comes first, and its own index with it
    return (
        f"SELECT {', '.join(f't.`{name}`' for name in names)} FROM {base}`{table}` t"
        f"{_ABOUT.format(base=base) if table == 'event' else ''}"
        f" LEFT JOIN {base}`node` n ON n.id = {node} JOIN {base}`node` me ON me.name = {login} WHERE {seen}"
    )


def temporary_views(login: str) -> list[str]:
    """Statements that let a connection to an SQLite file see what ``login`` sees, under the tables' own names."""
    named = "'" + login.replace("'", "''") + "'"
    return [f"CREATE TEMP VIEW `{table}` AS {select(table, named, 'main.')}" for table in TABLES if table != "mesh"]


LONGEST_DATABASE, LONGEST_ACCOUNT = 64, 32  # letters, as MySQL has it
_PLAIN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_DIGEST = 12


def label(login: str) -> str:
    """A short name of a login processor for schemas, accounts and files; its own where that is plain.

    Any other keeps what is plain of it and gets a digest: servers and disks may take upper for lower case, and ``_``
    stands between the database's name and the label alone. Invalid for no name at all.
    """
    if not login or any(ord(letter) < 32 for letter in login):
        raise Invalid(f"{login!r} is not a login processor's name")
    if _PLAIN.fullmatch(login):
        return login
    plain = re.sub(r"[^a-z0-9]+", "-", login.lower()).strip("-")[:16]
    return f"{plain or 'login'}-{_digest(login)}"


def whole_name(database: str) -> str:
    """The schema that shows the whole machine: no login processor's, whose labels begin otherwise. Invalid."""
    return _short_enough(f"{database}{WHOLE}")


def schema_name(database: str, login: str) -> str:
    """The schema of that login processor's procedures and views. Invalid when the names are too long together."""
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
    """What makes the procedures for the whole machine; running them again makes them what they should be."""
    schema = quoted(whole_name(database))
    return [
        _schema(schema),
        *_procedures(schema, f"{quoted(database)}.", at(cpa)),
        f"GRANT SELECT, EXECUTE ON {everything_in(whole_name(database))} TO {at(cpa)}",
    ]


def for_viewer(database: str, viewer: Account) -> list[str]:
    """What makes an account that may call the procedures for the whole machine, and nothing else, within its limits.

    One that could read the tables or views of them, which an older program let it, loses that afterwards.
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
    """What makes the schema of a side and its account; running them again makes them what they should be."""
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
    """Take what rights an account has on tables or views. REVOKE fails where there is nothing to revoke."""
    for table in tables:
        yield f"GRANT REFERENCES ON {schema}.{quoted(table)} TO {at(viewer)}"
        yield f"REVOKE ALL PRIVILEGES ON {schema}.{quoted(table)} FROM {at(viewer)}"


def make_anew(store: Store, database: str) -> list[str]:
    """Makes the procedures and views that are there what they are now, as far as this account sees them.

    What was made, in words; errors are peewee's.
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
    # in hexadecimal digits: no name is more than a name, whatever the server's SQL mode makes of a backslash
    named = f"_utf8mb4 X'{login.encode().hex()}' COLLATE utf8mb4_bin"
    views = [
        f"CREATE OR REPLACE DEFINER = {definer} SQL SECURITY DEFINER"
        f" VIEW {schema}.{quoted(table)} AS {select(table, named, f'{quoted(database)}.')}"
        for table in TABLES
    ]
    return [*views, *_procedures(schema, f"{schema}.", definer)]


#: The procedure for a viewer's poll, which no schema of views that an older program made has.
READING = "reading"
#: Whatever the session has set or begun: from here to ``_END`` nothing takes a lock.
_BEGIN = (
    "ROLLBACK AND NO CHAIN NO RELEASE; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
    " START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"
)
_END = "ROLLBACK AND NO CHAIN NO RELEASE;"


def _procedures(schema: str, place: str, definer: str) -> list[str]:
    """What makes the procedures of a schema: what viewers ask (db/views/texts.py), about the tables of ``place``."""
    bodies = {
        name.lower(): (text[2].count("%s"), f"{_asked(text, place)};")
        for name, text in vars(texts).items()
        if name.isupper() and text[2] and isinstance(text[2], str)
    }
    # procedures that an older program made must not pass for this schema's
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
    """A question about the tables of ``place``, its marks as the parameters of a procedure."""
    pieces = text[1].replace("FROM `", f"FROM {place}`").split("%s")
    marks = (f"p{number + 1}" for number in range(len(pieces) - 1))
    return "".join(piece for both in zip(pieces, (*marks, ""), strict=True) for piece in both).replace("%%", "%")


def _digest(login: str) -> str:
    return hashlib.sha256(login.encode()).hexdigest()[:_DIGEST]
