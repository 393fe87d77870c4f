"""Accounts of a MySQL server, and the names and texts of SQL that none of them can break out of."""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid


class Account(NamedTuple):
    """A MySQL account; ``password`` None where it exists already or the server knows it by other means."""

    user: str
    host: str = "%"
    password: str | None = None
    connections: int | None = None  # at most so many at once


#: Seconds that a statement of a viewer's account may take; a viewer gives up sooner.
STATEMENT_S = 5


def limited(account: Account) -> list[str]:
    """Statements that bound what everybody together who has this account may have of the server.

    MySQL has no such limit to a statement's time: it reads the part for MariaDB as a comment.
    """
    if account.connections is None:
        return []
    bounds = f"MAX_USER_CONNECTIONS {int(account.connections)} /*M! MAX_STATEMENT_TIME {STATEMENT_S} */"
    return [f"ALTER USER {at(account)} WITH {bounds}"]


def made(account: Account) -> list[str]:
    """Statements after which it exists, with this password; none where we know none."""
    if account.password is None:
        return []
    who = f"{at(account)} IDENTIFIED BY {text(account.password)}"
    return [f"CREATE USER IF NOT EXISTS {who}", f"ALTER USER {who}"]


def at(account: Account) -> str:
    """As it stands in a GRANT."""
    return f"{text(account.user)}@{text(account.host)}"


def text(value: str) -> str:
    """A text literal. Invalid for one that no statement can carry."""
    if not _can_be_sent(value):
        raise Invalid("a name or password of a database account holds a control character or a question mark")
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name of a database, table or column. Invalid."""
    if not name or not _can_be_sent(name):
        raise Invalid(f"not a name for a database: {name!r}")
    return "`" + name.replace("`", "``") + "`"


def everything_in(database: str) -> str:
    """All of a database, as it stands in a GRANT, where ``_`` and ``%`` would name other databases too. Invalid."""
    return quoted(database.replace("_", "\\_").replace("%", "\\%")) + ".*"


def _can_be_sent(name: str) -> bool:
    # ? stands for a parameter in every statement of ours
    return "?" not in name and not any(ord(letter) < 32 for letter in name)
