"""On MySQL: a schema of views for every login processor whose users look at the machine, and an account for it.

The account may read these views and nothing else, so what it may see is the server's to say. The views run with the
rights of the CPA's account (SQL SECURITY DEFINER). They are TEMPTABLE: a query of theirs takes no row lock, so that
nobody who may only look stops the other side's transactions, and what it asks is asked of the rows that are shown.
"""

from __future__ import annotations

import hashlib
import re

from db.accounts import Account, at, made, quoted
from db.connection import Store
from db.errors import Invalid
from db.side_views import TABLES, select

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


def schema_name(database: str, login: str) -> str:
    """The schema of that login processor's views. Invalid when the names are too long together."""
    name = f"{database}_{label(login)}"
    if len(name) > LONGEST_DATABASE:
        raise Invalid(
            f"{name!r} is longer than the {LONGEST_DATABASE} letters of a database's name",
            "give the system database a shorter one",
        )
    return name


def viewer_of(login: str, viewer: Account) -> Account:
    """The account of that login processor's viewers, after the one that sees the whole machine; without a password."""
    name = f"{viewer.user}_{label(login)}"
    if len(name) > LONGEST_ACCOUNT:
        name = f"{viewer.user[: LONGEST_ACCOUNT - _DIGEST - 1]}_{_digest(login)}"
    return Account(name, viewer.host)


def statements(database: str, login: str, cpa: Account, viewer: Account) -> list[str]:
    """What makes the schema, its views and its account; running them again makes them what they should be."""
    schema = quoted(schema_name(database, login))
    return [
        f"CREATE DATABASE IF NOT EXISTS {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        *_views(database, login, at(cpa)),
        *made(viewer),
        *(f"GRANT SELECT ON {schema}.{quoted(table)} TO {at(viewer)}" for table in TABLES),
    ]


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
    found = [(str(schema), str(definer)) for schema, definer in there if schema in logins]
    for schema, definer in found:
        user, _, host = definer.rpartition("@")
        for statement in _views(database, logins[schema], at(Account(user, host))):
            store.execute(statement)
    return [f"views of {logins[schema]}" for schema, _ in found]


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
