"""``mesh db``: the system database's schema, and who may read what in it."""

import argparse
import secrets

from agents.link.sockets import own_directory
from console.deploy.personal import write_private
from console.deploy.plan import cpa_url
from console.errors import UsageError
from console.settings import Settings
from db.schema import Account, create_database, grants, migrate, printed, run_grants
from db.url import mysql_options, sqlite_path, without_password


def init(settings: Settings, options: argparse.Namespace) -> int:
    """Make or migrate the schema; on MySQL print the grants, or with --run carry them out."""
    url = options.url or cpa_url(settings)
    if sqlite_path(url) is not None:
        _say_steps(url, migrate(url))
        return 0
    create_database(url)
    _say_steps(url, migrate(url))
    name = str(mysql_options(url)["database"])
    cpa, viewer = _account(options.cpa_account, options.run), _account(options.view_account, options.run)
    statements = grants(name, cpa, viewer)
    if not options.run:
        print("-- to be run by the database's administrator, or by: mesh db init --run")
        print("-- the accounts must exist: CREATE USER 'redmesh_cpa'@'%' IDENTIFIED BY '…'")
        print(printed(statements), end="")
        return 0
    run_grants(url, statements)
    own_directory(settings.state_dir)
    for role, account in (("cpa", cpa), ("view", viewer)):
        path = f"{settings.state_dir}/{role}.url"
        write_private(path, f"{_url_for(url, account)}\n")
        print(f"{account.user}@{account.host}: {path}")
    print("put them into the configuration: cpa_database_file = that of the CPA, database = the line in the other")
    return 0


def bring_up_to_date(settings: Settings, options: argparse.Namespace) -> int:
    """Migrate the schema, making none where none is."""
    url = options.url or cpa_url(settings)
    _say_steps(url, migrate(url))
    return 0


def _say_steps(url: str, steps: list[str]) -> None:
    for step in steps:
        print(f"-- {without_password(url)}: {step}")
    if not steps:
        print(f"-- {without_password(url)}: the schema is up to date")


def _account(text: str, new: bool) -> Account:
    user, _, host = text.partition("@")
    if not user:
        raise UsageError(f"{text!r} is no account", "USER or USER@HOST")
    return Account(user, host or "%", secrets.token_urlsafe(18) if new else None)


def _url_for(url: str, account: Account) -> str:
    from urllib.parse import quote

    head, _, tail = url.partition("://")
    place = tail.rpartition("@")[2]
    return f"{head}://{quote(account.user)}:{quote(account.password or '')}@{place}"
