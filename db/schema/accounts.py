"""Accounts of a MySQL server, with safe quoting of names and texts in their SQL."""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid


class Account(NamedTuple):
    """A MySQL account; ``password`` is None if the account exists already or authenticates by other means."""

    user: str
    host: str = "%"
    password: str | None = None
    connections: int | None = None  # the most simultaneous connections


#: Seconds that a statement of a viewer's account may take; viewers give up earlier.
STATEMENT_S = 5


def limited(account: Account) -> list[str]:
    """Statements that limit what all users of this account together may use of the server.

    MySQL cannot limit the time of a statement; it reads the part for MariaDB as a comment.
    """
    if account.connections is None:
        return []
    bounds = f"MAX_USER_CONNECTIONS {int(account.connections)} /*M! MAX_STATEMENT_TIME {STATEMENT_S} */"
    return [f"ALTER USER {at(account)} WITH {bounds}"]


def made(account: Account) -> list[str]:
    """Statements that create the account with its password; none if no password is known."""
    if account.password is None:
        return []
    who = f"{at(account)} IDENTIFIED BY {text(account.password)}"
    return [f"CREATE USER IF NOT EXISTS {who}", f"ALTER USER {who}"]


def at(account: Account) -> str:
    """The account as written in a GRANT."""
    return f"{text(account.user)}@{text(account.host)}"


def text(value: str) -> str:
    """A quoted text literal. Raises Invalid for text that no statement can carry."""
    if not _can_be_sent(value):
        raise Invalid("a name or password of a database account contains a control character or a question mark")
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A quoted name of a database, table or column. Raises Invalid."""
    if not name or not _can_be_sent(name):
        raise Invalid(f"not a name for a database: {name!r}")
    return "`" + name.replace("`", "``") + "`"


def everything_in(database: str) -> str:
    """A database in a GRANT, with ``_`` and ``%`` escaped because they would match other databases. Raises Invalid."""
    return quoted(database.replace("_", "\\_").replace("%", "\\%")) + ".*"


def _can_be_sent(name: str) -> bool:
    # A ? marks a parameter in all of our statements.
    return "?" not in name and not any(ord(letter) < 32 for letter in name)
