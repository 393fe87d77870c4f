"""On MySQL: schemas of views, and the accounts of people who look at the machine through them.

One schema shows the whole machine, and there is one for every login processor whose users are to see its side alone.
The account may read these views and nothing else, so what it may see is the server's to say. The views run with the
rights of the CPA's account (SQL SECURITY DEFINER). They are TEMPTABLE: a query of theirs takes no row lock, so that
nobody who may only look stops a transaction, and what it asks is asked of the rows that are shown.
"""

from __future__ import annotations

import hashlib
import re

from db.accounts import Account, at, limited, made, quoted
from db.connection import Store
from db.errors import Invalid
from db.models import SECRET_COLUMNS
from db.models import TABLES as MODELS
from db.side_views import TABLES, select, shown
from db.url import WHOLE

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
    tables = [f"{base}.{quoted(model._meta.table_name)}" for model in MODELS]
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
    for model in MODELS:
        table = model._meta.table_name
        secret = SECRET_COLUMNS.get(table, frozenset())
        columns = [field.column_name for field in model._meta.sorted_fields if field.column_name not in secret]
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
