"""The accounts of CPAs and viewers in the system database and their rights: created and checked."""

from __future__ import annotations

from collections.abc import Sequence

from db.errors import StoreError
from db.schema import login_views
from db.schema.accounts import Account, at, everything_in, made
from db.store import drivers, raw_sql
from db.store.orm import pw
from db.store.statements import Query, mysql_statement
from db.store.store import open_store
from db.store.url import in_database, mysql_options, without_password

FOR_WRITERS = 20  # connections that must stay free for CPAs and administrators

#: The server's own tables: accounts with their limits, and their rights.
_USERS = pw.Table("user", schema="mysql")
_RIGHTS = pw.Table("db", schema="mysql")


@mysql_statement
def _viewer_limits(*, prefix: str, escape: str) -> Query:
    """The connection limit of each account that may call procedures of databases with this prefix.

    ``escape``: the escape character for ``_`` and ``%`` in a database name of that table.
    """
    user, right = _USERS.c, _RIGHTS.c
    ours = pw.fn.SUBSTR(pw.fn.REPLACE(right.Db, escape, ""), 1, pw.fn.CHAR_LENGTH(prefix)) == prefix
    calls = (right.Execute_priv == "Y") & (right.Select_priv == "N")
    callable_ = _RIGHTS.select(pw.Value(1)).where(right.User == user.User, right.Host == user.Host, ours, calls)
    return _USERS.select(user.max_user_connections).where(pw.fn.EXISTS(callable_))


@mysql_statement
def _most() -> Query:
    return pw.Select(columns=[pw.SQL("@@max_connections")])


def check_may_grant(admin_url: str) -> None:
    """Raise StoreError unless the account of ``admin_url`` may create accounts and grant. Changes nothing."""
    store = open_store(in_database(admin_url, "information_schema"), any_schema=True)
    try:
        store.connect()
        told = " ".join(str(row[0]) for row in store.execute(raw_sql.OWN_RIGHTS).fetchall())
    except pw.PeeweeException as error:
        raise StoreError(f"the rights of the account cannot be read: {drivers.reason(error)}") from error
    finally:
        store.close()
    may_make = "CREATE USER" in told or "ALL PRIVILEGES ON *.*" in told
    if not (may_make and "GRANT OPTION" in told):
        raise StoreError(
            f"the account of {without_password(admin_url)} may not make accounts and grant them rights:"
            " nothing was changed",
            "it needs CREATE USER and GRANT OPTION; without --run the statements are printed for the administrator",
        )


def grants(database: str, cpa: Account, viewer: Account) -> list[str]:
    """Statements that create the CPA's account, and a viewer's account, whose procedures omit the cookies."""
    may = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {everything_in(database)} TO {at(cpa)}"
    return [*made(cpa), may, *login_views.whole(database, cpa), *login_views.for_viewer(database, viewer)]


def crowding(admin_url: str) -> str:
    """The remedy if the number of viewers' connections could lock CPAs out; empty if it cannot, or if it is unknown.

    Counts the connection limits of all accounts that may call procedures of this database.
    """
    name = str(mysql_options(admin_url)["database"])
    with open_store(admin_url, any_schema=True) as store:
        try:
            store.connect()
            questions = [_viewer_limits.bind(prefix=f"{name}_", escape="\\"), _most.bind()]
            limits, most = store.together([one for question in questions for one in store.sent(question)])
        except pw.PeeweeException:
            return ""
    each, server = [int(row[0]) for row in limits], int(most[0][0])
    if 0 not in each and sum(each) + FOR_WRITERS <= server:
        return ""
    those = "without a limit" if 0 in each else str(sum(each))
    return (
        f"the accounts of viewers may have {those} connections together, and the server takes {server}"
        f" (max_connections) of which CPAs need {FOR_WRITERS}; raise max_connections, give --view-connections, or let"
        " CPAs use extra_port"
    )


def printed(statements: Sequence[str]) -> str:
    """The statements as a file for the mysql client; the administrator fills in the passwords."""
    shown = [_without_secret(statement) for statement in statements]
    # A procedure contains semicolons of its own.
    return "".join(
        f"DELIMITER //\n{statement} //\nDELIMITER ;\n" if ";" in statement else f"{statement};\n" for statement in shown
    )


def run_grants(admin_url: str, statements: Sequence[str]) -> None:
    """Run the statements with an account that may GRANT. Raises StoreError, which names a refused statement."""
    store = open_store(admin_url, any_schema=True)
    statement = ""
    try:
        store.connect()
        for statement in statements:
            store.execute(statement)
    except pw.PeeweeException as error:
        raise StoreError(
            f"refused: {_without_secret(statement)}: {drivers.reason(error)}",
            f"the account of {without_password(admin_url)} needs CREATE USER and GRANT OPTION",
        ) from error
    finally:
        store.close()


def _without_secret(statement: str) -> str:
    head, marker, _ = statement.partition(" IDENTIFIED BY ")
    return f"{head} IDENTIFIED BY '********'" if marker else statement
