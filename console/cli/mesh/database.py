"""``mesh db``: the system database's schema, accounts and rights."""

import argparse
import os
import secrets
import sys

from agents.link.sockets import own_directory
from console.deploy.personal import lifecycle
from console.deploy.personal.lifecycle import write_private
from console.deploy.personal.plan import cpa_url
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.schema import login_views
from db.schema.accounts import Account, at
from db.schema.grants import check_may_grant, crowding, grants, printed, run_grants
from db.schema.migrate import create_database, migrate
from db.store.url import WHOLE, in_database, mysql_options, sqlite_path, without_password
from redmesh.text import counted

_OF_A_USER = 10  # the most connections of a single user's account


def init(settings: Settings, options: argparse.Namespace) -> int:
    """Create or migrate the schema; on MySQL print the grants, or run them with --run."""
    url = options.url or cpa_url(settings)
    if sqlite_path(url) is not None:
        if options.view_login or options.view_user:
            raise UsageError(
                "only the owner of an SQLite file can read it",
                "--view-login and --view-user are for MySQL",
            )
        _make_sqlite(settings, url)
        return 0
    if options.view_connections < 1:
        raise UsageError(
            f"--view-connections {options.view_connections}: a viewer needs at least one connection", "give at least 1"
        )
    accounts = _Accounts(settings, options, url)  # checks names and stored URLs before anything is changed
    if options.run:
        _check_files(settings, accounts)
        check_may_grant(url)
    create_database(url)
    _say_steps(url, migrate(url))
    if not options.run:
        print("-- to be run by the database's administrator, or by: mesh db init --run")
        for _, account, _ in accounts.files:
            print(f"-- this account must exist: CREATE USER {at(account)} IDENTIFIED BY '…'")
        print(printed(accounts.statements), end="")
        return 0
    run_grants(url, accounts.statements)
    for path, account, its_url in accounts.files:
        write_private(path, f"{its_url}\n")
        print(f"{account.user}@{account.host}: {path}")
    print("put them into the configuration: cpa_database_file = that of the CPA, database = the line in the other")
    for login in options.view_login:
        print(f"on {login}: database = the line in {accounts.path(f'view-{login_views.label(login)}')}")
    for user in options.view_user:
        print(f"for {user}: database = the line in {accounts.path(f'user-{login_views.label(user)}')}")
    crowded = crowding(url)
    if crowded:
        print(f"mesh db init: {crowded}", file=sys.stderr)
    return 0


def _make_sqlite(settings: Settings, url: str) -> None:
    """Create or migrate an SQLite database. Raises ConsoleError if the mesh is up and its database file is missing."""
    if url != cpa_url(settings) or not os.path.isdir(settings.state_dir):
        _say_steps(url, migrate(url))
        return
    with lifecycle.locked(settings):
        up = lifecycle.is_up(settings)
        if up and not os.path.exists(sqlite_path(url) or ""):
            raise ConsoleError(
                f"{sqlite_path(url)} is missing, and a mesh that uses it is up: no new database was created",
                "put the file back, or mesh down --force",
            )
        _say_steps(url, migrate(url, make_file=not up))


def _check_files(settings: Settings, accounts: "_Accounts") -> None:
    """Raise ConsoleError unless the accounts' URLs can be written, because their passwords are changed first."""
    try:
        own_directory(settings.state_dir)
        for path, _, _ in accounts.files:
            write_private(f"{path}.try", "")
            os.unlink(f"{path}.try")
    except OSError as error:
        told = f"{error.filename or settings.state_dir}: {error.strerror}: nothing was changed"
        raise ConsoleError(told, "XDG_STATE_HOME names another place for the files with the accounts' URLs") from None


class _Accounts:
    """The accounts: CPAs, viewers of the whole machine, and viewers of single login processors."""

    def __init__(self, settings: Settings, options: argparse.Namespace, url: str) -> None:
        self._directory, self._url, self._new = settings.state_dir, url, options.run
        name = str(mysql_options(url)["database"])
        cpa = self._with_password("cpa", _account(options.cpa_account), url)
        whole = _account(options.view_account)
        views, shared = in_database(url, login_views.whole_name(name)), options.view_connections
        viewer = self._with_password("view", whole, views)._replace(connections=shared)
        self.files = [self._file("cpa", cpa, url), self._file("view", viewer, views)]
        self.statements = grants(name, cpa, viewer)
        for login in dict.fromkeys(options.view_login):
            role, place = f"view-{login_views.label(login)}", in_database(url, login_views.schema_name(name, login))
            account = self._with_password(role, login_views.viewer_of(login, whole), place)
            account = account._replace(connections=shared)
            self.files.append(self._file(role, account, place))
            self.statements += login_views.statements(name, login, cpa, account)
        for user in dict.fromkeys(options.view_user):
            role = f"user-{login_views.label(user)}"
            account = self._with_password(role, login_views.account_of(user, whole), views)
            account = account._replace(connections=min(_OF_A_USER, shared))
            self.files.append(self._file(role, account, views))
            self.statements += login_views.for_viewer(name, account)

    def path(self, role: str) -> str:
        """The file with the URL of an account."""
        return f"{self._directory}/{role}.url"

    def _file(self, role: str, account: Account, url: str) -> tuple[str, Account, str]:
        return self.path(role), account, _url_for(url, account)

    def _with_password(self, role: str, account: Account, url: str) -> Account:
        """Return the account with its stored password, so that its URL stays valid, or with a new password."""
        if not self._new:
            return account
        password = ""
        if os.path.exists(self.path(role)):
            with open(self.path(role), encoding="utf-8") as file:
                before = mysql_options(file.read().strip())
            place = str(mysql_options(url)["database"])  # accounts of older versions read the tables, not the views
            if before.get("user") == account.user and before["database"] in (place, place.removesuffix(WHOLE)):
                password = str(before.get("password", ""))
        return account._replace(password=password or secrets.token_urlsafe(18))


def bring_up_to_date(settings: Settings, options: argparse.Namespace) -> int:
    """Migrate an existing schema."""
    url = options.url or cpa_url(settings)
    _say_steps(url, migrate(url, make_file=False))
    return 0


def release(settings: Settings, options: argparse.Namespace) -> int:
    """Record in the database that a mesh has ended, for when its state directory is lost and ``mesh down`` cannot run.

    Without ``--force``, only if nothing has used the database for some seconds.
    """
    from console.deploy.personal import schema

    if options.mesh == settings.mesh and lifecycle.is_up(settings):
        raise ConsoleError(f"mesh {options.mesh} is up here: nothing was changed", "mesh down")
    launchers = schema.release(cpa_url(settings), options.mesh, force=options.force)
    ended = f"{counted(launchers, 'launcher')} ended in the database; processes were not touched"
    print(f"mesh {options.mesh} is taken for gone: {ended}")
    return 0


def _say_steps(url: str, steps: list[str]) -> None:
    for step in steps:
        print(f"-- {without_password(url)}: {step}")
    if not steps:
        print(f"-- {without_password(url)}: the schema is up to date")


def _account(text: str) -> Account:
    user, _, host = text.partition("@")
    if not user:
        raise UsageError(f"{text!r} is not an account", "USER or USER@HOST")
    return Account(user, host or "%")


def _url_for(url: str, account: Account) -> str:
    from urllib.parse import quote

    head, _, tail = url.partition("://")
    place = tail.rpartition("@")[2]
    return f"{head}://{quote(account.user)}:{quote(account.password or '')}@{place}"
